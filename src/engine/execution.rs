//! One execution of an operation, as its handler sees it.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tokio::sync::watch;

use super::{BoxError, Engine, collected::Collected, phasing::Phasing};
use crate::{
    domain::{DomainWrite, DomainWriteError, Topic},
    fingerprint::Fingerprint,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{AttemptId, Record},
    time::{Instant, Timestamp},
    time_budget::OWNERSHIP_CHECK_INTERVAL,
    world::{Term, World},
};

/// The current execution, as its handler sees it: the request that it serves, and the idempotency keys for downstream calls.
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
    /// When its invocation ends.
    ends: Option<Term>,
    world: Arc<dyn World>,
    /// Until when it owns its record; `None` once the record is lost.
    owned_until: watch::Sender<Option<Term>>,
    /// What commits with the completion.
    collected: Mutex<Collected>,
    /// How far it has got with its phases, if its operation resumes.
    phasing: Option<Phasing>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("key", &self.0.key).field("attempt", &self.0.attempt).finish()
    }
}

impl Execution {
    /// The execution that owns `record`, until `until`, in an invocation that `ends`.
    pub(super) fn new(
        record: &Record,
        ends: Option<Term>,
        until: Term,
        engine: &Engine,
        phasing: Option<Phasing>,
    ) -> Self {
        Self(Arc::new(Facts {
            key: record.key.clone(),
            fingerprint: record.fingerprint,
            attempt: record.attempt,
            attempts: record.attempts,
            created_at: record.created_at,
            began: engine.world.instant(),
            ends,
            world: engine.world.clone(),
            owned_until: watch::Sender::new(Some(until)),
            collected: Mutex::new(Collected::new(engine.store.records_table(), record.answer_kind)),
            phasing,
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

    /// The client's key, unchanged.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        self.0.key.idempotency_key()
    }

    /// The record's identity. Log its [`hash`](RecordKey::hash), not the key.
    pub fn record_key(&self) -> &RecordKey {
        &self.0.key
    }

    /// The idempotency key for the downstream service that `phase` calls. It is the same in every execution, and different for
    /// every phase. Give each external call of a handler another phase.
    pub fn downstream_key(&self, phase: &str) -> String {
        self.0.key.downstream_key(&self.0.fingerprint, phase)
    }

    /// This execution's id.
    pub fn attempt(&self) -> AttemptId {
        self.0.attempt
    }

    /// How many executions of this operation there were, this one included. More than one means that the earlier ones did
    /// nothing, as far as is known, or that the operation is configured to run again. A reservation that was taken back is none.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// When the key was first seen.
    pub fn created_at(&self) -> Timestamp {
        self.0.created_at
    }

    /// When Lambda ends this invocation, if its context has a plausible deadline.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.0.ends.map(|ends| ends.wall)
    }

    /// Writes to a table of yours in the transaction that completes this operation. Nothing is written yet. The write commits
    /// with the handler's answer. It is dropped if that answer must not be kept.
    ///
    /// If its condition fails then, the client gets the [answer](DomainWrite::or_answer) that the write has for that. If
    /// `or_answer` is not set, the outcome is unknown, because the handler may have done more than write.
    ///
    /// # Errors
    /// If DynamoDB would refuse it. Then none of this execution's writes commits, even if the handler returns an answer. The
    /// outcome is unknown, because the handler may have done more than write.
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
        self.collected().add(write)
    }

    /// Publishes a message: it commits with the handler's answer, in the same transaction, and is delivered after that. It is the same
    /// as [`write`](Self::write) of [`topic.message(body)`](Topic::message), which also commits with a phase, is
    /// [computed](Self::write_computed), or comes with a reconciler's [finding](crate::Finding::ExecutedWith).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// ```
    /// use lambda_idempotency::{Execution, domain::{DomainWriteError, Topic}};
    /// use serde_json::json;
    ///
    /// fn placed(execution: &Execution, placed: &Topic, order: &str) -> Result<(), DomainWriteError> {
    ///     execution.publish(placed, &json!({ "orderId": order }))
    /// }
    /// ```
    pub fn publish(&self, topic: &Topic, body: &impl Serialize) -> Result<(), DomainWriteError> {
        self.write(topic.message(body))
    }

    /// Computes writes when the operation is about to commit. Computes them again if one was
    /// [computed from a stale read](DomainWrite::or_recompute), at most [`MAX_COMPUTATIONS`](crate::time_budget::MAX_COMPUTATIONS) times.
    ///
    /// A second closure replaces the first. A closure that comes after the handler's answer is ignored.
    pub fn write_computed<F, E>(&self, compute: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<Vec<DomainWrite>, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.collected().compute(Arc::new(move || {
            let writes = compute();
            Box::pin(async move { writes.await.map_err(Into::into) })
        }));
    }

    pub(super) fn collected(&self) -> MutexGuard<'_, Collected> {
        self.0.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn phasing(&self) -> Option<&Phasing> {
        self.0.phasing.as_ref()
    }

    /// Whether this execution has lost its record, or may have: its lease has expired, or another execution has the record. Check
    /// before an effect that cannot be undone. The write of the report is fenced in any case.
    ///
    /// `false` promises nothing about the next moment. The check does not read the store. Only heartbeats notice that the record
    /// is lost, and an execution with a Lambda deadline has none. The lease counts without its grace. If the handler has sent nothing yet, it should
    /// answer with `Outcome::NotExecuted`.
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
        let mut owned_until = self.0.owned_until.subscribe();
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                // The sender lives as long as this execution: there is no error.
                _ = owned_until.changed() => {}
                // Short sleeps: after a suspension, one long sleep would end too late by the wall clock.
                () = self.0.world.sleep(left.min(OWNERSHIP_CHECK_INTERVAL)) => {}
            }
        }
    }

    fn left(&self) -> Duration {
        self.0.owned_until.borrow().map_or(Duration::ZERO, |until| self.0.world.left(until))
    }

    /// A heartbeat has extended the lease. It never shortens it.
    pub(super) fn owns_until(&self, until: Term) {
        self.0.owned_until.send_modify(|owned| {
            *owned = owned.map(|before| if before.running < until.running { until } else { before });
        });
    }

    /// The record is lost: another execution has it.
    pub(super) fn lose(&self) {
        self.0.owned_until.send_replace(None);
    }

    /// When it became the record's owner. Its handler runs from then on.
    pub(super) fn began(&self) -> Instant {
        self.0.began
    }

    /// The [`deadline`](Self::deadline), by the monotonic clock.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.0.ends.map(|ends| ends.running)
    }
}
