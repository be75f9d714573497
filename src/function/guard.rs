//! The guard of one operation, for functions.

use crate::{
    bounds::Bounds, engine::Executor, key::Tenant, operation::Operation, queue::Queue, record::Note,
    store::Store, time::Timestamp, world::World,
};

/// Guards a function: the effect of each key happens once. See [`run`](Self::run).
///
/// Cheap to clone. Clones share one circuit breaker.
#[derive(Clone, derive_more::Debug)]
#[must_use]
pub struct Guard {
    pub(super) executor: Executor,
    pub(super) tenant: Tenant,
    pub(super) deadline: Option<Timestamp>,
    #[debug(skip)]
    pub(super) origin: Option<Note>,
}

impl Guard {
    /// A guard of `operation` that keeps its records in `store`, for keys of `tenant`.
    ///
    /// # Panics
    /// If the operation's settings contradict each other, or keys are dated by a signature, which only a request has: a mistake in the
    /// program, found at start-up.
    pub fn new(store: impl Store, operation: Operation, tenant: Tenant) -> Self {
        operation.assert_for_functions();
        Self { executor: Executor::new(store, operation), tenant, deadline: None, origin: None }
    }

    /// The same guard for the keys of another tenant. It must come from what verified the caller, or from a message that only verified
    /// producers can have sent, never from what others can set.
    pub fn tenant(self, tenant: Tenant) -> Self {
        Self { tenant, ..self }
    }

    /// The same guard within an invocation that Lambda ends at `deadline`: `lambda_runtime::Context::deadline`, in milliseconds. Leases end
    /// shortly after it, and no function begins shortly before it. Without it, they have [`Operation::lease`].
    pub fn until(self, deadline: Timestamp) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// The same guard for inputs from this source, which operators see in the record: a line without data of the caller.
    pub fn origin(self, origin: &str) -> Self {
        Self { origin: Some(Note::new(origin)), ..self }
    }

    /// Sends reports that cannot be written in time to this queue, from which the reconcile function applies them. Without
    /// a queue they are logged and counted, and the record becomes `unknown` when its lease has expired.
    ///
    /// That function must [know the operation](crate::reconcile::Reconciliation::operation), and may make its domain writes. Otherwise the
    /// reports become dead letters.
    pub fn defer_reports_to(self, queue: impl Queue) -> Self {
        Self { executor: self.executor.defer_reports_to(queue), ..self }
    }

    /// Bounds how much that is new each tenant begins, and heeds the operators' brake: see [`Bounds`]. Without it there is neither.
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self { executor: self.executor.bounds(bounds), ..self }
    }

    /// The operation.
    #[cfg(feature = "lambda")]
    pub(crate) fn operation(&self) -> &Operation {
        self.executor.operation()
    }

    /// Takes clocks, randomness and tasks from `world`: for tests.
    pub fn world(self, world: impl World) -> Self {
        Self { executor: self.executor.world(world), ..self }
    }
}
