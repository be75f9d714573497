//! Delivers what operations publish: the library's function, unchanged. [`event::outbox`] lists its triggers and environment variables.

#![deny(missing_docs)]

use lambda_idempotency::{
    event,
    lambda::{self, Error},
};

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    lambda::logs();
    event::outbox(event::deliverer().await?).await
}
