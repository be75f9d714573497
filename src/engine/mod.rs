//! Runs an operation once: reserve, execute, write down how it ended.
//!
//! 1. One loop, in `apply`, turns a step, a pure function on a record, into a write. Everything that changes a record calls
//!    it: what is here, and what finds dead workers, reconciles and serves operators.
//! 2. HTTP and events are fronts of the [`Executor`]. It knows neither.
//! 3. Fronts, and tests of them, use the [`Executor`]; users have [`Execution`] in their handlers, and nothing else of this.
//! 4. Whoever reserved holds an [`Ownership`], and ends it once. One that is dropped writes nothing: its lease ends it.

pub(crate) mod apply;
mod bodies;
mod breaker;
mod codec;
mod delivery;
mod double;
mod execution;
mod finish;
mod heartbeat;
mod lost_ending;
mod reserve;
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
pub(crate) use delivery::Delivered;
pub(crate) use double::DoubleExecution;
pub use execution::Execution;
#[doc(hidden)]
pub use execution::Ownership;
#[doc(hidden)]
pub use finish::{Ending, FinishOutcome};
pub(crate) use lost_ending::{LostEnding, MalformedError};
#[doc(hidden)]
pub use reserve::{Replay, ReserveOutcome};

/// Runs one operation, each key once. Cheap to clone.
///
/// Clones share one circuit breaker.
#[doc(hidden)]
#[derive(Clone)]
pub struct Executor {
    engine: Engine,
    shared: Arc<Shared>,
    lost_endings: Option<Arc<dyn Queue>>,
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

/// One request for an operation, as a front has understood it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose, and which key.
    pub key: RecordKey,
    /// What is asked.
    pub fingerprints: Fingerprints,
    /// Whether an execution may begin. An old key gets what there is, and begins nothing.
    pub may_begin: bool,
    /// By which method and route it came, or from which source; for people.
    pub origin: Option<Note>,
    /// When Lambda ends this invocation, as its context says it. See
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
        Self { engine, shared: Arc::new(shared), lost_endings: None }
    }

    /// Lives in this world: for tests.
    #[must_use]
    pub fn world(mut self, world: impl World) -> Self {
        self.engine.world = Arc::new(world);
        self
    }

    /// Hands endings that cannot be written to this queue, from which reconciliation applies them.
    #[must_use]
    pub fn lost_endings_to(mut self, queue: impl Queue) -> Self {
        self.lost_endings = Some(Arc::new(queue));
        self
    }

    /// The operation that it runs.
    pub fn operation(&self) -> &Operation {
        &self.shared.operation
    }

    pub(crate) fn in_world(&self) -> &Arc<dyn World> {
        &self.engine.world
    }
}
