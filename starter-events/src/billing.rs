//! The consumer of `order.placed`: it charges each order once, and writes into its row what the provider decided. And its reconciler.

use std::time::Duration;

use lambda_idempotency::{
    Answer, Execution, Failure, Finding, Guard, KeyFrom, Operation, Question, Reconciler, Store, async_trait,
    event::{BatchFunction, Consumer, Message, Source},
    key::Tenant,
    queue::Queue,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    orders::{Placed, Rows},
    provider::{NotCharged, Payment, Provider},
};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What is guarded. The reconciler gets the same.
pub fn operation() -> Operation {
    Operation::new("billing")
        // As long as a message can come again: 14 days in the dead letters, and 14 more in the queue to which it was sent back.
        .retain(28 * DAY)
        // No longer than the provider remembers an idempotency key: after that, "no such charge" proves nothing, and an operator decides.
        .not_found_within(23 * HOUR)
}

/// What charges orders, and what finds out which were charged.
#[derive(Clone)]
pub struct Billing {
    pub provider: Provider,
    pub rows: Rows,
}

/// The function for the queue's batches.
///
/// The key is the order's id: an operator sees it in each list, and the reconciler, which gets no message, knows the row.
pub fn consumer(
    store: impl Store,
    queue: impl Source,
    billing: Billing,
    deferred: impl Queue,
) -> Result<impl BatchFunction, Error> {
    // Each message has its own tenant in place of this one.
    let guard = Guard::new(store, operation(), Tenant::parse("none")?).defer_reports_to(deferred);
    let run = move |execution, event| run(billing.clone(), execution, event);
    // For most of a day, if the provider is away.
    let consumer = Consumer::new(queue, KeyFrom::body("/data/orderId")).max_attempts(100);
    Ok(consumer.each_of_tenants(tenant, guard, run))
}

/// Whose order it is: only the outbox may send to the queue.
fn tenant(message: &Message) -> Option<Tenant> {
    #[derive(Deserialize)]
    struct Named {
        tenant: String,
    }
    Tenant::parse(&serde_json::from_str::<Named>(&message.body).ok()?.tenant).ok()
}

/// What the outbox delivers: a CloudEvent.
#[derive(Deserialize)]
struct Event {
    data: Placed,
}

/// The result, which is kept.
#[derive(Serialize, Deserialize)]
struct Done {
    payment: Payment,
}

async fn run(billing: Billing, execution: Execution, event: Event) -> Result<Done, Failure> {
    let tenant = execution.tenant().as_str();
    // The provider's idempotency key: the same for each try of this order.
    let key = execution.downstream_key("charge");
    let payment = match billing.provider.charge(&key, tenant, &event.data).await {
        Ok(payment) => payment,
        // The message comes again, later each time.
        Err(NotCharged::NeverSent) => return Err(Failure::not_executed("the provider cannot be reached")),
        // The message waits until the provider has been asked.
        Err(NotCharged::Perhaps) => return Err("the provider did not answer".into()),
    };
    // It commits with the result.
    execution.write(billing.rows.payment(tenant, &event.data.order_id, payment.name()))?;
    Ok(Done { payment })
}

#[async_trait]
impl Reconciler for Billing {
    async fn ask(&self, question: &Question) -> Result<Finding, Error> {
        // An error is asked again.
        let Some(payment) = self.provider.payment(&question.downstream_key("charge")).await? else {
            return Ok(Finding::NotFound);
        };
        let order_id = question.record_key().idempotency_key().as_str();
        let row = self.rows.payment(question.tenant().as_str(), order_id, payment.name());
        // The result and the row of `run`. The result is `Answer::payload`: `Answer::json` is for clients of a route.
        Ok(Finding::ExecutedWith(Answer::payload(&Done { payment })?, vec![row]))
    }
}
