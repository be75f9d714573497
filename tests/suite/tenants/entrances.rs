//! What each entrance says of a stopped tenant, and of one that is over its bound: messages, and direct invocations.

use lambda_http::{Context, LambdaEvent};
use lambda_idempotency::{
    Failure, Guard, Operation,
    bounds::Rate,
    event::{Consumer, KeyFrom, MemorySource, invocation},
    time_budget::MAX_RETRY_AFTER,
};
use macro_rules_attribute::apply;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tower::ServiceExt;

use super::*;
use crate::support::{
    http::unkeyed,
    messages::{QUEUE, deliver, received},
    on_each_store,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// One in a minute, and one at once.
const ONE: Rate = Rate::per_minute(1).burst(1);

fn bounded(guarded: &Guarded) -> Guard {
    Guard::new(guarded.store(), Operation::new(PAY), tenant(TENANT))
        .world(guarded.clock.clone())
        .bounds(Bounds::of(guarded.store()).new_keys(ONE))
}

fn consumer(guarded: &Guarded, source: &MemorySource) -> Consumer {
    Consumer::new(source.clone(), KeyFrom::body("/id")).world(guarded.clock.clone()).max_attempts(2)
}

/// A message that was received this often.
fn parcel(id: &str, times: u32) -> Value {
    received(&format!("m-{id}"), json!({ "id": id }), times)
}

#[apply(on_each_store)]
async fn a_message_of_a_stopped_tenant_is_handed_back_and_never_dead(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, MemorySource::new(QUEUE), Counter::default());
    set(&guarded.undisturbed_store(), stopped(Stop::New)).await;
    let counted = runs.clone();
    let function = move |_, _: Value| {
        counted.add();
        async { Ok::<_, Failure>(()) }
    };
    let by_function = consumer(&guarded, &queue).each(bounded(&guarded), function);
    for times in [1, 2, 19, 400] {
        assert_eq!(deliver(&by_function, &[parcel("1", times)]).await.unwrap(), ["m-1"]);
        let [(_, hidden)] = &queue.take_hidden()[..] else { panic!("it is hidden") };
        assert!((MINUTE * 3 / 4..=30 * MINUTE).contains(hidden), "{hidden:?}");
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (0, 0));
    set(&guarded.undisturbed_store(), TenantRule::default()).await;
    outdate(&guarded);
    assert!(deliver(&by_function, &[parcel("1", 401)]).await.unwrap().is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
}

// T86
#[apply(on_each_store)]
async fn a_message_over_its_bound_waits_as_long_as_the_bound(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, MemorySource::new(QUEUE), Counter::default());
    let counted = runs.clone();
    let function = move |_, _: Value| {
        counted.add();
        async { Ok::<_, Failure>(()) }
    };
    let by_function = consumer(&guarded, &queue).each(bounded(&guarded), function);
    for id in ["1", "2"] {
        assert!(deliver(&by_function, &[parcel(id, 1)]).await.unwrap().is_empty());
    }
    for times in [1, 19, 400] {
        assert_eq!(deliver(&by_function, &[parcel("3", times)]).await.unwrap(), ["m-3"]);
        let [(_, hidden)] = &queue.take_hidden()[..] else { panic!("it is hidden") };
        assert!(*hidden >= MINUTE, "{hidden:?}");
    }
    // What is done is acknowledged.
    assert!(deliver(&by_function, &[parcel("1", 2)]).await.unwrap().is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (2, 0));
    // Ten that begin at once, before any of them is counted, are admitted together. What is too much stays as a debt.
    guarded.clock.advance(MINUTE);
    let together: Vec<_> = (10..20).map(|id| parcel(&id.to_string(), 1)).collect();
    assert!(deliver(&by_function, &together).await.unwrap().is_empty());
    assert_eq!(deliver(&by_function, &[parcel("3", 1)]).await.unwrap(), ["m-3"]);
    let [(_, hidden)] = &queue.take_hidden()[..] else { panic!("it is hidden") };
    assert_eq!(*hidden, MAX_RETRY_AFTER, "nine minutes are left, and nothing waits longer without a look");
}

/// A queue deletes what it has kept for too long: of four days, unless it is set otherwise.
#[apply(on_each_store)]
async fn what_was_turned_away_for_three_days_is_a_dead_letter(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, MemorySource::new(QUEUE));
    let function = |_, _: Value| async { Ok::<_, Failure>(()) };
    let consumer = consumer(&guarded, &queue).each(bounded(&guarded), function);
    let sent = |id: &str, age: Duration| {
        let mut parcel = parcel(id, 100);
        parcel["attributes"]["SentTimestamp"] = json!(guarded.now().minus(age).as_millis().to_string());
        parcel
    };
    let dead = async || queue.take_dead().pop().map(|dead| dead.reason).unwrap_or_default();
    for id in ["1", "2"] {
        assert!(deliver(&consumer, &[sent(id, Duration::ZERO)]).await.unwrap().is_empty());
    }
    // Over its bound, and stopped.
    for why in ["its tenant has too many new operations", "operators have stopped its tenant"] {
        assert_eq!(deliver(&consumer, &[sent("3", 3 * DAY - MINUTE)]).await.unwrap(), ["m-3"]);
        assert_eq!(dead().await, "");
        assert!(deliver(&consumer, &[sent("3", 3 * DAY)]).await.unwrap().is_empty());
        let reason = dead().await;
        assert!(reason.starts_with(why) && reason.ends_with("sent 3 days ago or earlier"), "{reason}");
        set(&guarded.undisturbed_store(), stopped(Stop::New)).await;
        outdate(&guarded);
    }
}

#[apply(on_each_store)]
async fn a_routed_message_of_a_stopped_tenant_is_handed_back(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, MemorySource::new(QUEUE), Counter::default());
    set(&guarded.undisturbed_store(), stopped(Stop::NewAndWork)).await;
    let app = app(&guarded, Bounds::of(guarded.store()), &runs);
    let request = |_: &_| Ok::<_, String>(unkeyed().body(axum::body::Body::from("{}")).expect("a request"));
    let routed = consumer(&guarded, &queue).route(app, request);
    for times in [1, 19, 400] {
        assert_eq!(deliver(&routed, &[parcel("1", times)]).await.unwrap(), ["m-1"]);
        let [(_, hidden)] = &queue.take_hidden()[..] else { panic!("it is hidden") };
        assert!((MINUTE * 3 / 4..=30 * MINUTE).contains(hidden), "{hidden:?}");
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (0, 0));
}

// T86
#[apply(on_each_store)]
async fn a_routed_message_over_its_bound_is_handed_back(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, MemorySource::new(QUEUE), Counter::default());
    let app = app(&guarded, Bounds::of(guarded.store()).new_keys(ONE), &runs);
    let request = |_: &_| Ok::<_, String>(unkeyed().body(axum::body::Body::from("{}")).expect("a request"));
    let routed = consumer(&guarded, &queue).route(app, request);
    for id in ["1", "2"] {
        assert!(deliver(&routed, &[parcel(id, 1)]).await.unwrap().is_empty());
    }
    for times in [1, 19, 400] {
        assert_eq!(deliver(&routed, &[parcel("3", times)]).await.unwrap(), ["m-3"]);
        let [(_, hidden)] = &queue.take_hidden()[..] else { panic!("it is hidden") };
        assert!(*hidden >= MINUTE, "{hidden:?}");
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (2, 0));
}

#[apply(on_each_store)]
async fn a_direct_caller_hears_of_a_stop_and_of_a_bound(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let function = |_, _: Value| async { Ok::<_, Failure>(()) };
    let service = invocation(bounded(&guarded), KeyFrom::body("/id"), function);
    let invoke = async |id: &str| {
        let mut context = Context::default();
        context.deadline = guarded.now().plus(MINUTE).as_millis();
        let payload: Box<RawValue> = to_raw_value(&json!({ "id": id })).expect("JSON");
        let invoked = service.clone().oneshot(LambdaEvent::new(payload, context)).await;
        invoked.map(drop).map_err(|diagnostic| diagnostic.error_type)
    };
    assert_eq!((invoke("1").await, invoke("2").await), (Ok(()), Ok(())));
    assert_eq!(invoke("3").await, Err("OverBound".to_owned()));
    set(&guarded.undisturbed_store(), stopped(Stop::New)).await;
    outdate(&guarded);
    assert_eq!(invoke("4").await, Err("Stopped".to_owned()));
    assert_eq!(invoke("1").await, Ok(()), "what is done is replayed");
}
