//! Batches of messages, as Lambda hands them over.

use std::time::{Duration, SystemTime};

use lambda_http::{Context, Error, LambdaEvent};
use lambda_idempotency::{
    lambda::{BatchFailures, Event},
    time::Timestamp,
};
use serde_json::{Map, Value, json};
use tower::{Service, ServiceExt};

/// The queue that the messages are from.
pub const QUEUE: &str = "parcels";

/// A message of a standard queue, with the members that AWS documents
/// (<https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html>).
pub fn message(id: &str, body: impl ToString) -> Value {
    let now = Timestamp::from(SystemTime::now()).as_millis();
    json!({
        "messageId": id,
        "receiptHandle": format!("receipt of {id}"),
        "body": body.to_string(),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": now.to_string(),
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": now.to_string()
        },
        "messageAttributes": {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:us-east-2:123456789012:{QUEUE}"),
        "awsRegion": "us-east-2"
    })
}

/// The same, received so often.
pub fn received(id: &str, body: impl ToString, times: u32) -> Value {
    let mut message = message(id, body);
    message["attributes"]["ApproximateReceiveCount"] = json!(times.to_string());
    message
}

/// The FIFO queue that messages with a group are from.
pub const FIFO: &str = "parcels.fifo";

/// A message of a group of a FIFO queue.
pub fn of_group(group: &str, id: &str, body: impl ToString) -> Value {
    let mut message = message(id, body);
    let own = json!({ "MessageGroupId": group, "MessageDeduplicationId": format!("d-{id}"), "SequenceNumber": "18849496460467696128" });
    message["eventSourceARN"] = json!(format!("arn:aws:sqs:us-east-2:123456789012:{FIFO}"));
    let attributes: Map<_, _> = own.as_object().expect("an object").clone();
    message["attributes"].as_object_mut().expect("an object").extend(attributes);
    message
}

/// Hands a batch to the consumer, with half a minute to run.
pub async fn deliver<S>(consumer: &S, messages: &[Value]) -> Result<Vec<String>, Error>
where
    S: Service<LambdaEvent<Event>, Response = BatchFailures, Error = Error> + Clone,
{
    deliver_within(consumer, messages, SystemTime::now(), Duration::from_secs(30)).await
}

/// Hands a batch to the consumer, and returns the ids that it hands back.
pub async fn deliver_within<S>(
    consumer: &S,
    messages: &[Value],
    now: SystemTime,
    time: Duration,
) -> Result<Vec<String>, Error>
where
    S: Service<LambdaEvent<Event>, Response = BatchFailures, Error = Error> + Clone,
{
    hand_over(consumer, json!({ "Records": messages }), now, time).await
}

/// Hands an event to the consumer, and returns the ids that it hands back.
pub async fn hand_over<S>(
    consumer: &S,
    event: Value,
    now: SystemTime,
    time: Duration,
) -> Result<Vec<String>, Error>
where
    S: Service<LambdaEvent<Event>, Response = BatchFailures, Error = Error> + Clone,
{
    hand_over_event(consumer, serde_json::from_value(event).expect("an event"), now, time).await
}

/// The same of an event that no [`Value`] is.
pub async fn hand_over_event<S>(
    consumer: &S,
    event: Event,
    now: SystemTime,
    time: Duration,
) -> Result<Vec<String>, Error>
where
    S: Service<LambdaEvent<Event>, Response = BatchFailures, Error = Error> + Clone,
{
    let mut context = Context::default();
    let deadline = now + time;
    let since = deadline.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    context.deadline = u64::try_from(since.as_millis()).expect("milliseconds");
    let failures = consumer.clone().oneshot(LambdaEvent::new(event, context)).await?;
    Ok(failures.identifiers())
}
