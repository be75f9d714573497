//! Operations without an effect outside of DynamoDB: answer and domain writes are computed, and commit with the record in one
//! transaction.
//!
//! 1. Nothing is reserved. The handler runs first; its transaction inserts a completed record, if there is none.
//! 2. Of several at once one commits; the others find its record, and get its answer.
//! 3. So the handler may run more than once for a key. Its writes commit once.
//! 4. The outcome is never unknown to the record: it is completed, or nothing happened. A client that got no answer sends the
//!    request again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::{
    Applied, Effort, Executor, Moment, Request, ReserveOutcome, Retries, Start, Step,
    commit::{self, Refusal},
    pending::Pending,
    reserve::{Found, Times},
};
use crate::{
    domain::{DomainWrite, DomainWriteError},
    key::{IdempotencyKey, RecordKey, Tenant},
    record::{Answer, AttemptId, Record, State, Worker},
    store::{StoreError, StoreErrorKind},
    telemetry::{self, COMPLETE_LATENCY, Count},
    time::Timestamp,
    time_budget::{CLOCK_SKEW, MAX_COMMITS, TimeBudget, WRITE_BACKOFF},
};

/// One run of a handler whose effects are all [domain writes](crate::domain). Its answer and its writes commit in one
/// transaction; until then nothing has happened, and the handler may run again.
///
/// HTTP handlers find it in the request's extensions; axum handlers take it as an argument. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SingleTransaction(Arc<Run>);

#[derive(Debug)]
struct Run {
    key: RecordKey,
    pending: Mutex<Pending>,
}

impl SingleTransaction {
    fn new(key: &RecordKey, records: Option<&str>) -> Self {
        Self(Arc::new(Run { key: key.clone(), pending: Mutex::new(Pending::new(records)) }))
    }

    /// The verified caller.
    pub fn tenant(&self) -> &Tenant {
        self.0.key.tenant()
    }

    /// The client's key, as it came.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        self.0.key.idempotency_key()
    }

    /// The record's identity. Log its [`hash`](RecordKey::hash), not the key.
    pub fn record_key(&self) -> &RecordKey {
        &self.0.key
    }

    /// Writes to a table of yours, in the transaction that makes this run's answer the operation's. If the answer is none to
    /// keep, nothing is written.
    ///
    /// # Errors
    /// If DynamoDB would refuse it. Then none of this run's writes commits, whatever the handler answers.
    pub fn write(&self, write: DomainWrite) -> Result<(), DomainWriteError> {
        self.pending().add(write)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a run of the handler came to. `T` is its own reply, for its own caller.
#[derive(Debug)]
pub enum Computed<T> {
    /// This answer is the operation's, once its writes are committed.
    Answer(Answer, T),
    /// It is none to keep: nothing is written.
    Nothing(T),
}

/// What became of an operation in one transaction.
#[derive(Debug)]
#[non_exhaustive]
pub enum SingleTransactionOutcome<T> {
    /// It is committed.
    Committed {
        /// The handler's own reply.
        reply: T,
        /// Until when its answer is kept.
        expires_at: Option<Timestamp>,
    },
    /// A domain write was refused: the operation is completed with the answer that the write has for that.
    Refused {
        /// The answer.
        answer: Answer,
        /// Until when it is kept.
        expires_at: Option<Timestamp>,
    },
    /// The handler's answer is none to keep. Nothing is written, and there is no record.
    Nothing(T),
    /// There is a record that says something else.
    Found(ReserveOutcome),
    /// It is not committed, as far as anybody can see; but a try of it may be on its way. A retry with the same key finds out.
    Unconfirmed,
}

/// The outcome of one transaction.
enum Sent {
    Committed(Box<Record>),
    Found(ReserveOutcome),
    Denied(Vec<usize>),
    /// It was not sent: too much time has passed since the request began.
    TooLate,
}

/// A request that is being served.
#[derive(Clone, Copy)]
struct Served<'a> {
    request: &'a Request,
    times: Times,
    /// Until when its transaction may be sent, by the wall clock. A client may send a request until its answer expires, and the
    /// record counts as absent [`CLOCK_SKEW`] after that: whoever thaws later would do again what it says was done (T39).
    send_until: Timestamp,
}

impl Executor {
    /// Runs `compute`, and commits its answer with its writes in one transaction: one round trip, if the key is fresh.
    ///
    /// A duplicate computes too, and its transaction finds the record. It costs as much as a first request.
    pub async fn run_single_transaction<T>(
        &self,
        request: &Request,
        mut compute: impl FnMut(SingleTransaction) -> BoxFuture<'static, Computed<T>>,
    ) -> SingleTransactionOutcome<T> {
        let (times, now) = (self.times(request), self.engine.world.now());
        // First, because it asks nobody: the breaker's one probe would be lost.
        if times.is_too_late(&**self.in_world()) {
            return self.instead(ReserveOutcome::TooLate);
        }
        if !self.shared.breaker.admits(self.engine.world.instant()) {
            return self.instead(ReserveOutcome::Unavailable);
        }
        let served = Served { request, times, send_until: now.plus(CLOCK_SKEW) };
        if !request.may_begin {
            return match self.look(request, times).await {
                Ok(current) => self.instead(current.unwrap_or(ReserveOutcome::MayNotBegin)),
                Err(error) => self.instead(self.failed(&error)),
            };
        }
        for run in 0..MAX_COMMITS {
            let transaction = SingleTransaction::new(&request.key, self.engine.store.records_table());
            let (answer, reply) = match compute(transaction.clone()).await {
                Computed::Answer(answer, reply) => (answer, reply),
                // A duplicate gets what the first one got, whatever the handler says now.
                Computed::Nothing(reply) => {
                    return match self.look(request, times).await {
                        Ok(Some(current)) => self.instead(current),
                        Ok(None) if run == 0 => SingleTransactionOutcome::Nothing(reply),
                        // The transaction of the run before may still land.
                        Ok(None) => SingleTransactionOutcome::Unconfirmed,
                        // The operation may be done: nothing else must be said of it (T43).
                        Err(error) if run == 0 => self.instead(self.failed(&error)),
                        Err(error) => self.unsent(&error),
                    };
                }
            };
            let writes = transaction.pending().finish();
            let writes = match writes {
                Ok(writes) => writes,
                // A duplicate gets what the first one got, also now.
                Err(error) => {
                    return match self.look(request, times).await {
                        Ok(Some(current)) => self.instead(current),
                        Ok(None) => {
                            self.refused_early(&error);
                            SingleTransactionOutcome::Unconfirmed
                        }
                        Err(error) => self.unsent(&error),
                    };
                }
            };
            match self.transact(served, run, answer, &writes).await {
                Ok(Sent::Committed(record)) => {
                    let expires_at = self.committed(&record);
                    return SingleTransactionOutcome::Committed { reply, expires_at };
                }
                Ok(Sent::Found(current)) => return self.instead(current),
                Ok(Sent::Denied(denied)) => match commit::refusal(&writes, &denied) {
                    Refusal::Stale if run + 1 < MAX_COMMITS => {}
                    Refusal::Answer(answer) => {
                        return self.refuse(served, self.as_replayed(answer)).await;
                    }
                    Refusal::Stale | Refusal::NoAnswerSet => {
                        self.no_answer_set(&writes, &denied);
                        return SingleTransactionOutcome::Unconfirmed;
                    }
                },
                Ok(Sent::TooLate) => return self.resumed_too_late(),
                Err(error) => return self.unsent(&error),
            }
        }
        SingleTransactionOutcome::Unconfirmed
    }

    /// A refusal is an answer like any other: inserted by itself, if there is still no record.
    async fn refuse<T>(&self, served: Served<'_>, answer: Answer) -> SingleTransactionOutcome<T> {
        match self.transact(served, 1, answer.clone(), &[]).await {
            Ok(Sent::Committed(record)) => {
                let expires_at = self.committed(&record);
                SingleTransactionOutcome::Refused { answer, expires_at }
            }
            Ok(Sent::Found(current)) => self.instead(current),
            Ok(Sent::Denied(_)) => SingleTransactionOutcome::Unconfirmed,
            Ok(Sent::TooLate) => self.resumed_too_late(),
            Err(error) => self.unsent(&error),
        }
    }

    /// Sends the transaction until it is answered: the same bytes under the same token. `run` is the number of runs before, whose
    /// transactions may still land.
    async fn transact(
        &self,
        Served { request, times, send_until }: Served<'_>,
        run: u32,
        answer: Answer,
        writes: &[DomainWrite],
    ) -> Result<Sent, StoreError> {
        let world = &self.engine.world;
        let started = world.instant();
        let attempt: AttemptId = world.nonce().into();
        let write =
            TimeBudget::at(started, times.ends_at()).write(self.operation().completion_timeout, false);
        let fresh = Moment { revision: world.nonce().into(), now: world.now() };
        let Err(fresh) = self.found(request, attempt, times, None, fresh) else {
            return Ok(Sent::Found(ReserveOutcome::MayNotBegin));
        };
        let also = &self.operation().kept_headers;
        if self.engine.place(&fresh, answer.clone(), also).is_outside()
            && let Some(current) = match self.look(request, times).await {
                Ok(current) => current,
                // Nothing was sent.
                Err(error) if run == 0 => Some(self.failed(&error)),
                Err(error) => return Err(error),
            }
        {
            // A body beside the record costs as much as it is large: not for a duplicate (T38).
            return Ok(Sent::Found(current));
        }
        let kept = self.engine.keep(&fresh, answer, also, write).await;
        let step = |current: Option<&Record>, moment: Moment| {
            let begun = match self.found(request, attempt, times, current, moment) {
                Ok(Step::Write(change, found)) => return Step::Write(change, Some(found)),
                Ok(Step::Stop(found)) => return Step::Stop(Some(found)),
                Ok(Step::Wait(at_most)) => return Step::Wait(at_most),
                Err(_) if moment.now > send_until => return Step::Stop(None),
                Err(begun) => Record { transactional: true, ..*begun },
            };
            match begun.complete(Worker::of(&begun), moment.revision, kept.clone(), moment.now) {
                Ok(next) => Step::Write(commit::completing(next, writes), None),
                // Never: it has just begun.
                Err(_) => Step::Stop(Some(Found::InFlight)),
            }
        };
        let until = Some(started.plus(write));
        let effort = Effort { until, backoff: WRITE_BACKOFF, retries: Retries::Unanswered };
        let applied = self.engine.apply(Start::Absent, effort, step).await;
        telemetry::took(COMPLETE_LATENCY, self.operation().name(), world.instant().since(started));
        // A conflict, or a write that it refuses, is the answer of a store that is well.
        let is_answer = |kind| matches!(kind, StoreErrorKind::Contended | StoreErrorKind::Refused);
        let error = applied.as_ref().err().map(|unapplied| &unapplied.error);
        // Too late: it was not asked.
        if !matches!(applied, Ok(Applied::Stopped(None, _))) {
            self.observe_store(error.filter(|error| !is_answer(error.kind())));
        }
        match applied {
            Ok(Applied::Written(None, record)) => Ok(Sent::Committed(record)),
            Ok(Applied::Written(Some(found), record)) => {
                Ok(Sent::Found(self.outcome(found, Some(record), times).await?))
            }
            Ok(Applied::Stopped(Some(found), current)) => {
                Ok(Sent::Found(self.outcome(found, current, times).await?))
            }
            Ok(Applied::Stopped(None, _)) => Ok(Sent::TooLate),
            Err(unapplied) if !unapplied.denied.is_empty() => Ok(Sent::Denied(unapplied.denied)),
            Err(unapplied) => Err(unapplied.error),
        }
    }

    /// What the key's record says, if there is one.
    async fn look(&self, request: &Request, times: Times) -> Result<Option<ReserveOutcome>, StoreError> {
        let attempt: AttemptId = self.engine.world.nonce().into();
        let step = |current: Option<&Record>, moment: Moment| {
            match current.map(|current| self.found(request, attempt, times, Some(current), moment)) {
                Some(Ok(Step::Stop(found))) => Step::Stop(Some(found)),
                Some(Ok(Step::Write(change, found))) => Step::Write(change, Some(found)),
                Some(Ok(Step::Wait(at_most))) => Step::Wait(at_most),
                // A dead worker's transaction may still be on its way: nothing is said before it is fenced.
                Some(Err(_)) if current.is_some_and(Record::is_undone_by_the_next_write) => {
                    let fenced = current.and_then(|current| current.expire(moment.revision, moment.now));
                    fenced.map_or(Step::Stop(None), |fenced| Step::Write(fenced.into(), None))
                }
                // It may run again, as its operation says; but nothing is known of the worker before.
                Some(Err(_))
                    if current.is_some_and(|current| !current.expired(moment.now) && is_open(current)) =>
                {
                    Step::Stop(Some(Found::Unknown))
                }
                // Nothing that hinders a later request.
                Some(Err(_)) | None => Step::Stop(None),
            }
        };
        let effort = Effort { until: times.answer_by, backoff: WRITE_BACKOFF, retries: Retries::None };
        let applied = self.engine.apply(Start::Unread(&request.key), effort, step).await;
        let error = applied.as_ref().err().map(|unapplied| &unapplied.error);
        self.observe_store(error.filter(|error| error.kind() != StoreErrorKind::Contended));
        match applied.map_err(|unapplied| unapplied.error)? {
            Applied::Written(Some(found), record) => {
                Ok(Some(self.outcome(found, Some(record), times).await?))
            }
            Applied::Stopped(Some(found), current) => Ok(Some(self.outcome(found, current, times).await?)),
            Applied::Written(None, _) | Applied::Stopped(None, _) => Ok(None),
        }
    }

    fn committed(&self, record: &Record) -> Option<Timestamp> {
        Count::Transacted.add(self.operation().name());
        telemetry::executed(record.attempts, "completed");
        record.state.expires_at()
    }

    fn instead<T>(&self, current: ReserveOutcome) -> SingleTransactionOutcome<T> {
        self.count(&current);
        SingleTransactionOutcome::Found(current)
    }

    /// The process was frozen, or its clock was set forward.
    fn resumed_too_late<T>(&self) -> SingleTransactionOutcome<T> {
        tracing::error!("too much time has passed since the request began: its transaction is not sent");
        Count::Unconfirmed.add(self.operation().name());
        SingleTransactionOutcome::Unconfirmed
    }

    /// The transaction was not answered, or not taken.
    fn unsent<T>(&self, error: &StoreError) -> SingleTransactionOutcome<T> {
        let (operation, kind) = (self.operation().name(), error.kind());
        tracing::error!(?kind, cause = error.cause(), "a transaction is not confirmed");
        if kind == StoreErrorKind::Unreadable {
            return self.instead(ReserveOutcome::Unreadable);
        }
        // Whatever the last try's answer was: one before it, or one inside the SDK, may have been applied.
        Count::Unconfirmed.add(operation);
        if kind != StoreErrorKind::Contended {
            Count::StoreError.add(operation);
        }
        SingleTransactionOutcome::Unconfirmed
    }
}

fn is_open(record: &Record) -> bool {
    matches!(record.state, State::InProgress { .. } | State::Unknown { .. })
}
