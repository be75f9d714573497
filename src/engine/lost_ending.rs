//! Endings that cannot be written go to a queue, from which reconciliation applies them under the same fence.
//!
//! What waits there is the record's own item, as its worker wanted it to be, under the item's own version: see
//! [`Item`]. It may wait across deployments. The form of versions before this one is still read; a version before this
//! one refuses the new form, so that it ends as a dead letter, and can be sent back once the newer version runs again.

mod earlier;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    DoubleExecution, Execution, Executor, FinishOutcome, Start, codec,
    finish::{Ending, Finished, Kept, People},
};
use crate::{
    key::RecordKey,
    queue::Queue,
    record::{Answer, AttemptId, KeptAnswer, KeptBody, Record, SettledBy, State, Worker},
    store::{Item, from_attributes},
    telemetry::Count,
    time::Timestamp,
    time_budget::{BODY_PATIENCE, OFFLINE_PATIENCE, TimeBudget},
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
        /// The other execution of which people have been told already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<String>,
    },
    /// As versions before items waited in queues wrote it.
    Earlier(Box<Earlier>),
}

/// What became of an ending that was handed over.
pub(crate) enum Delivered {
    /// It is written.
    Written,
    /// The record went on without it, and that is no contradiction.
    Overtaken,
    /// It says that something was executed, and so does another execution.
    Double(Box<DoubleExecution>),
    /// It says that something was, or perhaps was, executed, and its record is gone for so long that nobody can say whether
    /// it was settled.
    Gone,
    /// It could not be written.
    Unwritten,
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
        let record = match self {
            Self::Item { key, item, .. } => {
                let record = from_attributes(item.clone()).map_err(|_| MalformedError("item"))?;
                // What operators are shown is what is written.
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

    /// Whether people have been told that the record is this other execution's.
    fn is_told_of(&self, there: &Record) -> bool {
        matches!(self, Self::Item { told: Some(attempt), .. } if *attempt == there.attempt.to_string())
    }

    /// The record's key, if it is readable.
    pub(crate) fn record_key(&self) -> Option<RecordKey> {
        RecordKey::from_partition_key(match self {
            Self::Item { key, .. } => key,
            Self::Earlier(earlier) => &earlier.key,
        })
    }
}

/// The ending about a record as it was to be; without the body if its message would be too long with it.
fn lost(mut ended: Record) -> Result<LostEnding, serde_json::Error> {
    let whole = item(&ended)?;
    match &mut ended.state {
        State::Completed { answer, .. } if serde_json::to_string(&whole)?.len() > LONGEST_MESSAGE => {
            answer.body = KeptBody::Omitted { length: answer.body.length() };
            item(&ended)
        }
        _ => Ok(whole),
    }
}

fn item(ended: &Record) -> Result<LostEnding, serde_json::Error> {
    let item = serde_dynamo::to_item(Item::from(ended)).map_err(serde::ser::Error::custom)?;
    Ok(LostEnding::Item { key: ended.key.partition_key(), item, told: None })
}

fn message(ended: Record, people_told: Option<AttemptId>) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    #[serde(tag = "kind", rename = "ending")]
    struct Message {
        #[serde(flatten)]
        ending: LostEnding,
    }
    let mut ending = lost(ended)?;
    if let LostEnding::Item { told, .. } = &mut ending {
        *told = people_told.map(|attempt| attempt.to_string());
    }
    serde_json::to_string(&Message { ending })
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
            tracing::error!(%key, %operation, "an ending could not be written, and there is no queue to hand it over to");
            Count::Unwritten.add(operation);
            return FinishOutcome::Unwritten;
        };
        let wanted = self.wanted(seen, ending, kept);
        let sent = match wanted.map(|ended| message(ended, None)) {
            Some(Ok(message)) => self.send(queue, execution, &message).await,
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the record that the worker saw last is not its own".to_owned()),
        };
        match sent {
            Ok(()) => {
                tracing::warn!(%key, %operation, "an ending could not be written: it was handed over");
                Count::HandedOver.add(operation);
                FinishOutcome::HandedOver
            }
            Err(cause) => {
                tracing::error!(
                    %key, %operation, cause,
                    "an ending could neither be written nor handed over"
                );
                Count::Unwritten.add(operation);
                FinishOutcome::Unwritten
            }
        }
    }

    /// Hands an ending over that is refused as long as another execution is in progress. `told` is that one, if people have
    /// been told of it.
    pub(super) async fn hand_over_contested(
        &self,
        execution: &Execution,
        seen: &Record,
        ending: &Ending,
        kept: &Kept,
        told: Option<AttemptId>,
    ) {
        let Some(queue) = &self.lost_endings else { return };
        let Some(Ok(message)) = self.wanted(seen, ending, kept).map(|ended| message(ended, told)) else {
            return;
        };
        if let Err(cause) = self.send(queue, execution, &message).await {
            let (key, operation) = (execution.record_key().hash(), self.operation().name());
            tracing::error!(%key, %operation, cause, "an ending could not be handed over");
        }
    }

    async fn send(&self, queue: &Arc<dyn Queue>, execution: &Execution, message: &str) -> Result<(), String> {
        let world = &self.engine.world;
        let time = TimeBudget::at(world.instant(), execution.ends_at()).hand_over();
        tokio::select! {
            biased;
            sent = queue.send(message, Duration::ZERO) => sent.map_err(|error| error.cause()),
            () = world.sleep(time) => Err("no answer in time".to_owned()),
        }
    }

    /// Hands a double execution to people, with the ending that cannot be written, through the queue of lost endings. It has
    /// been logged and counted in any case. Returns whether they will hear of it.
    pub(super) async fn tell_people(
        &self,
        execution: &Execution,
        mut double: DoubleExecution,
        seen: &Record,
        ending: &Ending,
        kept: &Kept,
    ) -> bool {
        let Some(queue) = &self.lost_endings else { return false };
        double.ending = self.wanted(seen, ending, kept).and_then(|ended| lost(ended).ok()).map(Box::new);
        let sent = self.send(queue, execution, &double.to_message()).await;
        if let Err(cause) = &sent {
            let (key, operation) = (execution.record_key().hash(), self.operation().name());
            tracing::error!(%key, %operation, cause, "a double execution could not be handed to people");
        }
        sent.is_ok()
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
        kept.of(seen, Worker::of(seen), seen.revision, self.engine.world.now()).ok()
    }

    /// Applies an ending that was handed over, under the fence that its worker was under: if the record went on without
    /// that worker, nothing is changed. Applying it twice is harmless. `escalated` says that people have been told of what
    /// the last call found; without that, nothing is written in the place of what another execution left.
    ///
    /// # Errors
    /// If the message is malformed: no retry helps.
    pub(crate) async fn apply(
        &self,
        lost: &LostEnding,
        escalated: bool,
    ) -> Result<Delivered, MalformedError> {
        let wanted = lost.record()?.retained_or(self.operation().retention()).into_owned();
        let give_up_at = self.engine.world.instant().plus(OFFLINE_PATIENCE);
        let base =
            Record { state: State::InProgress { lease_until: Timestamp::default() }, ..wanted.clone() };
        let kept = match wanted.state {
            State::Completed { answer, completed_at, .. } => {
                match self.housed(&base, answer, completed_at).await? {
                    Some(answer) => Kept::Completed(answer),
                    None => return Ok(Delivered::Unwritten),
                }
            }
            State::FailedRetryable { .. } => Kept::NotExecuted,
            State::Unknown { cause, .. } => Kept::PerhapsExecuted(cause),
            State::Pending | State::InProgress { .. } => return Err(MalformedError("state")),
        };
        // Its revision is the one that the worker saw: if that still stands, no read is needed.
        let mut start = Start::Seen(Box::new(base.clone()));
        let mut people = if escalated { People::Told } else { People::NotTold };
        loop {
            let there = match self.write(start, &base, &kept, give_up_at, people).await {
                Ok(Finished::Written(_)) => return Ok(Delivered::Written),
                Ok(Finished::Refused(there, _)) => there,
                // Nothing was done, and a retry may run.
                Ok(Finished::Gone) if matches!(kept, Kept::NotExecuted) => return Ok(Delivered::Overtaken),
                Ok(Finished::Gone) => return Ok(Delivered::Gone),
                Err(_) => return Ok(Delivered::Unwritten),
            };
            let (key, operation, state) = (there.key.hash(), self.operation().name(), there.state.name());
            let double = self.is_double(&base, &kept, &there);
            if double && matches!(there.state, State::InProgress { .. }) {
                // What it says may be the only proof that the operation was executed.
                tracing::error!(%key, %operation, "another execution is at what this one did: its ending is tried again");
                return Ok(Delivered::Unwritten);
            }
            if double && people == People::NotTold && !lost.is_told_of(&there) {
                return Ok(self.double(lost, &base, &kept, &there).await);
            }
            if double && people == People::NotTold && matches!(there.state, State::Unknown { .. }) {
                (start, people) = (Start::Seen(there), People::Told);
                continue;
            }
            tracing::warn!(%key, %operation, state, "an ending comes too late: the record went on without it");
            return Ok(Delivered::Overtaken);
        }
    }

    /// Two workers have, or perhaps have, executed the operation. If the store does not say now what they answered, the message comes again.
    async fn double(&self, lost: &LostEnding, base: &Record, kept: &Kept, there: &Record) -> Delivered {
        let mut ours = base.clone();
        if let Kept::Completed(answer) = kept {
            let (now, by) = (self.engine.world.now(), SettledBy::Worker);
            ours.state = State::Completed { answer: answer.clone(), completed_at: now, by, expires_at: now };
        }
        let mut answers = [None, None];
        for (record, answer) in [&ours, there].into_iter().zip(&mut answers) {
            match self.engine.bounded(None, self.engine.replay(record)).await {
                Ok(replay) => {
                    *answer = replay.filter(|replay| !replay.body_omitted).map(|replay| replay.answer)
                }
                Err(error) if error.is_passing() => return Delivered::Unwritten,
                // Nobody will ever read it: the alarm is more important than the digest.
                Err(_) => {}
            }
        }
        let [ours, theirs] = &answers;
        let mut double = DoubleExecution::new(base.attempt, ours.as_ref(), there);
        double.tell(there);
        double.theirs_answered(theirs.as_ref());
        double.ending = Some(Box::new(lost.clone()));
        Delivered::Double(Box::new(double))
    }

    /// A body that waited in the message is given a place, and one outside the record that is perhaps deleted soon is kept
    /// anew. `None` if the store fails.
    async fn housed(
        &self,
        record: &Record,
        answer: KeptAnswer,
        kept_at: Timestamp,
    ) -> Result<Option<KeptAnswer>, MalformedError> {
        let also = self.operation().kept_headers();
        let KeptAnswer { head, body: KeptBody::Inline { bytes, encoding, length } } = answer else {
            let answer = KeptAnswer { head: answer.head.kept(also), body: answer.body };
            let kept = self.engine.keep_anew(record, answer, kept_at, OFFLINE_PATIENCE).await;
            return Ok(kept.inspect_err(|error| {
                let (key, operation, cause) = (record.key.hash(), record.key.operation(), error.cause());
                tracing::warn!(%key, %operation, cause, "the body of an ending could not be kept anew yet");
            })
            .ok());
        };
        let body = codec::decode(bytes, encoding, length).map_err(|_| MalformedError("body"))?;
        let placed = self.engine.place(record, Answer { head, body }, also);
        let head = placed.answer.head.clone();
        let omitted = KeptAnswer { head, body: KeptBody::Omitted { length } };
        let (key, operation) = (record.key.hash(), record.key.operation());
        Ok(match self.engine.keep_placed(record, placed, OFFLINE_PATIENCE).await {
            Ok(kept) => Some(kept.unwrap_or(omitted)),
            // The message comes again, with its body; but the effect is recorded before anybody takes it for not done (T16).
            Err(error) if error.is_passing() && self.engine.world.now() <= kept_at.plus(BODY_PATIENCE) => {
                tracing::warn!(%key, %operation, cause = error.cause(), "the body of an ending could not be kept yet");
                None
            }
            Err(error) => {
                tracing::error!(%key, %operation, cause = error.cause(), "the body cannot be kept: replays go without");
                Some(omitted)
            }
        })
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

    fn ended(kept: &Kept) -> Record {
        let seen = Record::reserve(&bid("k"), Revision::mint(), NOW);
        kept.of(&seen, Worker::of(&seen), seen.revision, NOW).unwrap()
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
            assert_eq!(read(&message(ended.clone(), None).unwrap()), ended);
        }
    }

    // T16
    #[test]
    fn a_body_that_no_queue_takes_is_left_out_and_the_ending_is_not() {
        let bytes = Bytes::from(vec![0; LONGEST_MESSAGE]);
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let message = message(ended(&Kept::Completed(KeptAnswer { body, ..answer() })), None).unwrap();
        assert!(message.len() < 2_000);
        let State::Completed { answer, .. } = read(&message).state else { panic!("{message}") };
        assert_eq!(answer.body, KeptBody::Omitted { length: LONGEST_MESSAGE as u64 });
    }

    // T36: what runs after a roll-back must not take it for something else; it ends as a dead letter, and waits there.
    #[test]
    fn a_version_before_this_form_refuses_it() {
        let message = message(ended(&Kept::NotExecuted), None).unwrap();
        assert!(serde_json::from_str::<Earlier>(&message).is_err());
    }

    // R31
    #[test]
    fn a_message_that_names_another_record_than_its_item_is_refused() {
        let message = message(ended(&Kept::NotExecuted), None).unwrap();
        let other = message.replacen(r#""key":"tenant#pay#k""#, r#""key":"tenant#pay#other""#, 1);
        assert_ne!(message, other);
        let lost: LostEnding = serde_json::from_str(&other).unwrap();
        assert_eq!(lost.record(), Err(MalformedError("key")));
    }

    // T36
    #[test]
    fn an_item_of_a_newer_version_is_refused_and_not_guessed() {
        let message = message(ended(&Kept::NotExecuted), None).unwrap();
        let newer = message.replace(r#""schema":{"N":"1"}"#, r#""schema":{"N":"2"}"#);
        assert_ne!(message, newer);
        let lost: LostEnding = serde_json::from_str(&newer).unwrap();
        assert_eq!(lost.record(), Err(MalformedError("item")));
    }
}
