//! The ownership of a record, from the reservation to the report.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{execution::Execution, heartbeat::Heartbeat};
use crate::record::Record;

/// The ownership of a record. Its holder runs the handler, and reports once.
///
/// Dropping it writes nothing: the record stays in progress until its lease has expired, because what a handler did that did not
/// run to its end is not known.
#[derive(Debug)]
pub struct Ownership {
    pub(super) execution: Execution,
    /// The record as this execution last wrote it. Behind a lock, because heartbeats write too.
    pub(super) record: Arc<Mutex<Record>>,
    pub(super) heartbeat: Option<Heartbeat>,
    /// The status of the handler's answer.
    pub(super) status: Option<u16>,
}

impl Ownership {
    /// The execution, for the handler.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }
}
