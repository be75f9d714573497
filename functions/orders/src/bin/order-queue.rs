//! The Lambda function: see the library.

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    orders::order_queue().await
}
