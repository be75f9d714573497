//! Finds records whose worker died: the library's function, as it is. [`lambda::stale`] says what triggers it, and which environment
//! variables it reads.

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
