//! Runs a handler once for its key: what every front does with a request.

use tracing::Instrument;

use super::{Execution, Executor, FinishOutcome, Report, Request, ReserveOutcome};
use crate::telemetry;

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Ran<R> {
    /// Its handler did not run.
    Instead(ReserveOutcome),
    /// Its handler ran. This became of its report, and this is what it replied.
    Ended(FinishOutcome, R),
}

/// What a handler did.
pub(crate) struct Handled<R> {
    /// How the execution ended.
    pub(crate) report: Report,
    /// The status of its answer, if it has one. If the execution fails, its record keeps it.
    pub(crate) status: Option<u16>,
    /// Its reply to the caller.
    pub(crate) reply: R,
}

impl Executor {
    /// Runs the handler if the request owns its key, and records how it ended.
    pub(crate) async fn run<R, F>(&self, request: &Request, handler: impl FnOnce(Execution) -> F) -> Ran<R>
    where
        F: Future<Output = Handled<R>>,
    {
        let ran = async {
            let mut owned = match self.reserve(request).await {
                ReserveOutcome::Owned(owned) => owned,
                found => return Ran::Instead(found),
            };
            let Handled { report, status, reply } = handler(owned.execution().clone()).await;
            owned.status = status;
            Ran::Ended(self.finish(owned, report).await, reply)
        };
        ran.instrument(telemetry::request_span(&request.key)).await
    }

    /// What `work` returns, which runs in a separate task. So it runs to its end even if the returned future is dropped (T35). `None` if
    /// the task ends early.
    pub(crate) fn to_its_end<T, W>(&self, work: W) -> impl Future<Output = Option<T>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let (done, result) = tokio::sync::oneshot::channel();
        let task = async move { drop(done.send(work.await)) };
        self.engine.world.spawn(Box::pin(task.in_current_span()));
        async move {
            let result = result.await;
            result.inspect_err(|_| tracing::error!("the guard's task ended early")).ok()
        }
    }
}
