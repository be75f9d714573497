//! What can be set from outside, all of it through environment variables.

use std::{env, fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

/// The configuration of one run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `PORT`: where the gateway listens; 0 takes any free port.
    pub port: u16,
    /// `DYNAMODB_ENDPOINT`: a DynamoDB to use instead of the embedded one.
    pub dynamodb_endpoint: Option<String>,
    /// `TABLE_PREFIX`: keeps runs apart that share one DynamoDB.
    pub table_prefix: String,
    /// `ENVIRONMENTS`: how many execution environments a function may have at once.
    pub environments: usize,
    /// `FUNCTION_TIMEOUT_MS`: a function's time for one invocation.
    pub function_timeout: Duration,
    /// `LEASE_GRACE_MS`: how long after its deadline a function is still taken for alive; short here, to be watched.
    pub lease_grace: Duration,
    /// `GATEWAY_TIMEOUT_MS`: how long the gateway waits for a function.
    pub gateway_timeout: Duration,
}

impl Settings {
    /// Reads the environment; an error is one line that names the variable.
    pub fn from_env() -> Result<Self, String> {
        // Lambda's own bounds, but for the lower end of the time-outs: tests want them short.
        let milliseconds = 1..=900_000;
        Ok(Self {
            port: number("PORT", 9000, 0..=u16::MAX)?,
            dynamodb_endpoint: url("DYNAMODB_ENDPOINT")?,
            table_prefix: text("TABLE_PREFIX")?.unwrap_or_else(|| "local-".to_owned()),
            environments: number("ENVIRONMENTS", 4, 1..=64)?,
            function_timeout: Duration::from_millis(number(
                "FUNCTION_TIMEOUT_MS",
                10_000,
                milliseconds.clone(),
            )?),
            lease_grace: Duration::from_millis(number("LEASE_GRACE_MS", 2_000, milliseconds.clone())?),
            // API Gateway gives up after 29 seconds.
            gateway_timeout: Duration::from_millis(number("GATEWAY_TIMEOUT_MS", 29_000, milliseconds)?),
        })
    }
}

fn number<T>(variable: &str, default: T, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let Some(value) = text(variable)? else { return Ok(default) };
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        format!("{variable}={value}: must be a whole number from {} to {}", range.start(), range.end())
    })
}

fn url(variable: &str) -> Result<Option<String>, String> {
    match text(variable)? {
        Some(value) if !value.starts_with("http://") && !value.starts_with("https://") => {
            Err(format!("{variable}={value}: must be a URL, as http://127.0.0.1:8000"))
        }
        value => Ok(value),
    }
}

/// An empty variable counts as one that is not set.
fn text(variable: &str) -> Result<Option<String>, String> {
    match env::var(variable) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("{variable}: must be text")),
    }
}
