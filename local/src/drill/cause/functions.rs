//! Functions that fail, that get no concurrency, or that nothing invokes.

use crate::{drill::stage::Stage, mapping::Failure};
use serde_json::json;

/// Invokes a function with an event that it cannot read: nothing else lets each of them fail.
pub async fn fails(stage: &Stage, function: &str) -> Result<(), String> {
    match stage.invoke(function, &json!("a drill")).await? {
        Err(_) => Ok(()),
        Ok(answer) => Err(format!("{function} does not fail, but answers {answer}")),
    }
}

/// Invokes a function that gets no concurrency.
pub async fn throttled(stage: &Stage, function: &str) -> Result<(), String> {
    stop(stage, function, true);
    match stage.invoke(function, &json!({})).await? {
        Err(Failure::Throttled) => Ok(()),
        _ => Err(format!("{function} runs")),
    }
}

/// Takes its concurrency from a function, or gives it back.
pub fn stop(stage: &Stage, function: &str, stops: bool) {
    stage.function(function).iter().for_each(|function| function.stop(stops));
}
