//! Batches of messages: nine of the flood's, each of which takes a second, and then the other tenant's one.

use std::time::{Duration, UNIX_EPOCH};

use axum::http::request::Parts;
use lambda_idempotency::{
    Execution, Failure, Guard, Operation, async_trait,
    engine::{Executor, Request},
    event::{BatchFunction, Consumer, KeyFrom, MemorySource, Message, deliveries},
    key::Tenant,
    lambda::{DeferredReports, Event, reconcile_event, stale_event},
    outbox::{Deliverer, Target, Topics},
    queue::{FairQueue, MemoryQueue, QueueError},
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    stale::Stale,
    store::{OutboxMessage, Store, conformance::samples, memory::MemoryStore},
    time::Timestamp,
    world::World,
};
use serde_json::{Value, json};

use super::{FLOOD, Log, OTHER, assert_waits, put, unknown};
use crate::support::{
    BoxError,
    guarded::{self, completed, fingerprints, operation, owned, record_key, written},
    http::{PAY, api, execution, guard_of, order, send, tenant},
    messages::{FIFO, QUEUE, deliver_within, message, of_group},
    seeded_world::SeededWorld,
};

const START: Timestamp = Timestamp::from_secs(2_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A batch of Lambda's: nine keys of the flood, and one of the other tenant.
const BATCH: usize = 10;

/// Whom each message of a batch is for.
fn tenants() -> impl Iterator<Item = &'static str> {
    std::iter::repeat_n(FLOOD, BATCH - 1).chain([OTHER])
}

/// What takes a second of the flood, and is noted at its end. What the other tenant waits for is noted when it begins.
#[derive(Clone)]
struct Slow(SeededWorld, Log);

impl Slow {
    fn new() -> Self {
        Self(SeededWorld::new(7, START), Log::default())
    }

    async fn take_turn(&self, tenant: &str) {
        if tenant == FLOOD {
            self.0.sleep(SECOND).await;
        }
        self.1.add(tenant);
    }
}

/// Hands over a batch. Returns how many of the flood ended before the other tenant's began.
async fn waited(slow: &Slow, consumer: &impl BatchFunction, batch: &[Value]) -> usize {
    let now = UNIX_EPOCH + Duration::from_millis(slow.0.now().as_millis());
    let back = deliver_within(consumer, batch, now, MINUTE).await.expect("an answer");
    assert_eq!(back, [""; 0], "all are done");
    slow.1.before_the_other()
}

// T81
#[tokio::test(start_paused = true)]
async fn a_message_waits_for_no_other_tenants_in_its_batch() {
    // The other tenant's key is a new one, or that of all others.
    for has_its_own in [true, false] {
        let slow = Slow::new();
        let run = {
            let slow = slow.clone();
            move |execution: Execution, _: Value| {
                let slow = slow.clone();
                async move {
                    slow.take_turn(execution.tenant().as_str()).await;
                    Ok::<_, Failure>(())
                }
            }
        };
        let of = |message: &Message| {
            let body: Value = serde_json::from_str(&message.body).ok()?;
            Tenant::parse(body["tenant"].as_str()?).ok()
        };
        let guard =
            Guard::new(MemoryStore::new(), Operation::new("ship"), tenant(FLOOD)).world(slow.0.clone());
        let source = MemorySource::new(QUEUE);
        let consumer = Consumer::new(source, KeyFrom::body("/id")).world(slow.0.clone());
        let consumer = consumer.each_of_tenants(of, guard, run);
        let parcel = |(number, tenant): (usize, &str)| {
            let id = if has_its_own { number } else { 0 };
            message(&number.to_string(), json!({ "id": id.to_string(), "tenant": tenant }))
        };
        let batch: Vec<_> = tenants().enumerate().map(parcel).collect();
        assert_waits("a batch of a consumer", waited(&slow, &consumer, &batch).await);
    }
}

// T81
#[tokio::test(start_paused = true)]
async fn accepted_work_waits_for_no_other_tenants_in_its_batch() {
    let (slow, store) = (Slow::new(), MemoryStore::new());
    let handler = {
        let slow = slow.clone();
        move |parts: Parts, _| {
            let slow = slow.clone();
            async move { slow.take_turn(execution(&parts).tenant().as_str()).await }
        }
    };
    let operation = Operation::new(PAY).asynchronous(60 * MINUTE);
    let app = api(guard_of(store.clone(), operation).world(slow.0.clone()), handler);
    let mut batch = Vec::new();
    for (number, name) in tenants().enumerate() {
        let id = format!("k-{number}");
        let request = order(&id).extension(tenant(name)).body("{}".into()).unwrap();
        assert_eq!(send(&app, request).await.status, 202);
        let key = crate::support::http::record_key(name, PAY, &id);
        let accepted = store.load(&key).await.unwrap().and_then(|record| record.accepted).expect("a request");
        let (key, request) = (key.partition_key(), accepted.request.to_string());
        batch.push(message(&id, json!({ "version": 1, "kind": "work", "key": key, "request": request })));
    }
    let worker = Consumer::worker(MemorySource::new(QUEUE)).world(slow.0.clone()).work(store, app);
    assert_waits("a batch of accepted work", waited(&slow, &worker, &batch).await);
}

#[async_trait]
impl Target for Slow {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        self.take_turn(message.key.tenant().as_str()).await;
        Ok(())
    }
}

// T81
#[tokio::test(start_paused = true)]
async fn a_delivery_waits_for_no_other_tenants_in_its_batch() {
    let (slow, store) = (Slow::new(), MemoryStore::new());
    let executor = Executor::new(store.clone(), operation()).world(slow.0.clone());
    let topics = Topics::parse("order.placed=own").expect("a list");
    let mut batch = Vec::new();
    for (number, name) in tenants().enumerate() {
        let id = format!("k-{number}");
        let request = Request { key: record_key(name, &id), ..guarded::request() };
        let ours = owned(executor.reserve(&request).await);
        ours.execution().publish(&topics.topic("order.placed").unwrap(), &1).expect("it is a message");
        written(executor.finish(ours, completed("done")).await);
        let key = request.key.partition_key();
        batch.push(of_group(&key, &id, json!({ "version": 1, "kind": "deliver", "key": key })));
    }
    let deliverer = Deliverer::new(store, MemoryQueue::new(), topics).world(slow.0.clone());
    let deliveries = deliveries(deliverer.target("order.placed", slow.clone()), MemorySource::new(FIFO));
    assert_waits("a batch of the outbox", waited(&slow, &deliveries, &batch).await);
}

/// The same batch, for a function of the library's.
fn event(messages: impl Iterator<Item = Value>) -> (Event, lambda_http::Context) {
    let event = json!({ "Records": messages.collect::<Vec<_>>() });
    // Parsed as the runtime parses it.
    (serde_json::from_str(&event.to_string()).expect("an event"), lambda_http::Context::default())
}

/// The queue of checks, which takes a second for each of the flood's.
#[async_trait]
impl FairQueue for Slow {
    async fn send_fairly(&self, message: &str, _: &str, _: Duration) -> Result<(), QueueError> {
        self.take_turn(if message.contains(FLOOD) { FLOOD } else { OTHER }).await;
        Ok(())
    }
}

// T81
#[tokio::test(start_paused = true)]
async fn a_check_waits_for_no_other_tenants_in_its_batch() {
    let (slow, store) = (Slow::new(), MemoryStore::new());
    // Each worker is alive, and is checked again later.
    let live = |(number, name): (usize, &str)| {
        samples::in_progress(
            record_key(name, &number.to_string()),
            fingerprints("{}"),
            START,
            START.plus(MINUTE),
        )
    };
    let records: Vec<_> = tenants().enumerate().map(live).collect();
    put(&store, records.iter().cloned()).await;
    let stale = Stale::new(store, slow.clone(), MemoryQueue::new(), MemoryQueue::new()).world(slow.0.clone());
    let (event, context) = event(records.iter().enumerate().map(|(number, record)| {
        let key = record.key.partition_key();
        message(&number.to_string(), json!({ "version": 1, "kind": "check", "key": key, "look_at": 0 }))
    }));
    let failures = stale_event(&stale, event, &context).await.expect("an answer");
    assert_eq!(failures.identifiers(), [""; 0]);
    assert_waits("a batch of `checks`", slow.1.before_the_other());
}

#[async_trait]
impl Reconciler for Slow {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        self.take_turn(question.tenant().as_str()).await;
        Ok(Finding::NotExecuted)
    }
}

// T81
#[tokio::test(start_paused = true)]
async fn an_asked_question_waits_for_no_other_tenants_in_its_batch() {
    let (slow, store) = (Slow::new(), MemoryStore::new());
    let keys: Vec<_> =
        tenants().enumerate().map(|(number, name)| record_key(name, &number.to_string())).collect();
    put(&store, keys.iter().map(|key| unknown(key.clone(), START))).await;
    let reconciliation = Reconciliation::new(store, MemoryQueue::new())
        .world(slow.0.clone())
        .operation(operation(), slow.clone());
    let config = aws_config::SdkConfig::builder().behavior_version(aws_config::BehaviorVersion::latest());
    let reports =
        DeferredReports::new(&config.build(), "http://127.0.0.1:9/reports", "http://127.0.0.1:9/dead");
    let (event, context) = event(keys.iter().enumerate().map(|(number, key)| {
        message(&number.to_string(), json!({ "version": 1, "kind": "ask", "key": key.partition_key() }))
    }));
    let failures = reconcile_event(&reconciliation, &reports, event, &context).await.expect("an answer");
    assert_eq!(failures.identifiers(), [""; 0]);
    assert_waits("a batch of `reconcile`", slow.1.before_the_other());
}
