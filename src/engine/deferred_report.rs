//! Reports that cannot be written go to a queue, from which reconciliation applies them under the same fence.
//!
//! A message holds the record's own item, in the state that its worker wanted, with the item's own version: see [`Item`].
//! It may wait across deployments. The form of earlier versions is still read. An earlier version refuses the new form, so
//! that the message goes to the dead-letter queue, and can be sent back once the newer version runs again.

mod earlier;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    DoubleExecution, Execution, Executor, FinishOutcome, codec,
    finish::{Kept, Report},
};
use crate::{
    domain::DomainWrite,
    key::RecordKey,
    queue::Queue,
    record::{Answer, AttemptId, KeptAnswer, KeptBody, Record, State, Worker},
    store::{Item, from_attributes},
    telemetry::Count,
    time_budget::TimeBudget,
};
use earlier::Earlier;

/// SQS accepts 1 MiB, and accepted 256 KiB until 2025; other queues accept less. A body that does not fit is left out.
const MAX_MESSAGE: usize = 240 * 1024;

/// A report on its way through a queue.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum DeferredReport {
    /// The record that its worker last saw, with that revision, in the state that the worker wanted.
    Item {
        /// The record's partition key, for operators and their tools.
        key: String,
        /// The record's item.
        item: serde_dynamo::Item,
        /// The other execution, if it has been reported to an operator already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reported: Option<String>,
        /// The domain writes that commit with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        writes: Vec<DomainWrite>,
    },
    /// The form of versions before messages held items.
    Earlier(Box<Earlier>),
}

/// A message that is not a report. No retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not a report of an execution: `{0}` is malformed")]
pub(crate) struct MalformedError(pub(crate) &'static str);

impl fmt::Debug for DeferredReport {
    /// Without key and body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeferredReport(…)")
    }
}

impl DeferredReport {
    /// The record that it ends, in the state that the worker wanted.
    pub(crate) fn record(&self) -> Result<Record, MalformedError> {
        let record = match self {
            Self::Item { key, item, .. } => {
                let record = from_attributes(item.clone()).map_err(|_| MalformedError("item"))?;
                // Operators must see the key that is written.
                if record.key.partition_key() != *key {
                    return Err(MalformedError("key"));
                }
                record
            }
            Self::Earlier(earlier) => earlier.record()?,
        };
        match &record.state {
            State::Completed { answer, .. } if !answer.head.is_final() => Err(MalformedError("status")),
            _ => Ok(record),
        }
    }

    /// Whether domain writes commit with it.
    pub(crate) fn has_writes(&self) -> bool {
        !self.writes().is_empty()
    }

    /// The domain writes that commit with it.
    pub(super) fn writes(&self) -> &[DomainWrite] {
        match self {
            Self::Item { writes, .. } => writes,
            Self::Earlier(_) => &[],
        }
    }

    /// Whether an operator has been told that the record is this other execution's.
    pub(super) fn was_escalated_with(&self, current: &Record) -> bool {
        matches!(self, Self::Item { reported: Some(attempt), .. } if *attempt == current.attempt.to_string())
    }

    /// The record's key, if it is readable.
    pub(crate) fn record_key(&self) -> Option<RecordKey> {
        RecordKey::from_partition_key(match self {
            Self::Item { key, .. } => key,
            Self::Earlier(earlier) => &earlier.key,
        })
    }
}

/// The report that wants this record; without the body if the message would be too long with it. Never without its domain
/// writes: the record would say that something was done which was not.
fn lost(mut ended: Record, writes: &[DomainWrite]) -> Result<DeferredReport, serde_json::Error> {
    let whole = item(&ended, writes)?;
    let is_too_long = |report: &DeferredReport| Ok(serde_json::to_string(report)?.len() > MAX_MESSAGE);
    let report = match &mut ended.state {
        State::Completed { answer, .. } if is_too_long(&whole)? => {
            answer.body = KeptBody::Omitted { length: answer.body.length() };
            item(&ended, writes)?
        }
        _ => whole,
    };
    match is_too_long(&report)? {
        true => Err(serde::ser::Error::custom("its domain writes are too large for a message")),
        false => Ok(report),
    }
}

fn item(ended: &Record, writes: &[DomainWrite]) -> Result<DeferredReport, serde_json::Error> {
    let item = serde_dynamo::to_item(Item::from(ended)).map_err(serde::ser::Error::custom)?;
    Ok(DeferredReport::Item { key: ended.key.partition_key(), item, reported: None, writes: writes.to_vec() })
}

fn message(
    ended: Record,
    writes: &[DomainWrite],
    escalated_with: Option<AttemptId>,
) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Message {
        kind: &'static str,
        #[serde(flatten)]
        report: DeferredReport,
    }
    // A version that knows no domain writes must not apply the rest: it refuses a kind that it does not know.
    let kind = if writes.is_empty() { "report" } else { "report_with_writes" };
    let mut report = lost(ended, writes)?;
    if let DeferredReport::Item { reported, .. } = &mut report {
        *reported = escalated_with.map(|attempt| attempt.to_string());
    }
    serde_json::to_string(&Message { kind, report })
}

impl Executor {
    /// Hands over a report that could not be written, if there is a queue.
    pub(super) async fn defer(
        &self,
        execution: &Execution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
    ) -> FinishOutcome {
        let operation = self.operation().name();
        let Some(queue) = &self.deferred_reports else {
            tracing::error!("a report could not be written, and there is no queue to hand it over to");
            Count::Unwritten.add(operation);
            return FinishOutcome::Unwritten;
        };
        let wanted = self.wanted(seen, report, kept);
        let sent = match wanted.map(|ended| message(ended, kept.writes(), None)) {
            Some(Ok(message)) => self.send(queue, execution, &message).await,
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the record that the worker saw last is not its own".to_owned()),
        };
        match sent {
            Ok(()) => {
                tracing::warn!("a report could not be written: it was handed over");
                Count::Deferred.add(operation);
                FinishOutcome::Deferred
            }
            Err(cause) => {
                tracing::error!(cause, "a report could neither be written nor handed over");
                Count::Unwritten.add(operation);
                FinishOutcome::Unwritten
            }
        }
    }

    /// Hands over a report that could not be written because another execution has the record, or because the record denies
    /// its effect. `provider_report` is the other execution, if it has been reported to an operator. Returns whether it was sent.
    pub(super) async fn defer_contested(
        &self,
        execution: &Execution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
        reported: Option<AttemptId>,
    ) -> bool {
        let Some(queue) = &self.deferred_reports else { return false };
        let Some(Ok(message)) =
            self.wanted(seen, report, kept).map(|ended| message(ended, kept.writes(), reported))
        else {
            return false;
        };
        let sent = self.send(queue, execution, &message).await;
        if let Err(cause) = &sent {
            tracing::error!(cause, "a report could not be handed over");
        }
        sent.is_ok()
    }

    async fn send(&self, queue: &Arc<dyn Queue>, execution: &Execution, message: &str) -> Result<(), String> {
        let world = &self.engine.world;
        let time = TimeBudget::at(world.instant(), execution.ends_at()).defer();
        tokio::select! {
            biased;
            sent = queue.send(message, Duration::ZERO) => sent.map_err(|error| error.cause()),
            () = world.sleep(time) => Err("no answer in time".to_owned()),
        }
    }

    /// Escalates a double execution, with the report that cannot be written, through the queue of deferred reports. It has been
    /// logged and counted in any case. Returns whether it was sent.
    pub(super) async fn escalate_double(
        &self,
        execution: &Execution,
        mut double: DoubleExecution,
        seen: &Record,
        report: &Report,
        kept: &Kept,
    ) -> bool {
        let Some(queue) = &self.deferred_reports else { return false };
        double.report =
            self.wanted(seen, report, kept).and_then(|ended| lost(ended, kept.writes()).ok()).map(Box::new);
        let sent = self.send(queue, execution, &double.to_message()).await;
        if let Err(cause) = &sent {
            tracing::error!(cause, "a double execution could not be escalated");
        }
        sent.is_ok()
    }

    /// The record as its worker wants it, with its body inline unless that is stored already.
    fn wanted(&self, seen: &Record, report: &Report, kept: &Kept) -> Option<Record> {
        let kept = match (report, kept) {
            (_, Kept::Completed(KeptAnswer { body: KeptBody::Outside { .. }, .. }, _)) => kept.clone(),
            (Report::Completed(Answer { head, body }), _) => {
                let (bytes, encoding) = codec::encode(body);
                let body = KeptBody::Inline { bytes, encoding, length: body.len() as u64 };
                Kept::Completed(KeptAnswer { head: head.clone(), body }, Arc::default())
            }
            _ => kept.clone(),
        };
        let wants =
            |seen: &Record| kept.of(seen, Worker::of(seen), seen.revision, self.engine.world.now()).ok();
        match kept {
            // Its own answer goes along, and so does the claim that makes it doubtful.
            Kept::Completed(..) if seen.claimed => {
                let ended = wants(&Record { claimed: false, ..seen.clone() })?;
                Some(Record { claimed: true, ..ended })
            }
            _ => wants(seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        record::{
            Encoding, Head, Note, Revision, UnknownCause,
            tests::{answer, reservation},
        },
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn ended(kept: &Kept) -> Record {
        let seen = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        kept.of(&seen, Worker::of(&seen), seen.revision, NOW).unwrap()
    }

    fn read(message: &str) -> Record {
        serde_json::from_str::<DeferredReport>(message).unwrap().record().unwrap()
    }

    // T36
    #[test]
    fn every_report_comes_out_of_its_message_as_it_went_in() {
        let zlib = KeptAnswer {
            head: Head::Payload,
            body: KeptBody::Inline {
                bytes: Bytes::from_static(b"\xff"),
                encoding: Encoding::Zlib,
                length: 9,
            },
        };
        for kept in [
            Kept::Completed(answer(), Arc::default()),
            Kept::Completed(zlib, Arc::default()),
            Kept::NotExecuted(Some(Note::new("not_executed, status 503"))),
            Kept::NotBegun,
            Kept::PerhapsExecuted(UnknownCause::Panicked, None),
        ] {
            let ended = ended(&kept);
            assert_eq!(read(&message(ended.clone(), &[], None).unwrap()), ended);
        }
    }

    // T16
    #[test]
    fn a_report_is_queued_without_a_body_too_large_for_it() {
        let bytes = Bytes::from(vec![0; MAX_MESSAGE]);
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let message =
            message(ended(&Kept::Completed(KeptAnswer { body, ..answer() }, Arc::default())), &[], None)
                .unwrap();
        assert!(message.len() < 2_000);
        let State::Completed { answer, .. } = read(&message).state else { panic!("{message}") };
        assert_eq!(answer.body, KeptBody::Omitted { length: MAX_MESSAGE as u64 });
    }

    // T36: the version that runs after a roll-back must not misread it; it waits in the dead-letter queue.
    #[test]
    fn an_older_version_refuses_this_form() {
        let message = message(ended(&Kept::NotExecuted(None)), &[], None).unwrap();
        assert!(serde_json::from_str::<Earlier>(&message).is_err());
    }

    // R31
    #[test]
    fn a_message_that_names_another_record_than_its_item_is_refused() {
        let message = message(ended(&Kept::NotExecuted(None)), &[], None).unwrap();
        let other = message.replacen(r#""key":"tenant#pay#k""#, r#""key":"tenant#pay#other""#, 1);
        assert_ne!(message, other);
        let lost: DeferredReport = serde_json::from_str(&other).unwrap();
        assert_eq!(lost.record(), Err(MalformedError("key")));
    }

    // T36
    #[test]
    fn an_item_of_a_newer_version_is_refused_and_not_guessed() {
        let message = message(ended(&Kept::NotExecuted(None)), &[], None).unwrap();
        let newer = message.replace(r#""schema":{"N":"1"}"#, r#""schema":{"N":"2"}"#);
        assert_ne!(message, newer);
        let lost: DeferredReport = serde_json::from_str(&newer).unwrap();
        assert_eq!(lost.record(), Err(MalformedError("item")));
    }
}
