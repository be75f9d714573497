//! What is measured and logged, and that no data of a caller is logged.

mod invocations_at_once;
mod log_levels;
mod message_secrecy;
pub(crate) mod metrics;
mod metrics_written;
mod record_spans;
mod request_lines;
mod secrecy;
mod uncounted;
mod webhook_secrecy;
