//! The operation's settings.

use std::time::Duration;

use lambda_idempotency::operation::Operation;

use crate::report;

/// The operation of `POST /reports`.
pub const CREATE_REPORT: &str = "create-report";

/// How long a report waits for a worker.
const BOUND: Duration = Duration::from_secs(24 * 60 * 60);

/// The operation with its settings.
pub fn create_report() -> Operation {
    Operation::new(CREATE_REPORT).asynchronous(BOUND).resumes(report::phases(), BOUND)
}
