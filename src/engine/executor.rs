//! Runs one operation for its front.

use std::{fmt, sync::Arc, time::Duration};

use super::{Engine, breaker::Breaker};
use crate::{
    bounds::Bounds,
    fingerprint::Fingerprints,
    key::RecordKey,
    operation::Operation,
    queue::Queue,
    record::{Admission, AnswerKind, Note, Work},
    store::Store,
    time::Timestamp,
    world::{SystemWorld, World},
};

/// Shorter retentions are warned of.
const SHORT_RETENTION: Duration = Duration::from_secs(3600);

/// Runs one operation, each key once. Cheap to clone: clones share one circuit breaker.
#[derive(Clone)]
pub struct Executor {
    pub(super) engine: Engine,
    pub(super) shared: Arc<Shared>,
    pub(super) deferred_reports: Option<Arc<dyn Queue>>,
    pub(super) bounds: Option<Bounds>,
}

pub(super) struct Shared {
    operation: Operation,
    pub(super) breaker: Breaker,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("operation", self.operation().name()).finish_non_exhaustive()
    }
}

/// One request for an operation, as its front parsed it.
#[derive(Clone, derive_more::Debug)]
pub struct Request {
    /// Tenant, operation and idempotency key.
    pub key: RecordKey,
    /// What tells a retry from another request.
    pub fingerprints: Fingerprints,
    /// The kind of answer that its front reads.
    pub answer_kind: AnswerKind,
    /// Whether an execution may begin. If not, it only gets the current record's answer.
    pub admission: Admission,
    /// When it is executed.
    pub work: Work,
    /// Method and route, or event source; shown to operators.
    #[debug(skip)]
    pub origin: Option<Note>,
    /// When Lambda ends this invocation, according to its context. See
    /// [`plausible_deadline`](crate::time_budget::plausible_deadline).
    pub deadline: Option<Timestamp>,
}

impl Executor {
    /// An executor of `operation` on `store`.
    ///
    /// # Panics
    /// If the operation's settings contradict each other.
    pub fn new(store: impl Store, operation: Operation) -> Self {
        operation.assert_consistent();
        if operation.retain < SHORT_RETENTION {
            tracing::warn!(
                operation = %operation.name(), retain = ?operation.retain,
                "answers are kept for less than an hour: a client that retries later runs the operation again"
            );
        }
        Self::on(Engine { store: Arc::new(store), world: Arc::new(SystemWorld) }, operation)
    }

    pub(crate) fn on(engine: Engine, operation: Operation) -> Self {
        let shared = Shared { operation, breaker: Breaker::default() };
        Self { engine, shared: Arc::new(shared), deferred_reports: None, bounds: None }
    }

    /// Replaces the system's world, for tests.
    #[must_use]
    pub fn world(mut self, world: impl World) -> Self {
        self.engine.world = Arc::new(world);
        self
    }

    /// Sends reports that cannot be written to this queue, from which reconciliation applies them.
    #[must_use]
    pub fn defer_reports_to(mut self, queue: impl Queue) -> Self {
        self.deferred_reports = Some(Arc::new(queue));
        self
    }

    /// The operation it runs.
    pub fn operation(&self) -> &Operation {
        &self.shared.operation
    }

    /// Panics if this request is for another operation: its record would have a key whose settings nobody applies.
    pub(super) fn assert_own(&self, request: &Request) {
        let (asked, own) = (request.key.operation(), self.operation().name());
        assert!(asked == own, "a request for {asked} comes to the executor of {own}");
    }

    pub(crate) fn in_world(&self) -> &Arc<dyn World> {
        &self.engine.world
    }
}
