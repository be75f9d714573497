//! Runs a function with its tracing and metrics.

use std::fmt::Debug;

use bytes::Bytes;
use futures_util::Stream;
use lambda_runtime::{Diagnostic, Error, IntoFunctionResponse, LambdaEvent, Runtime, layers::TracingLayer};
use serde::{Serialize, de::DeserializeOwned};
use tower_service::Service;

use super::metrics::metered;

/// Runs a function until Lambda ends it, as [`lambda_runtime::run`] does, and writes the metrics of each invocation to
/// CloudWatch. Their namespace is in the environment variable `METRICS_NAMESPACE` (default: `lambda-idempotency`). If a recorder
/// is installed already, it gets the metrics instead.
///
/// An HTTP function passes its router as `lambda_http::Adapter::from(router)`.
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
