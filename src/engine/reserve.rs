//! Reserves a key, or reports what holds it.

use std::{
    fmt,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::future::{self, MaybeDone};
use tokio::sync::Mutex;

use super::{
    Applied, Effort, Execution, Executor, Moment, Ownership, Request, Retries, Start, Step, Tried, Unapplied,
    phasing::Phasing,
    standing::{beside, end_reading},
    take_back::TakeBack,
};
use crate::{
    operation::WhileInFlight,
    record::{
        Answer, AttemptId, Found, Record, ReservationRequest, Says, Standing, State, Transition, Work, decide,
    },
    store::{StoreError, StoreErrorKind},
    telemetry::{self, Count, RESERVE_LATENCY},
    time::{Instant, Timestamp},
    time_budget::{POLL_BACKOFF, TimeBudget, plausible_deadline},
    world::{Term, World},
};

/// A kept answer.
#[derive(Clone)]
pub struct Replay {
    /// The answer.
    pub answer: Answer,
    /// Whether its body was too large to be kept, or is gone. Then it is empty.
    pub body_omitted: bool,
    /// When the operation was completed.
    pub first_at: Timestamp,
    /// Until when the answer is kept.
    pub expires_at: Timestamp,
}

impl fmt::Debug for Replay {
    /// Without the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("head", &self.answer.head).finish_non_exhaustive()
    }
}

/// What a request does next.
pub(super) enum Next<T> {
    /// It begins, with this.
    Begins(T),
    /// What must end first has ended: a dead worker's lease, or the time of accepted work. It asks again.
    Ended {
        /// Whether it was a lease.
        is_lease: bool,
    },
    /// Its caller is told this.
    Says(Says),
}

/// The step of a request that found this in its current record.
pub(super) fn instead<T>(found: Found, current: Option<&Record>) -> Step<Next<T>> {
    let is_lease = current.is_some_and(|current| matches!(current.state, State::InProgress { .. }));
    match found {
        Found::Ends(ended) => Step::Write(ended.into(), Next::Ended { is_lease }),
        Found::Says(says) => Step::Stop(Next::Says(says)),
    }
}

/// What became of a request, and the record that it wrote, or found.
type Reserved = (Result<Begun, Says>, Option<Box<Record>>);

/// What a request begins with.
struct Begun {
    /// Until when it owns its record.
    until: Term,
    /// Whether a dead worker perhaps did something, and no phase says what.
    over_perhaps: bool,
    /// The record that it begins over, if its tenant has bounds.
    over: Option<Box<Record>>,
}

/// Whether its worker perhaps did something that nothing in the record tells. An interrupted one with phases is resumed all the same.
fn perhaps_executed(record: &Record) -> bool {
    matches!(record.state, State::InProgress { .. } | State::Unknown { .. })
        && record.phases().is_none()
        && !record.is_undone_by_the_next_write()
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
    ///
    /// # Errors
    /// If the caller does not own it: what it is told instead.
    ///
    /// # Panics
    /// If the request is for another operation, or to be executed later: [`run_single_transaction`](Self::run_single_transaction) accepts it.
    pub async fn reserve(&self, request: &Request) -> Result<Ownership, Says<Replay>> {
        self.assert_own(request);
        assert!(
            !matches!(request.work, Work::Later { .. }),
            "what is executed later is accepted, not reserved"
        );
        let world = &self.engine.world;
        let started = world.instant();
        let reserved = if self.shared.breaker.admits(started) {
            let times = self.times(request);
            let unread = self.unread_before(request, times.answer_by).await;
            let mut reading = pin!(future::maybe_done(self.read_rules()));
            let found = beside(self.find(request, times, unread.as_ref()), reading.as_mut()).await;
            self.observe_store(found.as_ref().err());
            match (found, unread) {
                (Ok((Ok(begun), Some(record))), _) => self.own(request, record, times, begun, reading).await,
                (Ok((Err(Says::Stopped), _)), Some(error)) => Err(self.failed(&error)),
                (found, _) => {
                    end_reading(reading);
                    Err(self.not_begun(found, times).await)
                }
            }
        } else {
            Err(Says::Unavailable)
        };
        match &reserved {
            Ok(owned) if owned.execution().attempts() > 1 => Count::FailedRetry.add(self.operation().name()),
            Ok(_) => Count::Created.add(self.operation().name()),
            Err(says) => self.count(says),
        }
        telemetry::took(RESERVE_LATENCY, self.operation().name(), world.instant().since(started));
        reserved
    }

    /// The answer to a request that began nothing.
    async fn not_begun(&self, found: Result<Reserved, StoreError>, times: Times) -> Says<Replay> {
        match found {
            Ok((Ok(_), _)) => Says::BRIEFLY_IN_FLIGHT,
            Ok((Err(says), record)) => {
                let told = self.told_of(says, record.as_deref(), times).await;
                told.unwrap_or_else(|error| self.failed(&error))
            }
            Err(error) => self.failed(&error),
        }
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

    /// Counts a request that ran nothing. An execution that owns its record is counted when it ends.
    pub(super) fn count(&self, says: &Says<Replay>) {
        let count = match says {
            Says::Replay(_) | Says::Refused(_) | Says::Own { .. } | Says::Released | Says::Gone => {
                Count::Replay
            }
            Says::InFlight { .. } | Says::PerhapsInFlight | Says::AnsweredElsewhere => Count::InProgress,
            Says::Mismatch => Count::KeyMisuse,
            Says::Unknown { .. } | Says::Interrupted => Count::Unknown,
            Says::MayNotBegin => Count::TooOld,
            Says::TooLate => Count::TooLate,
            Says::OverBound { .. } => Count::OverBound,
            Says::Stopped => Count::Stopped,
            Says::Unconfirmed => Count::Unconfirmed,
            Says::Unavailable | Says::Unreadable | Says::NotCommitted => Count::StoreError,
            Says::Throttled => Count::Throttled,
            Says::OtherPhases => Count::PhaseMismatch,
        };
        count.add(self.operation().name());
        telemetry::ended(says.name());
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

    /// Writes or decides until an execution begins, or the caller is told something: first as if there is no record, then for the
    /// current one.
    async fn find(
        &self,
        request: &Request,
        times: Times,
        unread: Option<&StoreError>,
    ) -> Result<Reserved, StoreError> {
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
        let mut over_perhaps = false;
        let step = |current: Option<&Record>, moment: Moment| match self.begins(
            request,
            attempt,
            // By what is known now, because it may have waited.
            (times, self.standing(request, unread)),
            current,
            moment,
        ) {
            Ok(next) => {
                let until = times.ends.unwrap_or_else(|| world.term(operation.lease));
                let over = current.filter(|_| self.has_bounds()).cloned().map(Box::new);
                over_perhaps = current.is_some_and(perhaps_executed);
                match world.left(until) {
                    left if left < times.min_time => Step::Stop(Next::Says(Says::TooLate)),
                    _ => Step::Write(next.into(), Next::Begins(Begun { until, over_perhaps, over })),
                }
            }
            Err(Found::Says(says @ Says::InFlight { .. })) => {
                match wait_until.map(|until| until.since(world.instant())) {
                    Some(left) if !left.is_zero() => Step::Wait(left),
                    _ => Step::Stop(Next::Says(says)),
                }
            }
            Err(found) => instead(found, current),
        };
        // One try: the client may retry, and should not wait for a store that fails. A transaction in progress counts as an
        // execution in flight (T9).
        let retries = wait_until.map_or(Retries::None, Retries::Contended);
        let effort = Effort { until: times.answer_by, backoff: POLL_BACKOFF, retries };
        // Inserts without a read, because most keys are fresh. A request that may not begin, or has no time to, inserts nothing.
        let begins = request.admission.begins(world.now()).is_ok()
            && self.standing(request, unread).begins().is_ok()
            && !matches!(request.work, Work::Claimed(_));
        let start =
            if begins && !times.is_too_late(&**world) { Start::Absent } else { Start::Unread(&request.key) };
        match self.settle(start, effort, step).await {
            // Our own reservation was applied, but its answer was lost, and the record has been changed since.
            Ok((Err(says), Some(current)))
                if current.attempt == attempt && !matches!(says, Says::Replay(_)) =>
            {
                if !over_perhaps {
                    let tried = Tried { record: current, over: None };
                    self.take_back_now(tried, TakeBack::Now, times.ends_at()).await;
                }
                Ok((Err(Says::TooLate), None))
            }
            Ok(found) => Ok(found),
            Err(Unapplied { error, tried, contended, .. }) => {
                let kind = if contended { StoreErrorKind::Contended } else { error.kind() };
                let is_ours = |tried: &Tried| tried.record.attempt == attempt && !over_perhaps;
                if let Some(tried) = tried.filter(is_ours) {
                    match kind {
                        // A store that throttles or refuses gets only one more request.
                        StoreErrorKind::Throttled | StoreErrorKind::Refused => {
                            self.take_back(tried, TakeBack::Once);
                        }
                        // It was answered: only an earlier try can have been applied.
                        StoreErrorKind::Contended => self.take_back(tried, TakeBack::UntilApplied),
                        _ => self.take_back_now(tried, TakeBack::UntilApplied, times.ends_at()).await,
                    }
                }
                match kind {
                    // A transaction holds the record, or many change it: an execution is in flight (T9). If an earlier try of
                    // our write was applied, it is taken back.
                    StoreErrorKind::Contended => Ok((Err(Says::BRIEFLY_IN_FLIGHT), None)),
                    _ => Err(error),
                }
            }
        }
    }

    /// Carries out the steps of a request: what must end first is written, and it is asked again.
    pub(super) async fn settle<T>(
        &self,
        mut start: Start<'_>,
        effort: Effort,
        mut step: impl FnMut(Option<&Record>, Moment) -> Step<Next<T>>,
    ) -> Result<(Result<T, Says>, Option<Box<Record>>), Unapplied> {
        loop {
            let (next, record) = match self.engine.apply(start, effort, &mut step).await? {
                Applied::Written(next, record) => (next, Some(record)),
                Applied::Stopped(next, current) => (next, current),
            };
            match (next, record) {
                (Next::Begins(begun), record) => return Ok((Ok(begun), record)),
                (Next::Says(says), record) => return Ok((Err(says), record)),
                (Next::Ended { .. }, None) => return Ok((Err(Says::BRIEFLY_IN_FLIGHT), None)),
                (Next::Ended { is_lease }, Some(record)) => {
                    match record.state {
                        // The write that ended it counted that.
                        State::Completed { .. } => {}
                        _ if is_lease => telemetry::lease_expired(&record, self.engine.world.now()),
                        _ => tracing::error!(
                            "accepted work is claimed too late, and perhaps something was done: it is escalated"
                        ),
                    }
                    start = Start::Seen(record);
                }
            }
        }
    }

    /// The record of the execution that this request may begin.
    ///
    /// # Errors
    /// If it may not: what it finds instead.
    pub(super) fn begins(
        &self,
        request: &Request,
        attempt: AttemptId,
        (times, standing): (Times, Standing),
        current: Option<&Record>,
        Moment { revision, now }: Moment,
    ) -> Result<Transition, Found> {
        let operation = self.operation();
        let reservation = ReservationRequest {
            key: request.key.clone(),
            fingerprints: request.fingerprints.clone(),
            answer_kind: request.answer_kind,
            attempt,
            lease_until: operation.lease_until(times.ends.map(|ends| ends.wall), now),
            retention: operation.retain,
            admission: request.admission.clone(),
            standing,
            may_run_again: operation.may_run_again(),
            effects: operation.effects(),
            work: request.work,
            origin: request.origin.clone(),
        };
        decide(current, &reservation, revision, now)
    }

    /// What a caller is told whose request began nothing, with the answer that it gets.
    ///
    /// # Errors
    /// If that answer could not be read.
    pub(super) async fn told_of(
        &self,
        says: Says,
        record: Option<&Record>,
        times: Times,
    ) -> Result<Says<Replay>, StoreError> {
        match says {
            Says::Mismatch => tracing::warn!("the key was reused for another request"),
            Says::OtherPhases => tracing::error!(
                "an interrupted operation has other phases than this deployment declares: was the handler changed?"
            ),
            Says::Unreadable => tracing::error!(
                rule = record.map(|record| record.fingerprint.rule()),
                "the record's fingerprint was made by a rule that this deployment does not know: a newer version wrote it, or \
                 the rule was changed without Operation::formerly"
            ),
            _ => {}
        }
        let (Says::Replay(_), Some(record)) = (says, record) else {
            return Ok(says.without_answer().unwrap_or(Says::BRIEFLY_IN_FLIGHT));
        };
        let replay = self.engine.replay(record, times.answer_by).await?;
        if replay.is_some() {
            telemetry::replayed(record.attempts);
        }
        Ok(replay.map_or(Says::BRIEFLY_IN_FLIGHT, Says::Replay))
    }

    /// Checks the time once more before the handler runs. If the store's answer came late, because we waited or the process was
    /// frozen, the lease may have expired and others may run (T39), or a retry may have been told that the key is too old, before this
    /// record was there (T43). Or operators have stopped its tenant. Nothing is awaited between this check and the handler.
    async fn own(
        &self,
        request: &Request,
        record: Box<Record>,
        times: Times,
        Begun { until, over_perhaps, over }: Begun,
        reading: Pin<&mut MaybeDone<impl Future<Output = Result<(), StoreError>>>>,
    ) -> Result<Ownership, Says<Replay>> {
        let world = &self.engine.world;
        let unread = self.unread_rules(reading, times.answer_by).await;
        let standing = self.standing(request, unread.as_ref());
        // By the time of the reservation: what has ended since is the lease's affair.
        let moment = Moment { revision: record.revision, now: record.began_at };
        // It was asked so before, but perhaps by older rules, and some time ago.
        if standing.begins_again().is_err()
            && self.begins(request, record.attempt, (times, standing), over.as_deref(), moment).is_err()
        {
            tracing::warn!(
                "its tenant is stopped, or the rules of tenants cannot be read: the reservation is taken back"
            );
            self.take_own_back(record, over_perhaps, times).await;
            return Err(unread.map_or(Says::Stopped, |error| self.failed(&error)));
        }
        if world.left(until) < times.min_time || request.admission.is_over(world.now()) {
            tracing::warn!("the reservation came too late to run the handler: it is taken back");
            self.take_own_back(record, over_perhaps, times).await;
            return Err(Says::TooLate);
        }
        let (seen, record) = (record.clone(), Arc::new(Mutex::new(*record)));
        let phasing = seen.phases().is_some().then(|| Phasing::new(self.clone(), record.clone()));
        let execution = Execution::new(&seen, times.ends, until, &self.engine, phasing);
        let heartbeat = self.start_heartbeat(record.clone(), execution.clone());
        Ok(Ownership { execution, record, heartbeat, status: None })
    }

    /// That it did nothing says nothing of the worker before it. If that one perhaps did something, the lease of this reservation ends it: then
    /// it is unknown, as it was.
    async fn take_own_back(&self, record: Box<Record>, over_perhaps: bool, times: Times) {
        if !over_perhaps {
            self.take_back_now(Tried { record, over: None }, TakeBack::Now, times.ends_at()).await;
        }
    }

    pub(super) fn failed(&self, error: &StoreError) -> Says<Replay> {
        let (kind, cause) = (error.kind(), error.cause());
        tracing::error!(?kind, cause, "reservation failed: the request is refused");
        match kind {
            StoreErrorKind::Unreadable => Says::Unreadable,
            StoreErrorKind::Throttled => Says::Throttled,
            StoreErrorKind::Unavailable
            | StoreErrorKind::Unauthenticated
            | StoreErrorKind::Refused
            | StoreErrorKind::Contended
            | StoreErrorKind::InProgress => Says::Unavailable,
        }
    }
}
