//! The settings of an event source mapping, as arguments.

use std::path::PathBuf;

use clap::Args;

/// A mapping, with Lambda's names and defaults.
#[derive(Args, Clone, Debug)]
pub struct Mapping {
    /// The function that gets the records
    #[arg(long)]
    pub function: String,
    /// The local cloud that has the function
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9000")]
    pub cloud: String,
    /// Records in one batch, at most
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch_size: u32,
    /// The function's answer names what failed: `ReportBatchItemFailures`
    #[arg(long)]
    pub report_failures: bool,
    /// A batch whose invocation failed is halved: `BisectBatchOnFunctionError`
    #[arg(long)]
    pub bisect: bool,
    /// How often a batch is retried: `MaximumRetryAttempts`; -1 for no limit
    #[arg(long, value_name = "COUNT", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=10_000))]
    pub max_retries: i64,
    /// A record that fails when it is older is dropped: `MaximumRecordAgeInSeconds`; -1 for no limit
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true, value_parser = age)]
    pub max_age: i64,
    /// The URL of the queue that gets the place of what is dropped: `OnFailure`
    #[arg(long, value_name = "URL")]
    pub on_failure: Option<String>,
    /// A file that keeps how far each shard or partition is done, so that another poller goes on from there
    #[arg(long, value_name = "FILE")]
    pub checkpoints: Option<PathBuf>,
}

/// An age that Lambda takes.
fn age(text: &str) -> Result<i64, String> {
    let age = text.parse().ok().filter(|age| matches!(age, -1 | 60..=604_800));
    age.ok_or_else(|| "it must be from 60 to 604800, or -1".to_owned())
}

/// The Region of ARNs and records, as the local cloud has it.
pub fn region() -> String {
    std::env::var("AWS_REGION").unwrap_or_else(|_| "eu-central-1".to_owned())
}
