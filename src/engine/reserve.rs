//! Reserves a key, or reports what holds it.

use std::{fmt, sync::Arc};

use tokio::sync::Mutex;

use super::{
    Applied, Effort, Execution, Executor, Moment, Ownership, Request, Retries, Start, Step, Unapplied,
};
use crate::{
    operation::WhileInFlight,
    record::{Answer, AttemptId, Bid, Decision, Record, State, decide},
    store::{StoreError, StoreErrorKind},
    telemetry::{self, Count},
    time::{Instant, Timestamp},
    time_budget::{POLL_PAUSES, TAKE_BACK_PAUSES, TimeBudget, plausible_deadline},
};

/// What became of a reservation.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReserveOutcome {
    /// It is ours: run the handler.
    Owned(Ownership),
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

/// A kept answer.
#[derive(Clone)]
pub struct Replay {
    /// The answer.
    pub answer: Answer,
    /// Whether its body was too large to be kept, or is gone; it is empty then.
    pub body_omitted: bool,
    /// Until when the answer is kept.
    pub expires_at: Timestamp,
}

impl fmt::Debug for Replay {
    /// Without the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("head", &self.answer.head).finish_non_exhaustive()
    }
}

/// What a reservation met, or what its write would mean.
enum Met {
    /// Our own reservation.
    Owned,
    /// A worker whose lease is over.
    DeadWorker,
    Completed,
    InFlight,
    Mismatch,
    Incomparable,
    Unknown(Timestamp),
}

/// When the invocation ends, and until when its answer has to be on its way.
#[derive(Clone, Copy)]
struct Times {
    deadline: Option<Timestamp>,
    ends_at: Option<Instant>,
    answer_by: Option<Instant>,
}

impl Executor {
    /// Reserves the key for a new execution, or says what there is. Runs nothing.
    ///
    /// One round trip, or two to take a record over; more only if others change the record at the same moment, or if the
    /// operation waits for the one in flight.
    pub async fn reserve(&self, request: &Request) -> ReserveOutcome {
        let world = &self.engine.world;
        let reserved = if self.shared.breaker.admits(world.instant()) {
            let times = self.times(request);
            let met = self.meet(request, times).await;
            match &met {
                // A key that is asked too often says nothing of the store (T38).
                Err(error) if error.kind() == StoreErrorKind::Throttled => {}
                // There was an answer, if one that cannot be read.
                Ok(_) => self.shared.breaker.succeeded(),
                Err(error) if error.kind() == StoreErrorKind::Unreadable => self.shared.breaker.succeeded(),
                Err(_) => self.shared.breaker.failed(world.instant()),
            }
            let reserved = match met {
                Ok((met, record)) => self.outcome(met, record, times).await,
                Err(error) => Err(error),
            };
            reserved.unwrap_or_else(|error| self.failed(request, &error))
        } else {
            ReserveOutcome::Unavailable
        };
        let count = match &reserved {
            ReserveOutcome::Owned(owned) if owned.execution().attempts() > 1 => Count::FailedRetry,
            ReserveOutcome::Owned(_) => Count::Created,
            ReserveOutcome::Replay(_) => Count::Replay,
            ReserveOutcome::InFlight => Count::InProgress,
            ReserveOutcome::Mismatch => Count::KeyMisuse,
            ReserveOutcome::Unknown { .. } => Count::Unknown,
            ReserveOutcome::Unavailable | ReserveOutcome::Unreadable => Count::StoreError,
        };
        count.add(self.operation().name());
        reserved
    }

    fn times(&self, request: &Request) -> Times {
        let (now, started) = (self.engine.world.now(), self.engine.world.instant());
        let deadline = request.deadline.and_then(|deadline| plausible_deadline(deadline, now));
        let ends_at = deadline.map(|deadline| started.plus(deadline.since(now)));
        let answer_by = TimeBudget::at(started, ends_at).answer().map(|left| started.plus(left));
        Times { deadline, ends_at, answer_by }
    }

    /// Writes or decides until the answer stands: against nothing at first, then against what is there.
    async fn meet(&self, request: &Request, times: Times) -> Result<(Met, Option<Box<Record>>), StoreError> {
        let world = &self.engine.world;
        let attempt: AttemptId = world.nonce().into();
        let wait_until = match self.operation().in_flight() {
            WhileInFlight::Wait(bound) => {
                let until = world.instant().plus(bound);
                Some(times.answer_by.map_or(until, |answer_by| answer_by.min(until)))
            }
            _ => None,
        };
        let step = |there: Option<&Record>, Moment { revision, now }: Moment| {
            let bid = Bid {
                key: request.key.clone(),
                fingerprints: request.fingerprints.clone(),
                attempt,
                lease_until: self.operation().lease_until(times.deadline, now),
            };
            let Some(there) = there else {
                return Step::Write(Record::reserve(&bid, revision, now).into(), Met::Owned);
            };
            match decide(there, &bid, revision, now, self.operation()) {
                Decision::TakeOver(next) => Step::Write(next.into(), Met::Owned),
                Decision::Expire(next) => Step::Write(next.into(), Met::DeadWorker),
                Decision::InFlight => match wait_until.map(|until| until.since(world.instant())) {
                    Some(left) if !left.is_zero() => Step::Wait(left),
                    _ => Step::Stop(Met::InFlight),
                },
                Decision::Replay => Step::Stop(Met::Completed),
                Decision::Mismatch => Step::Stop(Met::Mismatch),
                Decision::Incomparable => Step::Stop(Met::Incomparable),
                Decision::Unknown { reconcile_at } => Step::Stop(Met::Unknown(reconcile_at)),
            }
        };
        // One try: a store in trouble is not waited for, and the client may come again. A transaction is waited for as the
        // operation in flight is that it belongs to (T9).
        let retries = wait_until.map_or(Retries::None, Retries::Contended);
        let effort = Effort { until: times.answer_by, pauses: POLL_PAUSES, retries };
        match self.engine.apply(Start::Absent, effort, step).await {
            Ok(Applied::Written(met, record)) => Ok((met, Some(record))),
            Ok(Applied::Stopped(met, there)) => Ok((met, there)),
            // Somebody's transaction holds the record, or many change it: they are at it (T9).
            Err(Unapplied { error, .. }) if error.kind() == StoreErrorKind::Contended => {
                Ok((Met::InFlight, None))
            }
            Err(Unapplied { error, tried }) => {
                if let Some(tried) = tried.filter(|tried| tried.attempt == attempt) {
                    self.take_back(tried);
                }
                Err(error)
            }
        }
    }

    async fn outcome(
        &self,
        met: Met,
        record: Option<Box<Record>>,
        times: Times,
    ) -> Result<ReserveOutcome, StoreError> {
        Ok(match (met, record) {
            (Met::Owned, Some(record)) => ReserveOutcome::Owned(self.own(*record, times)),
            (Met::DeadWorker, Some(record)) => {
                let now = self.engine.world.now();
                telemetry::given_up(&record, now);
                match record.state {
                    State::Unknown { reconcile_at, .. } => ReserveOutcome::Unknown { reconcile_at },
                    _ => ReserveOutcome::Unknown { reconcile_at: now },
                }
            }
            (Met::Completed, Some(record)) => {
                let replay = self.engine.replay(&record);
                let replay = self.engine.bounded(times.answer_by, replay).await?;
                replay.map_or(ReserveOutcome::InFlight, ReserveOutcome::Replay)
            }
            (Met::Mismatch, Some(record)) => {
                let (key, operation) = (record.key.hash(), self.operation().name());
                tracing::warn!(%key, %operation, "the key came back with another request");
                ReserveOutcome::Mismatch
            }
            (Met::Incomparable, Some(record)) => {
                let (key, operation) = (record.key.hash(), self.operation().name());
                tracing::error!(
                    %key, %operation, rule = record.fingerprint.rule(),
                    "the record's fingerprint was made by a rule that this version does not know: see Operation::formerly"
                );
                ReserveOutcome::Unreadable
            }
            (Met::Unknown(reconcile_at), _) => ReserveOutcome::Unknown { reconcile_at },
            (Met::InFlight, _) | (_, None) => ReserveOutcome::InFlight,
        })
    }

    fn own(&self, record: Record, times: Times) -> Ownership {
        let execution = Execution::new(&record, times.deadline, times.ends_at);
        let attempt = record.attempt;
        let record = Arc::new(Mutex::new(record));
        let heartbeat = self.start_heartbeat(record.clone(), attempt);
        Ownership { execution, record, heartbeat }
    }

    fn failed(&self, request: &Request, error: &StoreError) -> ReserveOutcome {
        let (key, operation) = (request.key.hash(), self.operation().name());
        let (kind, cause) = (error.kind(), error.cause());
        tracing::error!(%key, %operation, ?kind, cause, "reservation failed: the request is refused");
        match kind {
            StoreErrorKind::Unreadable => ReserveOutcome::Unreadable,
            _ => ReserveOutcome::Unavailable,
        }
    }

    /// Releases a reservation that was perhaps applied and is certainly not executed, so that a passing fault of the
    /// store leaves nothing to reconcile. In the background, for as long as the operation's patience: the caller has its
    /// answer. If the reservation lands later still, its lease ends it as `unknown`.
    fn take_back(&self, reserved: Box<Record>) {
        let executor = self.clone();
        self.engine.world.spawn(Box::pin(async move {
            let (world, operation) = (&executor.engine.world, executor.operation());
            let give_up_at = world.instant().plus(operation.patience_span());
            world.sleep(TAKE_BACK_PAUSES.first).await;
            let (attempt, retain) = (reserved.attempt, operation.retention());
            let step = |there: Option<&Record>, Moment { revision, now }: Moment| match there {
                Some(there) => match there.release(attempt, revision, now, retain) {
                    Ok(released) => Step::Write(released.into(), ()),
                    Err(_) => Step::Stop(()),
                },
                // Not there: perhaps not yet.
                None => match give_up_at.since(world.instant()) {
                    left if left.is_zero() => Step::Stop(()),
                    left => Step::Wait(left),
                },
            };
            let effort =
                Effort { until: Some(give_up_at), pauses: TAKE_BACK_PAUSES, retries: Retries::Quietly };
            // What is not taken back is ended by its lease.
            let _ = executor.engine.apply(Start::Seen(reserved), effort, step).await;
        }));
    }
}
