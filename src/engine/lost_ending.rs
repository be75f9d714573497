//! Endings that cannot be written go to a queue, from which reconciliation applies them under the same fence.
//!
//! What waits there is the record's own item, as its worker wanted it to be, under the item's own version: see
//! [`Item`]. It may wait across deployments. The form of versions before this one is still read; a version before this
//! one refuses the new form, so that it ends as a dead letter, and can be sent back once the newer version runs again.

mod earlier;

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Execution, Executor, FinishOutcome, Start, codec,
    finish::{Ending, Finished, Kept, kept_until},
};
use crate::{
    key::RecordKey,
    record::{Answer, KeptAnswer, KeptBody, Record, State},
    store::{Item, from_attributes},
    telemetry::Count,
    time::Timestamp,
    time_budget::{OFFLINE_PATIENCE, TimeBudget},
};
use earlier::Earlier;

/// SQS takes 1 MiB, and took 256 KiB until 2025; what other queues take is less. A body that does not fit is left out.
const LONGEST_MESSAGE: usize = 240 * 1024;

/// An ending on its way through a queue.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum LostEnding {
    /// The record that its worker saw last, with its revision, in the state that it was to have.
    Item {
        /// The record's partition key, for people and their tools.
        key: String,
        /// The record's item.
        item: serde_dynamo::Item,
    },
    /// As versions before items waited in queues wrote it.
    Earlier(Box<Earlier>),
}

/// A message that is no ending. No retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is no ending of an execution: `{0}` is malformed")]
pub(crate) struct MalformedError(pub(crate) &'static str);

impl fmt::Debug for LostEnding {
    /// Without key and body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LostEnding(…)")
    }
}

impl LostEnding {
    /// The record that it ends, in the state that it was to have.
    pub(crate) fn record(&self) -> Result<Record, MalformedError> {
        match self {
            Self::Item { key, item } => {
                let record = from_attributes(item.clone()).map_err(|_| MalformedError("item"))?;
                // What operators are shown is what is written.
                if record.key.partition_key() == *key { Ok(record) } else { Err(MalformedError("key")) }
            }
            Self::Earlier(earlier) => earlier.record(),
        }
    }

    /// Whether it says that something was executed, and what its answer is.
    pub(crate) fn is_executed(&self) -> bool {
        self.record().is_ok_and(|record| matches!(record.state, State::Completed { .. }))
    }

    /// The record's key, if it is readable.
    pub(crate) fn record_key(&self) -> Option<RecordKey> {
        RecordKey::from_partition_key(match self {
            Self::Item { key, .. } => key,
            Self::Earlier(earlier) => &earlier.key,
        })
    }
}

/// The message about a record as it was to be; without the body if it would be too long with it.
fn message(mut ended: Record) -> Result<String, serde_json::Error> {
    let message = to_json(&ended)?;
    match &mut ended.state {
        State::Completed { answer, .. } if message.len() > LONGEST_MESSAGE => {
            answer.body = KeptBody::Omitted { length: answer.body.length() };
            to_json(&ended)
        }
        _ => Ok(message),
    }
}

fn to_json(ended: &Record) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    #[serde(tag = "kind", rename = "ending")]
    struct Message {
        #[serde(flatten)]
        ending: LostEnding,
    }
    let item = serde_dynamo::to_item(Item::from(ended)).map_err(serde::ser::Error::custom)?;
    serde_json::to_string(&Message { ending: LostEnding::Item { key: ended.key.partition_key(), item } })
}

impl Executor {
    /// Hands an ending over that could not be written; without a queue there is nobody to take it.
    pub(super) async fn hand_over(
        &self,
        execution: &Execution,
        seen: &Record,
        ending: &Ending,
        kept: &Kept,
    ) -> FinishOutcome {
        let (key, operation) = (execution.record_key().hash(), self.operation().name());
        let Some(queue) = &self.lost_endings else {
            tracing::error!(%key, %operation, "an ending could not be written in time: the outcome will be unknown");
            Count::Unwritten.add(operation);
            return FinishOutcome::Unwritten;
        };
        let world = &self.engine.world;
        let sent = match self.wanted(seen, ending, kept).map(message) {
            Some(Ok(message)) => {
                let time = TimeBudget::at(world.instant(), execution.ends_at()).hand_over();
                tokio::select! {
                    biased;
                    sent = queue.send(&message, Duration::ZERO) => sent.map_err(|error| error.cause()),
                    () = world.sleep(time) => Err("no answer in time".to_owned()),
                }
            }
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the record that the worker saw last is not its own".to_owned()),
        };
        match sent {
            Ok(()) => {
                tracing::warn!(%key, %operation, "an ending could not be written in time: it was handed over");
                Count::HandedOver.add(operation);
                FinishOutcome::HandedOver
            }
            Err(cause) => {
                tracing::error!(
                    %key, %operation, cause,
                    "an ending could neither be written nor handed over: the outcome will be unknown"
                );
                Count::Unwritten.add(operation);
                FinishOutcome::Unwritten
            }
        }
    }

    /// The record as its worker wants it to be, with a body that has no place yet.
    fn wanted(&self, seen: &Record, ending: &Ending, kept: &Kept) -> Option<Record> {
        let kept = match (ending, kept) {
            (_, Kept::Completed(KeptAnswer { body: KeptBody::Outside { .. }, .. })) => kept.clone(),
            (Ending::Completed(Answer { head, body }), _) => {
                let (bytes, encoding) = codec::encode(body);
                let body = KeptBody::Inline { bytes, encoding, length: body.len() as u64 };
                Kept::Completed(KeptAnswer { head: head.clone(), body })
            }
            _ => kept.clone(),
        };
        kept.of(seen, seen.attempt, seen.revision, self.engine.world.now(), self.operation().retention()).ok()
    }

    /// Applies an ending that was handed over, under the fence that its worker was under: if the record went on without
    /// that worker, nothing is changed. Applying it twice is harmless.
    ///
    /// # Errors
    /// If the message is malformed: no retry helps.
    pub(crate) async fn apply(&self, lost: &LostEnding) -> Result<FinishOutcome, MalformedError> {
        let wanted = lost.record()?;
        let give_up_at = self.engine.world.instant().plus(OFFLINE_PATIENCE);
        let base =
            Record { state: State::InProgress { lease_until: Timestamp::default() }, ..wanted.clone() };
        let kept = match wanted.state {
            State::Completed { answer, .. } => Kept::Completed(self.housed(&base, answer).await?),
            State::FailedRetryable { .. } => Kept::NotExecuted,
            State::Unknown { cause, .. } => Kept::PerhapsExecuted(cause),
            State::Pending | State::InProgress { .. } => return Err(MalformedError("state")),
        };
        // Its revision is the one that the worker saw: if that still stands, no read is needed.
        let start = Start::Seen(Box::new(base.clone()));
        Ok(match self.write(start, &base, &kept, give_up_at).await {
            Ok(Finished::Written(record)) => FinishOutcome::Written { expires_at: kept_until(&record) },
            Ok(Finished::Refused(there, fenced)) => self.fenced(there, fenced, give_up_at).await,
            Err(_) => FinishOutcome::Unwritten,
        })
    }

    /// A body that waited in the message is given a place.
    async fn housed(&self, record: &Record, answer: KeptAnswer) -> Result<KeptAnswer, MalformedError> {
        let KeptAnswer { head, body: KeptBody::Inline { bytes, encoding, length } } = answer else {
            return Ok(answer);
        };
        let body = codec::decode(bytes, encoding, length).map_err(|_| MalformedError("body"))?;
        let retain = self.operation().retention();
        Ok(self.engine.keep(record, Answer { head, body }, retain, OFFLINE_PATIENCE).await)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::{
        Encoding, Head, Revision, UnknownCause,
        tests::{answer, bid},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const RETAIN: Duration = Duration::from_secs(60);

    fn ended(kept: &Kept) -> Record {
        let seen = Record::reserve(&bid("k"), Revision::mint(), NOW);
        kept.of(&seen, seen.attempt, seen.revision, NOW, RETAIN).unwrap()
    }

    fn read(message: &str) -> Record {
        serde_json::from_str::<LostEnding>(message).unwrap().record().unwrap()
    }

    // T36
    #[test]
    fn every_ending_comes_out_of_its_message_as_it_went_in() {
        let zlib = KeptAnswer {
            head: Head::Payload,
            body: KeptBody::Inline {
                bytes: Bytes::from_static(b"\xff"),
                encoding: Encoding::Zlib,
                length: 9,
            },
        };
        for kept in [
            Kept::Completed(answer()),
            Kept::Completed(zlib),
            Kept::NotExecuted,
            Kept::PerhapsExecuted(UnknownCause::Panicked),
        ] {
            let ended = ended(&kept);
            assert_eq!(read(&message(ended.clone()).unwrap()), ended);
        }
    }

    // T16
    #[test]
    fn a_body_that_no_queue_takes_is_left_out_and_the_ending_is_not() {
        let bytes = Bytes::from(vec![0; LONGEST_MESSAGE]);
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let message = message(ended(&Kept::Completed(KeptAnswer { body, ..answer() }))).unwrap();
        assert!(message.len() < 2_000);
        let State::Completed { answer, .. } = read(&message).state else { panic!("{message}") };
        assert_eq!(answer.body, KeptBody::Omitted { length: LONGEST_MESSAGE as u64 });
    }

    // T36: what runs after a roll-back must not take it for something else; it ends as a dead letter, and waits there.
    #[test]
    fn a_version_before_this_form_refuses_it() {
        let message = message(ended(&Kept::NotExecuted)).unwrap();
        assert!(serde_json::from_str::<Earlier>(&message).is_err());
    }

    // R31
    #[test]
    fn a_message_that_names_another_record_than_its_item_is_refused() {
        let message = message(ended(&Kept::NotExecuted)).unwrap();
        let other = message.replacen(r#""key":"tenant#pay#k""#, r#""key":"tenant#pay#other""#, 1);
        assert_ne!(message, other);
        let lost: LostEnding = serde_json::from_str(&other).unwrap();
        assert_eq!(lost.record(), Err(MalformedError("key")));
    }

    // T36
    #[test]
    fn an_item_of_a_newer_version_is_refused_and_not_guessed() {
        let message = message(ended(&Kept::NotExecuted)).unwrap();
        let newer = message.replace(r#""schema":{"N":"1"}"#, r#""schema":{"N":"2"}"#);
        assert_ne!(message, newer);
        let lost: LostEnding = serde_json::from_str(&newer).unwrap();
        assert_eq!(lost.record(), Err(MalformedError("item")));
    }
}
