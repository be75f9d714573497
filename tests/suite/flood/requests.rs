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
    key::Tenant,
    time_budget::RULES_FOR,
};
use serde_json::{Value, json};

use super::{FLOOD, OTHER, assert_waits};
use crate::support::{
    clock::STORE_TIMEOUT,
    embedded,
    faults::{ANY, Fault},
    guarded::{Guarded, random},
    http::{Answer, Counter, Gate, PAY, api, guard_of, order, send, tenant, until},
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
    let mut refused = 0;
    for number in 0..2000 {
        refused += usize::from(pay(&app, FLOOD, &format!("k-{number}")).await.status == 429);
    }
    assert_eq!(refused, 2000 - 3);
    assert_eq!(costs("k-3").await, alone);
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

/// A parcel whose key begins with what its function does.
fn parcel(id: &str, tenant: &str) -> Value {
    message(id, json!({ "id": id, "tenant": tenant }))
}

// T67, T81
#[tokio::test]
async fn a_message_waits_for_none_that_is_handed_back() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (gate, runs) = (Gate::closed(), Counter::default());
    let of = |message: &Message| {
        let body: Value = serde_json::from_str(&message.body).ok()?;
        Tenant::parse(body["tenant"].as_str()?).ok()
    };
    let function = {
        let (gate, runs) = (gate.clone(), runs.clone());
        move |_, parcel: Value| {
            let (gate, runs) = (gate.clone(), runs.clone());
            async move {
                match parcel["id"].as_str().and_then(|id| id.split('-').next()) {
                    Some("hangs") => gate.pass().await,
                    Some("fails") => return Err(std::io::Error::other("no answer").into()),
                    _ => drop(runs.add()),
                }
                Ok::<_, Failure>(())
            }
        }
    };
    let bounds = Bounds::of(guarded.store()).new_keys(Rate::per_minute(1).burst(5));
    let guard = Guard::new(guarded.store(), Operation::new("ship"), tenant(FLOOD));
    let guard = guard.world(guarded.clock.clone()).bounds(bounds);
    let source = MemorySource::new(QUEUE);
    let consumer = Consumer::new(source.clone(), KeyFrom::body("/id")).world(guarded.clock.clone());
    let consumer = consumer.each_of_tenants(of, guard, function);
    let [fail, hang, more] = ["fails", "hangs", "more"]
        .map(|does| [0, 1, 2].map(|number| parcel(&format!("{does}-{number}"), FLOOD)));
    // Three are unknown, three in flight, and the rest is more than the flood may begin.
    assert_eq!(deliver(&consumer, &fail).await.expect("an answer").len(), 3);
    let hanging = tokio::spawn({
        let (consumer, hang) = (consumer.clone(), hang.clone());
        async move { deliver(&consumer, &hang).await }
    });
    gate.reached(3).await;
    for number in 0..6 {
        deliver(&consumer, &[parcel(&format!("done-{number}"), FLOOD)]).await.expect("an answer");
    }
    let before = runs.count();
    let theirs = [fail, hang, more].concat();
    let batch = |id: &str| [&theirs[..], &[parcel(id, OTHER)]].concat();
    let back = deliver(&consumer, &batch("first")).await.expect("an answer");
    assert!(back.len() == theirs.len() && !back.iter().any(|id| id == "first"), "{back:?}");
    // The store answers none of theirs.
    guarded.faults.script(ANY, vec![Fault::BlackHole; theirs.len()]);
    let second = batch("second");
    let runs_second = async {
        until(|| runs.count() == before + 2).await;
        assert_waits("a batch of a consumer", 0);
        guarded.clock.advance(STORE_TIMEOUT);
    };
    // Their take-backs wait between two tries.
    let (back, ()) = tokio::join!(guarded.clock.passing(deliver(&consumer, &second)), runs_second);
    assert_eq!((back.expect("an answer").len(), source.take_dead().len()), (theirs.len(), 0));
    gate.open();
    assert_eq!(hanging.await.unwrap().expect("an answer"), [""; 0]);
}
