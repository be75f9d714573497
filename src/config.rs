//! What can be wrong with the configuration: found at start-up, by the name of what is wrong.

use std::fmt;

/// The environment variable that names the table.
pub const TABLE_VARIABLE: &str = "IDEMPOTENCY_TABLE";

/// What is wrong with the configuration.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The environment does not say which table.
    #[error("the environment variable {TABLE_VARIABLE} must name the idempotency table")]
    NoTableNamed,
    /// The table refuses what every request would do.
    #[error("DynamoDB refuses the idempotency table `{table}` (named by {TABLE_VARIABLE}): {reason}")]
    Refused {
        /// The table.
        table: String,
        /// What DynamoDB says.
        reason: String,
    },
    /// The bucket for large bodies refuses what a replay would do.
    #[error("S3 refuses the bucket `{bucket}` for large bodies: {reason}")]
    BucketRefused {
        /// The bucket.
        bucket: String,
        /// What is missing.
        reason: String,
    },
    /// The environment does not say which queue.
    #[error("the environment variable {0} must be the URL of an SQS queue")]
    NoQueueNamed(&'static str),
    /// There are no credentials.
    #[error("no AWS credentials for the idempotency table `{table}` (named by {TABLE_VARIABLE}): {reason}")]
    NoCredentials {
        /// The table.
        table: String,
        /// What the credentials' provider says.
        reason: String,
    },
}

impl fmt::Debug for ConfigError {
    /// In words too: a `main` that returns an error prints it so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
