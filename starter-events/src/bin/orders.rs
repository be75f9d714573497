//! The function of the routes `/orders`.

use aws_sdk_dynamodb::Client;
use lambda_idempotency::{DynamoDbStore, lambda, outbox::Topics};
use shop::orders::{Orders, PLACED, Rows, app};

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    // A topic without a target is an error here, and not a message that is never delivered.
    let placed = Topics::from_env().inspect_err(lambda::report)?.topic(PLACED).inspect_err(lambda::report)?;
    let rows = Rows::new(&lambda::text("ORDERS_TABLE").inspect_err(lambda::report)?);
    let store = DynamoDbStore::from_env().await.inspect_err(lambda::report)?;
    let client = Client::new(&lambda::aws().await);
    lambda::run_http(app(store, Orders { rows, client, placed })).await
}
