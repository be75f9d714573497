//! Runs a function with its tracing and metrics.

use std::fmt::Debug;

use bytes::Bytes;
use futures_util::Stream;
use lambda_http::{Adapter, IntoResponse, Request, request::LambdaRequest};
use lambda_runtime::{
    Diagnostic, Error, IntoFunctionResponse, LambdaEvent, Runtime, layers::TracingLayer, service_fn,
};
use serde::{Serialize, de::DeserializeOwned};
use tower_service::Service;

use super::metrics::metered;

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
    run_concurrent(service_fn(move |event: LambdaEvent<LambdaRequest>| {
        Adapter::from(service.clone()).call(event)
    }))
    .await
}
