//! Reads and checks environment variables, and has the errors in the configuration, found at start-up.
//!
//! 1. Each error names what is wrong: the environment variable, the table or the bucket.
//! 2. `Debug` prints the same text as `Display`: if `main` returns an error, Rust prints it by `Debug`.
use std::{env, fmt, str::FromStr, time::Duration};

/// The environment variable that names the table.
pub const TABLE_VARIABLE: &str = "IDEMPOTENCY_TABLE";

/// A mistake in the configuration.
#[derive(PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An environment variable is not set, or empty.
    #[error("the environment variable {0} must be set")]
    Missing(&'static str),
    /// An environment variable has an invalid value.
    #[error("the environment variable {0} must be {1}")]
    Malformed(&'static str, &'static str),
    /// An environment variable is no list of topics.
    #[error("{0}")]
    Topics(String),
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

/// The value of a variable. Which ones a function reads is in its log: a template that forgets one changes what the function does.
fn read(name: &'static str) -> Result<String, env::VarError> {
    tracing::debug!(name, "reads an environment variable");
    env::var(name)
}

/// The value of a required variable, which must not be empty.
pub fn text(name: &'static str) -> Result<String, ConfigError> {
    match read(name) {
        Ok(value) if !value.trim().is_empty() => Ok(value),
        _ => Err(ConfigError::Missing(name)),
    }
}

/// The URL of an SQS queue, from a required variable.
pub fn queue_url(name: &'static str) -> Result<String, ConfigError> {
    match text(name)? {
        url if url.starts_with("http") => Ok(url),
        _ => Err(ConfigError::Malformed(name, "the URL of an SQS queue")),
    }
}

/// A duration in milliseconds, above 0; `default` if the variable is not set.
pub fn millis(name: &'static str, default: Duration) -> Result<Duration, ConfigError> {
    let millis: Option<u64> = optional(name, "a number of milliseconds above 0", |millis| *millis > 0)?;
    Ok(millis.map_or(default, Duration::from_millis))
}

/// A number above 0; `default` if the variable is not set.
pub fn count(name: &'static str, default: u32) -> Result<u32, ConfigError> {
    Ok(optional(name, "a number above 0", |count| *count > 0)?.unwrap_or(default))
}

pub(crate) fn optional<T: FromStr>(
    name: &'static str,
    must_be: &'static str,
    is_valid: impl FnOnce(&T) -> bool,
) -> Result<Option<T>, ConfigError> {
    match read(name) {
        Err(env::VarError::NotPresent) => Ok(None),
        Ok(value) if value.is_empty() => Ok(None),
        value => {
            let value = value.ok().and_then(|value| value.trim().parse().ok()).filter(is_valid);
            value.map(Some).ok_or(ConfigError::Malformed(name, must_be))
        }
    }
}
