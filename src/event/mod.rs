//! What a function has around it: what triggers it, its log, its metrics, its environment variables.
//!
//! 1. Each message and each stream record of a batch is read by itself: one that cannot be read holds no other up.
//! 2. What fails is named, and delivered again; the rest is not.
//! 3. A function takes up no work that it cannot end before its deadline.
//! 4. What an invocation counted is written when it ends, however it ends.

mod metrics;
mod reconcile;
mod run;
mod trigger;
mod variables;
mod webhook;

use std::fmt;

use tracing_subscriber::EnvFilter;

pub use lambda_runtime::Error;
pub use reconcile::{Reconciled, reconcile, reconcile_event, reconciliation};
pub use run::run;
pub use trigger::{BatchFailures, Event, Trigger, each_message, refuse, time};
pub use variables::{VariableError, count, millis, switch, text};
pub use webhook::{Events, Notice, Webhook, webhook};

/// What these log below `info` holds whole requests: keys, bodies, tokens of cards.
const QUIET: [&str; 7] = [
    "aws_smithy_runtime=info",
    "aws_sdk_dynamodb=info",
    "aws_sdk_sqs=info",
    "aws_sdk_s3=info",
    "hyper_util=info",
    "lambda_runtime=info",
    "reqwest=info",
];

/// Logs JSON lines to standard error, as `RUST_LOG` says (default: `info`), without the time, which CloudWatch stamps.
pub fn logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = QUIET.iter().filter_map(|quiet| quiet.parse().ok()).fold(filter, EnvFilter::add_directive);
    tracing_subscriber::fmt()
        .json()
        // All of them: the outer one has the request id, the inner one the key's hash.
        .with_current_span(false)
        .with_env_filter(filter)
        .without_time()
        .with_writer(std::io::stderr)
        .init();
}

/// Lambda shows an error of the start-up as one long line of debug output; the log gets a readable one.
pub fn report(error: &impl fmt::Display) {
    tracing::error!(%error, "the function cannot start");
}
