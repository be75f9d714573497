//! The dispatcher in front of a durable function, behind a queue: `cargo run --example durable_dispatcher`.
//!
//! A queue's mapping to a durable function starts another execution for each delivery of a message, and lets it run for 15 minutes at most.
//! So AWS advises an ordinary function between the two, which starts executions
//! [by name](https://docs.aws.amazon.com/lambda/latest/dg/durable-execution-idempotency.html). Here the guard derives the name from the
//! record's key: it is the same for each delivery, and for each message that a producer sends twice. If the answer of a start is lost, the
//! reconciler asks by that name.
//!
//! Lambda remembers a name until `RetentionPeriodInDays` after the end of its execution. Choose at least `Operation::retain`.

use std::{
    collections::BTreeMap,
    error::Error as StdError,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lambda_http::{Context, LambdaEvent, tower::ServiceExt};
use lambda_idempotency::event::{Consumer, KeyFrom, MemorySource};
use lambda_idempotency::queue::{MemoryQueue, ProducerKey};
use lambda_idempotency::{
    Answer, Execution, Failure, Finding, Guard, MemoryStore, Operation, Question, Reconciler,
};
use lambda_idempotency::{async_trait, key::Tenant, reconcile::Reconciliation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Error = Box<dyn StdError + Send + Sync>;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const START: &str = "start";

/// A durable function. Its client is a trait here, because `aws-sdk-lambda` takes long to build:
///
/// ```text
/// start    client.invoke().function_name("process-order:live").invocation_type(InvocationType::Event)
///              .durable_execution_name(name).payload(Blob::new(event)).send()
/// exists   client.list_durable_executions_by_function().function_name("process-order").qualifier("live")
///              .durable_execution_name(name).send(), and compare the names. `GetDurableExecution` takes an ARN, which the answer had
/// ```
#[async_trait]
trait DurableFunction: Send + Sync + 'static {
    /// Starts the execution of this name, if there is none.
    async fn start(&self, name: &str, event: &str) -> Result<(), StartError>;

    /// Whether there is an execution of this name, running or ended.
    async fn exists(&self, name: &str) -> Result<bool, Error>;
}

enum StartError {
    /// `TooManyRequestsException`, or no connection: certainly not started.
    NotStarted(Error),
    /// `DurableExecutionAlreadyStartedException`: there is one of this name, and its event was written differently.
    AlreadyStarted,
    /// Any other error: perhaps started.
    NoAnswer(Error),
}

/// What the operation is known to have started.
#[derive(Serialize, Deserialize)]
struct Started {
    name: String,
}

fn operation() -> Operation {
    Operation::new("start-order").retain(28 * DAY) // as long as a message can come again
}

async fn dispatch(
    function: &dyn DurableFunction,
    execution: Execution,
    order: Value,
) -> Result<Started, Failure> {
    // A UUID: 36 of the 64 characters that a name may have. It is unique to tenant, operation, key and event.
    let name = execution.downstream_key(START);
    match function.start(&name, &order.to_string()).await {
        // The name is made of the event's value too, so that execution is ours.
        Ok(()) | Err(StartError::AlreadyStarted) => Ok(Started { name }),
        Err(StartError::NotStarted(error)) => Err(Failure::not_executed(error)),
        Err(StartError::NoAnswer(error)) => Err(Failure::Perhaps(error)),
    }
}

/// Asks Lambda whether an execution was started.
struct Starts<F>(F);

#[async_trait]
impl<F: DurableFunction> Reconciler for Starts<F> {
    async fn ask(&self, question: &Question) -> Result<Finding, Error> {
        let name = question.downstream_key(START);
        Ok(match self.0.exists(&name).await? {
            true => Finding::Executed(Answer::payload(&Started { name })?),
            // Lambda may have queued the event, and begin later. The next start has the same name, so it is no second execution.
            false => Finding::NotFound,
        })
    }
}

/// Lambda, in memory. It refuses the first start, and does not answer the second one.
#[derive(Clone, Default)]
struct MemoryLambda(Arc<Mutex<Executions>>);

#[derive(Default)]
struct Executions {
    starts: u32,
    /// The events of executions, by name.
    events: BTreeMap<String, String>,
}

impl MemoryLambda {
    fn executions(&self) -> MutexGuard<'_, Executions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl DurableFunction for MemoryLambda {
    async fn start(&self, name: &str, event: &str) -> Result<(), StartError> {
        let mut executions = self.executions();
        executions.starts += 1;
        if executions.starts == 1 {
            return Err(StartError::NotStarted("TooManyRequestsException".into()));
        }
        if executions.events.get(name).is_some_and(|first| first != event) {
            return Err(StartError::AlreadyStarted);
        }
        executions.events.insert(name.to_owned(), event.to_owned());
        match executions.starts {
            2 => Err(StartError::NoAnswer(io::Error::from(io::ErrorKind::TimedOut).into())),
            _ => Ok(()),
        }
    }

    async fn exists(&self, name: &str) -> Result<bool, Error> {
        Ok(self.executions().events.contains_key(name))
    }
}

/// A message as Lambda hands it over, from a producer that sends its key as an attribute.
fn message(id: &str, order: &str) -> Value {
    json!({
        "messageId": id,
        "receiptHandle": id,
        "body": json!({ "orderId": order }).to_string(),
        "attributes": { "ApproximateReceiveCount": "1" },
        "messageAttributes": { ProducerKey::NAME: { "stringValue": order, "dataType": "String" } },
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:orders",
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let (store, lambda) = (MemoryStore::new(), MemoryLambda::default());
    let guard = Guard::new(store.clone(), operation(), Tenant::parse("shop")?);
    let function = lambda.clone();
    let start = move |execution, order| {
        let function = function.clone();
        async move { dispatch(&function, execution, order).await }
    };
    // In a function: `SqsSource::from_env`, `DynamoDbStore::from_env`, and `lambda::run(consumer)`.
    let consumer =
        Consumer::new(MemorySource::new("orders"), KeyFrom::attribute(ProducerKey::NAME)).each(guard, start);
    let deliver = async |messages: &[Value]| -> Result<(), Error> {
        let batch = serde_json::from_value(json!({ "Records": messages }))?;
        let back = consumer.clone().oneshot(LambdaEvent::new(batch, Context::default())).await?;
        println!("{} come again; executions: {}", back.identifiers().len(), lambda.executions().events.len());
        Ok(())
    };
    // Not started; then perhaps started, so that the message is held.
    deliver(&[message("m-1", "order-1")]).await?;
    deliver(&[message("m-1", "order-1")]).await?;

    // In the function `reconcile`, on a schedule.
    let reconciliation =
        Reconciliation::new(store, MemoryQueue::new()).operation(operation(), Starts(lambda.clone()));
    println!("resolved: {}", reconciliation.poll(Duration::from_secs(10)).await?.resolved);

    // The first one again, one that its producer has sent twice, and another order.
    deliver(&[message("m-1", "order-1"), message("m-2", "order-1"), message("m-3", "order-2")]).await?;
    Ok(())
}
