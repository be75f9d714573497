//! Reserves a key, or reports what holds it.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::{
    Applied, Effort, Execution, Executor, Moment, Ownership, Request, Retries, Start, Step, Tried, Unapplied,
    take_back::TakeBack,
};
use crate::{
    operation::WhileInFlight,
    record::{Answer, AttemptId, Bid, Decision, Record, decide},
    store::{StoreError, StoreErrorKind},
    telemetry::{self, Count, RESERVE_LATENCY},
    time::{Instant, Timestamp},
    time_budget::{ANSWER_TIME, POLL_PAUSES, TimeBudget, plausible_deadline},
    world::Term,
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
    InFlight {
        /// How long it is sensible to wait, as far as its record tells.
        wait: Duration,
    },
    /// The key was used for another request.
    Mismatch,
    /// Perhaps it was done; reconciliation finds out.
    Unknown {
        /// How long until it asks next.
        wait: Duration,
    },
    /// There is nothing to give, and this key may not begin an execution: it is too old, or does not say how old it is.
    MayNotBegin,
    /// Too little time was left to run anything. Nothing was run; the key is free, or will be.
    TooLate,
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
    /// Our own reservation, until then.
    Owned(Term),
    /// There was too little time left to reserve it.
    TooLate,
    /// There is nothing, and the key may not begin.
    MayNotBegin,
    /// A worker whose lease is over.
    DeadWorker,
    Completed,
    InFlight,
    Mismatch,
    Incomparable,
    Unknown,
}

/// When the invocation ends, and until when its answer has to be on its way.
#[derive(Clone, Copy)]
struct Times {
    ends: Option<Term>,
    answer_by: Option<Instant>,
    /// How much time an execution needs to begin.
    least: Duration,
}

impl Times {
    fn deadline(self) -> Option<Timestamp> {
        self.ends.map(|ends| ends.wall)
    }
}

impl Executor {
    /// Reserves the key for a new execution, or says what there is. Runs nothing.
    ///
    /// One round trip, or two to take a record over; more only if others change the record at the same moment, or if the
    /// operation waits for the one in flight.
    pub async fn reserve(&self, request: &Request) -> ReserveOutcome {
        let world = &self.engine.world;
        let started = world.instant();
        let reserved = if self.shared.breaker.admits(world.instant()) {
            let times = self.times(request);
            let met = self.meet(request, times).await;
            match &met {
                Ok(_) => self.shared.breaker.succeeded(),
                // There was an answer: one that cannot be read, or that this key is asked too often (T38, T48).
                Err(error)
                    if matches!(error.kind(), StoreErrorKind::Unreadable | StoreErrorKind::Throttled) =>
                {
                    self.shared.breaker.succeeded();
                }
                // Whoever did not wait has learned nothing (T48).
                Err(error) if error.is_cut_short() => {}
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
        let (count, outcome) = match &reserved {
            ReserveOutcome::Owned(owned) if owned.execution().attempts() > 1 => (Count::FailedRetry, None),
            ReserveOutcome::Owned(_) => (Count::Created, None),
            ReserveOutcome::Replay(_) => (Count::Replay, Some("replay")),
            ReserveOutcome::InFlight { .. } => (Count::InProgress, Some("in_flight")),
            ReserveOutcome::Mismatch => (Count::KeyMisuse, Some("mismatch")),
            ReserveOutcome::Unknown { .. } => (Count::Unknown, Some("unknown")),
            ReserveOutcome::MayNotBegin => (Count::TooOld, Some("too_old")),
            ReserveOutcome::TooLate => (Count::TooLate, Some("too_late")),
            ReserveOutcome::Unavailable => (Count::StoreError, Some("unavailable")),
            ReserveOutcome::Unreadable => (Count::StoreError, Some("unreadable")),
        };
        count.add(self.operation().name());
        telemetry::took(RESERVE_LATENCY, self.operation().name(), world.instant().since(started));
        // What is ours ends later.
        if let Some(outcome) = outcome {
            telemetry::ended(outcome);
        }
        reserved
    }

    fn times(&self, request: &Request) -> Times {
        let (now, started) = (self.engine.world.now(), self.engine.world.instant());
        let deadline = request.deadline.and_then(|deadline| plausible_deadline(deadline, now));
        let whole = deadline.map(|deadline| deadline.since(now));
        let ends = deadline.zip(whole).map(|(wall, whole)| Term { wall, running: started.plus(whole) });
        let ends_at = ends.map(|ends| ends.running);
        let answer_by = TimeBudget::at(started, ends_at).answer().map(|left| started.plus(left));
        let least = self.operation().least_time_of(whole.unwrap_or(self.operation().lease_span()));
        Times { ends, answer_by, least }
    }

    /// Writes or decides until the answer stands: against nothing at first, then against what is there.
    async fn meet(&self, request: &Request, times: Times) -> Result<(Met, Option<Box<Record>>), StoreError> {
        let world = &self.engine.world;
        let operation = self.operation();
        let attempt: AttemptId = world.nonce().into();
        let wait_until = match operation.in_flight() {
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
                lease_until: operation.lease_until(times.deadline(), now),
                retention: operation.retention(),
                may_begin: request.may_begin,
                origin: request.origin.clone(),
            };
            let until = times.ends.unwrap_or_else(|| world.term(operation.lease_span()));
            let own = |record: Record| match world.left(until) {
                left if left < times.least => Step::Stop(Met::TooLate),
                _ => Step::Write(record.into(), Met::Owned(until)),
            };
            let Some(there) = there else {
                return if bid.may_begin {
                    own(Record::reserve(&bid, revision, now))
                } else {
                    Step::Stop(Met::MayNotBegin)
                };
            };
            match decide(there, &bid, revision, now, operation) {
                Decision::TakeOver(next) => own(next),
                Decision::MayNotBegin => Step::Stop(Met::MayNotBegin),
                Decision::Expire(next) => Step::Write(next.into(), Met::DeadWorker),
                Decision::InFlight => match wait_until.map(|until| until.since(world.instant())) {
                    Some(left) if !left.is_zero() => Step::Wait(left),
                    _ => Step::Stop(Met::InFlight),
                },
                Decision::Replay => Step::Stop(Met::Completed),
                Decision::Mismatch => Step::Stop(Met::Mismatch),
                Decision::Incomparable => Step::Stop(Met::Incomparable),
                Decision::Unknown => Step::Stop(Met::Unknown),
            }
        };
        // One try: a store in trouble is not waited for, and the client may come again. A transaction is waited for as the
        // operation in flight is that it belongs to (T9).
        let retries = wait_until.map_or(Retries::None, Retries::Contended);
        let effort = Effort { until: times.answer_by, pauses: POLL_PAUSES, retries };
        // A fresh key is not read first. One that may not begin, or has no time to, has nothing to insert.
        let in_time = times.ends.is_none_or(|ends| world.left(ends) >= times.least);
        let start = if request.may_begin && in_time { Start::Absent } else { Start::Unread(&request.key) };
        match self.engine.apply(start, effort, step).await {
            Ok(Applied::Written(met, record)) => Ok((met, Some(record))),
            // Our own reservation, which landed unseen, and which somebody has given up meanwhile.
            Ok(Applied::Stopped(met, Some(there)))
                if there.attempt == attempt && !matches!(met, Met::Completed) =>
            {
                self.take_back(Tried { record: there, over: None }, TakeBack::Now);
                Ok((Met::TooLate, None))
            }
            Ok(Applied::Stopped(met, there)) => Ok((met, there)),
            Err(Unapplied { error, tried }) => {
                let kind = error.kind();
                if let Some(tried) = tried.filter(|tried| tried.record.attempt == attempt) {
                    // A store that throttles or refuses is asked once more, and no oftener.
                    let once = matches!(kind, StoreErrorKind::Throttled | StoreErrorKind::Refused);
                    self.take_back(tried, if once { TakeBack::Once } else { TakeBack::UntilItStands });
                }
                match kind {
                    // Somebody's transaction holds the record, or many change it: they are at it (T9). An earlier try of
                    // the same write may have been applied all the same, and is taken back.
                    StoreErrorKind::Contended => Ok((Met::InFlight, None)),
                    _ => Err(error),
                }
            }
        }
    }

    async fn outcome(
        &self,
        met: Met,
        record: Option<Box<Record>>,
        times: Times,
    ) -> Result<ReserveOutcome, StoreError> {
        let now = self.engine.world.now();
        Ok(match (met, record) {
            (Met::Owned(until), Some(record)) => self.own(record, times, until).await,
            (Met::MayNotBegin, _) => ReserveOutcome::MayNotBegin,
            (Met::TooLate, _) => ReserveOutcome::TooLate,
            (Met::DeadWorker, Some(record)) => {
                telemetry::given_up(&record, now);
                ReserveOutcome::Unknown { wait: record.wait(now) }
            }
            (Met::Completed, Some(record)) => {
                let replay = self.engine.replay(&record);
                let replay = self.engine.bounded(times.answer_by, replay).await?;
                let in_flight = ReserveOutcome::InFlight { wait: Duration::ZERO };
                if replay.is_some() {
                    telemetry::replayed(&record.key, record.attempts);
                }
                replay.map_or(in_flight, ReserveOutcome::Replay)
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
                    "the record's fingerprint was made by a rule that this deployment does not know: a newer version wrote it, or \
                     the rule was changed without Operation::formerly"
                );
                ReserveOutcome::Unreadable
            }
            (Met::Unknown, Some(record)) => ReserveOutcome::Unknown { wait: record.wait(now) },
            (Met::InFlight, Some(record)) => ReserveOutcome::InFlight { wait: record.wait(now) },
            (_, None) => ReserveOutcome::InFlight { wait: Duration::ZERO },
        })
    }

    /// Owning is not yet running: if we hear of it late, because we waited or the process was frozen, the lease may be over
    /// and others at it (T39). Nothing is awaited between this look and the handler.
    async fn own(&self, record: Box<Record>, times: Times, until: Term) -> ReserveOutcome {
        let world = &self.engine.world;
        if world.left(until) < times.least {
            let (key, operation) = (record.key.hash(), self.operation().name());
            tracing::warn!(%key, %operation, "the reservation came too late to run anything: it is taken back");
            let taken_back = self.take_back(Tried { record, over: None }, TakeBack::Now);
            // So that the client's next try finds the key free. It goes on by itself if that takes longer.
            tokio::select! {
                _ = taken_back => {}
                () = world.sleep(ANSWER_TIME) => {}
            }
            return ReserveOutcome::TooLate;
        }
        let (deadline, ends_at) = (times.deadline(), times.ends.map(|ends| ends.running));
        let execution = Execution::new(&record, deadline, ends_at, until, world.clone());
        let record = Arc::new(Mutex::new(*record));
        let heartbeat = self.start_heartbeat(record.clone(), execution.clone());
        ReserveOutcome::Owned(Ownership { execution, record, heartbeat, status: None })
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
}
