//! The reports function.

#[tokio::main]
async fn main() -> Result<(), lambda_idempotency::lambda::Error> {
    reports::run().await
}
