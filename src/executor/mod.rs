//! Runs an operation once: reserve, execute, write down how it ended.
//!
//! HTTP and events are fronts of this. It knows neither.

mod body;
mod breaker;
mod end;
mod execution;
mod handover;
mod heartbeat;
mod reserve;

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    fingerprint::Fingerprints,
    key::RecordKey,
    policy::Operation,
    queue::Queue,
    store::{Register, Store, StoreError, StoreErrorKind},
    time::{Clock, SystemClock, Timestamp},
};
use breaker::Breaker;

pub use body::UnreadableBody;
pub use end::{Ended, Ending};
pub use execution::{Execution, Owned};
pub use handover::{LostEnding, NoEnding};
pub use reserve::{Replay, Reserved};

/// The longest time that one step waits for the store, whatever time-outs its client has. A write that is given up
/// may still be applied; its condition and its revision keep that harmless.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is left of an invocation's time for its answer.
const ANSWER_TIME: Duration = Duration::from_millis(300);

/// Runs one operation, each key once. Cheap to clone.
///
/// Clones share one circuit breaker.
pub struct Executor<S> {
    shared: Arc<Shared<S>>,
    clock: Arc<dyn Clock>,
    lost_endings: Option<Arc<dyn Queue>>,
}

struct Shared<S> {
    register: Register<S>,
    operation: Operation,
    breaker: Breaker,
}

impl<S> Clone for Executor<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            clock: self.clock.clone(),
            lost_endings: self.lost_endings.clone(),
        }
    }
}

impl<S> Executor<S> {
    /// The same, going by another clock.
    pub(crate) fn on(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Hands endings that cannot be written to this queue, whose receiver [`apply`](Self::apply)s them.
    #[must_use]
    pub fn lost_endings_to(self, queue: Arc<dyn Queue>) -> Self {
        Self { lost_endings: Some(queue), ..self }
    }
}

impl<S> fmt::Debug for Executor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("operation", self.shared.operation.name()).finish_non_exhaustive()
    }
}

/// One request for an operation, as a front has understood it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose, and which key.
    pub key: RecordKey,
    /// What is asked.
    pub fingerprints: Fingerprints,
    /// When Lambda ends this invocation, as its context says it. See [`crate::lease::plausible_deadline`].
    pub deadline: Option<Timestamp>,
}

impl<S: Store> Executor<S> {
    /// An executor of `operation` on `store`.
    pub fn new(store: S, operation: Operation) -> Self {
        Self::with_clock(store, operation, Arc::new(SystemClock))
    }

    /// The same with a clock of your own.
    pub fn with_clock(store: S, operation: Operation, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared { register: Register { store }, operation, breaker: Breaker::default() };
        Self { shared: Arc::new(shared), clock, lost_endings: None }
    }

    /// The operation that it runs.
    pub fn operation(&self) -> &Operation {
        &self.shared.operation
    }

    /// The clock that it goes by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn register(&self) -> &Register<S> {
        &self.shared.register
    }

    /// Gives `call` a bounded time, and no longer than `until`. Where that is past, whoever waited has gone, and what is
    /// left to do may take its time.
    async fn bounded<T>(
        &self,
        until: Timestamp,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let left = Some(until.since(self.clock.now())).filter(|left| !left.is_zero());
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.clock.sleep(left.map_or(STORE_TIMEOUT, |left| left.min(STORE_TIMEOUT))) => {
                Err(StoreError::new(StoreErrorKind::Unavailable, "no answer in time"))
            }
        }
    }
}
