//! Reserves a key, or reports what holds it.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::{
    Applied, Effort, Execution, Executor, Moment, Ownership, Request, Retries, Start, Step, Tried, Unapplied,
    phasing::Phasing, take_back::TakeBack,
};
use crate::{
    operation::WhileInFlight,
    record::{Answer, AttemptId, Found, Record, ReservationRequest, State, Transition, Work, decide},
    store::{StoreError, StoreErrorKind},
    telemetry::{self, Count, RESERVE_LATENCY},
    time::{Instant, Timestamp},
    time_budget::{POLL_BACKOFF, TimeBudget, plausible_deadline},
    world::{Term, World},
};

/// What became of a reservation.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReserveOutcome {
    /// The caller owns it: run the handler.
    Owned(Ownership),
    /// It was executed before: return this answer.
    Replay(Replay),
    /// Another execution is in flight.
    InFlight {
        /// How long to wait before a retry, as far as the record shows.
        wait: Duration,
        /// How long its lease still lasts, as far as is known: then others may look at it.
        lease_left: Duration,
        /// The state of its record, as far as is known.
        state: &'static str,
    },
    /// The key was used for another request.
    Mismatch,
    /// It may have been executed: reconciliation finds out.
    Unknown {
        /// How long until reconciliation next asks.
        wait: Duration,
    },
    /// There is no answer, and this key may not begin an execution: it is too old, or has no readable age.
    MayNotBegin,
    /// Likewise, but not for long: an earlier request of this key may be about to begin one.
    PerhapsInFlight,
    /// Too little time was left to run the handler, or the request was admitted too long ago. Nothing was run; the key is free, or will
    /// be.
    TooLate,
    /// The store did not answer. Nothing was run, but a record may have been written.
    Unavailable,
    /// There is a record that this version cannot read. Nothing was run.
    Unreadable,
    /// What the worker would run is settled, and deleted since.
    Gone,
    /// It was interrupted, and this version declares [other phases](crate::Operation::resumes) than the one that began it. Nothing was run: that
    /// version can resume it, or an operator decides.
    OtherPhases,
}

impl ReserveOutcome {
    /// Another execution is changing the record just now.
    const BRIEFLY_IN_FLIGHT: Self =
        Self::InFlight { wait: Duration::ZERO, lease_left: Duration::ZERO, state: State::IN_PROGRESS };
}

/// A kept answer.
#[derive(Clone)]
pub struct Replay {
    /// The answer.
    pub answer: Answer,
    /// Whether its body was too large to be kept, or is gone. Then it is empty.
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

/// When the invocation ends, and when its answer must be sent.
#[derive(Clone, Copy)]
pub(super) struct Times {
    ends: Option<Term>,
    pub(super) answer_by: Option<Instant>,
    /// How much time an execution needs to begin.
    min_time: Duration,
}

impl Times {
    pub(super) fn ends_at(self) -> Option<Instant> {
        self.ends.map(|ends| ends.running)
    }

    /// Whether too little time is left to begin.
    pub(super) fn is_too_late(self, world: &dyn World) -> bool {
        self.ends.is_some_and(|ends| world.left(ends) < self.min_time)
    }
}

impl Executor {
    /// Reserves the key for a new execution, or reports what holds it. Runs nothing.
    ///
    /// It takes one round trip, or two if it takes over a record. It takes more only if others change the record at the same
    /// moment, or if the operation waits for the execution in flight.
    pub async fn reserve(&self, request: &Request) -> ReserveOutcome {
        let world = &self.engine.world;
        let started = world.instant();
        let reserved = if self.shared.breaker.admits(started) {
            let times = self.times(request);
            let found = self.find(request, times).await;
            self.observe_store(found.as_ref().err());
            let reserved = match found {
                Ok((found, record)) => self.outcome(request, found, record, times).await,
                Err(error) => Err(error),
            };
            reserved.unwrap_or_else(|error| self.failed(&error))
        } else {
            ReserveOutcome::Unavailable
        };
        self.count(&reserved);
        telemetry::took(RESERVE_LATENCY, self.operation().name(), world.instant().since(started));
        reserved
    }

    /// Reports to the breaker how the store answered.
    pub(super) fn observe_store(&self, error: Option<&StoreError>) {
        let breaker = &self.shared.breaker;
        // The store also answers if it returns a record that cannot be read, or throttles this key (T38, T48).
        let answered = [StoreErrorKind::Unreadable, StoreErrorKind::Throttled];
        match error.filter(|error| !answered.contains(&error.kind())) {
            None => breaker.succeeded(),
            // We did not wait long enough to learn anything about the store (T48).
            Some(error) if error.is_cut_short() => {}
            Some(_) => breaker.failed(self.engine.world.instant()),
        }
    }

    pub(super) fn count(&self, reserved: &ReserveOutcome) {
        let (count, outcome) = match reserved {
            ReserveOutcome::Owned(owned) if owned.execution().attempts() > 1 => (Count::FailedRetry, None),
            ReserveOutcome::Owned(_) => (Count::Created, None),
            ReserveOutcome::Replay(_) => (Count::Replay, Some("replay")),
            ReserveOutcome::InFlight { .. } => (Count::InProgress, Some("in_flight")),
            ReserveOutcome::Mismatch => (Count::KeyMisuse, Some("mismatch")),
            ReserveOutcome::Unknown { .. } => (Count::Unknown, Some("unknown")),
            ReserveOutcome::MayNotBegin => (Count::TooOld, Some("too_old")),
            ReserveOutcome::PerhapsInFlight => (Count::InProgress, Some("in_flight")),
            ReserveOutcome::TooLate => (Count::TooLate, Some("too_late")),
            ReserveOutcome::Unavailable => (Count::StoreError, Some("unavailable")),
            ReserveOutcome::Unreadable => (Count::StoreError, Some("unreadable")),
            ReserveOutcome::Gone => (Count::Replay, Some("gone")),
            ReserveOutcome::OtherPhases => (Count::PhaseMismatch, Some("other_phases")),
        };
        count.add(self.operation().name());
        // An execution that owns its record is counted when it ends.
        if let Some(outcome) = outcome {
            telemetry::ended(outcome);
        }
    }

    pub(super) fn times(&self, request: &Request) -> Times {
        let (now, started) = (self.engine.world.now(), self.engine.world.instant());
        let deadline = request.deadline.and_then(|deadline| plausible_deadline(deadline, now));
        let whole = deadline.map(|deadline| deadline.since(now));
        let ends = deadline.zip(whole).map(|(wall, whole)| Term { wall, running: started.plus(whole) });
        let ends_at = ends.map(|ends| ends.running);
        let answer_by = TimeBudget::at(started, ends_at).answer().map(|left| started.plus(left));
        let min_time = self.operation().min_time_of(whole.unwrap_or(self.operation().lease));
        Times { ends, answer_by, min_time }
    }

    /// Writes or decides until there is an outcome: first as if there is no record, then for the current one.
    async fn find(
        &self,
        request: &Request,
        times: Times,
    ) -> Result<(Result<Term, Found>, Option<Box<Record>>), StoreError> {
        let world = &self.engine.world;
        let operation = self.operation();
        let attempt: AttemptId = world.nonce().into();
        let wait_until = match operation.while_in_flight {
            WhileInFlight::Wait(bound) => {
                let until = world.instant().plus(bound);
                Some(times.answer_by.map_or(until, |answer_by| answer_by.min(until)))
            }
            _ => None,
        };
        let step = |current: Option<&Record>, moment: Moment| match self
            .begins(request, attempt, times, current, moment)
        {
            Ok(next) => {
                let until = times.ends.unwrap_or_else(|| world.term(operation.lease));
                match world.left(until) {
                    left if left < times.min_time => Step::Stop(Err(Found::TooLate)),
                    _ => Step::Write(next.into(), Ok(until)),
                }
            }
            Err(Step::Stop(Err(Found::InFlight))) => {
                match wait_until.map(|until| until.since(world.instant())) {
                    Some(left) if !left.is_zero() => Step::Wait(left),
                    _ => Step::Stop(Err(Found::InFlight)),
                }
            }
            Err(step) => step,
        };
        // One try: the client may retry, and should not wait for a store that fails. A transaction in progress counts as an
        // execution in flight (T9).
        let retries = wait_until.map_or(Retries::None, Retries::Contended);
        let effort = Effort { until: times.answer_by, backoff: POLL_BACKOFF, retries };
        // Inserts without a read, because most keys are fresh. A request that may not begin, or has no time to, inserts nothing.
        let begins =
            request.admission.begins(world.now()).is_ok() && !matches!(request.work, Work::Claimed(_));
        let start =
            if begins && !times.is_too_late(&**world) { Start::Absent } else { Start::Unread(&request.key) };
        match self.engine.apply(start, effort, step).await {
            Ok(Applied::Written(found, record)) => Ok((found, Some(record))),
            // Our own reservation was applied, but its answer was lost, and the record has been changed since.
            Ok(Applied::Stopped(found, Some(current)))
                if current.attempt == attempt && !matches!(found, Err(Found::Completed)) =>
            {
                let tried = Tried { record: current, over: None };
                self.take_back_now(tried, TakeBack::Now, times.ends_at()).await;
                Ok((Err(Found::TooLate), None))
            }
            Ok(Applied::Stopped(found, current)) => Ok((found, current)),
            Err(Unapplied { error, tried, .. }) => {
                let kind = error.kind();
                if let Some(tried) = tried.filter(|tried| tried.record.attempt == attempt) {
                    match kind {
                        // A store that throttles or refuses gets only one more request.
                        StoreErrorKind::Throttled | StoreErrorKind::Refused => {
                            self.take_back(tried, TakeBack::Once);
                        }
                        // It was answered: only a try that the store's client made before can have been applied.
                        StoreErrorKind::Contended => self.take_back(tried, TakeBack::UntilApplied),
                        _ => self.take_back_now(tried, TakeBack::UntilApplied, times.ends_at()).await,
                    }
                }
                match kind {
                    // A transaction holds the record, or many change it: an execution is in flight (T9). If an earlier try of
                    // our write was applied, it is taken back.
                    StoreErrorKind::Contended => Ok((Err(Found::InFlight), None)),
                    _ => Err(error),
                }
            }
        }
    }

    /// The record of the execution that this request may begin. As an error: what is done if it may not. A dead worker's lease is
    /// ended.
    pub(super) fn begins<T>(
        &self,
        request: &Request,
        attempt: AttemptId,
        times: Times,
        current: Option<&Record>,
        Moment { revision, now }: Moment,
    ) -> Result<Transition, Step<Result<T, Found>>> {
        let operation = self.operation();
        let reservation = ReservationRequest {
            key: request.key.clone(),
            fingerprints: request.fingerprints.clone(),
            answer_kind: request.answer_kind,
            attempt,
            lease_until: operation.lease_until(times.ends.map(|ends| ends.wall), now),
            retention: operation.retain,
            admission: request.admission.clone(),
            may_run_again: operation.may_run_again(),
            effects: operation.effects(),
            work: request.work,
            origin: request.origin.clone(),
        };
        decide(current, &reservation, revision, now).map_err(|found| {
            let ended = current.and_then(|current| match found {
                Found::DeadWorker => current.expire(revision, now),
                Found::Abandoned => current.abandon(revision, now),
                _ => None,
            });
            ended.map_or(Step::Stop(Err(found)), |ended| Step::Write(ended.into(), Err(found)))
        })
    }

    pub(super) async fn outcome(
        &self,
        request: &Request,
        found: Result<Term, Found>,
        record: Option<Box<Record>>,
        times: Times,
    ) -> Result<ReserveOutcome, StoreError> {
        let now = self.engine.world.now();
        Ok(match (found, record) {
            (Ok(until), Some(record)) => self.own(request, record, times, until).await,
            (Err(Found::MayNotBegin), _) => ReserveOutcome::MayNotBegin,
            (Err(Found::PerhapsInFlight), _) => ReserveOutcome::PerhapsInFlight,
            (Err(Found::TooLate), _) => ReserveOutcome::TooLate,
            (Err(Found::Gone), _) => ReserveOutcome::Gone,
            (Err(Found::OtherPhases), Some(_)) => {
                tracing::error!(
                    "an interrupted operation has other phases than this deployment declares: was the handler changed?"
                );
                ReserveOutcome::OtherPhases
            }
            (Err(Found::DeadWorker), Some(record)) if !matches!(record.state, State::Completed { .. }) => {
                telemetry::lease_expired(&record, now);
                match record.state {
                    // Released by certainty: its transaction can no longer commit.
                    State::FailedRetryable { .. } | State::Pending { .. } => {
                        match request.admission.begins(now) {
                            Err(Found::PerhapsInFlight) => ReserveOutcome::PerhapsInFlight,
                            Err(Found::TooLate) => ReserveOutcome::TooLate,
                            _ => ReserveOutcome::MayNotBegin,
                        }
                    }
                    _ => ReserveOutcome::Unknown { wait: record.wait(now) },
                }
            }
            (Err(Found::Abandoned), Some(record)) if !matches!(record.state, State::Completed { .. }) => {
                tracing::error!(
                    "accepted work is claimed too late, and perhaps something was done: it is escalated"
                );
                ReserveOutcome::Unknown { wait: record.wait(now) }
            }
            // Of a dead worker: the write that proved that it did nothing ended the work with 408.
            (Err(Found::Completed | Found::Abandoned | Found::DeadWorker), Some(record)) => {
                let replay = self.engine.replay(&record, times.answer_by).await?;
                if replay.is_some() {
                    telemetry::replayed(record.attempts);
                }
                replay.map_or(ReserveOutcome::BRIEFLY_IN_FLIGHT, ReserveOutcome::Replay)
            }
            (Err(Found::Mismatch), Some(_)) => {
                tracing::warn!("the key was reused for another request");
                ReserveOutcome::Mismatch
            }
            (Err(Found::Incomparable), Some(record)) => {
                tracing::error!(
                    rule = record.fingerprint.rule(),
                    "the record's fingerprint was made by a rule that this deployment does not know: a newer version wrote it, or \
                     the rule was changed without Operation::formerly"
                );
                ReserveOutcome::Unreadable
            }
            (Err(Found::Unknown), Some(record)) => ReserveOutcome::Unknown { wait: record.wait(now) },
            (Err(Found::InFlight), Some(record)) => {
                let (wait, lease_left, state) =
                    (record.wait(now), record.lease_left(now), record.state.name());
                ReserveOutcome::InFlight { wait, lease_left, state }
            }
            (_, None) => ReserveOutcome::BRIEFLY_IN_FLIGHT,
        })
    }

    /// Checks the time once more before the handler runs. If the store's answer came late, because we waited or the process was
    /// frozen, the lease may have expired and others may run (T39), or a retry may have been told that the key is too old, before this
    /// record was there (T43). Nothing is awaited between this check and the handler.
    async fn own(&self, request: &Request, record: Box<Record>, times: Times, until: Term) -> ReserveOutcome {
        let world = &self.engine.world;
        if world.left(until) < times.min_time || request.admission.is_over(world.now()) {
            tracing::warn!("the reservation came too late to run the handler: it is taken back");
            self.take_back_now(Tried { record, over: None }, TakeBack::Now, times.ends_at()).await;
            return ReserveOutcome::TooLate;
        }
        let (seen, record) = (record.clone(), Arc::new(Mutex::new(*record)));
        let phasing = seen.phases().is_some().then(|| Phasing::new(self.clone(), record.clone()));
        let execution = Execution::new(&seen, times.ends, until, &self.engine, phasing);
        let heartbeat = self.start_heartbeat(record.clone(), execution.clone());
        ReserveOutcome::Owned(Ownership { execution, record, heartbeat, status: None })
    }

    pub(super) fn failed(&self, error: &StoreError) -> ReserveOutcome {
        let (kind, cause) = (error.kind(), error.cause());
        tracing::error!(?kind, cause, "reservation failed: the request is refused");
        match kind {
            StoreErrorKind::Unreadable => ReserveOutcome::Unreadable,
            _ => ReserveOutcome::Unavailable,
        }
    }
}
