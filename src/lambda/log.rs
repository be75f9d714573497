//! The log of a function: JSON lines that hold no whole request.

use std::{fmt, io};

use tracing_subscriber::{
    filter::{FilterExt, LevelFilter, Targets},
    fmt::layer,
    layer::{Layer, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::{config, telemetry::SPAN};

/// Crates whose logs below `info` contain whole requests: keys, bodies, card tokens.
const QUIET: [&str; 7] = [
    "aws_smithy_runtime",
    "aws_sdk_dynamodb",
    "aws_sdk_sqs",
    "aws_sdk_s3",
    "hyper_util",
    "lambda_runtime",
    "reqwest",
];

/// Lambda's log level of the function: its `ApplicationLogLevel`, which Lambda sets for functions that log JSON.
const LAMBDA_LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";

/// Logs JSON lines to standard error. Each has a `level` and a `timestamp`: Lambda takes a line that lacks one of them for `INFO`, and drops it if
/// the function's log level is above. `RUST_LOG` filters them (syntax: [`Targets`]), or else
/// Lambda's log level, `AWS_LAMBDA_LOG_LEVEL` (default: `INFO`). Crates that would log whole requests stay at `info`, whatever these say.
///
/// Leave Lambda's log level at `INFO` or below: above it, Lambda drops lines that have none, such as those of metrics. To log less, set
/// `RUST_LOG`.
pub fn logs() {
    let of_lambda = config::text(LAMBDA_LEVEL).ok().and_then(|level| level_of_lambda(&level));
    let of_lambda = of_lambda.unwrap_or(LevelFilter::INFO);
    let wanted = config::text("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let wanted = wanted.unwrap_or_else(|| Targets::new().with_default(of_lambda));
    // Without its span, a line does not say which record it is about.
    let wanted = wanted.with_target(SPAN, LevelFilter::ERROR);
    let quiet = Targets::new().with_targets(QUIET.map(|target| (target, LevelFilter::INFO)));
    let lines = layer()
        .json()
        // All spans instead: the outer one has the request id, the inner one the key's hash.
        .with_current_span(false)
        .with_writer(io::stderr)
        .with_filter(wanted.and(quiet.with_default(LevelFilter::TRACE)));
    tracing_subscriber::registry().with(lines).init();
    if of_lambda < LevelFilter::INFO {
        tracing::error!(
            "Lambda's log level drops the metrics, whose lines have no level: set it to INFO, and RUST_LOG to what is to be logged"
        );
    }
}

/// One of Lambda's levels, of which `tracing` does not have `FATAL`.
fn level_of_lambda(name: &str) -> Option<LevelFilter> {
    match name {
        "FATAL" => Some(LevelFilter::ERROR),
        name => name.parse().ok(),
    }
}

/// Logs a start-up error as readable text. Lambda itself shows only its debug output.
pub fn report(error: &impl fmt::Display) {
    tracing::error!(%error, "the function cannot start");
}
