//! Finds records with dead workers: the library's function, unchanged. [`lambda::stale`] lists its triggers and environment
//! variables.

#![deny(missing_docs)]

use lambda_idempotency::lambda::{self, Error};

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn run() -> Result<(), Error> {
    lambda::logs();
    lambda::stale().await
}
