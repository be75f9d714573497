//! What can be set from outside, all of it through environment variables.

use aws_smithy_types::base64;
use payments::SealingKeys;
use std::{env, fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};
use uuid::Uuid;

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
    /// `PROVIDER_TIMEOUT_MS`: how long a function waits for the provider.
    pub provider_timeout: Duration,
    /// `WINDOW_MS`: how long records of the table's stream are gathered before they go to the function `stale`.
    pub window: Duration,
    /// `POLL_MS`: how often `reconcile` looks for outcomes to ask about, the first time after so long.
    pub poll: Duration,
    /// `SWEEP_MS`: how often `stale` sweeps the table, the first time after so long.
    pub sweep: Duration,
    /// `RECONCILE_FIRST_MS`: how long after an outcome became unknown it is asked about.
    pub reconcile_first: Duration,
    /// `RECONCILE_LONGEST_MS`: the longest span between two questions.
    pub reconcile_longest: Duration,
    /// `RECONCILE_ASKS`: how often is asked before an outcome goes to people.
    pub reconcile_asks: u32,
    /// `NOT_FOUND_GRACE_MS`: for how long a charge that the provider does not know may still be on its way.
    pub not_found_grace: Duration,
    /// `WEBHOOK_SECRETS`: separated by commas. The provider signs with the first, and any of them verifies. A fresh one
    /// by default.
    pub webhook_secrets: String,
    /// `SEALING_KEYS`: separated by commas. The first seals what charges carry of their records, and any of them opens it.
    /// A fresh one by default.
    pub sealing_keys: String,
    /// `REPORTS`: where `compare` puts its reports, a folder or `s3://bucket/prefix`. Below the system's folder for
    /// temporary files by default.
    pub reports: String,
    /// `FUNCTION_DYNAMODB_ENDPOINT`: what functions take for DynamoDB's address, for a proxy in between. Everything else
    /// here goes to DynamoDB itself.
    pub function_dynamodb_endpoint: Option<String>,
    /// `FUNCTION_PROVIDER_URL`: what functions take for the provider's address, likewise.
    pub function_provider_url: Option<String>,
}

impl Settings {
    /// Reads the environment; an error is one line that names the variable.
    pub fn from_env() -> Result<Self, String> {
        Ok(Self {
            port: number("PORT", 9000, 0..=u16::MAX)?,
            dynamodb_endpoint: url("DYNAMODB_ENDPOINT")?,
            table_prefix: text("TABLE_PREFIX")?.unwrap_or_else(|| "local-".to_owned()),
            environments: number("ENVIRONMENTS", 4, 1..=64)?,
            // Lambda's own bound, but for the lower end: tests want it short.
            function_timeout: span("FUNCTION_TIMEOUT_MS", 10_000, QUARTER_HOUR)?,
            lease_grace: span("LEASE_GRACE_MS", 2_000, QUARTER_HOUR)?,
            // API Gateway gives up after 29 seconds.
            gateway_timeout: span("GATEWAY_TIMEOUT_MS", 29_000, QUARTER_HOUR)?,
            provider_timeout: span("PROVIDER_TIMEOUT_MS", 5_000, QUARTER_HOUR)?,
            // Lambda's own bound.
            window: span("WINDOW_MS", 1_000, 300_000)?,
            poll: span("POLL_MS", 1_000, DAY)?,
            sweep: span("SWEEP_MS", 30_000, DAY)?,
            reconcile_first: span("RECONCILE_FIRST_MS", 1_000, DAY)?,
            reconcile_longest: span("RECONCILE_LONGEST_MS", 5_000, DAY)?,
            reconcile_asks: number("RECONCILE_ASKS", 20, 1..=1_000)?,
            not_found_grace: span("NOT_FOUND_GRACE_MS", 5_000, DAY)?,
            webhook_secrets: secrets("WEBHOOK_SECRETS")?,
            sealing_keys: sealing_keys("SEALING_KEYS")?,
            reports: text("REPORTS")?.unwrap_or_else(|| {
                env::temp_dir().join("lambda-idempotency-reports").to_string_lossy().into_owned()
            }),
            function_dynamodb_endpoint: url("FUNCTION_DYNAMODB_ENDPOINT")?,
            function_provider_url: url("FUNCTION_PROVIDER_URL")?,
        })
    }

    /// What of this the functions' environment says.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let milliseconds = |span: Duration| span.as_millis().to_string();
        vec![
            ("PROVIDER_TIMEOUT_MS", milliseconds(self.provider_timeout)),
            ("LEASE_GRACE_MS", milliseconds(self.lease_grace)),
            ("RECONCILE_FIRST_MS", milliseconds(self.reconcile_first)),
            ("RECONCILE_LONGEST_MS", milliseconds(self.reconcile_longest)),
            ("RECONCILE_ASKS", self.reconcile_asks.to_string()),
            ("NOT_FOUND_GRACE_MS", milliseconds(self.not_found_grace)),
            ("WEBHOOK_SECRETS", self.webhook_secrets.clone()),
            ("SEALING_KEYS", self.sealing_keys.clone()),
            ("REPORTS", self.reports.clone()),
        ]
    }
}

const QUARTER_HOUR: u64 = 900_000;
const DAY: u64 = 86_400_000;

/// Milliseconds, from 1 on.
fn span(variable: &str, default: u64, longest: u64) -> Result<Duration, String> {
    number(variable, default, 1..=longest).map(Duration::from_millis)
}

/// What is wrong is not shown: it may be most of a secret.
fn secrets(variable: &str) -> Result<String, String> {
    let Some(value) = text(variable)? else { return Ok(format!("whsec_{}", Uuid::new_v4().simple())) };
    let secrets: Vec<_> = value.split(',').map(str::trim).collect();
    if secrets.contains(&"") {
        return Err(format!("{variable}: must be secrets separated by single commas"));
    }
    Ok(secrets.join(","))
}

/// Checked as the functions check it, and not shown either.
fn sealing_keys(variable: &str) -> Result<String, String> {
    let fresh = || base64::encode([(); 4].map(|()| Uuid::new_v4().into_bytes()).concat());
    let keys = text(variable)?.unwrap_or_else(fresh);
    SealingKeys::parse(&keys).map_err(|error| error.to_string())?;
    Ok(keys)
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
