//! Reads and checks environment variables. Errors name the variable.

use std::{env, fmt, str::FromStr, time::Duration};

/// What is wrong with the environment.
#[derive(thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum VariableError {
    /// A variable is not set, or empty.
    #[error("the environment variable {0} must be set")]
    Missing(&'static str),
    /// A variable has an invalid value.
    #[error("the environment variable {0} must be {1}")]
    Malformed(&'static str, &'static str),
}

impl fmt::Debug for VariableError {
    /// The same as `Display`: Lambda shows start-up errors by `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The value of a required variable, which must not be empty.
pub fn text(name: &'static str) -> Result<String, VariableError> {
    match env::var(name) {
        Ok(value) if !value.trim().is_empty() => Ok(value),
        _ => Err(VariableError::Missing(name)),
    }
}

/// A duration in milliseconds, above 0; `default` if the variable is not set.
pub fn millis(name: &'static str, default: Duration) -> Result<Duration, VariableError> {
    let millis: Option<u64> = optional(name, "a number of milliseconds above 0", |millis| *millis > 0)?;
    Ok(millis.map_or(default, Duration::from_millis))
}

/// A number above 0; `default` if the variable is not set.
pub fn count(name: &'static str, default: u32) -> Result<u32, VariableError> {
    Ok(optional(name, "a number above 0", |count| *count > 0)?.unwrap_or(default))
}

/// `on` or `off`; `default` if the variable is not set.
pub fn switch(name: &'static str, default: bool) -> Result<bool, VariableError> {
    let value = optional(name, "`on` or `off`", |value: &String| value == "on" || value == "off")?;
    Ok(value.map_or(default, |value| value == "on"))
}

fn optional<T: FromStr>(
    name: &'static str,
    must_be: &'static str,
    is_valid: impl FnOnce(&T) -> bool,
) -> Result<Option<T>, VariableError> {
    match env::var(name) {
        Err(env::VarError::NotPresent) => Ok(None),
        Ok(value) if value.is_empty() => Ok(None),
        value => {
            let value = value.ok().and_then(|value| value.trim().parse().ok()).filter(is_valid);
            value.map(Some).ok_or(VariableError::Malformed(name, must_be))
        }
    }
}
