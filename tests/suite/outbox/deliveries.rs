//! Deliveries: each message at least once, under one id, in the order of its operation.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lambda_idempotency::{
    Execution, Failure, Guard, Operation, async_trait,
    engine::{Report, Request},
    event::{Consumer, KeyFrom, MemorySource, deliveries},
    key::Tenant,
    outbox::{Deliverer, DeliveryError, MemoryTarget, Target},
    queue::{MemoryQueue, QueueError},
    store::{Outbox, OutboxMessage},
    telemetry::{OUTBOX_DELIVERED, OUTBOX_NOT_DELIVERED},
    time::Timestamp,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::{PLACED, bodies, topic, topics};
use crate::support::{
    counts::counting,
    faults::Fault,
    guarded::{Guarded, Item, completed, operation, owned, request, written},
    http::{Counter, until},
    messages::{FIFO, deliver, message, of_group},
    on_each_store,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Completes a request that publishes these.
async fn publish(guarded: &Guarded, bodies: &[&str]) -> Request {
    let request = request();
    let ours = owned(guarded.executor().reserve(&request).await);
    for body in bodies {
        ours.execution().publish(&topic(), body).expect("it is a message");
    }
    let report: Report = completed("done");
    written(guarded.executor().finish(ours, report).await);
    request
}

fn deliverer(guarded: &Guarded) -> Deliverer {
    Deliverer::new(guarded.store(), MemoryQueue::new(), topics()).world(guarded.clock.clone())
}

fn texts(delivered: Vec<OutboxMessage>) -> Vec<String> {
    delivered.into_iter().map(|message| message.body).collect()
}

/// A target that refuses these bodies.
#[derive(Clone, Default)]
struct Refuses {
    bodies: Arc<Mutex<Vec<String>>>,
    taken: MemoryTarget,
}

impl Refuses {
    fn these(bodies: &[&str]) -> Self {
        let refuses = Self::default();
        *refuses.bodies.lock().expect("no panic") =
            bodies.iter().map(|body| json!(body).to_string()).collect();
        refuses
    }

    fn nothing_more(&self) {
        self.bodies.lock().expect("no panic").clear();
    }
}

#[async_trait]
impl Target for Refuses {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        if self.bodies.lock().expect("no panic").contains(&message.body) {
            return Err(QueueError::new("access denied"));
        }
        self.taken.deliver(message).await
    }
}

// T63
#[apply(on_each_store)]
async fn messages_are_delivered_in_order_and_removed(endpoint: &str) {
    let (guarded, target) = (Guarded::on(endpoint).await, MemoryTarget::new());
    let all: Vec<String> = (0..60).map(|n| format!("m-{n}")).collect();
    let request = publish(&guarded, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let deliverer = deliverer(&guarded).target(PLACED, target.clone());
    for expected in [all.iter().map(|body| json!(body).to_string()).collect(), Vec::new()] {
        deliverer.deliver(&request.key, MINUTE).await.expect("they are delivered");
        assert_eq!(texts(target.take()), expected);
    }
    assert_eq!(bodies(&guarded, &request.key).await, [""; 0]);
}

// T63
#[apply(on_each_store)]
async fn a_message_whose_removal_was_lost_comes_again_under_its_id(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let target = MemoryTarget::new();
    let request = publish(&guarded, &["a", "b"]).await;
    let deliverer = deliverer(&guarded).target(PLACED, target.clone());
    guarded.faults.script("DeleteItem", [Fault::DropRequest]);
    let (failed, counts) = counting(guarded.clock.passing(deliverer.deliver(&request.key, MINUTE))).await;
    assert!(matches!(failed, Err(DeliveryError::Store(_))), "{failed:?}");
    assert_eq!(counts[OUTBOX_NOT_DELIVERED], 1);
    let (delivered, counts) = counting(deliverer.deliver(&request.key, MINUTE)).await;
    delivered.expect("they are delivered");
    assert_eq!((counts.get(OUTBOX_NOT_DELIVERED), counts[OUTBOX_DELIVERED]), (None, 2));
    let delivered = target.take();
    let ids: Vec<_> = delivered.iter().map(OutboxMessage::id).collect();
    assert_eq!(texts(delivered), [r#""a""#, r#""a""#, r#""b""#]);
    assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[apply(on_each_store)]
async fn a_poison_message_holds_up_its_own_operation_only(endpoint: &str) {
    let (guarded, target) = (Guarded::on(endpoint).await, Refuses::these(&["poison"]));
    let poisoned = publish(&guarded, &["before", "poison", "after"]).await;
    let other = publish(&guarded, &["other"]).await;
    let queue = MemorySource::new(FIFO);
    let deliveries = deliveries(deliverer(&guarded).target(PLACED, target.clone()), queue.clone());
    let wake = |id: &str, request: &Request, receives: u32| {
        let key = request.key.partition_key();
        let mut wake = of_group(&key, id, json!({ "version": 1, "kind": "deliver", "key": key }));
        wake["attributes"]["ApproximateReceiveCount"] = json!(receives.to_string());
        wake
    };
    let batch = [wake("m-1", &poisoned, 1), wake("m-2", &poisoned, 1), wake("m-3", &other, 1)];
    assert_eq!(deliver(&deliveries, &batch).await.expect("an answer"), ["m-1", "m-2"]);
    let mut delivered = texts(target.taken.take());
    delivered.sort();
    assert_eq!(delivered, [r#""before""#, r#""other""#]);
    // Later each time, and in the end a dead letter that says why. The messages stay.
    let [(_, first), (_, behind)] = &queue.take_hidden()[..] else { panic!("not two") };
    assert!(first > behind && behind.is_zero(), "{first:?} {behind:?}");
    assert_eq!(deliver(&deliveries, &[wake("m-1", &poisoned, 20)]).await.expect("an answer"), [""; 0]);
    let [dead] = &queue.take_dead()[..] else { panic!("not one dead letter") };
    assert_eq!(
        dead.reason,
        "it was tried 20 times: the target of the topic order.placed failed: the queue did not accept the message: access denied"
    );
    assert_eq!(bodies(&guarded, &poisoned.key).await, [r#""poison""#, r#""after""#]);
    // Once the target is repaired, another wake delivers them in order.
    target.nothing_more();
    assert_eq!(deliver(&deliveries, &[wake("m-4", &poisoned, 1)]).await.expect("an answer"), [""; 0]);
    assert_eq!(texts(target.taken.take()), [r#""poison""#, r#""after""#]);
}

/// Delivers, and lets this message be seen between the query and the atomic read.
async fn deliver_seeing(
    guarded: &Guarded,
    deliverer: &Deliverer,
    request: &Request,
    seen: &Item,
) -> Result<(), DeliveryError> {
    let (both, before) = (Arc::new(Barrier::new(2)), guarded.faults.asked("TransactGetItems"));
    guarded.faults.script("TransactGetItems", [Fault::Meet(both.clone())]);
    let has_ended = AtomicBool::new(false);
    let delivery = async {
        let delivered = deliverer.deliver(&request.key, MINUTE).await;
        has_ended.store(true, Ordering::SeqCst);
        delivered
    };
    let show = async {
        until(|| {
            assert!(!has_ended.load(Ordering::SeqCst), "it delivers without an atomic read");
            guarded.faults.asked("TransactGetItems") > before
        })
        .await;
        guarded.write_raw(seen.clone()).await;
        both.wait().await;
    };
    tokio::join!(delivery, show).0
}

// DynamoDB may show a part of a transaction to a query: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
#[apply(on_each_store)]
async fn a_message_waits_for_those_that_were_committed_with_it(endpoint: &str) {
    let (guarded, target) = (Guarded::on(endpoint).await, MemoryTarget::new());
    let request = publish(&guarded, &["0", "1", "2"]).await;
    let items = guarded.collection(&request.key).await;
    let is_message = |item: &&Item, n: &str| {
        item.get("sk")
            .and_then(|sk| sk.as_s().ok())
            .is_some_and(|sk| sk.starts_with("message#") && sk.ends_with(n))
    };
    let [first, second] =
        ["0", "1"].map(|n| items.iter().find(|item| is_message(item, n)).expect("a message").clone());
    guarded.delete_raw(&first).await;
    guarded.delete_raw(&second).await;
    let deliverer = deliverer(&guarded).target(PLACED, target.clone());
    let delivered = deliver_seeing(&guarded, &deliverer, &request, &first).await;
    assert!(matches!(delivered, Err(DeliveryError::Store(_))), "{delivered:?}");
    assert_eq!(target.take(), []);
    // The first one is the next, and the third does not follow it.
    let delivered = deliver_seeing(&guarded, &deliverer, &request, &second).await;
    assert!(matches!(delivered, Err(DeliveryError::Store(_))), "{delivered:?}");
    assert_eq!(texts(target.take()), [r#""0""#]);
    deliverer.deliver(&request.key, MINUTE).await.expect("all are there");
    assert_eq!(texts(target.take()), [r#""1""#, r#""2""#]);
    // Those before it were delivered: nothing is asked for more than once.
    let request = publish(&guarded, &["0", "1"]).await;
    let waiting = guarded.store().undelivered(&request.key).await.expect("the store answers");
    guarded.store().remove(&waiting[0]).await.expect("the store answers");
    deliverer.deliver(&request.key, MINUTE).await.expect("it is delivered");
    assert_eq!(texts(target.take()), [r#""1""#]);
}

// A handler publishes with a commit, and with its answer. A query may show what comes later, and not yet what came first.
#[apply(on_each_store)]
async fn a_message_waits_for_those_of_earlier_transactions(endpoint: &str) {
    let (guarded, target) = (Guarded::on(endpoint).await, MemoryTarget::new());
    let resumes = operation().resumes(["0", "1"], MINUTE);
    let (executor, request) = (guarded.executor_of(resumes), request());
    let ours = owned(executor.reserve(&request).await);
    for body in ["0", "1"] {
        let committed = ours.execution().commit(body, vec![topic().message(&body)]).await;
        assert!(committed.is_ok(), "{committed:?}");
    }
    ours.execution().publish(&topic(), &"2").expect("it is a message");
    written(executor.finish(ours, completed("done")).await);
    let items = guarded.collection(&request.key).await;
    let message = |n: &str| {
        let is_it = |sk: &String| sk.starts_with("message#") && sk.ends_with(n);
        let item = items.iter().find(|item| item["sk"].as_s().is_ok_and(is_it));
        item.expect("a message").clone()
    };
    let deliverer = deliverer(&guarded).target(PLACED, target.clone());
    // The first of a page.
    guarded.delete_raw(&message("0")).await;
    let delivered = deliver_seeing(&guarded, &deliverer, &request, &message("0")).await;
    assert!(matches!(delivered, Err(DeliveryError::Store(_))), "{delivered:?}");
    assert_eq!(target.take(), []);
    // And one behind another.
    guarded.delete_raw(&message("1")).await;
    let delivered = deliver_seeing(&guarded, &deliverer, &request, &message("1")).await;
    assert!(matches!(delivered, Err(DeliveryError::Store(_))), "{delivered:?}");
    assert_eq!(texts(target.take()), [r#""0""#]);
    deliverer.deliver(&request.key, MINUTE).await.expect("all are there");
    assert_eq!(texts(target.take()), [r#""1""#, r#""2""#]);
}

#[apply(on_each_store)]
async fn a_message_that_asks_for_no_delivery_is_dead_with_its_reason(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let queue = MemorySource::new(FIFO);
    let deliveries = deliveries(deliverer(&guarded), queue.clone());
    let bad = [json!({}), json!({ "key": "k" }), json!({ "version": 2, "kind": "deliver", "key": "a#b#c" })];
    for (n, body) in bad.iter().enumerate() {
        let id = format!("m-{n}");
        assert_eq!(deliver(&deliveries, &[of_group("g", &id, body)]).await.expect("an answer"), [""; 0]);
        let [dead] = &queue.take_dead()[..] else { panic!("not one dead letter") };
        assert!(
            ["the message's body has no key at /key", "the message asks for no delivery"]
                .contains(&&*dead.reason)
        );
    }
}

// T56
#[apply(on_each_store)]
async fn a_topic_without_a_target_is_named(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = publish(&guarded, &["a"]).await;
    let named = "the environment variable OUTBOX_TOPICS: the list of topics has order.paid, and this function has no target for it";
    let placed_only = deliverer(&guarded).target(PLACED, MemoryTarget::new());
    assert_eq!(placed_only.check().expect_err("no target").to_string(), named);
    let foreign = placed_only.target("order.paid", MemoryTarget::new()).target("other", MemoryTarget::new());
    assert!(foreign.check().expect_err("it is not listed").to_string().contains("has no other"));
    // A message of an older list stays.
    let failed = deliverer(&guarded).deliver(&request.key, MINUTE).await.expect_err("no target");
    assert_eq!(failed.to_string(), "the topic order.placed has no target in the list of topics");
    assert_eq!(bodies(&guarded, &request.key).await, [r#""a""#]);
}

/// A target behind which the time is up.
struct Slow(Guarded, MemoryTarget);

#[async_trait]
impl Target for Slow {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        self.0.clock.advance(MINUTE);
        self.1.deliver(message).await
    }
}

// A deliverer that was frozen does not go on: another one works for this operation by then.
#[apply(on_each_store)]
async fn no_message_is_begun_once_the_time_is_up(endpoint: &str) {
    let (guarded, target) = (Guarded::on(endpoint).await, MemoryTarget::new());
    let request = publish(&guarded, &["a", "b"]).await;
    let deliverer = deliverer(&guarded).target(PLACED, Slow(guarded.clone(), target.clone()));
    let failed = deliverer.deliver(&request.key, MINUTE).await;
    assert!(matches!(failed, Err(DeliveryError::Late)), "{failed:?}");
    assert_eq!(texts(target.take()), [r#""a""#]);
}

// T63: the consumer's record keeps the second delivery from a second effect.
#[apply(on_each_store)]
async fn a_guarded_consumer_takes_a_message_once(endpoint: &str) {
    let (guarded, target, runs) = (Guarded::on(endpoint).await, MemoryTarget::new(), Counter::default());
    let request = publish(&guarded, &["a", "b"]).await;
    deliverer(&guarded)
        .target(PLACED, target.clone())
        .deliver(&request.key, MINUTE)
        .await
        .expect("delivered");
    let mut messages = target.take();
    messages[1].published_at = Timestamp::from_millis(1_764_000_000_120);
    let events: Vec<_> = messages.iter().map(OutboxMessage::to_cloud_event).collect();
    let event: Value = serde_json::from_str(&events[1]).expect("JSON");
    let expected = json!({
        "specversion": "1.0",
        "id": event["id"],
        "source": request.key.operation().as_str(),
        "type": PLACED,
        "time": "2025-11-24T16:00:00.12Z",
        "datacontenttype": "application/json",
        "sequence": "0000000001",
        "tenant": request.key.tenant().as_str(),
        "idempotencykey": request.key.idempotency_key().as_str(),
        "data": "b",
    });
    assert_eq!(event, expected);
    let tenant = Tenant::parse("acme").expect("a tenant");
    let guard = Guard::new(guarded.store(), Operation::new("ship"), tenant).world(guarded.clock.clone());
    let counted = runs.clone();
    let ship = move |_: Execution, _: Value| {
        let runs = counted.clone();
        async move {
            runs.add();
            Ok::<_, Failure>(())
        }
    };
    let consumer = Consumer::new(MemorySource::new("parcels"), KeyFrom::cloud_event());
    let consumer = consumer.world(guarded.clock.clone()).each(guard, ship);
    for (n, body) in events.iter().chain(&events).enumerate() {
        let again = message(&format!("m-{n}"), body);
        assert_eq!(deliver(&consumer, &[again]).await.expect("an answer"), [""; 0]);
    }
    assert_eq!(runs.count(), 2);
}

// Numbers keep their digits, and members their order: nothing on the way reads and writes them.
#[apply(on_each_store)]
async fn a_message_is_delivered_as_it_was_published(endpoint: &str) {
    let (guarded, target, request) = (Guarded::on(endpoint).await, MemoryTarget::new(), request());
    let body = r#"{"b":123456789012345678901234567890,"a":0.10,"b2":"\uffff"}"#;
    let raw: Box<serde_json::value::RawValue> = serde_json::from_str(body).expect("JSON");
    let ours = owned(guarded.executor().reserve(&request).await);
    ours.execution().publish(&topic(), &raw).expect("it is a message");
    written(guarded.executor().finish(ours, completed("done")).await);
    deliverer(&guarded)
        .target(PLACED, target.clone())
        .deliver(&request.key, MINUTE)
        .await
        .expect("delivered");
    let [delivered] = &target.take()[..] else { panic!("not one message") };
    assert!(delivered.to_cloud_event().contains(&format!(r#""data":{body}"#)));
}
