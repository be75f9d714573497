//! Errors in the configuration, found at start-up.
//!
//! 1. Each error names what is wrong: the environment variable, the table or the bucket.
//! 2. `Debug` prints the same text as `Display`: if `main` returns an error, Rust prints it by `Debug`.
use std::fmt;

/// The environment variable that names the table.
pub const TABLE_VARIABLE: &str = "IDEMPOTENCY_TABLE";

/// A mistake in the configuration.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The environment names no table.
    #[error("the environment variable {TABLE_VARIABLE} must name the idempotency table")]
    NoTableNamed,
    /// The table refuses a call that every request needs.
    #[error("DynamoDB refuses the idempotency table `{table}` (named by {TABLE_VARIABLE}): {reason}")]
    Refused {
        /// The table.
        table: String,
        /// DynamoDB's message.
        reason: String,
    },
    /// The bucket for large bodies refuses a call that a replay needs.
    #[error("S3 refuses the bucket `{bucket}` for large bodies: {reason}")]
    BucketRefused {
        /// The bucket.
        bucket: String,
        /// What is missing.
        reason: String,
    },
    /// The environment names no queue.
    #[error("the environment variable {0} must be the URL of an SQS queue")]
    NoQueueNamed(&'static str),
    /// There are no credentials.
    #[error("no AWS credentials for the idempotency table `{table}` (named by {TABLE_VARIABLE}): {reason}")]
    NoCredentials {
        /// The table.
        table: String,
        /// The message of the credentials' provider.
        reason: String,
    },
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
