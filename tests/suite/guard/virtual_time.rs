//! The whole library in one thread and virtual time: it uses only its injected world.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, http::Request, routing::post};
use lambda_idempotency::{
    async_trait,
    engine::Execution,
    http::Idempotency,
    operation::Operation,
    queue::MemoryQueue,
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Answer, Record, State},
    stale::Stale,
    store::memory::MemoryStore,
    time::Timestamp,
    world::World,
};
use serde_json::json;
use tower::ServiceExt;

use crate::support::{
    BoxError,
    http::{ORDER, PAY, caller, order, record},
    seeded_world::SeededWorld,
};

const START: Timestamp = Timestamp::from_secs(2_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
/// The library's default.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The charges of a provider that shows a charge only some time after making it.
type Charges = Arc<Mutex<Vec<(String, Timestamp)>>>;

struct Provider(Charges, SeededWorld);

#[async_trait]
impl Reconciler for Provider {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        self.1.sleep(SECOND).await;
        let key = question.downstream_key("charge");
        let shown = self.1.now().minus(300 * SECOND);
        let charges = self.0.lock().unwrap();
        let charged = charges.iter().any(|(charge, at)| *charge == key && *at <= shown);
        Ok(if charged { Finding::Executed(Answer::json(201, "{\"id\":1}")) } else { Finding::NotFound })
    }
}

/// A guarded payment whose worker dies after the charge; its client retries until it has its answer.
async fn story(seed: u64) -> Vec<String> {
    let world = SeededWorld::new(seed, START);
    let (store, charges) = (MemoryStore::new(), Charges::default());
    let mut trace = Vec::new();

    let handler = {
        let (charges, world) = (charges.clone(), world.clone());
        move |execution: Execution| async move {
            world.sleep(SECOND).await;
            charges.lock().unwrap().push((execution.downstream_key("charge"), world.now()));
            std::future::pending::<()>().await;
        }
    };
    let guard = Idempotency::new(store.clone(), Operation::new(PAY)).tenant(caller).world(world.clone());
    let api = Router::new().route("/payments", post(handler).layer(guard));
    let request = || order("key-1").body(Body::from(ORDER)).expect("a request");
    let (checks, dead_letters) = (MemoryQueue::new(), MemoryQueue::new());
    let stale = Stale::new(store.clone(), checks.clone(), MemoryQueue::new(), dead_letters.clone())
        .world(world.clone());
    let reconciliation = Reconciliation::new(store.clone(), dead_letters.clone())
        .world(world.clone())
        .operation(Operation::new(PAY), Provider(charges.clone(), world.clone()));

    // The client stops waiting after two seconds, and then the process dies.
    let first = tokio::time::timeout(2 * SECOND, send(&api, request())).await;
    trace.push(format!("{:?} the client: {first:?}", world.now()));
    world.crash();
    let record = the_record(&store).await;
    trace.push(format!("{:?} {record:?}", world.now()));

    let check = json!({ "version": 1, "kind": "check", "key": record.key.partition_key(), "look_at": 0 });
    let mut message = check.to_string();
    let mut lease_expired = 0;
    for round in 0..100 {
        let dead = match the_record(&store).await.state {
            State::InProgress { lease_until } => lease_until <= world.now(),
            _ => false,
        };
        trace.push(format!(
            "{:?} the stale function: {:?}",
            world.now(),
            stale.receive(&message, SECOND).await
        ));
        if dead {
            // Checked before the retry, which would find it too.
            assert_eq!(the_record(&store).await.state.name(), "unknown", "{}", trace.join("\n"));
            lease_expired += 1;
        }
        trace.push(format!("{:?} a retry: {}", world.now(), send(&api, request()).await));
        for (check, delay) in checks.take() {
            trace.push(format!("{:?} {check} in {delay:?}", world.now()));
            message = check;
        }
        let polled = reconciliation.poll(10 * SECOND).await.expect("the store answers");
        trace.push(format!("{:?} {polled:?}", world.now()));
        trace.push(format!("{:?} {:?}", world.now(), the_record(&store).await));
        if the_record(&store).await.state.name() == "completed" {
            trace.push(format!("{:?} in round {round}: {}", world.now(), send(&api, request()).await));
            break;
        }
        world.sleep(20 * SECOND).await;
    }
    assert_eq!(lease_expired, 1, "{}", trace.join("\n"));
    trace.push(format!(
        "{} charges, {} dead letters",
        charges.lock().unwrap().len(),
        dead_letters.take().len()
    ));
    trace
}

async fn send(api: &Router, request: Request<Body>) -> String {
    let response = api.clone().oneshot(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    let replayed = parts.headers.contains_key("idempotent-replayed");
    format!("{} {} replayed: {replayed}", parts.status, String::from_utf8_lossy(&body))
}

async fn the_record(store: &MemoryStore) -> Record {
    record(store, "key-1").await.expect("the record exists")
}

fn run(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(story(seed))
}

#[test]
fn a_crash_is_settled_in_virtual_time() {
    let trace = run(1);
    let whole = trace.join("\n");
    assert!(whole.contains("in round") && whole.contains("201 Created {\"id\":1} replayed: true"), "{whole}");
    assert_eq!(trace.last().map(String::as_str), Some("1 charges, 0 dead letters"), "{whole}");
    assert!(whole.contains("409 Conflict") && whole.contains("Unknown { cause: LeaseExpired"), "{whole}");
}

#[test]
fn nothing_in_the_story_asks_the_machines_clock() {
    let whole = run(1).join("\n");
    // The times of records and of the queue's messages. The machine's clock is years behind the story's.
    let records = whole.split("Timestamp(").skip(1).map(|rest| rest.split(')').next());
    let checks = whole.split("\"look_at\":").skip(1).map(|rest| rest.split(['}', ',']).next());
    for (times, least) in [(records.collect::<Vec<_>>(), 20), (checks.collect(), 1)] {
        assert!(times.len() >= least, "{whole}");
        for time in times {
            let millis = time.and_then(|digits| digits.parse().ok()).expect("milliseconds");
            let (time, end) = (Timestamp::from_millis(millis), START.plus(2 * RETENTION));
            assert!((START..end).contains(&time), "{time:?} in {whole}");
        }
    }
}

#[test]
fn one_seed_is_one_story_and_another_seed_another() {
    let (first, again, other) = (run(7), run(7), run(8));
    assert_eq!(first, again);
    assert_ne!(first, other);
}
