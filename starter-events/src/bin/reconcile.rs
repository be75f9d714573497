//! The function that asks the provider about charges whose outcome is unknown.

use lambda_idempotency::lambda;
use shop::{
    Provider,
    billing::{Billing, operation},
    orders::Rows,
};

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    let rows = Rows::new(&lambda::text("ORDERS_TABLE").inspect_err(lambda::report)?);
    let provider = Provider::new(&lambda::text("PROVIDER_URL").inspect_err(lambda::report)?)?;
    let billing = Billing { provider, rows };
    lambda::reconcile(lambda::reconciliation().await?.operation(operation(), billing)).await
}
