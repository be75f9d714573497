//! The orders function.

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    orders::run().await
}
