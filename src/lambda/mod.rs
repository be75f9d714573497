//! Lambda functions: their triggers, log, metrics and environment variables.
//!
//! | function | what you give | triggers |
//! | --- | --- | --- |
//! | your own | an HTTP service to [`run_http`], or a handler to [`run`] | yours |
//! | [`stale`] | nothing | the table's stream, the queues `checks` and `sweep`, a schedule |
//! | [`reconcile`] | a [`reconciliation`] with a reconciler for each operation | the queues `deferred-reports` and `reconcile`, a schedule |
//! | [`webhook`] | the same, and a reader of your provider's [`Events`] | a URL that the provider calls |
//!
//! 1. Each function begins with [`logs`]. If the configuration is wrong, the function does not start, and the log names the
//!    environment variable.
//! 2. Each message and each stream record of a batch is read separately: one that cannot be read blocks no other.
//! 3. Only the messages and stream records that failed are delivered again.
//! 4. A function begins no work that may last beyond its deadline.
//! 5. The metrics of an invocation are written when it ends, even if it fails.

mod deferred_reports;
mod http_event;
mod log;
mod metrics;
mod reconcile;
mod run;
mod stale;
pub(crate) mod trigger;
mod webhook;

pub use crate::config::{count, millis, text};
pub use deferred_reports::DeferredReports;
pub use lambda_runtime::Error;
pub use log::{logs, report};
pub use reconcile::{reconcile, reconcile_event, reconciliation};
pub use run::{HttpError, http_event, run, run_concurrent, run_http};
pub use stale::{stale, stale_event};
pub use trigger::{BatchFailures, Event};
pub use webhook::{Events, Notice, webhook, webhook_service};

/// The configuration of AWS's clients, from the function's environment.
pub async fn aws() -> aws_config::SdkConfig {
    aws_config::defaults(aws_config::BehaviorVersion::latest()).load().await
}
