//! The function that charges the orders that are placed: the consumer of the queue `billing`.

use lambda_idempotency::{DynamoDbStore, event::SqsSource, lambda, queue::SqsQueue};
use shop::{
    Provider,
    billing::{Billing, consumer},
    orders::Rows,
};

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    let aws = lambda::aws().await;
    let queue = SqsSource::from_env(&aws, "BILLING_QUEUE_URL", "BILLING_DEAD_LETTERS_QUEUE_URL");
    // Reports of outcomes that cannot be written for a while.
    let deferred = SqsQueue::from_env(&aws, "DEFERRED_REPORTS_QUEUE_URL").inspect_err(lambda::report)?;
    let store = DynamoDbStore::from_env().await.inspect_err(lambda::report)?;
    let rows = Rows::new(&lambda::text("ORDERS_TABLE").inspect_err(lambda::report)?);
    let provider = Provider::new(&lambda::text("PROVIDER_URL").inspect_err(lambda::report)?)?;
    let queue = queue.inspect_err(lambda::report)?;
    lambda::run(consumer(store, queue, Billing { provider, rows }, deferred)?).await
}
