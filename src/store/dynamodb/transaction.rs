//! Writes a record together with its companions, in one `TransactWriteItems`.

use aws_sdk_dynamodb::{
    operation::transact_write_items::TransactWriteItemsError,
    types::{AttributeValue, CancellationReason, Delete, Put, TransactWriteItem},
};

use super::{
    DynamoDbStore, Result, StoreError, audit, body_item, canonical_order::canonical_order, conditions,
    conditions::Attributes, domain, error::kind, outbox, refused,
};
use crate::{
    record::{Record, Revision},
    store::{
        Companion, StoreErrorKind, WriteOutcome,
        item::{PK, SK},
    },
};

const FAILED: &str = "ConditionalCheckFailed";

impl DynamoDbStore {
    /// Writes `record` over the one with the revision `seen`, or over none, together with its companions, or nothing. Needs
    /// `dynamodb:PutItem` and, to delete a body, `dynamodb:DeleteItem`.
    pub(super) async fn transact(
        &self,
        seen: Option<Revision>,
        record: &Record,
        with: &[Companion],
    ) -> Result<WriteOutcome> {
        let put = |seen, item| self.part(seen, item);
        let mut parts = vec![put(seen, super::to_item(record)?)?];
        for companion in with {
            parts.push(match companion {
                Companion::Audit(line) => {
                    put(None, audit::to_item(&record.key.partition_key(), record.revision, line)?)?
                }
                Companion::Domain(write) => domain::action(write)?,
                Companion::KeepBody(id, body, at) => {
                    put(None, body_item::of_request(&record.key, *id, body, *at))?
                }
                Companion::KeepReport(id, body, at) => {
                    let report = body_item::of_request(&record.key, *id, body, *at);
                    let put = Put::builder().table_name(&*self.table).set_item(Some(report)).build();
                    TransactWriteItem::builder().put(put.map_err(StoreError::refused)?).build()
                }
                Companion::Message(message) => put(None, outbox::to_item(&record.key, message)?)?,
                Companion::DeleteBody(id) => {
                    let delete = Delete::builder()
                        .table_name(&*self.table)
                        .key(PK, AttributeValue::S(record.key.partition_key()))
                        .key(SK, AttributeValue::S(body_item::sort_key(*id)))
                        .build();
                    TransactWriteItem::builder().delete(delete.map_err(StoreError::refused)?).build()
                }
            });
        }
        match self.write_all(record.revision, parts).await {
            Ok(Ok(())) => Ok(WriteOutcome::Written),
            Ok(Err(reasons)) => cancelled_by(&reasons, with),
            Err(error) => Err(self.naming_tables(error, with)),
        }
    }

    /// DynamoDB does not say which table of a transaction is missing.
    fn naming_tables(&self, error: StoreError, with: &[Companion]) -> StoreError {
        if error.kind() != StoreErrorKind::Refused {
            return error;
        }
        let mut tables = vec![&*self.table];
        for companion in with {
            match companion {
                Companion::Domain(write) if !tables.contains(&&*write.table) => tables.push(&write.table),
                _ => {}
            }
        }
        StoreError::refused(format!("{} (tables of the transaction: {})", error.cause(), tables.join(", ")))
    }

    /// Writes an item over the one with the revision that was seen, or over none, and a new audit line beside it, or nothing. Returns whether
    /// the item was written, also by an earlier try.
    pub(super) async fn put_both(
        &self,
        revision: Revision,
        (seen, item): (Option<Revision>, Attributes),
        line: Attributes,
    ) -> Result<bool> {
        let Err(reasons) =
            self.write_all(revision, vec![self.part(seen, item)?, self.part(None, line)?]).await?
        else {
            return Ok(true);
        };
        match &reasons[..] {
            // Only this writer writes its line.
            [_, line] if failed(line) => Ok(true),
            [item, _] if failed(item) => Ok(false),
            _ => Err(cancelled(&reasons)),
        }
    }

    fn part(&self, seen: Option<Revision>, item: Attributes) -> Result<TransactWriteItem> {
        let put = conditions::put_in_transaction(&self.table, seen, item)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// Writes all parts, or none: then the inner error has the reason of each.
    async fn write_all(
        &self,
        revision: Revision,
        parts: Vec<TransactWriteItem>,
    ) -> Result<Result<(), Vec<CancellationReason>>> {
        let transaction = self
            .writes
            .transact_write_items()
            // The same on each try, so that a try whose answer was lost is not applied again.
            .client_request_token(revision.to_string())
            .set_transact_items(Some(parts));
        match transaction.customize().mutate_request(canonical_order).send().await {
            Ok(_) => Ok(Ok(())),
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    Ok(Err(cancelled.cancellation_reasons().to_vec()))
                }
                _ => Err(error.into()),
            },
        }
    }
}

/// Whether the condition of this part did not hold.
fn failed(reason: &CancellationReason) -> bool {
    reason.code() == Some(FAILED)
}

/// The outcome of a cancelled transaction, by the reasons for its parts: first the record, then its companions. The code of a
/// part is `None` if it would have been applied, or was not checked.
fn cancelled_by(reasons: &[CancellationReason], with: &[Companion]) -> Result<WriteOutcome> {
    let failures = || reasons.iter().skip(1).zip(with).enumerate().filter(|(_, (reason, _))| failed(reason));
    // Only this writer writes its audit line, and its request. So an earlier try was applied and its answer was lost, even if others have changed
    // the record since.
    if failures()
        .any(|(_, (_, companion))| matches!(companion, Companion::Audit(_) | Companion::KeepBody(..)))
    {
        return Ok(WriteOutcome::Written);
    }
    if let Some(reason) = reasons.first().filter(|reason| failed(reason)) {
        return refused(reason.item().cloned());
    }
    let denied: Vec<_> = failures().map(|(place, _)| place).collect();
    if !denied.is_empty() {
        return Ok(WriteOutcome::Denied(denied));
    }
    Err(cancelled(reasons))
}

/// The error of a transaction that no condition has cancelled.
fn cancelled(reasons: &[CancellationReason]) -> StoreError {
    // Of several reasons, the one that a retry helps least counts.
    let is_among = |wanted: &StoreErrorKind| reasons.iter().any(|reason| kind(reason.code()) == *wanted);
    let kinds = [StoreErrorKind::Refused, StoreErrorKind::Throttled, StoreErrorKind::Contended];
    let kind = kinds.into_iter().find(is_among).unwrap_or(StoreErrorKind::Unavailable);
    let causes = reasons.iter().filter_map(|reason| {
        let code = reason.code().filter(|code| *code != "None")?;
        Some(reason.message().map_or_else(|| code.to_owned(), |message| format!("{code}: {message}")))
    });
    let causes = causes.collect::<Vec<_>>().join("; ");
    StoreError::new(kind, format!("the transaction was cancelled ({causes})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        domain::Table,
        record::{
            Revision,
            tests::{Mint, reservation},
        },
        store::AuditLine,
        time::Timestamp,
    };

    fn reasons(codes: &[&str], current: Option<&Record>) -> Vec<CancellationReason> {
        let item = current.map(|record| super::super::to_item(record).unwrap());
        let mut items = vec![item];
        items.resize(codes.len(), None);
        let reason =
            |(code, item): (&&str, _)| CancellationReason::builder().code(*code).set_item(item).build();
        codes.iter().zip(items).map(reason).collect()
    }

    fn line(record: &Record) -> Companion {
        Companion::Audit(AuditLine::new(
            ["who", "what", "why"],
            Timestamp::from_secs(1_000),
            Some(record),
            None,
        ))
    }

    fn write() -> Companion {
        Companion::Domain(Table::new("accounts", "id").put(json!({ "id": "a" })).if_absent())
    }

    // T2, T10
    #[test]
    fn a_cancelled_transaction_that_finds_its_own_line_was_applied() {
        let record = Record::reserve(&reservation("k"), Revision::mint(), Timestamp::from_secs(1_000));
        let with = [line(&record), write()];
        let found = reasons(&[FAILED, "None", "None"], Some(&record));
        assert_eq!(
            cancelled_by(&found, &with).unwrap(),
            WriteOutcome::Refused(Some(Box::new(record.clone())))
        );
        // Another writer has changed the record since.
        let found = reasons(&[FAILED, FAILED, "None"], Some(&record));
        assert_eq!(cancelled_by(&found, &with).unwrap(), WriteOutcome::Written);
    }

    // T10: a denied domain write proves nothing about the record, and the record's reason comes first.
    #[test]
    fn a_denied_domain_write_is_reported_unless_the_record_is_refused() {
        let record = Record::reserve(&reservation("k"), Revision::mint(), Timestamp::from_secs(1_000));
        let with = [write(), write(), write()];
        for other in ["None", "TransactionConflict", "ThrottlingError"] {
            let found = reasons(&[other, "None", FAILED, FAILED], None);
            assert_eq!(cancelled_by(&found, &with).unwrap(), WriteOutcome::Denied(vec![1, 2]), "{other}");
        }
        let found = reasons(&[FAILED, "None", FAILED, "None"], Some(&record));
        assert_eq!(cancelled_by(&found, &with).unwrap(), WriteOutcome::Refused(Some(Box::new(record))));
    }

    // T10
    #[test]
    fn every_reason_of_a_cancelled_transaction_is_read() {
        let kind = |codes: &[&str]| cancelled_by(&reasons(codes, None), &[write()]).unwrap_err().kind();
        assert_eq!(kind(&["TransactionConflict", "None"]), StoreErrorKind::Contended);
        assert_eq!(kind(&["None", "TransactionConflict"]), StoreErrorKind::Contended);
        assert_eq!(kind(&["None", "ThrottlingError"]), StoreErrorKind::Throttled);
        // No retry helps, whatever the other reasons are.
        assert_eq!(kind(&["TransactionConflict", "ValidationError"]), StoreErrorKind::Refused);
        assert_eq!(kind(&["None", "None"]), StoreErrorKind::Unavailable);
        let gone = reasons(&["ConditionalCheckFailed", "None"], None);
        assert_eq!(cancelled_by(&gone, &[write()]).unwrap(), WriteOutcome::Refused(None));
    }
}
