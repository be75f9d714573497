//! Checks that domain writes commit with their record, or not at all.

use std::slice::from_ref;

use serde_json::json;

use super::{load, put, refused, released, reserved, samples::fresh, unique};
use crate::{
    domain::{DomainWrite, Table},
    record::{Record, Revision},
    store::{Companion, Store, WriteOutcome},
};

/// Runs every check of domain writes, one after the other. The store must be able to write to `table`, which has a string as
/// its partition key, and no sort key.
pub async fn domain_writes(store: &dyn Store, table: &Table) {
    let account = Account { store, table, id: unique() };
    account.writes_commit_with_their_record().await;
    account.a_failed_condition_writes_nothing_and_names_its_companion().await;
    account.a_refused_record_comes_first().await;
    account.a_transaction_sent_twice_is_applied_once().await;
    account.every_action_does_what_it_says().await;
    account.a_name_that_needs_a_placeholder_is_refused().await;
}

struct Account<'a> {
    store: &'a dyn Store,
    table: &'a Table,
    id: String,
}

impl Account<'_> {
    fn key(&self) -> serde_json::Value {
        let [name] = self.table.key_names().collect::<Vec<_>>()[..] else {
            panic!("a table with a sort key")
        };
        json!({ name: self.id })
    }

    fn put(&self, cents: u64) -> DomainWrite {
        let mut item = self.key();
        item["cents"] = json!(cents);
        self.table.put(item)
    }

    fn add(&self, cents: u64) -> DomainWrite {
        self.table.update(self.key(), "SET cents = cents + :cents").value(":cents", cents)
    }

    fn has(&self, cents: u64) -> DomainWrite {
        self.table.check(self.key()).condition("cents = :has").value(":has", cents)
    }

    async fn write(&self, seen: Option<Revision>, record: &Record, writes: &[DomainWrite]) -> WriteOutcome {
        let with: Vec<_> = writes.iter().cloned().map(Companion::Domain).collect();
        self.store.put(seen, record, &with).await.expect("an answer to a write")
    }

    /// Fails unless the account has this much.
    async fn assert_has(&self, cents: u64) {
        let outcome = self.write(None, &reserved("check"), &[self.has(cents)]).await;
        assert_eq!(outcome, WriteOutcome::Written, "the account does not have {cents}");
    }

    async fn writes_commit_with_their_record(&self) {
        let (first, other) = (reserved("key"), Account { id: unique(), ..*self });
        let written = self.write(None, &first, &[self.put(100).if_absent(), other.put(1)]).await;
        assert_eq!(written, WriteOutcome::Written);
        assert_eq!(load(self.store, &first.key).await, Some(first.clone()));
        self.assert_has(100).await;
        other.assert_has(1).await;
        let next = released(&first);
        assert_eq!(self.write(Some(first.revision), &next, &[self.add(11)]).await, WriteOutcome::Written);
        assert_eq!(load(self.store, &first.key).await, Some(next));
        self.assert_has(111).await;
    }

    async fn a_failed_condition_writes_nothing_and_names_its_companion(&self) {
        let (record, other) = (reserved("key"), Account { id: unique(), ..*self });
        let denied = self.write(None, &record, &[other.put(1), self.put(0).if_absent()]).await;
        assert_eq!(denied, WriteOutcome::Denied(vec![1]));
        assert_eq!(load(self.store, &record.key).await, None);
        self.assert_has(111).await;
        let other_is_absent = other.put(2).if_absent();
        assert_eq!(self.write(None, &record, &[other_is_absent]).await, WriteOutcome::Written);
        let denied = self.write(Some(record.revision), &released(&record), &[self.has(110)]).await;
        assert_eq!(denied, WriteOutcome::Denied(vec![0]));
        assert_eq!(load(self.store, &record.key).await, Some(record));
    }

    async fn a_refused_record_comes_first(&self) {
        let record = reserved("key");
        put(self.store, None, &record).await;
        let other = Record { key: record.key.clone(), ..reserved("key") };
        for write in [self.add(1), self.put(0).if_absent()] {
            assert_eq!(self.write(None, &other, from_ref(&write)).await, refused(&record));
            assert_eq!(self.write(Some(fresh()), &released(&record), &[write]).await, refused(&record));
        }
        let absent = reserved("key");
        assert_eq!(self.write(Some(fresh()), &absent, &[self.add(1)]).await, WriteOutcome::Refused(None));
        self.assert_has(111).await;
    }

    /// As if its answer were lost. A store may recognise the transaction, or find its own record.
    async fn a_transaction_sent_twice_is_applied_once(&self) {
        let record = reserved("key");
        assert_eq!(self.write(None, &record, &[self.add(1)]).await, WriteOutcome::Written);
        let again = self.write(None, &record, &[self.add(1)]).await;
        assert!(again == WriteOutcome::Written || again == refused(&record), "{again:?}");
        self.assert_has(112).await;
    }

    async fn every_action_does_what_it_says(&self) {
        let gone = self.table.delete(self.key()).if_present();
        assert_eq!(self.write(None, &reserved("key"), from_ref(&gone)).await, WriteOutcome::Written);
        assert_eq!(self.write(None, &reserved("key"), &[gone]).await, WriteOutcome::Denied(vec![0]));
        let created = self.table.update(self.key(), "ADD cents :cents").value(":cents", 7);
        assert_eq!(self.write(None, &reserved("key"), &[created]).await, WriteOutcome::Written);
        self.assert_has(7).await;
    }

    /// As in DynamoDB: reserved words, and what begins with a digit.
    async fn a_name_that_needs_a_placeholder_is_refused(&self) {
        for name in ["status", "Count", "1st"] {
            let write = self.table.update(self.key(), format!("SET {name} = :cents")).value(":cents", 1);
            let written = self.store.put(None, &reserved("key"), &[Companion::Domain(write)]).await;
            assert!(written.is_err(), "{name} is accepted: {written:?}");
        }
        let named = self.table.update(self.key(), "SET #status = :open");
        let named = named.name("#status", "status").value(":open", "open");
        assert_eq!(self.write(None, &reserved("key"), &[named]).await, WriteOutcome::Written);
    }
}
