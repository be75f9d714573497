//! Runs an operation once per key: reserves the key, lets the handler execute, records how it ended.
//!
//! 1. A front (HTTP, events) turns what it received into a [`Request`]. The [`Executor`] knows no front.
//! 2. [`Executor::reserve`] takes the key, or reports what holds it: an answer, an execution in flight, another request, an
//!    unknown outcome.
//! 3. Whoever reserved holds an [`Ownership`], and ends it once. Dropping it writes nothing: the record stays in progress
//!    until its lease has expired.
//! 4. [`Executor::finish`] records the report. It is fenced: it never ends another execution that is in progress, nor changes
//!    a completed record. A report that cannot be written goes to a queue, and is applied from there under the same fence.
//! 5. Every change of a record, by whomever, goes through one loop, in `apply`. It turns a pure function on a record into a
//!    conditional write.
//!
//! Handlers see [`Execution`] and nothing else of this. The engine does not ask what became of an unknown outcome: see
//! [`reconcile`](crate::reconcile).

pub(crate) mod apply;
mod bodies;
mod breaker;
mod codec;
mod commit;
mod deferred_report;
mod delivery;
mod execution;
mod finish;
mod heartbeat;
mod ownership;
mod pending;
mod report;
mod reserve;
mod single_transaction;
mod take_back;

use std::{fmt, sync::Arc};

use crate::{
    fingerprint::Fingerprints,
    key::RecordKey,
    operation::Operation,
    queue::Queue,
    record::Note,
    store::Store,
    time::Timestamp,
    world::{SystemWorld, World},
};
use breaker::Breaker;

pub(crate) use apply::{Applied, Change, Effort, Engine, Moment, Retries, Start, Step, Tried, Unapplied};
pub(crate) use bodies::Placed;
pub(crate) use commit::completing;
pub(crate) use delivery::Delivered;
pub use execution::Execution;
#[doc(hidden)]
pub use ownership::Ownership;
#[doc(hidden)]
pub use report::{FinishOutcome, Report};
#[doc(hidden)]
pub use reserve::{Replay, ReserveOutcome};
pub use single_transaction::SingleTransaction;
#[doc(hidden)]
pub use single_transaction::{Computed, SingleTransactionOutcome};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Runs one operation, each key once. Cheap to clone.
///
/// Clones share one circuit breaker.
#[doc(hidden)]
#[derive(Clone)]
pub struct Executor {
    engine: Engine,
    shared: Arc<Shared>,
    deferred_reports: Option<Arc<dyn Queue>>,
}

struct Shared {
    operation: Operation,
    breaker: Breaker,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("operation", self.operation().name()).finish_non_exhaustive()
    }
}

/// One request for an operation, as its front understood it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Request {
    /// Tenant, operation and idempotency key.
    pub key: RecordKey,
    /// What tells a retry from another request.
    pub fingerprints: Fingerprints,
    /// Whether an execution may begin. A key that is too old gets the current record's answer, and begins nothing.
    pub may_begin: bool,
    /// Method and route, or event source; shown to operators.
    pub origin: Option<Note>,
    /// When Lambda ends this invocation, according to its context. See
    /// [`plausible_deadline`](crate::time_budget::plausible_deadline).
    pub deadline: Option<Timestamp>,
}

impl Executor {
    /// An executor of `operation` on `store`.
    pub fn new(store: impl Store, operation: Operation) -> Self {
        Self::on(Engine { store: Arc::new(store), world: Arc::new(SystemWorld) }, operation)
    }

    pub(crate) fn on(engine: Engine, operation: Operation) -> Self {
        let shared = Shared { operation, breaker: Breaker::default() };
        Self { engine, shared: Arc::new(shared), deferred_reports: None }
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

    pub(crate) fn in_world(&self) -> &Arc<dyn World> {
        &self.engine.world
    }
}
