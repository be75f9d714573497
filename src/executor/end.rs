//! End an execution: write down what is known of it, for as long as there is time.

use std::{error::Error, fmt, time::Duration};

use bytes::Bytes;

use super::{ANSWER_TIME, Execution, Executor, Owned, Replay, Reserved, body};
use crate::{
    metrics::Count,
    record::{BodyId, Encoding, Fenced, KeptBody, KeptResponse, Record, Revision, State, UnknownCause},
    store::{Store, StoreErrorKind, Turn},
    time::Timestamp,
};

/// The first pause between two tries of a completion, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of headers that a record keeps. No front of Lambda delivers as many (API Gateway 10 KB, a load
/// balancer 64 KB), and a record has no room for more than 400 KB.
const MOST_HEADERS: usize = 64 * 1024;

/// What is left of an invocation's time for handing an ending over that cannot be written: a try at a queue, and another.
const HAND_OVER_TIME: Duration = Duration::from_millis(1600);

/// How long an ending that was handed over is tried, before it goes back to its queue.
pub(super) const PATIENCE_OF_APPLYING: Duration = Duration::from_secs(4);

/// What a body gets even where the time is up: a healthy store needs a fraction, and the record comes after it.
const LEAST_BODY_TIME: Duration = Duration::from_millis(100);

/// How an execution ended.
pub enum Ending {
    /// The effect and its answer are known.
    Completed {
        /// The status code.
        status: u16,
        /// The headers to keep.
        headers: Vec<(String, String)>,
        /// The body.
        body: Bytes,
    },
    /// Certainly nothing was done.
    NotExecuted,
    /// Perhaps something was done.
    PerhapsExecuted(UnknownCause),
}

impl fmt::Debug for Ending {
    /// Without headers and body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed { status, .. } => write!(f, "Completed({status})"),
            Self::NotExecuted => f.write_str("NotExecuted"),
            Self::PerhapsExecuted(cause) => write!(f, "PerhapsExecuted({})", cause.name()),
        }
    }
}

/// An ending whose body has its place.
pub(super) enum Outcome {
    Completed(KeptResponse),
    NotExecuted,
    PerhapsExecuted(UnknownCause),
}

/// What became of writing an ending down.
#[derive(Debug)]
pub enum Ended {
    /// It is written.
    Written {
        /// Until when the answer is kept, where there is one.
        expires_at: Option<Timestamp>,
    },
    /// The record was completed before, by another execution or by reconciliation: this is what everybody gets.
    Superseded(Replay),
    /// The record went on without this execution, and has no answer for anybody. The caller's own is the best there is.
    Fenced,
    /// The store could not be reached in time, and the ending went to the queue of lost endings, from which it is applied.
    HandedOver,
    /// The store could not be reached in time, nor a queue. The record becomes `unknown` when its lease is over.
    Unwritten,
}

impl<S: Store> Executor<S> {
    /// Writes down how an execution ended. Tries until the invocation's time, or the operation's patience, is up.
    pub async fn end(&self, owned: Owned, ending: Ending) -> Ended {
        let Owned { execution, record, heartbeat } = owned;
        // First, so that nobody else writes. A heartbeat under way may still land: then our write is refused, sees our
        // own attempt there, and goes on from that.
        drop(heartbeat);
        let seen = record.lock().await.clone();
        let give_up_at = self.give_up_at(&execution);
        let outcome = match &ending {
            Ending::Completed { status, headers, body } => {
                Outcome::Completed(self.keep(&seen, *status, headers.clone(), body, give_up_at).await)
            }
            Ending::NotExecuted => Outcome::NotExecuted,
            Ending::PerhapsExecuted(cause) => Outcome::PerhapsExecuted(*cause),
        };
        match self.write(&execution, seen.clone(), &outcome, give_up_at).await {
            Ok(Ended::Unwritten) => self.hand_over(&execution, &seen, &ending, &outcome).await,
            Ok(ended) => ended,
            Err((there, fenced)) => {
                let contradicts = matches!(
                    (&outcome, &there.state),
                    (Outcome::Completed(_), State::FailedRetryable { .. })
                ) && there.attempt == execution.attempt();
                let ended = self.fenced(&execution, *there, fenced, give_up_at).await;
                if contradicts && self.lost_endings.is_some() {
                    // Who applies it finds the same, and gives it to people: a retry may run again what was done.
                    self.hand_over(&execution, &seen, &ending, &outcome).await;
                }
                ended
            }
        }
    }

    fn give_up_at(&self, execution: &Execution) -> Timestamp {
        let now = self.clock().now();
        let patience = now.plus(self.operation().patience_span());
        let Some(deadline) = execution.deadline() else { return patience };
        let answer_at = deadline.minus(ANSWER_TIME);
        let hand_over = match self.lost_endings {
            // Half of what is left at most: the store is more likely to be there than not.
            Some(_) => HAND_OVER_TIME.min(answer_at.since(now) / 2),
            None => Duration::ZERO,
        };
        patience.min(answer_at.minus(hand_over))
    }

    /// Writes it, or says which record refused it.
    pub(super) async fn write(
        &self,
        execution: &Execution,
        mut seen: Record,
        outcome: &Outcome,
        give_up_at: Timestamp,
    ) -> Result<Ended, (Box<Record>, Fenced)> {
        let mut pause = FIRST_PAUSE;
        let mut prepared: Option<Record> = None;
        loop {
            let next = match prepared.take() {
                Some(next) => next,
                None => match self.next(execution, &seen, outcome) {
                    Ok(next) => next,
                    Err(fenced) => return Err((Box::new(seen), fenced)),
                },
            };
            match self.bounded(give_up_at, self.register().swap(seen.revision, &next)).await {
                Ok(Turn::Ours) => return Ok(Ended::Written { expires_at: kept_until(&next) }),
                Ok(Turn::Theirs(Some(there))) => {
                    seen = *there;
                    continue;
                }
                // Gone: an operator deleted it, or the table was restored to an earlier time. What is known is still
                // true, and is written where nothing is.
                Ok(Turn::Theirs(None)) => match self.bounded(give_up_at, self.register().insert(&next)).await
                {
                    Ok(Turn::Ours) => return Ok(Ended::Written { expires_at: kept_until(&next) }),
                    Ok(Turn::Theirs(Some(there))) => {
                        seen = *there;
                        continue;
                    }
                    Ok(Turn::Theirs(None)) => {}
                    Err(error) => self.tried(execution, &error),
                },
                Err(error) => self.tried(execution, &error),
            }
            prepared = Some(next);
            // The same write again, with the same revision: if an earlier try was applied, this one will know it.
            if self.clock().now().plus(pause) >= give_up_at {
                return Ok(Ended::Unwritten);
            }
            self.clock().sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn next(&self, execution: &Execution, seen: &Record, outcome: &Outcome) -> Result<Record, Fenced> {
        let (attempt, revision) = (execution.attempt(), Revision::mint());
        let (now, retain) = (self.clock().now(), self.operation().retention());
        match outcome {
            Outcome::Completed(response) => seen.complete(attempt, revision, response.clone(), now, retain),
            Outcome::NotExecuted => seen.release(attempt, revision, now, retain),
            Outcome::PerhapsExecuted(cause) => seen.doubt(attempt, revision, *cause, now),
        }
    }

    /// Finds a place for the body: in the record while that costs nothing, else outside, else nowhere. The effect is
    /// recorded as completed in every case.
    pub(crate) async fn keep(
        &self,
        record: &Record,
        status: u16,
        mut headers: Vec<(String, String)>,
        whole: &Bytes,
        give_up_at: Timestamp,
    ) -> KeptResponse {
        if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MOST_HEADERS {
            let (key, operation) = (record.key.hash(), self.operation().name());
            tracing::error!(%key, %operation, "the headers are too large to be kept: replays go without");
            headers.clear();
        }
        let length = whole.len() as u64;
        let inline = |bytes: Bytes, encoding| KeptBody::Inline { bytes, encoding, length };
        let mut response = KeptResponse { status, headers, body: inline(Bytes::new(), Encoding::Identity) };
        let (now, retain) = (self.clock().now(), self.operation().retention());
        let expires_at = now.plus(retain);
        let state = State::Completed { response: response.clone(), completed_at: now, expires_at };
        let room = self.register().store.room_for_body(&Record { state, ..record.clone() });
        response.body = if whole.len() <= room {
            inline(whole.clone(), Encoding::Identity)
        } else {
            let (bytes, encoding) = body::encode(whole);
            if bytes.len() <= room {
                inline(bytes, encoding)
            } else {
                self.keep_outside(record, bytes, encoding, length, expires_at, give_up_at).await
            }
        };
        response
    }

    async fn keep_outside(
        &self,
        record: &Record,
        bytes: Bytes,
        encoding: Encoding,
        length: u64,
        expires_at: Timestamp,
        give_up_at: Timestamp,
    ) -> KeptBody {
        let (id, mut pause) = (BodyId::mint(), FIRST_PAUSE);
        // Half of the time: the record itself is more important than its body.
        let half = give_up_at.since(self.clock().now()) / 2;
        let stop_at = self.clock().now().plus(half.max(LEAST_BODY_TIME));
        loop {
            let keeping = self.register().store.keep_body(&record.key, id, bytes.clone(), expires_at);
            match self.bounded(stop_at, keeping).await {
                Ok(Some(place)) => return KeptBody::Outside { id, place, encoding, length },
                Ok(None) => {
                    let (key, operation) = (record.key.hash(), self.operation().name());
                    tracing::warn!(%key, %operation, length, "the body is too large to be kept: replays go without");
                    return KeptBody::Omitted { length };
                }
                Err(error) => {
                    let last =
                        self.clock().now().plus(pause) >= stop_at || error.kind() == StoreErrorKind::Refused;
                    if last {
                        let (key, operation) = (record.key.hash(), self.operation().name());
                        let error: &dyn Error = &error;
                        tracing::error!(%key, %operation, error, "the body cannot be kept: replays go without");
                        return KeptBody::Omitted { length };
                    }
                }
            }
            self.clock().sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The record went on without us. What it says now is what everybody gets.
    pub(super) async fn fenced(
        &self,
        execution: &Execution,
        there: Record,
        fenced: Fenced,
        give_up_at: Timestamp,
    ) -> Ended {
        let (key, operation, state) =
            (execution.record_key().hash(), self.operation().name(), there.state.name());
        tracing::error!(%key, %operation, state, %fenced, "the record went on without this execution");
        match self.bounded(give_up_at, self.replay(there)).await {
            Ok(Reserved::Replay(replay)) => Ended::Superseded(replay),
            _ => Ended::Fenced,
        }
    }

    fn tried(&self, execution: &Execution, error: &crate::store::StoreError) {
        let (key, operation) = (execution.record_key().hash(), self.operation().name());
        let (kind, cause) = (error.kind(), error.source().map(ToString::to_string));
        tracing::warn!(%key, %operation, ?kind, cause, "an ending could not be written yet");
        Count::StoreError.add(operation);
    }
}

fn kept_until(record: &Record) -> Option<Timestamp> {
    match record.state {
        State::Completed { expires_at, .. } => Some(expires_at),
        _ => None,
    }
}
