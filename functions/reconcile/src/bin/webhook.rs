//! The Lambda function: see the library.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    reconcile::webhook::run().await
}
