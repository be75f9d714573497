//! Runs a function with its tracing and metrics.

use std::{
    fmt::Debug,
    future::{poll_fn, ready},
    pin::Pin,
};

use bytes::Bytes;
use futures_util::Stream;
use lambda_http::{Adapter, Body, IntoResponse, Request};
use lambda_runtime::{
    Diagnostic, Error, IntoFunctionResponse, LambdaEvent, Runtime, layers::TracingLayer, service_fn,
};
use serde::{Serialize, de::DeserializeOwned};
use tower_service::Service;

use super::{
    http_event::{self, Read},
    metrics::metered,
    trigger::Event,
};
use crate::http::{Front, Problem, ProblemType, Profile, clean};

/// Runs a function until Lambda ends it, as [`lambda_runtime::run`] does, and writes the metrics of each invocation to
/// CloudWatch. Their namespace is in the environment variable `METRICS_NAMESPACE` (default: `lambda-idempotency`). If a recorder
/// is installed already, it gets the metrics instead.
///
/// For an HTTP function there is [`run_http`].
///
/// # Errors
/// If the Runtime API fails.
pub async fn run<A, F, R, B, S, D, E>(handler: F) -> Result<(), Error>
where
    F: Service<LambdaEvent<A>, Response = R>,
    F::Future: Future<Output = Result<R, F::Error>>,
    F::Error: Into<Diagnostic> + Debug,
    A: DeserializeOwned,
    R: IntoFunctionResponse<B, S>,
    B: Serialize,
    S: Stream<Item = Result<D, E>> + Unpin + Send + 'static,
    D: Into<Bytes> + Send,
    E: Into<Error> + Send + Debug,
{
    // The metrics are outermost, so that they are written after the answer was sent, and after a panic was caught.
    Runtime::new(handler).layer(TracingLayer::new()).layer(metered()).run().await
}

/// The same on Lambda Managed Instances, where one process runs several invocations at once: as many as `AWS_LAMBDA_MAX_CONCURRENCY` says,
/// which Lambda sets there. Elsewhere they run one after another.
///
/// # Errors
/// If the Runtime API fails.
pub async fn run_concurrent<A, F, R, B, S, D, E>(handler: F) -> Result<(), Error>
where
    F: Service<LambdaEvent<A>, Response = R> + Clone + Send + 'static,
    F::Future: Future<Output = Result<R, F::Error>> + Send + 'static,
    F::Error: Into<Diagnostic> + Debug,
    A: DeserializeOwned + Send + 'static,
    R: IntoFunctionResponse<B, S> + Send + 'static,
    B: Serialize + Send + 'static,
    S: Stream<Item = Result<D, E>> + Unpin + Send + 'static,
    D: Into<Bytes> + Send + 'static,
    E: Into<Error> + Send + Debug + 'static,
{
    Runtime::new(handler).layer(TracingLayer::new()).layer(metered()).run_concurrent().await
}

/// Runs an HTTP service, such as a router, also on Lambda Managed Instances. See [`run`] and [`run_concurrent`].
///
/// Unlike `lambda_http::run`, it serves or refuses each request that a client can send, and delivers each answer (T73, T74):
/// 1. A query is percent-encoded where it must be, and claims of a JWT authorizer that are numbers or booleans become text.
/// 2. A request that cannot be served, such as one whose `Host` is invalid, gets 400, a problem of type
///    [`RequestMalformed`](crate::http::ProblemType::RequestMalformed). An event of another kind is an error, with one log line.
/// 3. Several header lines of one name are joined with a comma, except `Set-Cookie`, if the front takes one line of each name. A header that is
///    not UTF-8 is left out and logged: the runtime would end the process.
///
/// # Errors
/// If the Runtime API fails.
pub async fn run_http<S, R, E>(service: S) -> Result<(), Error>
where
    S: Service<Request, Response = R, Error = E> + Clone + Send + 'static,
    S::Future: Send + 'static,
    R: IntoResponse + Send + 'static,
    E: Into<Diagnostic> + Debug + Send + 'static,
{
    // An adapter for each request: axum's bodies cannot be shared between threads, nor can an adapter of them.
    run_concurrent(service_fn(move |event: LambdaEvent<Event>| http_event(service.clone(), event))).await
}

/// Answers one event of an HTTP function.
pub async fn http_event<S, R, E>(
    service: S,
    LambdaEvent { payload, context }: LambdaEvent<Event>,
) -> Result<impl Serialize + Debug, HttpError<E>>
where
    S: Service<Request, Response = R, Error = E> + Clone + Send + 'static,
    S::Future: Send + 'static,
    R: IntoResponse + Send + 'static,
    E: Send + 'static,
{
    let (request, malformed) = match http_event::read(payload.as_str()) {
        Read::Request(request) => (request, None),
        Read::Malformed(empty, reason) => (empty, Some(reason)),
        Read::Foreign => return Err(HttpError::Foreign),
    };
    let answer = service_fn(move |request: Request| {
        let service = service.clone();
        async move {
            match malformed {
                Some(reason) => Ok(refused(reason).await),
                None => served(service, request).await,
            }
        }
    });
    Adapter::from(answer).call(LambdaEvent::new(request, context)).await.map_err(HttpError::Service)
}

async fn served<S, R, E>(mut service: S, request: Request) -> Result<Sent, E>
where
    S: Service<Request, Response = R, Error = E>,
    R: IntoResponse,
{
    let front = Front::of(request.extensions());
    poll_fn(|context| service.poll_ready(context)).await?;
    let mut response = service.call(request).await?.into_response().await;
    clean(response.headers_mut(), front);
    Ok(Sent(response))
}

async fn refused(reason: &'static str) -> Sent {
    tracing::info!(reason, "a request is malformed: it gets 400");
    let problem = Problem::new(ProblemType::RequestMalformed).detail(reason);
    Sent(problem.into_response(&Profile::default()).into_response().await)
}

/// A response whose body is encoded already: once more would change its characters.
struct Sent(lambda_http::Response<Body>);

impl IntoResponse for Sent {
    fn into_response(self) -> Pin<Box<dyn Future<Output = lambda_http::Response<Body>> + Send>> {
        Box::pin(ready(self.0))
    }
}

/// Why an event of an HTTP function has no answer.
#[derive(derive_more::Debug)]
pub enum HttpError<E> {
    /// The service failed. It is logged as the service's own error.
    #[debug("{_0:?}")]
    Service(E),
    /// No front sends such an event.
    #[debug("{FOREIGN}")]
    Foreign,
}

const FOREIGN: &str = "the event is refused: it is no request of an API, a load balancer or a function URL; what sends it calls the wrong function";

impl<E: Into<Diagnostic>> From<HttpError<E>> for Diagnostic {
    fn from(error: HttpError<E>) -> Self {
        match error {
            HttpError::Service(error) => error.into(),
            HttpError::Foreign => {
                Self { error_type: "ForeignEvent".to_owned(), error_message: FOREIGN.to_owned() }
            }
        }
    }
}
