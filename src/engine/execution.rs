//! One execution of an operation: what its handler may know of it, and what its owner holds.

use std::{
    fmt,
    pin::pin,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::sync::{Mutex, Notify};

use super::heartbeat::Heartbeat;
use crate::{
    fingerprint::Fingerprint,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{AttemptId, Record},
    time::{Instant, Timestamp},
    time_budget::LOST_LOOKS,
    world::{Term, World},
};

/// The execution that a handler is: whose request it serves, and the keys to hand on.
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
    /// Wakes who waits for the record to be lost, whenever the hold changes.
    changed: Notify,
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
        world: Arc<dyn World>,
    ) -> Self {
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

    /// The record's identity; its [`hash`](RecordKey::hash) is what belongs into logs.
    pub fn record_key(&self) -> &RecordKey {
        &self.0.key
    }

    /// The key to hand on to the downstream service that `phase` calls: the same in every attempt, another for every
    /// phase. Give each external call of a handler a phase of its own.
    pub fn downstream_key(&self, phase: &str) -> String {
        self.0.key.downstream_key(&self.0.fingerprint, phase)
    }

    /// This execution's mark.
    pub fn attempt(&self) -> AttemptId {
        self.0.attempt
    }

    /// How many executions of this operation there were, this one included. More than one means that an earlier one
    /// did nothing, as far as anybody could find out, or that the operation chose to run again.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// When the key was first seen.
    pub fn created_at(&self) -> Timestamp {
        self.0.created_at
    }

    /// When Lambda ends this invocation, if it said so and that can be true.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.0.deadline
    }

    /// Whether this execution has lost its record, or must reckon with it: its lease is over, or somebody else has the
    /// record. Look before an effect that cannot be taken back; what is written down afterwards is fenced in any case.
    ///
    /// `false` promises nothing about the next moment: it asks nobody, and only heartbeats notice that somebody else has the
    /// record. The lease counts without its grace. A handler that has sent nothing yet answers with `Outcome::NotExecuted`.
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
            // Before the look, so that a change after it ends the sleep.
            changed.as_mut().enable();
            let left = self.left();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                // Not in one sleep: a machine that was suspended would sleep on, and the wall clock has gone on.
                () = self.0.world.sleep(left.min(LOST_LOOKS)) => {}
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

    /// A heartbeat has made the lease longer; it never makes it shorter.
    pub(super) fn holds_until(&self, until: Term) {
        self.change(|hold| {
            if hold.until.running < until.running {
                hold.until = until;
            }
        });
    }

    /// Somebody else has the record.
    pub(super) fn lose(&self) {
        self.change(|hold| hold.lost = true);
    }

    /// When it came to own the record: its handler runs from then on.
    pub(super) fn began(&self) -> Instant {
        self.0.began
    }

    /// The [`deadline`](Self::deadline), by a clock that nobody sets.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.0.ends_at
    }
}

/// The ownership of a record: who holds it runs the handler, and ends it once.
///
/// Dropping it writes nothing: the record stays in progress until its lease is over. Nothing is guessed about a handler
/// that was not run to its end.
#[derive(Debug)]
pub struct Ownership {
    pub(super) execution: Execution,
    /// The record as this execution wrote it last. Behind a lock, because heartbeats write too.
    pub(super) record: Arc<Mutex<Record>>,
    pub(super) heartbeat: Option<Heartbeat>,
    /// The status that its handler answered.
    pub(super) status: Option<u16>,
}

impl Ownership {
    /// Notes the status that its handler answered: if the execution fails, its record says it.
    pub fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The execution, for the handler.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }
}
