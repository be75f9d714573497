//! Asks a reconciler one question, within a time limit.

use std::{error::Error, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;

use super::{Finding, Question, Reconciler};
use crate::{operation::Operation, record::Record, world::World};

/// Why a question failed.
pub(super) type AskError = Box<dyn Error + Send + Sync>;

/// An operation, and its reconciler.
pub(super) struct Known {
    pub(super) operation: Operation,
    pub(super) reconciler: Arc<dyn Reconciler>,
}

/// Asks `source` what became of the operation of `seen`.
pub(super) async fn ask(
    world: &dyn World,
    seen: &Record,
    source: &dyn Reconciler,
    time: Duration,
) -> Result<Finding, AskError> {
    let question = Question { record: seen.clone() };
    // A reconciler that panics must not abort other questions, or block later polls.
    match world.within(time, AssertUnwindSafe(source.ask(&question)).catch_unwind()).await {
        Some(Ok(finding)) => finding,
        Some(Err(_)) => Err("the reconciler panicked".into()),
        None => Err("no answer in time".into()),
    }
}
