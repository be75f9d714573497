//! The configuration of functions that charge cards: environment variables, checked at start-up.

use std::{fmt, time::Duration};

use lambda_idempotency::{config, lambda, time_budget::DEFAULT_GRACE};
use reqwest::Url;

/// How long a charge may take: less than the function's time-out, so that the function can still record what it knows.
const DEFAULT_PROVIDER_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of a function that charges cards.
#[derive(Clone, Debug)]
pub struct Config {
    /// `PROVIDER_URL`: the address of the payment provider.
    pub provider_url: Url,
    /// `PROVIDER_TIMEOUT_MS`: how long a charge may take; 5000 by default.
    pub provider_timeout: Duration,
    /// `LEASE_GRACE_MS`: how long after its deadline this function still counts as alive; 10000 by default.
    pub lease_grace: Duration,
}

/// What is wrong with the configuration.
#[derive(thiserror::Error)]
pub enum ConfigError {
    /// An environment variable is missing or malformed.
    #[error(transparent)]
    Variable(#[from] config::ConfigError),
    /// The HTTP client for the provider cannot be built.
    #[error("the HTTP client for the payment provider cannot be built")]
    Client(#[from] reqwest::Error),
}

impl fmt::Debug for ConfigError {
    /// The same as [`Display`](fmt::Display), because Lambda shows a start-up error by its `Debug` text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Config {
    /// Reads the environment.
    pub fn from_env() -> Result<Self, ConfigError> {
        let provider_url = Url::parse(&lambda::text("PROVIDER_URL")?)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && !url.cannot_be_a_base())
            .ok_or(config::ConfigError::Malformed("PROVIDER_URL", "an http or https URL"))?;
        Ok(Self {
            provider_url,
            provider_timeout: lambda::millis("PROVIDER_TIMEOUT_MS", DEFAULT_PROVIDER_TIMEOUT)?,
            lease_grace: lambda::millis("LEASE_GRACE_MS", DEFAULT_GRACE)?,
        })
    }
}
