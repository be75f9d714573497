//! The payments function.

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    payments::run().await
}
