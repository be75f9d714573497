//! Messages as requests: a queue as another front of a guarded HTTP route.

use std::{fmt, sync::Arc, time::Duration};

use http::{Extensions, Request, Response, StatusCode};
use lambda_http::RequestExt;
use tower_service::Service;

use super::{
    BatchFunction, Consumer, Message,
    consumer::{Done, Job},
};
use crate::{
    function::RunError,
    http::{By, GivenKey, Guarded, IDEMPOTENCY_KEY, Outcome, ProblemType},
};

impl Consumer {
    /// The function that Lambda runs for the queue's batches, if each message stands for a request to a guarded route. So an operation has
    /// one record, one downstream key and one answer, whether it is asked for by HTTP or by a message.
    ///
    /// `request` makes the request: method, path, headers, body, and the request context from which the route's guard takes the tenant. It
    /// must not take the tenant from the message, unless the queue's policy lets only verified producers send any. An error goes to the dead
    /// letters. The guard takes the message's key in place of the header `Idempotency-Key`.
    ///
    /// An answer that is kept ends the message, whatever its status. A request that is refused before anything was done goes to the dead
    /// letters, unless what [accepts](crate::Idempotency::accept) it refuses for the moment (such as 503) or panics: then it comes again.
    pub fn route<S, B, R>(
        self,
        service: S,
        request: impl Fn(&Message) -> Result<Request<B>, String> + Send + Sync + 'static,
    ) -> impl BatchFunction
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: fmt::Display + Send,
        B: Send + 'static,
        R: Send + 'static,
    {
        let request = Arc::new(request);
        self.function(Arc::new(move |job| Box::pin(send(job, service.clone(), request.clone()))))
    }
}

async fn send<S, B, R>(
    Job { key, message, context, .. }: Job,
    mut service: S,
    request: Arc<impl Fn(&Message) -> Result<Request<B>, String>>,
) -> Done
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: fmt::Display,
{
    let request = match request(&message) {
        Ok(request) => request,
        Err(reason) => return Done::refused(reason),
    };
    let mut request = request.with_lambda_context((*context).clone());
    // Not as a header, which cannot hold every key, and which some contracts read in another form.
    request.extensions_mut().insert(GivenKey(key));
    request.headers_mut().remove(IDEMPOTENCY_KEY);
    let ready = std::future::poll_fn(|cx| service.poll_ready(cx)).await;
    let answered = match ready {
        Ok(()) => service.call(request).await,
        Err(error) => Err(error),
    };
    match answered {
        Ok(response) => done(response.extensions(), response.status()),
        Err(error) => {
            // It is outside of the guard: what is inside keeps its answer.
            tracing::error!(%error, "the service of a message failed");
            Done { ended: Err(RunError::NotExecuted(None)), attempts: None }
        }
    }
}

/// What a response of a guard means for its message.
pub(super) fn done(response: &Extensions, status: StatusCode) -> Done {
    let Some(Guarded { by, attempts, why }) = response.get() else { return outside(status) };
    let refused = |what: String| match why {
        Some(why) => RunError::Refused(format!("{what}: {why}")),
        None => RunError::Refused(what),
    };
    let attempts = Some(*attempts).filter(|attempts| *attempts > 0);
    let status = status.as_u16();
    let ended = match *by {
        By::Acceptance | By::Handler(_, Outcome::Completed) => Ok(()),
        // It is settled, and deleted since.
        By::Guard { problem: ProblemType::OperationExpired, .. } => Ok(()),
        By::Handler(_, Outcome::NotBegun) => Err(refused(format!("the request was refused with {status}"))),
        By::Handler(_, Outcome::NotExecuted) => Err(RunError::NotExecuted(None)),
        By::Handler(_, Outcome::PerhapsExecuted) => {
            Err(RunError::Unknown { wait: Duration::ZERO, source: None })
        }
        By::Guard { problem, wait, lease_left } => Err(match problem {
            ProblemType::InFlight => RunError::InFlight { wait, lease_left },
            ProblemType::AnsweredElsewhere => RunError::InFlight { wait, lease_left: Duration::ZERO },
            ProblemType::OutcomeUnknown => RunError::Unknown { wait, source: None },
            ProblemType::Interrupted => RunError::Interrupted(None),
            ProblemType::OverBound => RunError::OverBound { wait },
            ProblemType::TenantStopped => RunError::Stopped,
            ProblemType::StoreUnavailable | ProblemType::BodyUnreadable | ProblemType::TooManyLookUps => {
                RunError::Unavailable
            }
            problem @ (ProblemType::KeyMissing
            | ProblemType::KeyMalformed
            | ProblemType::KeyTooOld
            | ProblemType::RequestMalformed
            | ProblemType::TenantMissing
            | ProblemType::SignatureRefused
            | ProblemType::BodyTooLong
            | ProblemType::KeyReused
            | ProblemType::RecordUnreadable
            | ProblemType::OperationNotFound
            | ProblemType::OperationExpired
            | ProblemType::Abandoned
            | ProblemType::NotGuarded) => refused(format!("{} ({status})", problem.name())),
        }),
    };
    Done { ended, attempts }
}

/// What a response that is not a guard's means. A rate limit or a time-out around the guard speaks of the moment, and the guard may still
/// run. Any other answer is a mistake in the program.
fn outside(status: StatusCode) -> Done {
    let is_of_the_moment = [408, 425, 429, 502, 503, 504].contains(&status.as_u16());
    if !is_of_the_moment {
        return Done::refused(format!("the route is not guarded: it answered {}", status.as_u16()));
    }
    tracing::warn!(status = status.as_u16(), "a layer around the guard answered in its place");
    Done { ended: Err(RunError::Unavailable), attempts: None }
}
