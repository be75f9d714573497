//! Records whose worker died: found through the stream, by a check, or by a sweep.

use std::time::Duration;

use axum::http::StatusCode;
use lambda_http::Context;
use lambda_idempotency::{
    engine::Request,
    fingerprint::{Content, FingerprintRule},
    http::{ProblemType, Profile, operation_status},
    key::RecordKey,
    lambda::stale_event,
    operation::OnLeaseExpiry,
    queue::MemoryQueue,
    record::Head,
    stale::{CheckOutcome, Stale},
    store::{Store, WriteOutcome, conformance::samples},
    time::Timestamp,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json, value::RawValue};

use crate::support::{
    guarded::{
        BODY, GRACE, Guarded, Item, LEASE, completed, fingerprints, operation, outcome_of, owned, replayed,
        request, written,
    },
    http, on_each_store,
};

pub const BOUND: Duration = Duration::from_secs(3600);

/// The function that finds dead workers, with its queues.
pub struct Found {
    pub guarded: Guarded,
    pub checks: MemoryQueue,
    pub sweeps: MemoryQueue,
    pub dead_letters: MemoryQueue,
    pub stale: Stale,
}

impl Found {
    pub async fn on(endpoint: &str) -> Self {
        let guarded = Guarded::on(endpoint).await;
        let [checks, sweeps, dead_letters] = [(); 3].map(|()| MemoryQueue::new());
        let queues = (checks.clone(), sweeps.clone(), dead_letters.clone());
        let stale = Stale::new(guarded.undisturbed_store(), queues.0, queues.1, queues.2)
            .sweep_units_per_second(1e9)
            .world(guarded.clock.clone());
        Self { guarded, checks, sweeps, dead_letters, stale }
    }

    /// A request whose worker reserved it and then died.
    pub async fn dead(&self) -> Request {
        let request = request();
        drop(owned(self.guarded.executor().reserve(&request).await));
        request
    }

    pub async fn look(&self, key: &RecordKey) -> CheckOutcome {
        self.stale.check(key).await.expect("the store answers")
    }

    /// Delivers a message as Lambda does. It must be processed.
    pub async fn receive(&self, check: &Value) {
        let message = json!({ "eventSource": "aws:sqs", "messageId": "1", "body": check.to_string() });
        assert_eq!(self.deliver(json!({ "Records": [message] })).await, [""; 0]);
    }

    /// Delivers a batch of the stream as Lambda does, and returns what is to be delivered again.
    pub async fn stream(&self, batch: &[Box<RawValue>]) -> Vec<String> {
        self.deliver(json!({ "Records": batch })).await
    }

    pub async fn deliver(&self, event: Value) -> Vec<String> {
        let event = serde_json::from_value(event).expect("an event");
        let failures = stale_event(&self.stale, event, &Context::default()).await.expect("an answer");
        failures.identifiers()
    }

    /// The one check that was sent, and its delay.
    pub fn check(&self) -> (Value, Duration) {
        let [(message, delay)] = &self.checks.take()[..] else { panic!("not one message") };
        (serde_json::from_str(message).expect("a check"), *delay)
    }
}

fn check_of(request: &Request, look_at: Timestamp) -> Value {
    json!({ "version": 1, "kind": "check", "key": request.key.partition_key(), "look_at": look_at.as_millis() })
}

// T7
#[apply(on_each_store)]
async fn a_dead_worker_is_expired_only_once_its_lease_has_expired(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let request = found.dead().await;
    let over = found.guarded.now().plus(LEASE + GRACE);
    found.guarded.clock.advance(LEASE + GRACE - Duration::from_millis(1));
    assert_eq!(found.look(&request.key).await, CheckOutcome::Live(over));
    found.guarded.clock.advance(Duration::from_millis(1));
    assert_eq!(found.look(&request.key).await, CheckOutcome::LeaseExpired);
    assert_eq!(found.guarded.state(&request).await, "unknown");
    assert_eq!(outcome_of(&found.guarded.executor().reserve(&request).await), "unknown");
}

// T19
#[apply(on_each_store)]
async fn a_check_that_comes_early_late_or_twice_changes_nothing_more(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let request = found.dead().await;
    let over = found.guarded.now().plus(LEASE + GRACE);
    // A lease longer than 15 minutes takes several messages, each for the time left.
    found.receive(&check_of(&request, over)).await;
    assert_eq!(found.check(), (check_of(&request, over), LEASE + GRACE));
    // A check that is on time finds that a heartbeat has extended the lease.
    found.receive(&check_of(&request, found.guarded.now())).await;
    assert_eq!(found.check(), (check_of(&request, over), LEASE + GRACE));
    found.guarded.clock.advance(LEASE + GRACE);
    for _ in 0..2 {
        found.receive(&check_of(&request, over)).await;
    }
    let lease_expired = found.guarded.item(&request.key).await;
    found.receive(&check_of(&request, over)).await;
    assert_eq!(found.guarded.item(&request.key).await, lease_expired);
    assert_eq!((found.guarded.state(&request).await, found.checks.take().len()), ("unknown", 0));
    assert_eq!(found.look(&self::request().key).await, CheckOutcome::Gone);
}

// T4: the write was under way when its worker died. The stream reports it at any time of its landing.
#[apply(on_each_store)]
async fn a_record_that_lands_late_is_expired_too(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let store = found.guarded.undisturbed_store();
    let late = request();
    let now = found.guarded.now();
    let record = samples::in_progress(late.key.clone(), fingerprints(BODY), now, now.plus(LEASE));
    found.guarded.clock.advance(LEASE * 10);
    assert_eq!(store.put(None, &record, &[]).await.unwrap(), WriteOutcome::Written);
    let batch = [change(found.guarded.item(&late.key).await.unwrap(), 1)];
    assert!(found.stream(&batch).await.is_empty());
    let (check, delay) = found.check();
    assert_eq!(delay, Duration::ZERO);
    found.receive(&check).await;
    assert_eq!(found.guarded.state(&late).await, "unknown");
}

// T5, T7
#[apply(on_each_store)]
async fn simultaneous_completion_and_check_end_in_one_state(endpoint: &str) {
    let found = Found::on(endpoint).await;
    for _ in 0..10 {
        let request = request();
        let executor = found.guarded.executor();
        let ours = owned(executor.reserve(&request).await);
        found.guarded.clock.advance(LEASE + GRACE);
        let (_, ended) = tokio::join!(found.look(&request.key), executor.finish(ours, completed("{}")));
        // In either order, the worker's report counts, before the check and after it.
        written(ended);
        assert_eq!(found.guarded.state(&request).await, "completed");
        assert_eq!(found.look(&request.key).await, CheckOutcome::Settled);
    }
}

#[apply(on_each_store)]
async fn abandoned_work_ends_with_408_and_is_replayed(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let key = http::record_key(http::TENANT, http::PAY, "order-1");
    // As the guard reads the order below.
    let content = Content::new("POST", "/payments", BODY.as_bytes()).json();
    let fingerprints = content.fingerprints(http::PAY, &FingerprintRule::new(), &[]);
    let request = Request { key, fingerprints, ..request() };
    let pending = samples::pending(request.key.clone(), request.fingerprints.clone(), found.guarded.now());
    let store = found.guarded.undisturbed_store();
    assert_eq!(store.put(None, &pending, &[]).await.unwrap(), WriteOutcome::Written);
    let batch = [change(found.guarded.item(&request.key).await.unwrap(), 1)];
    found.stream(&batch).await;
    assert_eq!(found.check().1, BOUND);
    assert_eq!(found.look(&request.key).await, CheckOutcome::Live(found.guarded.now().plus(BOUND)));
    found.guarded.clock.advance(BOUND);
    assert_eq!(found.look(&request.key).await, CheckOutcome::Abandoned);
    let replay = replayed(found.guarded.executor().reserve(&request).await);
    assert_eq!(replay.answer.head, Head::Abandoned);

    // Each profile has a different form of this answer.
    let runs = http::Counter::default();
    let elsewhere = Profile::acp().scope_keys_by_path(false).status(ProblemType::Abandoned, StatusCode::GONE);
    for (profile, status) in [(Profile::ietf_draft(), 408), (Profile::stripe(), 408), (elsewhere, 410)] {
        let shown = operation_status(&store, &request.key, found.guarded.now(), &profile).await;
        let guard = http::guard(store.clone()).profile(profile).world(found.guarded.clock.clone());
        let counter = runs.clone();
        let app = http::api(guard, move |_, _| {
            counter.add();
            async {}
        });
        let order = http::order("order-1").body(BODY.into()).unwrap();
        let replay = http::send(&app, order).await;
        replay.assert_code(status, "operation-abandoned");
        assert!(replay.replayed());
        assert_eq!(runs.count(), 0);
        // A client that polls gets the answer too, which no request has brought it.
        http::Answer::of(shown).await.assert_code(status, "operation-abandoned");
    }
}

#[apply(on_each_store)]
async fn an_operation_that_may_run_again_runs_again_after_the_check(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let request = found.dead().await;
    found.guarded.clock.advance(LEASE + GRACE);
    assert_eq!(found.look(&request.key).await, CheckOutcome::LeaseExpired);
    let again = found.guarded.executor_of(operation().on_lease_expiry(OnLeaseExpiry::RunAgain));
    let second = owned(again.reserve(&request).await);
    assert_eq!(second.execution().attempts(), 2);
}

// T19
#[apply(on_each_store)]
async fn a_stream_batch_schedules_checks_only_for_executions_it_leaves_open(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let executor = found.guarded.executor();
    let mut batch = Vec::new();
    for number in 0..20 {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        batch.push(change(found.guarded.item(&request.key).await.unwrap(), 2 * number));
        written(executor.finish(ours, completed("{}")).await);
        batch.push(change(found.guarded.item(&request.key).await.unwrap(), 2 * number + 1));
    }
    assert!(found.stream(&batch).await.is_empty());
    assert_eq!(found.checks.take().len(), 0, "healthy operations cost nothing");

    let dead = found.dead().await;
    batch.insert(7, change(found.guarded.item(&dead.key).await.unwrap(), 100));
    found.stream(&batch).await;
    let over = found.guarded.now().plus(LEASE + GRACE);
    assert_eq!(found.check(), (check_of(&dead, over), LEASE + GRACE));
}

// T19
#[apply(on_each_store)]
async fn a_poison_record_is_dead_lettered_and_blocks_no_other(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let dead = found.dead().await;
    let whole = found.guarded.item(&dead.key).await.unwrap();
    let mut poison = whole.clone();
    poison.remove("lease_until");
    let failures = found.stream(&[change(poison, 1), change(whole, 2)]).await;
    assert_eq!(failures, [""; 0]);
    assert_eq!(found.check().0, check_of(&dead, found.guarded.now().plus(LEASE + GRACE)));
    let dead_letters = found.dead_letters.take();
    let dead_letter: Value = serde_json::from_str(&dead_letters[0].0).unwrap();
    assert_eq!((dead_letters.len(), &dead_letter["kind"]), (1, &json!("poison")));
    assert_eq!(dead_letter["record"]["dynamodb"]["SequenceNumber"], "1", "nothing of it is lost");
}

/// A stream record with this image, as Lambda delivers it.
fn change(item: Item, number: u64) -> Box<RawValue> {
    use aws_sdk_dynamodb::types::AttributeValue;
    use base64::{Engine, prelude::BASE64_STANDARD};
    fn attribute(value: &AttributeValue) -> Value {
        match value {
            AttributeValue::S(text) => json!({ "S": text }),
            AttributeValue::N(digits) => json!({ "N": digits }),
            AttributeValue::B(bytes) => json!({ "B": BASE64_STANDARD.encode(bytes) }),
            AttributeValue::L(list) => json!({ "L": list.iter().map(attribute).collect::<Vec<_>>() }),
            other => panic!("{other:?} in a record"),
        }
    }
    let image: serde_json::Map<_, _> =
        item.iter().map(|(name, value)| (name.clone(), attribute(value))).collect();
    let record = json!({
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "Keys": { "pk": image["pk"], "sk": image["sk"] },
            "NewImage": image,
            "SequenceNumber": number.to_string(),
        },
    });
    serde_json::value::to_raw_value(&record).unwrap()
}
