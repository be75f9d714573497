//! Direct invocations: Lambda's Invoke API, synchronous or asynchronous.

use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tower_service::Service;

use super::{KeyFrom, Message, feed::Has};
use crate::{
    engine::Execution,
    error_chain::json_error,
    function::{Failure, Guard, Ran, RunError},
    time::Timestamp,
};

/// A function that is invoked directly, for [`lambda::run`](crate::lambda::run): with a payload whose key is where `key` says, once for each
/// key. A synchronous caller gets the result, or the kept one. An asynchronous invocation, which Lambda repeats twice if it fails, has no
/// second effect.
///
/// Such an invocation needs an on-failure destination: Lambda gives up after the two retries, about three minutes later. By then, a first
/// execution that died may still be in flight, and nobody would run it again.
///
/// An error has one of these as its `errorType`: `Refused`, `NotExecuted`, `OverBound`, `Stopped`, `Unavailable`, `InFlight`, `Interrupted`, `Unknown`, `Mismatch`,
/// `MayNotBegin`, `ResultNotKept`, `ResultUnreadable`, `RecordUnreadable`, `Invalid`; see [`RunError`]. The function's own error is not shown to the caller; it is in the log.
///
/// ```no_run
/// use lambda_idempotency::{DynamoDbStore, Execution, Failure, Guard, Operation, lambda};
/// use lambda_idempotency::{event::{KeyFrom, invocation}, key::Tenant};
/// use serde_json::{Value, json};
///
/// async fn ship(execution: Execution, order: Value) -> Result<Value, Failure> {
///     Ok(json!({ "order": order, "shipment": execution.downstream_key("carrier") }))
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), lambda::Error> {
///     lambda::logs();
///     let guard = Guard::new(DynamoDbStore::from_env().await?, Operation::new("ship"), Tenant::parse("shop")?);
///     lambda::run(invocation(guard, KeyFrom::body("/orderId"), ship)).await
/// }
/// ```
///
/// # Panics
/// If the key is in what only a message has: an attribute, an envelope, a deduplication id. If it is a hash, and the operation
/// [refuses old keys](crate::Operation::refuse_older_than).
pub fn invocation<I, T, F, H>(
    guard: Guard,
    key: KeyFrom,
    function: F,
) -> impl Service<LambdaEvent<Box<RawValue>>, Response = T, Error = Diagnostic, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static
where
    I: DeserializeOwned + Send + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(Execution, I) -> H + Clone + Send + Sync + 'static,
    H: Future<Output = Result<T, Failure>> + Send + 'static,
{
    invocation_with(guard, key, function, |ran: Ran<T>| ran.value)
}

/// The same, with what its caller gets of a result: for a caller that is to know whether it is [replayed](crate::How), and until when it is kept.
///
/// ```
/// use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, Ran};
/// use lambda_idempotency::{event::{KeyFrom, invocation_with}, key::Tenant};
/// use serde_json::{Value, json};
///
/// async fn ship(_: Execution, order: Value) -> Result<Value, Failure> {
///     Ok(json!({ "order": order }))
/// }
///
/// let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop").unwrap());
/// let reply = |ran: Ran<Value>| json!({ "shipment": ran.value, "replayed": ran.how.is_replay() });
/// let service = invocation_with(guard, KeyFrom::body("/orderId"), ship, reply);
/// ```
///
/// # Panics
/// As [`invocation`].
pub fn invocation_with<I, T, F, H, R>(
    guard: Guard,
    key: KeyFrom,
    function: F,
    reply: impl Fn(Ran<T>) -> R + Clone + Send + Sync + 'static,
) -> impl Service<LambdaEvent<Box<RawValue>>, Response = R, Error = Diagnostic, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static
where
    I: DeserializeOwned + Send + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(Execution, I) -> H + Clone + Send + Sync + 'static,
    H: Future<Output = Result<T, Failure>> + Send + 'static,
    R: Send + 'static,
{
    key.assert_found(false, Has::NOTHING);
    guard.operation().assert_dates(&key);
    service_fn(move |event: LambdaEvent<Box<RawValue>>| {
        let (guard, key, function, reply) = (guard.clone(), key.clone(), function.clone(), reply.clone());
        async move { run(&guard, &key, &event, function).await.map(reply) }
    })
}

async fn run<I, T, F, H>(
    guard: &Guard,
    key: &KeyFrom,
    event: &LambdaEvent<Box<RawValue>>,
    function: F,
) -> Result<Ran<T>, Diagnostic>
where
    I: DeserializeOwned + Send + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(Execution, I) -> H + Send + Sync + 'static,
    H: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let body = event.payload.get();
    let message = Message { body: body.to_owned(), ..Message::default() };
    let invalid = |reason| Diagnostic { error_type: "Invalid".to_owned(), error_message: reason };
    let key = key.of_message(&message).map_err(invalid)?;
    let input: I = serde_json::from_str(body).map_err(|error| {
        invalid(format!("the payload is not what the function takes: {}", json_error(&error)))
    })?;
    let guard = guard.clone().until(Timestamp::from_millis(event.context.deadline));
    let guard = guard.origin(&key.origin("invocation"));
    let ran = guard.run_body(key, body.as_bytes(), move |execution| function(execution, input)).await;
    ran.map_err(|error| diagnostic(&error))
}

/// The error as Lambda shows it.
fn diagnostic(error: &RunError) -> Diagnostic {
    Diagnostic { error_type: error.name().to_owned(), error_message: error.to_string() }
}
