//! Runs a handler once for its key: what every front does with a request.

use std::{future::poll_fn, pin::pin, task::Poll};

use futures_util::future;
use tracing::Instrument;

use super::{Execution, Executor, Replay, Report, Request};
use crate::{
    operation::{How, Observed},
    record::{Says, Work},
    telemetry,
    time::Instant,
};

/// What became of a request.
#[derive(Debug)]
pub struct Replied<R> {
    /// What its caller is told.
    pub says: Says<Replay>,
    /// What its handler replied, if that counts: its caller gets it if it is [told](Says::Own) so.
    pub reply: Option<R>,
}

impl<R> From<Says<Replay>> for Replied<R> {
    fn from(says: Says<Replay>) -> Self {
        Self { says, reply: None }
    }
}

/// The lease of a handler was over before it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseOver;

impl LeaseOver {
    /// In the record's note.
    pub(crate) const WHY: &str = "lease_over";
}

/// Polls a handler only while its execution owns its record, by both clocks. A process that stood still, such as a frozen environment, would
/// otherwise go on with its next request to a provider although others have settled the record, and another execution may run (T39).
///
/// A handler that is never polled again is not stopped by this, nor one that blocks its thread.
async fn while_owned<T>(execution: &Execution, handler: impl Future<Output = T>) -> Result<T, LeaseOver> {
    let mut handler = pin!(handler);
    poll_fn(|cx| {
        if execution.is_lost() {
            tracing::error!("the lease was over before the handler ended: it goes no further");
            return Poll::Ready(Err(LeaseOver));
        }
        handler.as_mut().poll(cx).map(Ok)
    })
    .await
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

impl<R> Handled<R> {
    /// Perhaps it did something, for this reason; with this reply to its caller.
    pub(crate) fn perhaps(why: &str, reply: R) -> Self {
        Self { report: Report::perhaps(why), status: None, reply }
    }
}

impl Executor {
    /// Runs the handler if the request owns its key, and records how it ended. `handled` says what its output means; there is none if its
    /// lease was over before it ended, and it goes no further.
    pub(crate) async fn run<T, R, F>(
        &self,
        request: &Request,
        handler: impl FnOnce(Execution) -> F,
        handled: impl FnOnce(&Execution, Result<T, LeaseOver>) -> Handled<R>,
    ) -> Replied<R>
    where
        F: Future<Output = T>,
    {
        let started = self.engine.world.instant();
        let ran = async {
            let mut owned = match self.reserve(request).await {
                Ok(owned) => owned,
                Err(says) => {
                    let replied = says.into();
                    self.observe(request, &replied, false, None, started);
                    return replied;
                }
            };
            let attempts = Some(owned.execution().attempts());
            let answer_by = self.times(request).answer_by;
            let is_new = owned.execution().attempts() == 1 && request.work == Work::Now;
            let worked = async {
                let output = while_owned(owned.execution(), handler(owned.execution().clone())).await;
                let Handled { report, status, reply } = handled(owned.execution(), output);
                owned.status = status;
                let is_answer = matches!(report, Report::Completed(_));
                (Replied { says: self.finish(owned, report).await, reply: Some(reply) }, is_answer)
            };
            // Meanwhile, and before the answer: after that, this process may be frozen.
            let ((replied, is_answer), ()) = match is_new && self.bounds.is_some() {
                true => future::join(worked, self.count_new(request, 0, answer_by)).await,
                false => (worked.await, ()),
            };
            self.observe(request, &replied, is_answer, attempts, started);
            replied
        };
        ran.instrument(telemetry::request_span(&request.key)).await
    }

    /// Tells the operation's observer, if there is one. `is_answer` is whether its handler's own answer is the operation's.
    pub(super) fn observe<R>(
        &self,
        request: &Request,
        Replied { says, .. }: &Replied<R>,
        is_answer: bool,
        attempts: Option<u32>,
        started: Instant,
    ) {
        let Some(observer) = &self.operation().observer else { return };
        let how = match says {
            Says::Own { .. } if is_answer => Some(How::Executed),
            Says::Refused(_) => Some(How::Executed),
            Says::Replay(replay) => Some(How::Replayed { first_at: replay.first_at }),
            _ => None,
        };
        let took = self.engine.world.instant().since(started);
        observer.tell(&Observed { key: &request.key, says: says.name(), how, attempts, took });
    }
}
