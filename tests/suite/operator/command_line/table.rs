//! A table with records as operators find them.

use std::{collections::BTreeMap, time::Duration};

use aws_sdk_dynamodb::Client;
use lambda_idempotency::{
    engine::{Executor, Ownership, Request},
    key::RecordKey,
    record::{Answer, AnswerKind, Note, Record, Reference, SettledBy, State, UnknownCause},
    store::{Store, WriteOutcome, conformance::samples, dynamodb::DynamoDbStore},
    time::Timestamp,
    world::{SystemWorld, World},
};
use serde_json::json;

use crate::support::{
    client::client,
    command::CommandLine,
    guarded::{
        BODY, Item, OPERATION, RETENTION, completed, fingerprints, operation, outcome_of, owned, record_key,
        told,
    },
    tables::{domain_table, idempotency_table},
};

pub const TENANT: &str = "shop-a";

/// The kept result of a charge.
pub const CHARGE: &str = r#"{"id":"ch_1","card":"4242"}"#;

/// The body of a late worker's answer.
pub const SECRET: &str = r#"{"id":"ch_late"}"#;

const MINUTE: Duration = Duration::from_secs(60);

pub struct OperatorsTable {
    pub cli: CommandLine,
    pub store: DynamoDbStore,
    client: Client,
    table: String,
}

impl OperatorsTable {
    pub async fn new(endpoint: &str) -> Self {
        let client = client(endpoint);
        let table = idempotency_table(&client).await;
        let store = DynamoDbStore::from_client(client.clone(), table.as_str());
        Self { cli: CommandLine::new(endpoint, &table), store, client, table }
    }

    /// A record's name as one argument.
    pub fn name(&self, key: &str) -> String {
        format!("{TENANT}#{OPERATION}#{key}")
    }

    /// A record whose worker is still running.
    pub async fn in_progress(&self, key: &str) -> Record {
        self.insert(reserved(key, now().plus(10 * MINUTE))).await
    }

    /// A record whose worker is dead, but whose lease was not expired yet.
    pub async fn dead(&self, key: &str) -> Record {
        self.insert(reserved(key, now().minus(MINUTE))).await
    }

    /// A record whose worker's lease expired `ago`.
    pub async fn dead_since(&self, key: &str, ago: Duration) -> Record {
        self.insert(reserved(key, now().minus(ago))).await
    }

    /// A record whose worker's lease was expired.
    pub async fn unknown(&self, key: &str) -> Record {
        let reserved = reserved(key, now().minus(MINUTE));
        self.insert(samples::unknown(&reserved, UnknownCause::LeaseExpired, now())).await
    }

    /// An outcome that has been unknown since `ago`. It has been escalated if `escalated`.
    pub async fn unknown_since(&self, key: RecordKey, ago: Duration, escalated: bool) -> Record {
        let since = now().minus(ago);
        let began = samples::in_progress(key, fingerprints(BODY), since.minus(MINUTE), since);
        let mut record = samples::unknown(&began, UnknownCause::LeaseExpired, since);
        let State::Unknown { reconcile_at, .. } = &mut record.state else { panic!("{record:?}") };
        *reconcile_at = if escalated { Timestamp::MAX } else { now() };
        self.insert(record).await
    }

    /// A record that was released `ago`.
    pub async fn released(&self, key: RecordKey, who: SettledBy, ago: Duration) -> Record {
        let at = now().minus(ago);
        let began = samples::in_progress(key, fingerprints(BODY), at.minus(MINUTE), at.plus(MINUTE));
        let mut record = samples::released(&began, at, RETENTION);
        let State::FailedRetryable { by, .. } = &mut record.state else { panic!("{record:?}") };
        *by = who;
        self.insert(record).await
    }

    /// Accepted work that waits for a worker, since an execution that began `ago` did nothing.
    pub async fn returned(&self, key: RecordKey, ago: Duration) -> Record {
        let mut record = samples::pending(key, fingerprints(BODY), now().minus(ago));
        record.state = State::Pending { released_by: Some(SettledBy::Worker) };
        self.insert(record).await
    }

    /// An operation that was interrupted behind its phase `charge`, in a call that was perhaps made. It has been escalated if
    /// `escalated`.
    pub async fn between_workers(&self, key: RecordKey, ago: Duration, escalated: bool) -> Record {
        let since = now().minus(ago);
        let began = samples::in_progress(key, fingerprints(BODY), since.minus(MINUTE), since);
        let mut record = samples::between_workers(&began, &[("charge", CHARGE)], since);
        record.last_failure = Some(Note::new("interrupted, status 503"));
        let phases = record.effects.phases_mut().expect("phases");
        phases.begun = Some(since.minus(MINUTE));
        phases.kept[0].references.extend(Reference::new("stripe", "ref_7"));
        let State::BetweenWorkers { reconcile_at, .. } = &mut record.state else { panic!("{record:?}") };
        *reconcile_at = if escalated { Timestamp::MAX } else { now().plus(MINUTE) };
        self.insert(record).await
    }

    /// A worker of an operation that resumes.
    pub async fn resume(&self, key: &str) -> Ownership {
        let resumes = operation().resumes(["charge", "ship"], samples::RESUME_WITHIN);
        owned(Executor::new(self.store.clone(), resumes).reserve(&request(key)).await)
    }

    /// Writes this record over the one that there is.
    pub async fn replace(&self, mut record: Record) {
        let seen = self.store.load(&record.key).await.expect("the store answers").expect("a record").revision;
        record.revision = SystemWorld.nonce().into();
        assert_eq!(
            self.store.put(Some(seen), &record, &[]).await.expect("the store answers"),
            WriteOutcome::Written
        );
    }

    /// Writes an item unchanged, bypassing the library.
    pub async fn write_raw(&self, item: Item) {
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        put.send().await.expect("the table takes the item");
    }

    pub async fn completed(&self, key: &str, body: &'static str) -> Record {
        let reserved = reserved(key, now().plus(MINUTE));
        let answer = Answer::http(201, Vec::new(), body);
        self.insert(samples::completed(&reserved, answer, now(), RETENTION)).await
    }

    /// A record that an operator completed with 402, whose worker reports 201 and a row later: the report lies beside it.
    pub async fn alarmed(&self, key: &str) -> Record {
        let executor = Executor::new(self.store.clone(), operation());
        let late = owned(executor.reserve(&request(key)).await);
        let row = domain_table(&self.client).await.put(json!({ "id": key }));
        late.execution().write(row).expect("it has a place");
        let refused = Answer::json(402, r#"{"declined":true}"#);
        let settled = samples::completed(&self.record(key).await, refused, now(), RETENTION);
        self.replace(settled).await;
        assert_eq!(told(&executor.finish(late, completed(SECRET)).await), "replay");
        let alarmed = self.record(key).await;
        assert!(alarmed.alarms[0].report.is_some(), "{alarmed:?}");
        alarmed
    }

    async fn insert(&self, record: Record) -> Record {
        assert_eq!(
            self.store.put(None, &record, &[]).await.expect("the store answers"),
            WriteOutcome::Written
        );
        record
    }

    pub async fn record(&self, key: &str) -> Record {
        let loaded = self.store.load(&own(key)).await.expect("the store answers");
        loaded.expect("a record")
    }

    /// What a client's retry gets.
    pub async fn retry(&self, key: &str) -> &'static str {
        outcome_of(&Executor::new(self.store.clone(), operation()).reserve(&request(key)).await)
    }

    /// All items of the table, by sort and partition key.
    pub async fn items(&self) -> BTreeMap<(String, String), Item> {
        let scan = self.client.scan().table_name(&self.table).consistent_read(true);
        let items = scan.send().await.expect("the table answers").items.unwrap_or_default();
        let text = |item: &Item, name| item[name].as_s().expect("keys are text").clone();
        items.into_iter().map(|item| ((text(&item, "sk"), text(&item, "pk")), item)).collect()
    }

    pub async fn sort_keys(&self) -> Vec<String> {
        self.items().await.into_keys().map(|(sk, _)| sk).collect()
    }
}

fn request(key: &str) -> Request {
    Request {
        key: own(key),
        fingerprints: fingerprints(BODY),
        answer_kind: AnswerKind::Http,
        admission: lambda_idempotency::record::Admission::ALWAYS,
        work: lambda_idempotency::record::Work::Now,
        deadline: None,
        origin: None,
    }
}

pub fn own(key: &str) -> RecordKey {
    record_key(TENANT, key)
}

pub fn now() -> Timestamp {
    SystemWorld.now()
}

fn reserved(key: &str, lease_until: Timestamp) -> Record {
    samples::in_progress(own(key), fingerprints(BODY), now().minus(2 * MINUTE), lease_until)
}
