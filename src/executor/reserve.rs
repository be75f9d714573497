//! Reserve: become the one who executes, or learn what there is instead.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::Mutex;

use super::{ANSWER_TIME, Execution, Executor, Owned, Request, body};
use crate::{
    lease::{lease_until, plausible_deadline, tell_given_up},
    metrics::Count,
    policy::WhileInFlight,
    record::{AttemptId, Bid, Decision, KeptBody, KeptResponse, Record, Revision, decide},
    store::{Store, StoreError, StoreErrorKind, Turn},
    time::Timestamp,
};

/// How often a caller that meets ever-changing records tries again before it takes the operation for being in flight.
const TURNS: usize = 8;

/// The first pause of a caller that waits for the one in flight, and the longest.
const FIRST_POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// What became of a reservation.
#[derive(Debug)]
pub enum Reserved {
    /// It is ours: run the handler.
    Owned(Owned),
    /// It was done before: give this answer.
    Replay(Replay),
    /// Another one is at it.
    InFlight,
    /// The key was used for another request.
    Mismatch,
    /// Perhaps it was done; reconciliation asks next at this time.
    Unknown {
        /// When.
        reconcile_at: Timestamp,
    },
    /// The store did not answer. Nothing was run; a record may have been written all the same.
    Unavailable,
    /// There is a record, and this version cannot make out what it says. Nothing was run.
    Unreadable,
}

/// A kept answer, whole.
#[derive(Clone)]
pub struct Replay {
    /// Status and headers; where the body was.
    pub response: KeptResponse,
    /// The body; `None` where it was too large to be kept, or is gone.
    pub body: Option<Bytes>,
    /// Until when the answer is kept.
    pub expires_at: Timestamp,
}

impl fmt::Debug for Replay {
    /// Without the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("status", &self.response.status).finish_non_exhaustive()
    }
}

enum Found {
    Reserved(Reserved),
    /// The answer, and where its body still has to be read from.
    Completed(Box<Record>),
}

impl<S: Store> Executor<S> {
    /// Reserves the key for a new execution, or says what there is. Runs nothing.
    ///
    /// One round trip, or two to take a record over; more only where others change the record at the same moment, and
    /// where the operation chose to wait for the one in flight.
    pub async fn reserve(&self, request: &Request) -> Reserved {
        let started = self.clock().now();
        let reserved = if self.shared.breaker.admits(started) {
            let deadline = request.deadline.and_then(|deadline| plausible_deadline(deadline, started));
            let answer_by = deadline.map_or(Timestamp::MAX, |deadline| deadline.minus(ANSWER_TIME));
            let found = self.reserve_or_wait(request, deadline, answer_by).await;
            match &found {
                // A key that is asked too often says nothing of the store (T38).
                Err(error) if error.kind() == StoreErrorKind::Throttled => {}
                // There was an answer, if one that cannot be read.
                Ok(_) => self.shared.breaker.succeeded(),
                Err(error) if error.kind() == StoreErrorKind::Unreadable => self.shared.breaker.succeeded(),
                Err(_) => self.shared.breaker.failed(self.clock().now()),
            }
            let reserved = match found {
                Ok(Found::Reserved(reserved)) => Ok(reserved),
                Ok(Found::Completed(record)) => self.bounded(answer_by, self.replay(*record)).await,
                Err(error) => Err(error),
            };
            reserved.unwrap_or_else(|error| self.failed(request, &error))
        } else {
            Reserved::Unavailable
        };
        let count = match &reserved {
            Reserved::Owned(owned) if owned.execution.attempts() > 1 => Count::FailedRetry,
            Reserved::Owned(_) => Count::Created,
            Reserved::Replay(_) => Count::Replay,
            Reserved::InFlight => Count::InProgress,
            Reserved::Mismatch => Count::KeyMisuse,
            Reserved::Unknown { .. } => Count::Unknown,
            Reserved::Unavailable | Reserved::Unreadable => Count::StoreError,
        };
        count.add(self.operation().name());
        reserved
    }

    async fn reserve_or_wait(
        &self,
        request: &Request,
        deadline: Option<Timestamp>,
        answer_by: Timestamp,
    ) -> Result<Found, StoreError> {
        let started = self.clock().now();
        let attempt = AttemptId::mint();
        let mut found = self.turn(request, attempt, deadline, answer_by, None).await?;
        let WhileInFlight::Wait(bound) = self.operation().in_flight() else { return Ok(found) };
        let wait_until = started.plus(bound).min(answer_by);
        let mut pause = FIRST_POLL;
        while let Found::Reserved(Reserved::InFlight) = found {
            let now = self.clock().now();
            if now >= wait_until {
                break;
            }
            self.clock().sleep(pause.min(wait_until.since(now))).await;
            pause = (pause * 2).min(LONGEST_POLL);
            // A read while it lasts: half the price of a refused write, and it does not slow the owner down. One that
            // fails changes nothing about the one in flight.
            let Ok(there) = self.bounded(answer_by, self.register().load(&request.key)).await else {
                continue;
            };
            found = self.turn(request, attempt, deadline, answer_by, there.map(Box::new)).await?;
        }
        Ok(found)
    }

    /// Writes or decides until the answer stands: against nothing at first, then against what is there.
    ///
    /// Each write has its bound, and not the turn: one that is given up must still be taken back.
    async fn turn(
        &self,
        request: &Request,
        attempt: AttemptId,
        deadline: Option<Timestamp>,
        answer_by: Timestamp,
        mut there: Option<Box<Record>>,
    ) -> Result<Found, StoreError> {
        for _ in 0..TURNS {
            let (now, revision) = (self.clock().now(), Revision::mint());
            let bid = Bid {
                key: request.key.clone(),
                fingerprints: request.fingerprints.clone(),
                attempt,
                lease_until: lease_until(deadline, now, self.operation()),
            };
            let (next, turn) = match there.take() {
                None => {
                    let next = Record::reserve(&bid, revision, now);
                    let turn = self.bounded(answer_by, self.register().insert(&next)).await;
                    (next, turn)
                }
                Some(seen) => match decide(&seen, &bid, revision, now, self.operation()) {
                    Decision::TakeOver(next) | Decision::Expire(next) => {
                        let swap = self.register().swap(seen.revision, &next);
                        let turn = self.bounded(answer_by, swap).await;
                        (next, turn)
                    }
                    Decision::Replay => return Ok(Found::Completed(seen)),
                    Decision::InFlight => return Ok(Found::Reserved(Reserved::InFlight)),
                    Decision::Mismatch => {
                        let (key, operation) = (seen.key.hash(), self.operation().name());
                        tracing::warn!(%key, %operation, "the key came back with another request");
                        return Ok(Found::Reserved(Reserved::Mismatch));
                    }
                    Decision::Incomparable => return Ok(Found::Reserved(self.incomparable(&seen))),
                    Decision::Unknown { reconcile_at } => {
                        return Ok(Found::Reserved(Reserved::Unknown { reconcile_at }));
                    }
                },
            };
            match turn {
                Ok(Turn::Ours) if next.attempt == attempt => {
                    return Ok(Found::Reserved(Reserved::Owned(self.own(next, deadline))));
                }
                Ok(Turn::Ours) => {
                    tell_given_up(&next, self.clock().now());
                    there = Some(Box::new(next));
                }
                Ok(Turn::Theirs(other)) => there = other,
                // Somebody's transaction holds the record: he is at it (T9).
                Err(error) if error.kind() == StoreErrorKind::Contended => break,
                Err(error) => {
                    if next.attempt == attempt {
                        self.take_back(next);
                    }
                    return Err(error);
                }
            }
        }
        Ok(Found::Reserved(Reserved::InFlight))
    }

    fn own(&self, record: Record, deadline: Option<Timestamp>) -> Owned {
        let execution = Execution::new(&record, deadline);
        let attempt = record.attempt;
        let record = Arc::new(Mutex::new(record));
        let heartbeat = self.start_heartbeat(record.clone(), attempt);
        Owned { execution, record, heartbeat }
    }

    /// The kept answer with its body, wherever that is.
    pub(super) async fn replay(&self, record: Record) -> Result<Reserved, StoreError> {
        let crate::record::State::Completed { response, expires_at, .. } = record.state else {
            return Ok(Reserved::InFlight);
        };
        let body = match &response.body {
            KeptBody::Omitted { .. } => Ok(None),
            KeptBody::Inline { bytes, encoding, length } => {
                body::decode(bytes.clone(), *encoding, *length).map(Some)
            }
            KeptBody::Outside { id, place, encoding, length } => {
                match self.register().store.load_body(&record.key, *id, *place).await? {
                    Some(bytes) => body::decode(bytes, *encoding, *length).map(Some),
                    None => {
                        let (key, operation) = (record.key.hash(), self.operation().name());
                        tracing::error!(%key, %operation, "the kept body is gone: the replay goes without");
                        Ok(None)
                    }
                }
            }
        };
        match body {
            Ok(body) => Ok(Reserved::Replay(Replay { response, body, expires_at })),
            Err(error) => Err(StoreError::new(StoreErrorKind::Unreadable, error)),
        }
    }

    fn failed(&self, request: &Request, error: &StoreError) -> Reserved {
        let (key, operation) = (request.key.hash(), self.operation().name());
        let (kind, cause) = (error.kind(), error.source().map(|source| source.to_string()));
        tracing::error!(%key, %operation, ?kind, cause, "reservation failed: the request is refused");
        match kind {
            StoreErrorKind::Unreadable => Reserved::Unreadable,
            _ => Reserved::Unavailable,
        }
    }

    /// Releases a reservation that was perhaps applied and is certainly not executed, so that a passing fault of the
    /// store leaves nothing to reconcile. In the background, for as long as the operation's patience: the caller has its
    /// answer. Where the reservation lands later still, its lease ends it as `unknown`.
    fn take_back(&self, reserved: Record) {
        let executor = self.clone();
        tokio::spawn(async move {
            let (now, retain) = (executor.clock().now(), executor.operation().retention());
            let Ok(released) = reserved.release(reserved.attempt, Revision::mint(), now, retain) else {
                return;
            };
            let give_up_at = now.plus(executor.operation().patience_span());
            let mut pause = FIRST_POLL;
            while executor.clock().now().plus(pause) < give_up_at {
                executor.clock().sleep(pause).await;
                // Few tries, ever further apart: the store is in trouble already.
                pause *= 4;
                let swap = executor.register().swap(reserved.revision, &released);
                match executor.bounded(give_up_at, swap).await {
                    Ok(Turn::Ours | Turn::Theirs(Some(_))) => return,
                    // Not there: perhaps not yet.
                    Ok(Turn::Theirs(None)) | Err(_) => {}
                }
            }
        });
    }

    fn incomparable(&self, record: &Record) -> Reserved {
        let (key, operation) = (record.key.hash(), self.operation().name());
        tracing::error!(
            %key, %operation, rule = record.fingerprint.rule(),
            "the record's fingerprint was made by a rule that this version does not know: see Operation::formerly"
        );
        Reserved::Unreadable
    }
}
