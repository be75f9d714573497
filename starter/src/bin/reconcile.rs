//! The function that asks the provider about outcomes that are unknown.

use charges::{Provider, operation};
use lambda_idempotency::lambda;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    let provider = Provider::new(&lambda::text("PROVIDER_URL")?)?;
    lambda::reconcile(lambda::reconciliation().await?.operation(operation(), provider)).await
}
