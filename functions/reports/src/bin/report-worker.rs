//! The Lambda function: see the library.

#[tokio::main]
async fn main() -> Result<(), lambda_idempotency::lambda::Error> {
    reports::worker().await
}
