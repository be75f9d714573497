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

/// Logs JSON lines to standard error, filtered by `RUST_LOG` (default: `info`; syntax: [`Targets`]), without the time,
/// which CloudWatch adds. Crates that would log whole requests stay at `info`, even if `RUST_LOG` asks for more.
pub fn logs() {
    let wanted = config::text("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let wanted = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    // Without its span, a line does not say which record it is about.
    let wanted = wanted.with_target(SPAN, LevelFilter::ERROR);
    let quiet = Targets::new().with_targets(QUIET.map(|target| (target, LevelFilter::INFO)));
    let lines = layer()
        .json()
        // All spans instead: the outer one has the request id, the inner one the key's hash.
        .with_current_span(false)
        .without_time()
        .with_writer(io::stderr)
        .with_filter(wanted.and(quiet.with_default(LevelFilter::TRACE)));
    tracing_subscriber::registry().with(lines).init();
}

/// Logs a start-up error as readable text. Lambda itself shows only its debug output.
pub fn report(error: &impl fmt::Display) {
    tracing::error!(%error, "the function cannot start");
}
