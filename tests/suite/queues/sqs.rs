//! A consumer's queue, with somebody else's SQS behind it: what it hides is hidden there, and what it buries can be read there.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use lambda_idempotency::{
    Execution, Failure, Guard, MemoryStore, Operation,
    event::{BatchFunction, Consumer, KeyFrom, Source, SqsSource},
    key::Tenant,
    operation::OnLeaseExpiry,
};
use serde_json::{Value, json};

use crate::support::{
    messages::deliver_within,
    sqs::{NewMessage, Queue, Sqs, attribute, receipt, system_attribute},
};

const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn source(sqs: &Sqs, queue: &Queue) -> SqsSource {
    SqsSource::new(&sqs.config(), &*queue.url, &*queue.dead_letters)
}

pub(super) fn bodies<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Vec<String> {
    messages.into_iter().map(|message| message.body().unwrap_or_default().to_owned()).collect()
}

pub(super) fn guard(operation: Operation) -> Guard {
    Guard::new(MemoryStore::new(), operation, Tenant::parse("acme").expect("a tenant"))
}

/// Hands the next batch over, and deletes what is not handed back. Returns the batch.
pub(super) async fn deliver_next(queue: &Queue, consumer: &impl BatchFunction) -> Vec<Message> {
    let messages = queue.next().await;
    let records: Vec<_> = messages.iter().map(|message| queue.record(message)).collect();
    let time = Duration::from_secs(30);
    let back = deliver_within(consumer, &records, SystemTime::now(), time).await.expect("each has an id");
    let is_back = |message: &&Message| back.iter().any(|id| message.message_id() == Some(id));
    queue.delete(messages.iter().filter(|message| !is_back(message))).await;
    messages
}

// T67: more than SQS takes in one request, and longer than the queue's own time-out.
#[tokio::test]
async fn a_hidden_message_comes_again_when_its_consumer_says() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels", 1).await;
    let sent: Vec<_> = (0..13).map(|number| NewMessage::new(format!("p-{number:02}"))).collect();
    queue.send(&sent).await;
    let mut received = Vec::new();
    while received.len() < sent.len() {
        // So that none comes again before it is hidden.
        received.extend(queue.receive_for(60).await);
    }
    received.sort_by_key(|message| message.body().map(str::to_owned));
    let (shown, hidden) = (&received[..1], &received[1..]);
    let source = source(&sqs, &queue);
    let until = |messages: &[Message], time| -> Vec<_> {
        messages.iter().map(|message| (receipt(message).to_owned(), time)).collect()
    };
    let times = [until(shown, Duration::from_secs(1)), until(hidden, HOUR)].concat();
    source.hide(&times).await.expect("each receipt is valid");
    for times in 2..=3 {
        let again = queue.next().await;
        assert_eq!(bodies(&again), ["p-00"], "the queue's own time-out is over for all");
        let receives = system_attribute(&again[0], MessageSystemAttributeName::ApproximateReceiveCount);
        assert_eq!(receives, Some(&*times.to_string()));
    }
    source.hide(&until(hidden, Duration::ZERO)).await.expect("each receipt is valid");
    let mut again = Vec::new();
    while again.len() < hidden.len() {
        let messages = queue.next().await;
        again.extend(bodies(messages.iter().filter(|message| message.body() != Some("p-00"))));
        queue.delete(&messages).await;
    }
    again.sort();
    assert_eq!(again, bodies(hidden));
}

// The others of the request are hidden all the same.
#[tokio::test]
async fn hiding_says_so_if_a_receipt_is_over() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels", 1).await;
    queue.send(&[NewMessage::new("p-1"), NewMessage::new("p-2")]).await;
    let mut received = Vec::new();
    while received.len() < 2 {
        received.extend(queue.receive_for(60).await);
    }
    received.sort_by_key(|message| message.body().map(str::to_owned));
    queue.delete(&received[..1]).await;
    let receipts: Vec<_> =
        received.iter().map(|message| (receipt(message).to_owned(), Duration::ZERO)).collect();
    let failed = source(&sqs, &queue).hide(&receipts).await;
    assert!(failed.is_err(), "p-1 is gone");
    assert_eq!(bodies(&queue.next().await), ["p-2"]);
}

// T66
#[tokio::test]
async fn a_hidden_head_blocks_its_group_and_no_other() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels.fifo", 1).await;
    let of = NewMessage::of_group;
    queue.send(&[of("a", "a-1"), of("a", "a-2")]).await;
    let source = source(&sqs, &queue);
    let head = queue.next().await;
    assert_eq!(bodies(&head), ["a-1"]);
    source.hide(&[(receipt(&head[0]).to_owned(), HOUR)]).await.expect("the receipt is valid");
    queue.send(&[of("b", "b-1"), of("b", "b-2")]).await;
    for body in ["b-1", "b-2"] {
        let next = queue.next().await;
        assert_eq!(bodies(&next), [body]);
        queue.delete(&next).await;
    }
    source.hide(&[(receipt(&head[0]).to_owned(), Duration::ZERO)]).await.expect("the receipt is valid");
    for body in ["a-1", "a-2"] {
        let next = queue.next().await;
        assert_eq!(bodies(&next), [body]);
        queue.delete(&next).await;
    }
    assert_eq!(queue.left().await, 0);
}

/// Records its runs. A parcel that `waits` does nothing in its first execution.
pub(super) fn in_order(
    order: &Arc<Mutex<Vec<String>>>,
) -> impl Fn(Execution, Value) -> futures_util::future::BoxFuture<'static, Result<(), Failure>>
+ Clone
+ Send
+ Sync
+ 'static {
    let order = order.clone();
    move |execution, parcel| {
        let order = order.clone();
        Box::pin(async move {
            order.lock().unwrap().push(parcel["id"].as_str().unwrap_or_default().to_owned());
            match parcel["does"].as_str() {
                Some("waits") if execution.attempts() == 1 => Err(Failure::not_executed("no connection")),
                Some("refuses") => Err(Failure::permanent("no such address")),
                _ => Ok(()),
            }
        })
    }
}

// T66: behind a failed head its group waits in the queue. A refused one makes way.
#[tokio::test]
async fn a_group_waits_for_its_head_and_not_for_dead_letters() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels.fifo", 60).await;
    let (order, of) = (Arc::default(), |group: &str, id: &str, does: &str| {
        NewMessage::of_group(group, json!({ "id": id, "does": does }))
    });
    let messages = [
        of("a", "a-1", "waits"),
        of("a", "a-2", "refuses"),
        of("a", "a-3", "ships"),
        of("b", "b-1", "refuses"),
        of("b", "b-2", "ships"),
    ];
    queue.send(&messages).await;
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::body("/id"));
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&order));
    while queue.left().await > 0 {
        deliver_next(&queue, &consumer).await;
    }
    let order: Vec<String> = order.lock().unwrap().clone();
    let of_group = |group: &str| order.iter().filter(|id| id.starts_with(group)).cloned().collect::<Vec<_>>();
    assert_eq!(of_group("a"), ["a-1", "a-1", "a-2", "a-3"]);
    assert_eq!(of_group("b"), ["b-1", "b-2"]);
    let mut dead = bodies(&queue.take_dead_letters().await);
    dead.sort();
    assert_eq!(dead, [messages[1].body.clone(), messages[3].body.clone()]);
}

// Its consumer dies before it is acknowledged, so it is buried twice. A FIFO queue keeps one of the two.
#[tokio::test]
async fn a_dead_letter_of_a_fifo_queue_keeps_what_it_was() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels.fifo", 60).await;
    let body = json!({ "id": "p-1", "does": "refuses" }).to_string();
    let attributes = vec![("shop".to_owned(), "tea".to_owned())];
    queue.send(&[NewMessage { attributes, ..NewMessage::of_group("g-1", &body) }]).await;
    let order = Arc::default();
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::body("/id"));
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&order));
    let messages = queue.next().await;
    let records: Vec<_> = messages.iter().map(|message| queue.record(message)).collect();
    for _ in 0..2 {
        let (now, time) = (SystemTime::now(), Duration::from_secs(30));
        assert!(deliver_within(&consumer, &records, now, time).await.expect("an answer").is_empty());
    }
    let dead = queue.take_dead_letters().await;
    assert_eq!(bodies(&dead), [body]);
    assert_eq!(system_attribute(&dead[0], MessageSystemAttributeName::MessageGroupId), Some("g-1"));
    let expected = [
        ("shop", Some("tea")),
        ("idempotency-reason", Some("no such address")),
        ("idempotency-message-id", messages[0].message_id()),
    ];
    for (name, value) in expected {
        assert_eq!(attribute(&dead[0], name), value, "{name}");
    }
    assert_eq!(order.lock().unwrap().len(), 1);
}

// Sent back from the dead letters, it has another id of the queue's. Its key is the first one.
#[tokio::test]
async fn a_record_that_cannot_be_read_keeps_its_first_deduplication_id() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels.fifo", 60).await;
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::deduplication_id());
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&Arc::default()));
    let attributes = vec![("idempotency-deduplication-id".to_owned(), "first".to_owned())];
    let message = NewMessage { attributes, ..NewMessage::of_group("g-1", "a parcel") };
    // A member of another type than SQS writes.
    let record = sent(&queue, &message, |record| record["attributes"]["SentTimestamp"] = json!([1])).await;
    let (now, time) = (SystemTime::now(), Duration::from_secs(30));
    assert!(deliver_within(&consumer, &[record], now, time).await.expect("an answer").is_empty());
    let dead = queue.take_dead_letters().await;
    assert_eq!(attribute(&dead[0], "idempotency-deduplication-id"), Some("first"));
}

/// Sends a message, and returns it as Lambda hands it over, with this change.
async fn sent(queue: &Queue, message: &NewMessage, change: impl FnOnce(&mut Value)) -> Value {
    queue.send(std::slice::from_ref(message)).await;
    let mut record = queue.record(&queue.next().await[0]);
    change(&mut record);
    record
}

// SQS takes ten attributes. One of its own may be its key.
#[tokio::test]
async fn a_message_with_ten_attributes_keeps_them_as_a_dead_letter() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels", 60).await;
    let attributes = (0..10).map(|number| (format!("own-{number}"), "x".to_owned())).collect();
    let message = NewMessage { attributes, ..NewMessage::new("no parcel") };
    let record = sent(&queue, &message, |_| ()).await;
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::body("/id"));
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&Arc::default()));
    let (now, time) = (SystemTime::now(), Duration::from_secs(30));
    assert!(deliver_within(&consumer, &[record], now, time).await.expect("an answer").is_empty());
    let dead = queue.take_dead_letters().await;
    assert_eq!(bodies(&dead), ["no parcel"]);
    assert_eq!(attribute(&dead[0], "idempotency-reason"), None);
    assert!((0..10).all(|number| attribute(&dead[0], &format!("own-{number}")) == Some("x")));
}

// Sent back without it, it would have another key.
#[tokio::test]
async fn a_message_is_never_buried_without_the_deduplication_id_of_its_key() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels.fifo", 60).await;
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::deduplication_id());
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&Arc::default()));
    let time = Duration::from_secs(30);
    for number in [9, 10] {
        let attributes = (0..number).map(|number| (format!("own-{number}"), "x".to_owned())).collect();
        let message = NewMessage { attributes, ..NewMessage::of_group(&number.to_string(), "no parcel") };
        let record = sent(&queue, &message, |_| ()).await;
        let id = record["attributes"]["MessageDeduplicationId"].as_str().map(str::to_owned);
        let back = deliver_within(&consumer, &[record], SystemTime::now(), time).await.expect("an answer");
        let dead = queue.take_dead_letters().await;
        let kept: Vec<_> = dead
            .iter()
            .map(|dead| attribute(dead, "idempotency-deduplication-id").map(str::to_owned))
            .collect();
        match number {
            9 => assert_eq!((back.len(), kept), (0, vec![id])),
            _ => assert_eq!((back.len(), kept.len()), (1, 0)),
        }
    }
}

// T65: a FIFO queue would take two of them for one.
#[tokio::test]
async fn messages_without_an_id_are_dead_letters_of_their_own() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels.fifo", 60).await;
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::body("/id"));
    let consumer = consumer.each(guard(Operation::new("ship")), in_order(&Arc::default()));
    let mut records = Vec::new();
    for body in ["no parcel", "no parcel either"] {
        let message = NewMessage::of_group(body, body);
        records.push(sent(&queue, &message, |record| record["messageId"] = Value::Null).await);
    }
    let (now, time) = (SystemTime::now(), Duration::from_secs(30));
    assert!(deliver_within(&consumer, &records, now, time).await.expect("an answer").is_empty());
    let mut dead = bodies(&queue.take_dead_letters().await);
    dead.sort();
    assert_eq!(dead, ["no parcel", "no parcel either"]);
}

// T67: the queue's own time-out is shorter than the lease. It would come again each second.
#[tokio::test]
async fn a_message_in_flight_comes_again_once_after_its_lease() {
    let sqs = Sqs::start().await;
    let queue = sqs.queue("parcels", 1).await;
    let operation = Operation::new("ship").lease(Duration::from_secs(4)).grace(Duration::ZERO);
    let guard = guard(operation.on_lease_expiry(OnLeaseExpiry::RunAgain));
    let order = Arc::default();
    let consumer = Consumer::new(source(&sqs, &queue), KeyFrom::body("/id"));
    let consumer = consumer.each(guard.clone(), in_order(&order));
    let body = json!({ "id": "p-1", "does": "ships" });
    // A worker that never ends.
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (worker, input) = (guard.clone(), body.clone());
    let worker = tokio::spawn(async move {
        let forever = async move |_, _: Value| -> Result<(), Failure> {
            begun.send(()).expect("it is waited for");
            std::future::pending().await
        };
        worker.run(&["p-1"], input, forever).await
    });
    begins.await.expect("it begins");
    queue.send(&[NewMessage::new(&body)]).await;
    let mut receives = Vec::new();
    while queue.left().await > 0 {
        for message in deliver_next(&queue, &consumer).await {
            let name = MessageSystemAttributeName::ApproximateReceiveCount;
            receives.push(system_attribute(&message, name).unwrap_or_default().to_owned());
        }
    }
    assert_eq!(receives, ["1", "2"]);
    assert_eq!(*order.lock().unwrap(), ["p-1"]);
    worker.abort();
}
