//! Requests of a function whose bounds refuse the flood.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use lambda_idempotency::{
    Failure, Guard, Operation,
    bounds::{Bounds, Rate},
    event::{Consumer, KeyFrom, MemorySource, Message},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    store::{Store, conformance::samples},
    time_budget::RULES_FOR,
};
use serde_json::{Value, json};

use super::{FLOOD, OTHER, assert_waits, unknown};
use crate::support::{
    clock::STORE_TIMEOUT,
    embedded,
    faults::{ANY, Fault},
    guarded::{Guarded, fingerprints, random},
    http::{Answer, Counter, PAY, api, guard_of, order, send, tenant, until},
    messages::{QUEUE, deliver, message},
};

/// One in a minute, and two at once.
const FEW: Rate = Rate::per_minute(1).burst(2);

/// More than fits in a record.
const LARGE: usize = 20_000;

fn app(guarded: &Guarded, bounds: Option<Bounds>) -> Router {
    let guard = guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone());
    let guard = match bounds {
        Some(bounds) => guard.bounds(bounds),
        None => guard,
    };
    api(guard, |_, _| async { (StatusCode::CREATED, random(LARGE)) })
}

fn request(name: &str, key: &str) -> Request<Body> {
    order(key).extension(tenant(name)).body("{}".into()).unwrap()
}

async fn pay(app: &Router, name: &str, key: &str) -> Answer {
    send(app, request(name, key)).await
}

// T81, T86
#[tokio::test]
async fn a_request_costs_the_same_while_a_flood_is_refused() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let app = app(&guarded, Some(Bounds::of(guarded.store()).new_keys(FEW)));
    let costs = async |key: &str| {
        guarded.meter.reset();
        assert_eq!(pay(&app, OTHER, key).await.status, 201);
        guarded.meter.reading().total()
    };
    // The first reads the rules.
    costs("k-1").await;
    let alone = costs("k-2").await;
    guarded.clock.advance(RULES_FOR / 2);
    let mut refused = 0;
    for number in 0..2000 {
        refused += usize::from(pay(&app, FLOOD, &format!("k-{number}")).await.status == 429);
    }
    assert_eq!(refused, 2000 - 3);
    guarded.clock.advance(60 * RULES_FOR);
    costs("k-3").await;
    assert_eq!(costs("k-4").await, alone);
}

/// The other tenant's request is answered while this request of the flood waits for the store, for as long as that likes.
async fn is_answered_beside(guarded: &Guarded, app: &Router, theirs: Request<Body>, asks: &str) {
    let before = guarded.faults.asked(asks);
    let faults = guarded.faults.clone();
    let hanging = tokio::spawn({
        let app = app.clone();
        async move { send(&app, theirs).await }
    });
    until(|| faults.left() == 0 && faults.asked(asks) > before).await;
    let answer = tokio::time::timeout(Duration::from_secs(20), pay(app, OTHER, "k-1")).await;
    let answer = answer.unwrap_or_else(|_| panic!("it waits for the flood's {asks}"));
    assert_eq!((answer.status, hanging.is_finished()), (201, false));
    hanging.abort();
    assert_waits("a request, for the store", 0);
}

// T81
#[tokio::test]
async fn a_request_waits_for_no_other_tenants_count() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let app = app(&guarded, Some(Bounds::of(guarded.store()).new_keys(FEW)));
    guarded.faults.script("UpdateItem", [Fault::BlackHole]);
    is_answered_beside(&guarded, &app, request(FLOOD, "k-1"), "UpdateItem").await;
}

// T81: a replay does not need the rules that it has begun to read.
#[tokio::test]
async fn a_request_waits_for_no_other_tenants_read_of_the_rules() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let app = app(&guarded, Some(Bounds::of(guarded.store()).new_keys(FEW)));
    assert_eq!(pay(&app, FLOOD, "k-1").await.status, 201);
    guarded.clock.advance(RULES_FOR);
    // The rules, and the body of the answer.
    guarded.faults.script("GetItem", [Fault::BlackHole, Fault::BlackHole]);
    is_answered_beside(&guarded, &app, request(FLOOD, "k-1"), "GetItem").await;
}

// T67, T81
#[tokio::test]
async fn a_message_waits_for_none_that_is_handed_back() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (store, now, runs) = (guarded.undisturbed_store(), guarded.now(), Counter::default());
    let key = |id: &str| {
        RecordKey::new(
            tenant(FLOOD),
            OperationName::parse("ship").expect("a name"),
            IdempotencyKey::of(&[id]).expect("a key"),
        )
    };
    let guard =
        Guard::new(guarded.store(), Operation::new("ship"), tenant(FLOOD)).world(guarded.clock.clone());
    let guard = guard.bounds(Bounds::of(guarded.store()).new_keys(FEW));
    for id in ["done-1", "done-2", "done-3"] {
        guard.run(&[id], (), async |_, ()| Ok::<_, Failure>(())).await.expect("it runs");
    }
    for number in 0..3 {
        let (lease, live) = (now.plus(STORE_TIMEOUT * 10), key(&format!("live-{number}")));
        store.put(None, &samples::in_progress(live, fingerprints("{}"), now, lease), &[]).await.unwrap();
        store.put(None, &unknown(key(&format!("unknown-{number}")), now), &[]).await.unwrap();
    }
    let source = MemorySource::new(QUEUE);
    let of = |message: &Message| {
        let body: Value = serde_json::from_str(&message.body).ok()?;
        Tenant::parse(body["tenant"].as_str()?).ok()
    };
    let counted = runs.clone();
    let consumer = Consumer::new(source.clone(), KeyFrom::body("/id")).world(guarded.clock.clone());
    let consumer = consumer.sqs_of_tenants(of, guard, move |_, _: Value| {
        counted.add();
        async { Ok::<_, Failure>(()) }
    });
    let parcel = |id: String, tenant: &str| message(&id, json!({ "id": id, "tenant": tenant }));
    let theirs =
        ["live", "unknown", "over"].iter().flat_map(|kind| (0..3).map(move |n| format!("{kind}-{n}")));
    let theirs: Vec<_> = theirs.map(|id| parcel(id, FLOOD)).collect();
    let batch = |id: &str| [&theirs[..], &[parcel(id.to_owned(), OTHER)]].concat();
    // The store answers none of theirs.
    guarded.faults.script(ANY, vec![Fault::BlackHole; theirs.len()]);
    let first = batch("first");
    // Their take-backs wait between two tries.
    let delivery = guarded.clock.passing(deliver(&consumer, &first));
    let runs_first = async {
        until(|| runs.count() == 1).await;
        assert_waits("a batch of a consumer", 0);
        guarded.clock.advance(STORE_TIMEOUT);
    };
    let (back, ()) = tokio::join!(delivery, runs_first);
    assert_eq!(back.expect("an answer").len(), theirs.len());
    // Now it answers, and is asked again: so many that got no answer in a row were a failure of the store.
    guarded.clock.advance(STORE_TIMEOUT);
    let back = deliver(&consumer, &batch("second")).await.expect("an answer");
    assert_eq!((back.len(), runs.count()), (theirs.len(), 2));
    assert!(back.iter().all(|id| id != "second"), "{back:?}");
    assert!(source.take_dead().is_empty());
}
