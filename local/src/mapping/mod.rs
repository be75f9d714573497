//! Event source mappings: they deliver a queue's messages and a stream's records to a function, as Lambda does.
//!
//! With partial batch responses (`ReportBatchItemFailures`) the function names the items to retry. Without them, Lambda takes an answer that
//! names some for a success: the items are lost. So does this cloud, which says so.

mod answer;
pub mod batch;
pub mod queue;
mod record;
pub mod stream;

use crate::{
    environment::Outcome,
    functions::Function,
    log::{self, Level},
    template::REPORTS,
};
use answer::failed_items;
use bytes::Bytes;
use serde_json::Value;
use std::{collections::BTreeSet, fmt, sync::Arc};
use tokio::task::JoinError;
use uuid::Uuid;

/// Why an invocation has no result.
pub enum Failure {
    /// It never began.
    Throttled,
    /// The function failed, crashed or ran out of time, or its answer is invalid.
    Failed(String),
}

impl Failure {
    /// The function's answer, if there is one.
    pub fn of(outcome: Result<Outcome, JoinError>) -> Result<Bytes, Self> {
        match outcome {
            Ok(Outcome::Response(payload)) => Ok(payload),
            Ok(Outcome::Throttled) => Err(Self::Throttled),
            Ok(Outcome::Error(payload)) => {
                let error: Value = serde_json::from_slice(&payload).unwrap_or_default();
                Err(Self::Failed(error["errorMessage"].as_str().unwrap_or("no reason given").to_owned()))
            }
            Err(error) => Err(Self::Failed(error.to_string())),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttled => f.write_str("too many invocations at once"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// Logs a trigger's warning.
pub fn warn(function: &Function, message: &str) {
    log::say(function.definition.name, Level::Warn, message, &[]);
}

/// Whether an event of a function lets it name the items that failed.
#[derive(Clone)]
pub struct Reports {
    /// The event's name in the template.
    pub event: String,
    pub are_read: bool,
}

impl Reports {
    /// Warns if items can be lost.
    pub fn warn(&self, function: &Function) {
        if !self.are_read {
            let event = &self.event;
            warn(
                function,
                &format!(
                    "its event {event} has no FunctionResponseTypes: [{REPORTS}]: what the function reports as failed is lost, here and on AWS"
                ),
            );
        }
    }

    /// The places of the failed items of a batch with these ids.
    fn failed(&self, function: &Function, answer: &[u8], ids: &[&str]) -> Result<BTreeSet<usize>, Failure> {
        let failed = failed_items(answer, ids);
        if self.are_read {
            return failed.map_err(Failure::Failed);
        }
        // Any other answer is a success.
        let lost = failed.unwrap_or_default();
        if !lost.is_empty() {
            let ids = lost.iter().map(|place| ids[*place]).collect::<Vec<_>>().join(", ");
            let (name, event) = (function.definition.name, &self.event);
            let message = format!(
                "lost, though the function reports them as failed: {ids}. AWS deletes them too, until the event {event} has \
                 FunctionResponseTypes: [{REPORTS}]"
            );
            log::say(name, Level::Error, &message, &[]);
        }
        Ok(BTreeSet::new())
    }
}

/// Invokes the function with a batch whose items have these ids, and returns the places of those that failed.
async fn invoke(
    function: &Arc<Function>,
    request_id: Uuid,
    event: String,
    ids: &[&str],
    reports: &Reports,
) -> Result<BTreeSet<usize>, Failure> {
    let answer = Failure::of(function.invoke_as(request_id, event.into()).await)?;
    reports.failed(function, &answer, ids)
}
