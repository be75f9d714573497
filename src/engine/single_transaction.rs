//! Operations without an effect outside of DynamoDB: answer and domain writes are computed, and commit with the record in one
//! transaction.
//!
//! 1. Nothing is reserved. The handler runs first. Its transaction inserts a completed record, if there is none.
//! 2. Of several concurrent requests one commits. The others find its record, and get its answer.
//! 3. So the handler may run more than once for a key. Its writes commit once.
//! 4. There is never a record with an unknown outcome: it is completed, or nothing happened. A client that got no answer sends
//!    the request again.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures_util::future::{self, BoxFuture};
use serde::Serialize;

use super::{
    Effort, Executor, Moment, Replay, Request, Retries, Start, Step,
    collected::Collected,
    commit,
    reserve::{Next, Times, instead},
    run::Replied,
    standing::{beside, end_reading},
};
use crate::{
    bounds::Bounds,
    domain::{DomainWrite, DomainWriteError, IfRefused, Topic},
    key::{IdempotencyKey, RecordKey, Tenant},
    record::{Answer, AttemptId, Found, Record, Says, Standing, State},
    store::{Companion, StoreError, StoreErrorKind},
    telemetry::{self, COMPLETE_LATENCY, Count},
    time::Timestamp,
    time_budget::{MAX_COMPUTATIONS, MAX_SENDING_TIME, TimeBudget, WRITE_BACKOFF},
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
    collected: Mutex<Collected>,
}

impl SingleTransaction {
    fn new(request: &Request, records: Option<&str>) -> Self {
        let collected = Mutex::new(Collected::new(records, request.answer_kind));
        Self(Arc::new(Run { key: request.key.clone(), collected }))
    }

    /// The verified caller.
    pub fn tenant(&self) -> &Tenant {
        self.0.key.tenant()
    }

    /// The client's key, unchanged.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        self.0.key.idempotency_key()
    }

    /// The record's identity. Log its [`hash`](RecordKey::hash), not the key.
    pub fn record_key(&self) -> &RecordKey {
        &self.0.key
    }

    /// Writes to a table of yours, in the transaction that keeps this run's answer as the operation's. If the answer must not be
    /// kept, nothing is written.
    ///
    /// # Errors
    /// If DynamoDB would refuse it. Then none of this run's writes commits, even if the handler returns an answer.
    pub fn write(&self, write: DomainWrite) -> Result<(), DomainWriteError> {
        self.collected().add(write)
    }

    /// Publishes a message in the same transaction: see [`Execution::publish`](super::Execution::publish).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn publish(&self, topic: &Topic, body: &impl Serialize) -> Result<(), DomainWriteError> {
        self.write(topic.message(body))
    }

    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.0.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a run of the handler. `T` is its reply to the caller of this run.
#[derive(Debug)]
pub enum Computed<T> {
    /// This answer is the operation's, once its writes are committed.
    Answer(Answer, T),
    /// The operation is accepted, once its writes are committed: a worker executes it later, with this request.
    Accepted(Bytes, T),
    /// An answer that must not be kept: nothing is written.
    Nothing(T),
}

/// What commits.
enum Content {
    /// The operation's answer.
    Answer(Answer),
    /// The request that a worker executes later.
    Request(Bytes),
}

/// A request up to so many bytes is sent before anything is read: a refused transaction costs what it would have written (T38).
const MAX_UNREAD: usize = 4 * 1024;

/// What became of one run's transaction.
enum Sent {
    /// It is committed, and its answer is kept until then.
    Committed(Option<Timestamp>),
    /// The conditions of the writes at these places failed.
    Denied(Vec<usize>),
}

/// A request that is being served.
#[derive(Clone, Copy)]
struct Served<'a> {
    request: &'a Request,
    times: Times,
    standing: Standing,
    /// Whether the rules of tenants are too old, and could not be read.
    unread: bool,
    /// Until when its transaction may be sent, each time, by the wall clock. A client may retry until the answer expires, and the
    /// record counts as absent [`CLOCK_SKEW`] after that: a process that resumes later would repeat a completed operation (T39).
    ///
    /// [`CLOCK_SKEW`]: crate::time_budget::CLOCK_SKEW
    send_until: Timestamp,
}

impl Executor {
    /// Runs `compute`, and commits its answer with its writes in one transaction: one round trip, if the key is fresh.
    ///
    /// A duplicate computes too, and its transaction finds the record. It costs as much as a first request.
    ///
    /// # Panics
    /// If the request is for another operation.
    pub async fn run_single_transaction<T>(
        &self,
        request: &Request,
        compute: impl FnMut(SingleTransaction) -> BoxFuture<'static, Computed<T>>,
    ) -> Replied<T> {
        self.assert_own(request);
        let started = self.engine.world.instant();
        let replied = self.transacted(request, compute).await;
        // What is accepted has no answer yet.
        let is_answer = matches!(replied.says, Says::Own { expires_at: Some(_) });
        self.observe(request, &replied, is_answer, None, started);
        replied
    }

    async fn transacted<T>(
        &self,
        request: &Request,
        mut compute: impl FnMut(SingleTransaction) -> BoxFuture<'static, Computed<T>>,
    ) -> Replied<T> {
        let (times, now) = (self.times(request), self.engine.world.now());
        // Before the breaker, because its one probe must reach the store.
        if times.is_too_late(&*self.engine.world) {
            return self.instead(Says::TooLate).into();
        }
        if !self.shared.breaker.admits(self.engine.world.instant()) {
            return self.instead(Says::Unavailable).into();
        }
        let send_until = now.plus(MAX_SENDING_TIME);
        let send_until = request.admission.begin_by().map_or(send_until, |begin_by| begin_by.min(send_until));
        let unread = self.unread_before(request, times.answer_by).await;
        let standing = self.standing(request, unread.as_ref());
        let mut served = Served { request, times, standing, unread: unread.is_some(), send_until };
        let mut reading = pin!(future::maybe_done(self.read_rules()));
        if request.admission.refusal().is_some() {
            return match self.current(served, false).await {
                // The client's earlier request was in time, and its transaction may still commit (T43).
                Some(Says::PerhapsInFlight) => {
                    tracing::warn!("a key has just become too old: a transaction of it may be on its way");
                    Count::Unconfirmed.add(self.operation().name());
                    Says::Unconfirmed
                }
                current => current.unwrap_or_else(|| self.instead(Says::MayNotBegin)),
            }
            .into();
        }
        if served.standing.begins().is_err()
            && let Some(current) = self.current(served, false).await
        {
            return current.into();
        }
        // The number of earlier runs.
        let mut run = 0;
        loop {
            let transaction = SingleTransaction::new(request, self.engine.store.records_table());
            let computed = beside(compute(transaction.clone()), reading.as_mut()).await;
            let (content, reply) = match computed {
                Computed::Answer(answer, reply) => (Content::Answer(answer), reply),
                Computed::Accepted(body, reply) => (Content::Request(body), reply),
                // A duplicate gets the first one's answer, even if the handler returns no such answer now. If the store fails, the
                // operation may be completed, and the caller must not get another answer (T43).
                Computed::Nothing(reply) => {
                    end_reading(reading);
                    let current = self.current(served, run > 0).await;
                    return match current {
                        Some(current) => current.into(),
                        None if run == 0 => Replied { says: Says::Released, reply: Some(reply) },
                        // The transaction of an earlier run may still be applied.
                        None => Says::Unconfirmed.into(),
                    };
                }
            };
            let writes = transaction.collected().finish();
            let writes = match writes {
                Ok(writes) => writes,
                // A duplicate gets the first one's answer here too.
                Err(error) => {
                    end_reading(reading);
                    let current = self.current(served, true).await;
                    return Replied::from(current.unwrap_or_else(|| {
                        self.refused_early(&error);
                        Says::Unconfirmed
                    }));
                }
            };
            // Nothing is done yet, and the handler may have taken its time.
            let unread = self.unread_rules(reading.as_mut(), times.answer_by).await;
            served.standing = self.standing(request, unread.as_ref());
            served.unread = unread.is_some();
            // However often it is sent: operators may stop its tenant meanwhile.
            let usable_until = self.bounds.as_ref().and_then(Bounds::usable_until);
            served.send_until = usable_until.map_or(send_until, |until| until.wall.min(send_until));
            if served.standing.begins().is_err() {
                match self.current(served, run > 0).await {
                    Some(current) => return current.into(),
                    // The transaction of an earlier run may still be applied.
                    None if run > 0 => return Says::Unconfirmed.into(),
                    None => {}
                }
            }
            match self.transact(served, run > 0, &content, &writes).await {
                Ok(Sent::Committed(expires_at)) => {
                    return Replied { says: Says::Own { expires_at }, reply: Some(reply) };
                }
                Ok(Sent::Denied(denied)) => match commit::refusal(&writes, &denied) {
                    IfRefused::Recompute if run + 1 < MAX_COMPUTATIONS => run += 1,
                    IfRefused::Answer(answer) => {
                        // Inserted without domain writes, if there is still no record.
                        let answer = self.as_replayed(answer);
                        let content = Content::Answer(answer.clone());
                        return match self.transact(served, true, &content, &[]).await {
                            Ok(Sent::Committed(Some(expires_at))) => {
                                let first_at = self.engine.world.now();
                                Says::Refused(Replay { answer, body_omitted: false, first_at, expires_at })
                            }
                            Ok(Sent::Committed(None) | Sent::Denied(_)) => Says::Unconfirmed,
                            Err(says) => says,
                        }
                        .into();
                    }
                    IfRefused::Recompute | IfRefused::Fail => {
                        self.no_answer_set(&writes, &denied);
                        return Says::Unconfirmed.into();
                    }
                },
                Err(says) => return says.into(),
            }
        }
    }

    /// Sends the transaction until it is answered: the same bytes under the same token. `sent` is whether an earlier run has sent
    /// one, which may still be applied.
    ///
    /// # Errors
    /// What the caller gets instead.
    async fn transact(
        &self,
        served: Served<'_>,
        sent: bool,
        content: &Content,
        writes: &[DomainWrite],
    ) -> Result<Sent, Says<Replay>> {
        let Served { request, times, standing, send_until, .. } = served;
        let world = &self.engine.world;
        let started = world.instant();
        let attempt: AttemptId = world.nonce().into();
        let write =
            TimeBudget::at(started, times.ends_at()).write(self.operation().completion_timeout, false);
        let fresh = Moment { revision: world.nonce().into(), now: world.now() };
        // If its tenant may begin nothing new, there is a record.
        let Ok(fresh) = self.begins(request, attempt, (times, Standing::Within), None, fresh) else {
            return Err(self.sent_too_late());
        };
        let keeps = &self.operation().keeps;
        // A duplicate must not pay for a body item, which costs by its size (T38).
        let is_large = match content {
            Content::Answer(answer) => self.engine.place(&fresh, answer, keeps).is_outside(),
            Content::Request(body) => body.len() > MAX_UNREAD,
        };
        if is_large && let Some(current) = self.current(served, sent).await {
            return Err(current);
        }
        let kept = match content {
            Content::Answer(answer) => Some(self.engine.keep(&fresh, answer, keeps, write).await),
            Content::Request(_) => None,
        };
        let step = |current: Option<&Record>, moment: Moment| match self.begins(
            request,
            attempt,
            (times, standing),
            current,
            moment,
        ) {
            Ok(_) if moment.now > send_until => Step::Stop(Next::Says(Says::TooLate)),
            Ok(begun) => {
                let change = match (&kept, content, begun.accepted) {
                    (Some(kept), ..) => {
                        let next = begun.completed_at_once(kept.clone(), moment.revision, moment.now);
                        commit::completing(next, writes, moment.now)
                    }
                    (None, Content::Request(body), Some(accepted)) => {
                        let request = Companion::KeepBody(accepted.request, body.clone(), moment.now);
                        commit::with_writes(begun, writes, moment.now).and(request)
                    }
                    (None, ..) => commit::with_writes(begun, writes, moment.now),
                };
                Step::Write(change, Next::Begins(()))
            }
            Err(found) => instead(found, current),
        };
        let until = Some(started.plus(write));
        let retries = Retries::UnansweredUntil(send_until);
        let effort = Effort { until, backoff: WRITE_BACKOFF, retries };
        let start = if standing.begins().is_ok() { Start::Absent } else { Start::Unread(&request.key) };
        let applied = self.settle(start, effort, step).await;
        telemetry::took(COMPLETE_LATENCY, self.operation().name(), world.instant().since(started));
        // A conflict or a refused write is the answer of a healthy store.
        let is_answer = |kind: StoreErrorKind| kind.is_contention() || kind == StoreErrorKind::Refused;
        let error = applied.as_ref().err().map(|unapplied| &unapplied.error);
        // If it was too late, the store was not asked.
        if !matches!(applied, Ok((Err(Says::TooLate), _))) {
            self.observe_store(error.filter(|error| !is_answer(error.kind())));
        }
        match applied {
            Ok((Ok(()), Some(record))) => {
                if record.attempts <= 1 {
                    let bytes = match content {
                        Content::Request(body) => body.len(),
                        Content::Answer(_) => 0,
                    };
                    self.count_new(request, bytes, times.answer_by).await;
                }
                match record.state {
                    State::Pending { .. } => {
                        Count::Accepted.add(self.operation().name());
                        telemetry::ended("accepted");
                    }
                    _ => {
                        Count::Transacted.add(self.operation().name());
                        telemetry::executed(record.attempts, "completed");
                    }
                }
                Ok(Sent::Committed(record.state.expires_at()))
            }
            Ok((Ok(()) | Err(Says::TooLate), _)) => Err(self.sent_too_late()),
            Ok((Err(says), record)) => match self.told_of(says, record.as_deref(), times).await {
                Ok(says) => Err(self.instead(says)),
                Err(error) => Err(self.unsent(&error)),
            },
            Err(unapplied) if !unapplied.denied.is_empty() => Ok(Sent::Denied(unapplied.denied)),
            Err(unapplied) => Err(self.unsent(&unapplied.error)),
        }
    }

    /// What the caller gets if the key has a record, or if that is not known. `sent` is whether a transaction of this request may
    /// have been sent.
    async fn current(&self, served: Served<'_>, sent: bool) -> Option<Says<Replay>> {
        let Served { request, times, standing, .. } = served;
        let attempt: AttemptId = self.engine.world.nonce().into();
        let step = |current: Option<&Record>, moment: Moment| {
            let Some(current) = current else {
                let refused =
                    request.admission.refusal().and_then(|_| request.admission.begins(moment.now).err());
                let refused = refused.or(standing.begins().err().filter(|_| !sent));
                return Step::Stop(refused.map_or(Next::Begins(()), Next::Says));
            };
            let begins = self.begins(request, attempt, (times, standing), Some(current), moment);
            match (begins, &current.state) {
                // An earlier try may still be applied: it did not do nothing.
                (Err(Found::Says(Says::Stopped | Says::OverBound { .. })), _) if sent => {
                    Step::Stop(Next::Begins(()))
                }
                (Err(found), _) => instead(found, Some(current)),
                // A dead worker's transaction may still be on its way: it is fenced before the caller gets an answer.
                (Ok(_), _) if current.is_undone_by_the_next_write() => {
                    let fenced = current.expire(moment.revision, moment.now);
                    fenced.map_or(Step::Stop(Next::Begins(())), |fenced| {
                        Step::Write(fenced.into(), Next::Begins(()))
                    })
                }
                // The operation allows another run, but what the former worker did is not known.
                (Ok(_), State::InProgress { .. } | State::Unknown { .. }) => {
                    Step::Stop(Next::Says(Says::Unknown { wait: current.wait(moment.now) }))
                }
                // The record does not prevent a later request.
                (Ok(_), _) => Step::Stop(Next::Begins(())),
            }
        };
        let effort = Effort { until: times.answer_by, backoff: WRITE_BACKOFF, retries: Retries::None };
        let applied = self.settle(Start::Unread(&request.key), effort, step).await;
        let error = applied.as_ref().err().map(|unapplied| &unapplied.error);
        self.observe_store(error.filter(|error| error.kind() != StoreErrorKind::Contended));
        let told = match applied {
            Ok((Ok(()), _)) => return None,
            Ok((Err(Says::Stopped), _)) if served.unread => Ok(Says::Unavailable),
            Ok((Err(says), record)) => self.told_of(says, record.as_deref(), times).await,
            Err(unapplied) => Err(unapplied.error),
        };
        Some(match told {
            Ok(says) => self.instead(says),
            Err(error) if sent => self.unsent(&error),
            Err(error) => self.instead(self.failed(&error)),
        })
    }

    /// It is counted.
    fn instead(&self, says: Says<Replay>) -> Says<Replay> {
        self.count(&says);
        says
    }

    /// The process was frozen, or its clock was set forward.
    fn sent_too_late(&self) -> Says<Replay> {
        tracing::error!("too much time has passed since the request began: its transaction is not sent");
        Count::Unconfirmed.add(self.operation().name());
        Says::Unconfirmed
    }

    /// The transaction got no answer, or was not accepted.
    fn unsent(&self, error: &StoreError) -> Says<Replay> {
        let (operation, kind) = (self.operation().name(), error.kind());
        tracing::error!(?kind, cause = error.cause(), "a transaction is not confirmed");
        if kind == StoreErrorKind::Unreadable {
            return self.instead(Says::Unreadable);
        }
        // Even if the last try was refused, an earlier one may have been applied.
        Count::Unconfirmed.add(operation);
        telemetry::store_failed(operation, kind);
        Says::Unconfirmed
    }
}
