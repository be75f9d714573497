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

use std::{env, fmt, io};

use tracing_subscriber::{
    filter::{FilterExt, LevelFilter, Targets},
    fmt::layer,
    layer::{Layer, SubscriberExt},
    util::SubscriberInitExt,
};

pub use lambda_runtime::Error;
pub use reconcile::{Reconciled, reconcile, reconcile_event, reconciliation};
pub use run::run;
pub use trigger::{BatchFailures, Event, Trigger, each_message, refuse, time};
pub use variables::{VariableError, count, millis, switch, text};
pub use webhook::{Events, Notice, Webhook, webhook};

/// What these log below `info` holds whole requests: keys, bodies, tokens of cards.
const QUIET: [&str; 7] = [
    "aws_smithy_runtime",
    "aws_sdk_dynamodb",
    "aws_sdk_sqs",
    "aws_sdk_s3",
    "hyper_util",
    "lambda_runtime",
    "reqwest",
];

/// Logs JSON lines to standard error, as `RUST_LOG` says (default: `info`; [`Targets`] says how), without the time, which
/// CloudWatch stamps. What would show whole requests stays at `info`, whatever it says.
pub fn logs() {
    let said = env::var("RUST_LOG").ok().filter(|said| !said.trim().is_empty());
    let wanted = said.and_then(|said| said.parse::<Targets>().ok());
    let wanted = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let quiet = Targets::new().with_targets(QUIET.map(|target| (target, LevelFilter::INFO)));
    let lines = layer()
        .json()
        // All of them: the outer one has the request id, the inner one the key's hash.
        .with_current_span(false)
        .without_time()
        .with_writer(io::stderr)
        .with_filter(wanted.and(quiet.with_default(LevelFilter::TRACE)));
    tracing_subscriber::registry().with(lines).init();
}

/// Lambda shows an error of the start-up as one long line of debug output; the log gets a readable one.
pub fn report(error: &impl fmt::Display) {
    tracing::error!(%error, "the function cannot start");
}
