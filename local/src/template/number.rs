//! The numbers of an event source mapping, and which of them AWS takes
//! (<https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html>).

use super::scope::Scope;
use serde_json::Value;

/// A property, its least and its greatest value, and whether -1 means that there is no limit.
pub type Number = (&'static str, i64, i64, bool);

pub const BATCH_SIZE: Number = ("BatchSize", 1, 10_000, false);
pub const RETRIES: Number = ("MaximumRetryAttempts", 0, 10_000, true);
pub const AGE: Number = ("MaximumRecordAgeInSeconds", 60, 604_800, true);

/// The value of a number, if there is one.
///
/// # Errors
/// If AWS would refuse it.
pub fn number(
    scope: &Scope,
    properties: &Value,
    (property, least, most, has_none): Number,
) -> Result<Option<i64>, String> {
    let Some(text) = scope.text(&properties[property])? else { return Ok(None) };
    let number = text.parse().map_err(|_| format!("its {property} is no number"))?;
    if (least..=most).contains(&number) || has_none && number == -1 {
        return Ok(Some(number));
    }
    let none = if has_none { ", or -1" } else { "" };
    Err(format!("its {property} must be from {least} to {most}{none}"))
}
