//! Applies endings that were handed over: under the fence that their workers were under, and as often as they come.

use super::{
    DoubleExecution, Executor, LostEnding, MalformedError, Start, codec,
    finish::{Finished, Kept, People, is_same_request},
};
use crate::{
    record::{Answer, KeptAnswer, KeptBody, Record, SettledBy, State, UnknownCause},
    time::Timestamp,
    time_budget::{BODY_PATIENCE, OFFLINE_PATIENCE},
};

/// What became of an ending that was handed over.
pub(crate) enum Delivered {
    /// It is written.
    Written,
    /// The record went on without it, and that is no contradiction.
    Overtaken,
    /// It says that something was executed, and so does another execution.
    Double(Box<DoubleExecution>),
    /// It tells of an effect, and this record says that there was none.
    Denied(Box<Record>),
    /// It says that something was, or perhaps was, executed, and its record is gone for so long that nobody can say whether
    /// it was settled.
    Gone,
    /// It could not be written.
    Unwritten,
}

impl Executor {
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
        let not_begun = wanted.is_not_begun();
        let because = wanted.last_failure;
        let kept = match wanted.state {
            State::Completed { answer, completed_at, .. } => {
                match self.housed(&base, answer, completed_at).await? {
                    Some(answer) => Kept::Completed(answer),
                    None => return Ok(Delivered::Unwritten),
                }
            }
            State::FailedRetryable { .. } if not_begun => Kept::NotBegun,
            // Contested: its worker did nothing, and its record said that another did.
            State::FailedRetryable { .. } | State::Unknown { cause: UnknownCause::Contested, .. } => {
                Kept::NotExecuted(because)
            }
            State::Unknown { cause, .. } => Kept::PerhapsExecuted(cause, because),
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
                Ok(Finished::Gone) if kept.did_nothing() => return Ok(Delivered::Overtaken),
                Ok(Finished::Gone) => return Ok(Delivered::Gone),
                Err(_) => return Ok(Delivered::Unwritten),
            };
            let (key, operation, state) = (there.key.hash(), self.operation().name(), there.state.name());
            // The key is another request's: nobody will be told of this one by its record.
            if !kept.did_nothing() && !is_same_request(&base, &there) {
                return Ok(Delivered::Gone);
            }
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
            if !double && kept.is_denied_by(&there) {
                return Ok(Delivered::Denied(there));
            }
            tracing::warn!(%key, %operation, state, "an ending comes too late: the record went on without it");
            return Ok(Delivered::Overtaken);
        }
    }

    /// Two workers have, or perhaps have, executed the operation. If the store does not say now what they answered, the
    /// message comes again.
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
