//! Writes the metrics in CloudWatch's [embedded metric format], as log lines: no request is made for them.
//!
//! 1. They are written when an invocation ends, even if it fails. Work that ends later is counted in the next invocation.
//! 2. They are also written shortly before the deadline, because an invocation that still runs then may be killed.
//! 3. An invocation that counted nothing writes nothing.
//! 4. An operation's metrics have the dimension `operation`, those of messages `queue`. A total over all is for alarms.
//! 5. If the invocation guarded requests of one tenant only, the property `tenant` names it, for searches in the logs. It
//!    is not a dimension: there would be too many. While invocations overlap, no tenant is named.
//!
//! [embedded metric format]: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html

use std::{
    io::{self, Write},
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::BoxFuture};
use lambda_runtime::LambdaInvocation;
use metrics_cloudwatch_embedded::{Builder, Collector};
use tower_layer::{Layer, layer_fn};
use tower_service::Service;

use crate::{
    config,
    telemetry::{self, callers},
    time::Timestamp,
    time_budget::{METRICS_BEFORE_DEADLINE, plausible_deadline},
    world::{SystemWorld, World},
};

/// The variable that names the metrics' namespace; two stacks in one account should use two.
const NAMESPACE: &str = "METRICS_NAMESPACE";

const DEFAULT_NAMESPACE: &str = "lambda-idempotency";

/// The property that names the tenant whose requests were counted.
const TENANT: &str = "tenant";

/// Installs the recorder, and writes the metrics of a function's invocations. A recorder that is installed already stays, and
/// gets the metrics.
pub(super) fn metered<S>() -> impl Layer<S, Service = Metered<S>> {
    let namespace = config::text(NAMESPACE).ok();
    let is_named = namespace.is_some();
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let installed = Builder::new().cloudwatch_namespace(namespace).init();
    if installed.is_ok() && !is_named {
        tracing::error!(
            variable = NAMESPACE,
            namespace = DEFAULT_NAMESPACE,
            "it is not set: the metrics are in the default namespace. Is that where the alarms of your stack look?"
        );
    }
    telemetry::describe();
    let installed = installed.inspect_err(|_| tracing::info!("another metrics recorder is installed"));
    let metrics = Metrics(installed.ok());
    layer_fn(move |inner| Metered { metrics, inner })
}

/// The metrics of this process.
#[derive(Clone, Copy)]
struct Metrics(Option<&'static Collector>);

impl Metrics {
    fn write(self) {
        let Some(collector) = self.0 else { return };
        match callers::one() {
            Some(tenant) => collector.set_property(TENANT, tenant.as_str()),
            None => collector.remove_property(TENANT),
        };
        let mut lines = Vec::new();
        let written = collector.flush(&mut lines).and_then(|()| {
            // All at once, so that no other line comes between them.
            io::stdout().lock().write_all(with_totals(&lines).as_bytes())
        });
        if let Err(error) = written {
            tracing::error!(%error, "the metrics could not be written");
        }
    }
}

/// Adds a second, empty set of dimensions to documents whose first is `operation` or `queue`. No value in a document can look like that,
/// because JSON escapes quotes.
fn with_totals(documents: &[u8]) -> String {
    let documents = String::from_utf8_lossy(documents);
    ["operation", "queue"].iter().fold(documents.into_owned(), |documents, label| {
        let alone = format!(r#""Dimensions":[["{label}"]]"#);
        documents.replace(&alone, &format!(r#""Dimensions":[["{label}"],[]]"#))
    })
}

/// A function whose metrics are written.
#[derive(Clone)]
pub(super) struct Metered<S> {
    metrics: Metrics,
    inner: S,
}

impl<S: Service<LambdaInvocation>> Service<LambdaInvocation> for Metered<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Invocation<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, invocation: LambdaInvocation) -> Invocation<S::Future> {
        callers::begin();
        let end = End(self.metrics);
        let now = SystemWorld.now();
        let deadline = plausible_deadline(Timestamp::from_millis(invocation.context.deadline), now);
        let left = deadline.and_then(|deadline| deadline.since(now).checked_sub(METRICS_BEFORE_DEADLINE));
        let nearly_over = left.map(|left| SystemWorld.sleep(left));
        Invocation { inner: Box::pin(self.inner.call(invocation)), nearly_over, end }
    }
}

/// An invocation under way.
pub(super) struct Invocation<F> {
    inner: Pin<Box<F>>,
    nearly_over: Option<BoxFuture<'static, ()>>,
    end: End,
}

impl<F: Future> Future for Invocation<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let answer = self.inner.as_mut().poll(cx);
        if answer.is_pending() && self.nearly_over.as_mut().is_some_and(|over| over.poll_unpin(cx).is_ready())
        {
            self.nearly_over = None;
            self.end.0.write();
        }
        answer
    }
}

/// Writes the metrics when the invocation has answered, panicked or been dropped.
struct End(Metrics);

impl Drop for End {
    fn drop(&mut self) {
        self.0.write();
        callers::end();
    }
}
