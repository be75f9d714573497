//! Delivers what operations publish: the library's function, unchanged.

use lambda_idempotency::{event, lambda};

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    event::outbox(event::deliverer().await?).await
}
