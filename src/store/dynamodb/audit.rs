//! Changes made by people, each with its audit line: who, when, what, why, and from what to what.
//!
//! The line is an item beside the record, `audit#<milliseconds>#<revision>`, written in the transaction that swaps the record:
//! there is no change without its line, and no line without its change. Lines carry no time to live; they stay when their
//! record is gone.

use std::time::Duration;

use aws_sdk_dynamodb::{
    operation::transact_write_items::TransactWriteItemsError,
    types::{AttributeValue, CancellationReason, Delete, TransactWriteItem},
};
use serde::{Deserialize, Serialize};

use super::{
    DynamoDbStore, Put, StoreError, StoreErrorKind, beside,
    conditions::{self, Attributes, Condition},
    error::Read,
    item::{self, PK, SCHEMA, SK},
    read,
};
use crate::{
    key::RecordKey,
    record::{BodyId, KeptBody, Place, Record, Revision, State},
    time::Timestamp,
};

/// What the sort keys of audit lines begin with.
const AUDIT: &str = "audit#";

/// How often a transaction is sent that meets another one on the same record, the first time included.
const TRIES: u32 = 7;

/// The pause before the second try; each further one is twice as long, so that all of them take about three seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// What a person says about a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditNote {
    /// Who makes it.
    pub who: String,
    /// When.
    pub at: Timestamp,
    /// What is done, in one stable word.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// One audit line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Who made the change.
    pub who: String,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What was done.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What the record was; `None` where there was none.
    pub before: Option<AuditedState>,
    /// What it became.
    pub after: Option<AuditedState>,
}

/// A record as an audit line names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedState {
    /// The state's name.
    pub state: String,
    /// The revision, in hexadecimal digits.
    pub revision: String,
    /// How many executions there were.
    pub attempts: u32,
}

impl From<&Record> for AuditedState {
    fn from(record: &Record) -> Self {
        Self {
            state: record.state.name().to_owned(),
            revision: record.revision.to_string(),
            attempts: record.attempts,
        }
    }
}

impl DynamoDbStore {
    /// Writes `next` where `seen` still stands, and its audit line, or neither. A body beside the record that `next` does
    /// not name any more is deleted with it.
    ///
    /// A write whose answer was lost is recognised by its revision. Needs `dynamodb:PutItem` and `dynamodb:DeleteItem`.
    pub async fn swap_audited(
        &self,
        seen: &Record,
        next: &Record,
        note: &AuditNote,
    ) -> Result<Put, StoreError> {
        let item = item::to_item(next).map_err(unreadable)?;
        let record = conditions::put_in_transaction(&self.table, Condition::Revision(seen.revision), item)?;
        let line = self.line(&next.key, next.revision, note, Some(seen), Some(next))?;
        let line = conditions::put_in_transaction(&self.table, Condition::Absent, line)?;
        let transaction = self
            .client
            .transact_write_items()
            // The same at each try, so that one which was applied unseen is not applied again.
            .client_request_token(next.revision.to_string())
            .transact_items(TransactWriteItem::builder().put(record).build())
            .transact_items(TransactWriteItem::builder().put(line).build());
        let transaction = match beside(seen).filter(|id| beside(next) != Some(*id)) {
            Some(id) => {
                let delete = self.delete(&next.key, &beside::sort_key(id))?;
                transaction.transact_items(TransactWriteItem::builder().delete(delete).build())
            }
            None => transaction,
        };
        let (mut pause, mut tries) = (FIRST_PAUSE, 1);
        loop {
            let outcome = match transaction.clone().send().await {
                Ok(_) => Ok(Put::Written),
                Err(error) => match error.as_service_error() {
                    Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                        verdict(next.revision, cancelled.cancellation_reasons())
                    }
                    _ => Err(error.into()),
                },
            };
            match outcome {
                Err(error) if error.kind() == StoreErrorKind::Contended && tries < TRIES => {
                    tokio::time::sleep(pause).await;
                    (pause, tries) = (pause * 2, tries + 1);
                }
                outcome => return outcome,
            }
        }
    }

    /// Writes an audit line about something that leaves the record as it is, such as a message about it that is moved.
    pub async fn audit(
        &self,
        key: &RecordKey,
        record: Option<&Record>,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        let line = self.line(key, Revision::mint(), note, record, record)?;
        // Its sort key is its writer's alone: what is there already is this very line.
        conditions::put(&self.client, &self.table, Condition::Absent, line).await.map(|_| ())
    }

    /// The audit lines of a record, oldest first. Needs `dynamodb:Query`.
    pub async fn audit_lines(&self, key: &RecordKey) -> Read<Vec<AuditLine>> {
        let mut pages = self
            .client
            .query()
            .table_name(&*self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk AND begins_with(sk, :audit)")
            .expression_attribute_values(":pk", AttributeValue::S(key.partition_key()))
            .expression_attribute_values(":audit", AttributeValue::S(AUDIT.to_owned()))
            .into_paginator()
            .items()
            .send();
        let mut lines = Vec::new();
        while let Some(item) = pages.next().await {
            lines.push(serde_dynamo::from_item(item?).map_err(unreadable)?);
        }
        Ok(lines)
    }

    fn line(
        &self,
        key: &RecordKey,
        revision: Revision,
        note: &AuditNote,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Result<Attributes, StoreError> {
        let at = note.at.as_millis();
        let line = AuditLine {
            who: note.who.clone(),
            at,
            what: note.what.clone(),
            reason: note.reason.clone(),
            before: before.map(AuditedState::from),
            after: after.map(AuditedState::from),
        };
        let mut item: Attributes = serde_dynamo::to_item(line).map_err(unreadable)?;
        // As many digits until the year 2286: lines stand in the order of their time.
        let sk = format!("{AUDIT}{at:013}#{revision}");
        item.insert(PK.to_owned(), AttributeValue::S(key.partition_key()));
        item.insert(SK.to_owned(), AttributeValue::S(sk));
        item.insert("schema".to_owned(), AttributeValue::N(SCHEMA.to_string()));
        Ok(item)
    }

    fn delete(&self, key: &RecordKey, sk: &str) -> Result<Delete, StoreError> {
        Delete::builder()
            .table_name(&*self.table)
            .key(PK, AttributeValue::S(key.partition_key()))
            .key(SK, AttributeValue::S(sk.to_owned()))
            .build()
            .map_err(|error| StoreError::new(StoreErrorKind::Refused, error))
    }
}

/// The body that a record has beside it.
fn beside(record: &Record) -> Option<BodyId> {
    match &record.state {
        State::Completed { response, .. } => match response.body {
            KeptBody::Outside { id, place: Place::Beside, .. } => Some(id),
            _ => None,
        },
        _ => None,
    }
}

/// What the reasons of a cancelled transaction say, one for each of its parts, `None` for the parts that would have been
/// applied. The first part is the record, the second its audit line.
fn verdict(ours: Revision, reasons: &[CancellationReason]) -> Result<Put, StoreError> {
    const FAILED: &str = "ConditionalCheckFailed";
    let failed = |part: usize| reasons.get(part).filter(|reason| reason.code() == Some(FAILED));
    // An earlier try was applied and its answer was lost, even where others have changed the record since: nobody else
    // writes this line.
    if failed(1).is_some() {
        return Ok(Put::Written);
    }
    if let Some(reason) = failed(0) {
        let there = reason.item().cloned().map(read).transpose()?;
        return Ok(match there {
            Some(there) if there.revision == ours => Put::Written,
            there => Put::Refused(there.map(Box::new)),
        });
    }
    let telling: Vec<_> =
        reasons.iter().filter(|reason| !matches!(reason.code(), None | Some("None"))).collect();
    let any = |codes: &[&str]| telling.iter().any(|reason| reason.code().is_some_and(|c| codes.contains(&c)));
    let kind = if any(&["ValidationError", "ItemCollectionSizeLimitExceeded"]) {
        StoreErrorKind::Refused
    } else if any(&["ProvisionedThroughputExceeded", "ThrottlingError"]) {
        StoreErrorKind::Throttled
    } else if any(&["TransactionConflict"]) {
        StoreErrorKind::Contended
    } else {
        StoreErrorKind::Unavailable
    };
    let said = telling.iter().map(|reason| {
        let code = reason.code().unwrap_or_default();
        reason.message().map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"))
    });
    let said = said.collect::<Vec<_>>().join("; ");
    Err(StoreError::new(kind, format!("the transaction was cancelled ({said})")))
}

fn unreadable(error: serde_dynamo::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::bid;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn reasons(codes: &[&str], there: Option<&Record>) -> Vec<CancellationReason> {
        let item = there.map(|record| item::to_item(record).unwrap());
        let mut items = vec![item];
        items.resize(codes.len(), None);
        let reason =
            |(code, item): (&&str, _)| CancellationReason::builder().code(*code).set_item(item).build();
        codes.iter().zip(items).map(reason).collect()
    }

    // T2, T10
    #[test]
    fn a_cancelled_transaction_that_meets_its_own_record_or_line_was_applied() {
        const FAILED: &str = "ConditionalCheckFailed";
        let record = Record::reserve(&bid("k"), Revision::mint(), NOW);
        let met = reasons(&[FAILED, "None", "None"], Some(&record));
        assert_eq!(verdict(record.revision, &met).unwrap(), Put::Written);
        assert_eq!(verdict(Revision::mint(), &met).unwrap(), Put::Refused(Some(Box::new(record.clone()))));
        // Somebody has changed the record since.
        let met = reasons(&[FAILED, FAILED, "None"], Some(&record));
        assert_eq!(verdict(Revision::mint(), &met).unwrap(), Put::Written);
    }

    // T10
    #[test]
    fn every_reason_of_a_cancelled_transaction_is_read() {
        let kind = |codes: &[&str]| verdict(Revision::mint(), &reasons(codes, None)).unwrap_err().kind();
        assert_eq!(kind(&["TransactionConflict", "None"]), StoreErrorKind::Contended);
        assert_eq!(kind(&["None", "TransactionConflict"]), StoreErrorKind::Contended);
        assert_eq!(kind(&["None", "ThrottlingError"]), StoreErrorKind::Throttled);
        // No retry helps, whatever else is said.
        assert_eq!(kind(&["TransactionConflict", "ValidationError"]), StoreErrorKind::Refused);
        assert_eq!(kind(&["None", "None"]), StoreErrorKind::Unavailable);
        let gone = reasons(&["ConditionalCheckFailed", "None"], None);
        assert_eq!(verdict(Revision::mint(), &gone).unwrap(), Put::Refused(None));
    }
}
