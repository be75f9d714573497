//! One execution of an operation, as its handler sees it.

use std::{
    fmt,
    pin::pin,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::{BoxError, Engine, pending::Pending};
use crate::{
    domain::{DomainWrite, DomainWriteError},
    fingerprint::Fingerprint,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{AttemptId, Record},
    time::{Instant, Timestamp},
    time_budget::OWNERSHIP_CHECK_INTERVAL,
    world::{Term, World},
};

/// The current execution, as its handler sees it: whose request it serves, and the idempotency keys to hand on downstream.
///
/// Cheap to clone. HTTP handlers find it in the request's extensions; axum handlers take it as an argument.
#[derive(Clone)]
pub struct Execution(Arc<Facts>);

struct Facts {
    key: RecordKey,
    fingerprint: Fingerprint,
    attempt: AttemptId,
    attempts: u32,
    created_at: Timestamp,
    began: Instant,
    deadline: Option<Timestamp>,
    ends_at: Option<Instant>,
    world: Arc<dyn World>,
    hold: std::sync::Mutex<Hold>,
    /// Wakes those who wait in [`lost`](Execution::lost), whenever the hold changes.
    changed: Notify,
    /// What commits with the completion.
    pending: std::sync::Mutex<Pending>,
}

/// How this execution holds its record.
#[derive(Clone, Copy)]
struct Hold {
    until: Term,
    lost: bool,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("key", &self.0.key).field("attempt", &self.0.attempt).finish()
    }
}

impl Execution {
    /// The execution that owns `record`, until `until`.
    pub(super) fn new(
        record: &Record,
        deadline: Option<Timestamp>,
        ends_at: Option<Instant>,
        until: Term,
        engine: &Engine,
    ) -> Self {
        let world = engine.world.clone();
        Self(Arc::new(Facts {
            key: record.key.clone(),
            fingerprint: record.fingerprint,
            attempt: record.attempt,
            attempts: record.attempts,
            created_at: record.created_at,
            began: world.instant(),
            deadline,
            ends_at,
            world,
            hold: std::sync::Mutex::new(Hold { until, lost: false }),
            changed: Notify::new(),
            pending: std::sync::Mutex::new(Pending::new(engine.store.records_table())),
        }))
    }

    /// The verified caller.
    pub fn tenant(&self) -> &Tenant {
        self.0.key.tenant()
    }

    /// The operation.
    pub fn operation(&self) -> &OperationName {
        self.0.key.operation()
    }

    /// The client's key, as it came.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        self.0.key.idempotency_key()
    }

    /// The record's identity. Log its [`hash`](RecordKey::hash), not the key.
    pub fn record_key(&self) -> &RecordKey {
        &self.0.key
    }

    /// The idempotency key for the downstream service that `phase` calls: the same in every attempt, different for every
    /// phase. Give each external call of a handler a phase of its own.
    pub fn downstream_key(&self, phase: &str) -> String {
        self.0.key.downstream_key(&self.0.fingerprint, phase)
    }

    /// This execution's id.
    pub fn attempt(&self) -> AttemptId {
        self.0.attempt
    }

    /// How many executions of this operation there were, this one included. More than one means that the earlier ones
    /// did nothing, as far as anybody could find out, or that the operation is configured to run again.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// When the key was first seen.
    pub fn created_at(&self) -> Timestamp {
        self.0.created_at
    }

    /// When Lambda ends this invocation, if its context has a plausible deadline.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.0.deadline
    }

    /// Writes to a table of yours in the transaction that completes this operation. Nothing is written yet: it commits once the
    /// handler has answered and its answer is kept, and is dropped if the handler's answer is none to keep.
    ///
    /// If its condition fails then, the client gets what the write [says](DomainWrite::or_answer). Without a word of it the
    /// outcome is unknown, because the handler may have done more than write.
    ///
    /// # Errors
    /// If DynamoDB would refuse it. Then none of this execution's writes commits, whatever the handler answers: the outcome is
    /// unknown, because the handler may have done more than write.
    ///
    /// ```
    /// use lambda_idempotency::{Execution, domain::{DomainWriteError, Table}};
    /// use serde_json::json;
    ///
    /// fn book(execution: &Execution, payments: &Table, charge: &str) -> Result<(), DomainWriteError> {
    ///     execution.write(payments.put(json!({ "id": charge, "cents": 1999 })))
    /// }
    /// ```
    pub fn write(&self, write: DomainWrite) -> Result<(), DomainWriteError> {
        self.pending().add(write)
    }

    /// Computes writes when the operation is about to commit, and again if a write of it was
    /// [computed from a stale read](DomainWrite::or_recompute): at most [`MAX_COMMITS`](crate::time_budget::MAX_COMMITS)
    /// times. A second closure replaces the first; one that comes after the
    /// handler's answer is ignored.
    pub fn write_computed<F, E>(&self, compute: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<Vec<DomainWrite>, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.pending().compute(Arc::new(move || {
            let writes = compute();
            Box::pin(async move { writes.await.map_err(Into::into) })
        }));
    }

    pub(super) fn pending(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this execution has lost its record, or may have: its lease has expired, or somebody else has the record. Check
    /// before an effect that cannot be undone; the write of the report is fenced in any case.
    ///
    /// `false` promises nothing about the next moment: the check asks nobody, and only heartbeats notice that somebody else
    /// has the record. The lease counts without its grace. A handler that has sent nothing yet answers with
    /// `Outcome::NotExecuted`.
    pub fn is_lost(&self) -> bool {
        self.left().is_zero()
    }

    /// Returns once this execution [is lost](Self::is_lost): for `select!` with work that can be stopped.
    ///
    /// ```
    /// use lambda_idempotency::engine::Execution;
    ///
    /// async fn charge(execution: Execution, quote: impl Future<Output = u64>) -> Option<u64> {
    ///     tokio::select! {
    ///         cents = quote => Some(cents),
    ///         () = execution.lost() => None,
    ///     }
    /// }
    /// ```
    pub async fn lost(&self) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // Before the check, so that a change after it ends the sleep.
            changed.as_mut().enable();
            let left = self.left();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                // In short sleeps: a machine that was suspended would sleep on, although the wall clock has moved on.
                () = self.0.world.sleep(left.min(OWNERSHIP_CHECK_INTERVAL)) => {}
            }
        }
    }

    fn left(&self) -> Duration {
        let hold = *self.0.hold.lock().unwrap_or_else(PoisonError::into_inner);
        if hold.lost { Duration::ZERO } else { self.0.world.left(hold.until) }
    }

    fn change(&self, change: impl FnOnce(&mut Hold)) {
        change(&mut self.0.hold.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.changed.notify_waiters();
    }

    /// A heartbeat has extended the lease. It never shortens it.
    pub(super) fn holds_until(&self, until: Term) {
        self.change(|hold| {
            if hold.until.running < until.running {
                hold.until = until;
            }
        });
    }

    /// The record is lost: somebody else has it.
    pub(super) fn lose(&self) {
        self.change(|hold| hold.lost = true);
    }

    /// When it became the record's owner: its handler runs from then on.
    pub(super) fn began(&self) -> Instant {
        self.0.began
    }

    /// The [`deadline`](Self::deadline), by a clock that nobody sets.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.0.ends_at
    }
}
