//! The function of the route `POST /charges`.

use aws_config::BehaviorVersion;
use charges::{Provider, app};
use lambda_idempotency::{DynamoDbStore, lambda, queue::SqsQueue};

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    let aws = aws_config::load_defaults(BehaviorVersion::latest()).await;
    // Reports of outcomes that cannot be written for a while.
    let deferred = SqsQueue::from_env(&aws, "DEFERRED_REPORTS_QUEUE_URL").inspect_err(lambda::report)?;
    let store = DynamoDbStore::from_env().await.inspect_err(lambda::report)?;
    let provider = Provider::new(&lambda::text("PROVIDER_URL")?)?;
    lambda::run_http(app(store, provider, deferred)).await
}
