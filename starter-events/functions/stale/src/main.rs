//! Finds records with dead workers: the library's function, unchanged.

use lambda_idempotency::lambda;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    lambda::stale().await
}
