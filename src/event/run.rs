//! Runs a function, with what is around it.

use std::fmt::Debug;

use bytes::Bytes;
use futures_util::Stream;
use lambda_runtime::{Diagnostic, Error, IntoFunctionResponse, LambdaEvent, Runtime, layers::TracingLayer};
use serde::{Serialize, de::DeserializeOwned};
use tower_service::Service;

use super::metrics::Metrics;

/// Runs a function until Lambda ends it, as [`lambda_runtime::run`] does, and writes its metrics: what each invocation counted
/// becomes CloudWatch's, in the namespace that the environment variable `METRICS_NAMESPACE` names (default:
/// `lambda-idempotency`). A recorder that was installed before stays, and sees to its metrics itself.
///
/// An HTTP function takes its router as `lambda_http::Adapter::from(router)`.
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
    // The metrics outermost: once the answer is on its way, and after a panic was caught.
    Runtime::new(handler).layer(TracingLayer::new()).layer(Metrics::install()).run().await
}
