//! Direct invocations: what a caller gets, and the time that an execution has, whatever event it is of.

use std::{
    fmt::Debug,
    time::{Duration, UNIX_EPOCH},
};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_http::{Context, LambdaEvent, lambda_runtime::Diagnostic};
use lambda_idempotency::{
    Execution, Failure, Operation, Ran,
    event::{Consumer, KeyFrom, invocation, invocation_with},
    record::State,
};
use macro_rules_attribute::apply;
use serde::Deserialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tower::{Service, ServiceExt};

use super::{consumer, guard, parcel, parcel_that, queue, record_key, routes, ships};
use crate::support::{
    faults::{ANY, Fault},
    guarded::{GRACE, Guarded},
    http::{self, Counter, Gate, PAY, TENANT, api, guard_of},
    messages::{deliver_within, message},
    on_each_store,
};

/// The time of an invocation.
const TIME: Duration = Duration::from_secs(20);

/// The result, or the type and the message of the error.
async fn invoke<S, T>(service: &S, guarded: &Guarded, payload: &Value) -> Result<T, (String, String)>
where
    S: Service<LambdaEvent<Box<RawValue>>, Response = T, Error = Diagnostic> + Clone,
    T: Debug,
{
    let mut context = Context::default();
    context.deadline = guarded.now().plus(TIME).as_millis();
    let event = LambdaEvent::new(to_raw_value(payload).expect("JSON"), context);
    let invoked = service.clone().oneshot(event).await;
    invoked.map_err(|Diagnostic { error_type, error_message }| (error_type, error_message))
}

/// Fails unless the error has this type, and shows nothing of what the function said.
#[track_caller]
fn assert_error<T: Debug>(invoked: Result<T, (String, String)>, expected: &str) {
    let (found, message) = invoked.expect_err(expected);
    assert_eq!(found, expected, "{message}");
    let own = ["no connection", "no answer", "in the function"];
    assert!(!own.iter().any(|own| message.contains(own)), "{message}");
}

#[apply(on_each_store)]
async fn a_direct_caller_can_be_told_that_its_result_is_a_replay(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let reply = |ran: Ran<String>| (ran.value, ran.how.is_replay(), ran.expires_at.is_some());
    let service = invocation_with(guard(&guarded), KeyFrom::body("/id"), ships(&runs), reply);
    let (first, is_replay, is_kept) = invoke(&service, &guarded, &parcel("p-1")).await.expect("a result");
    assert_eq!((is_replay, is_kept), (false, true));
    let again = invoke(&service, &guarded, &parcel("p-1")).await.expect("the kept result");
    assert_eq!((again, runs.count()), ((first, true, true), 1));
    assert_error(invoke(&service, &guarded, &json!({ "to": "p-1" })).await, "Invalid");
}

#[apply(on_each_store)]
async fn each_end_of_an_invocation_has_its_error_type(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let service = invocation(guard(&guarded), KeyFrom::body("/id"), ships(&runs));
    let invoke = async |payload: Value| invoke(&service, &guarded, &payload).await;
    let first = invoke(parcel("p-1")).await.expect("a result");
    assert_eq!(invoke(parcel("p-1")).await.expect("the kept result"), first);
    assert_error(invoke(json!({ "id": "p-1", "does": "ships", "to": "elsewhere" })).await, "Mismatch");
    assert_eq!(runs.count(), 1);
    for _ in 0..2 {
        let refused = invoke(parcel_that("p-2", "refuses")).await.expect_err("no result");
        assert_eq!(refused, ("Refused".to_owned(), "refused: no such address".to_owned()));
        assert_error(invoke(parcel_that("p-4", "fails")).await, "Unknown");
        assert_error(invoke(parcel_that("p-5", "panics")).await, "Unknown");
    }
    assert_eq!(runs.count(), 4, "a refusal is kept, and what is unknown does not run again");
    for _ in 0..2 {
        assert_error(invoke(parcel_that("p-3", "nothing")).await, "NotExecuted");
    }
    assert_eq!(runs.count(), 6);
    let invalid = [
        Value::Null,
        json!("p-1"),
        json!([]),
        json!({ "does": "ships" }),
        json!({ "id": "" }),
        json!({ "id": 1.5 }),
    ];
    for payload in invalid {
        assert_error(invoke(payload).await, "Invalid");
    }
    let mut item = guarded.item(&record_key(&["p-1"])).await.expect("an item");
    item.insert("schema".into(), AttributeValue::N("99".into()));
    guarded.write_raw(item).await;
    assert_error(invoke(parcel("p-1")).await, "RecordUnreadable");
    guarded.faults.for_all(ANY, Fault::DropRequest);
    assert_error(guarded.clock.passing(invoke(parcel("p-6"))).await, "Unavailable");
    guarded.faults.clear();
    assert_eq!(runs.count(), 6);
}

// A payload of another type is not quoted: it may hold what no log may have.
#[apply(on_each_store)]
async fn a_payload_of_another_type_is_invalid_and_not_quoted(endpoint: &str) {
    #[derive(Deserialize)]
    struct Parcel {
        #[serde(rename = "weight")]
        _weight: u32,
    }
    let guarded = Guarded::on(endpoint).await;
    let function = |_, _: Parcel| async { Ok::<_, Failure>(()) };
    let service = invocation(guard(&guarded), KeyFrom::body("/id"), function);
    let payload = json!({ "id": "p-1", "weight": "4111111111111111" });
    let (kind, why) = invoke(&service, &guarded, &payload).await.expect_err("no result");
    assert!(kind == "Invalid" && !why.contains("4111"), "{kind}: {why}");
    assert_eq!(guarded.number_of_items().await, 0);
    // Nothing is a payload too, if its function takes it.
    let runs = Counter::default();
    let counted = runs.clone();
    let function = move |_, (): ()| {
        counted.add();
        async { Ok::<_, Failure>(()) }
    };
    let service = invocation(guard(&guarded), KeyFrom::content(), function);
    for _ in 0..2 {
        invoke(&service, &guarded, &Value::Null).await.expect("a result");
    }
    assert_eq!(runs.count(), 1);
}

/// Holds each function at the gate.
fn held(
    gate: &Gate,
) -> impl Fn(Execution, Value) -> futures_util::future::BoxFuture<'static, Result<(), Failure>>
+ Clone
+ Send
+ Sync
+ 'static {
    let gate = gate.clone();
    move |_, _| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.pass().await;
            Ok(())
        })
    }
}

// T8: longer, a dead worker would block its key; shorter, a live one would lose it.
#[apply(on_each_store)]
async fn a_lease_ends_with_the_invocation_whatever_its_event(endpoint: &str) {
    let (guarded, queue, gate) = (Guarded::on(endpoint).await, queue(), Gate::closed());
    let direct = invocation(guard(&guarded), KeyFrom::body("/id"), held(&gate));
    let by_queue = consumer(&guarded, &queue).each(guard(&guarded), held(&gate));
    let waiting = gate.clone();
    let guard = guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone());
    let app = api(guard, move |_, _| {
        let waiting = waiting.clone();
        async move { waiting.pass().await }
    });
    let by_route = Consumer::new(queue.clone(), KeyFrom::body("/orderId")).world(guarded.clock.clone());
    let by_route = by_route.route(app, routes::request);
    let now = UNIX_EPOCH + Duration::from_millis(guarded.now().as_millis());
    let (parcels, orders) = ([message("m-1", parcel("p-2"))], [message("m-2", json!({ "orderId": "o-1" }))]);
    let payload = parcel("p-1");
    let check = async {
        gate.reached(3).await;
        // By now, another call of one of these keys has its answer too.
        assert_error(invoke(&direct, &guarded, &parcel("p-1")).await, "InFlight");
        for key in [record_key(&["p-1"]), record_key(&["p-2"]), http::record_key(TENANT, PAY, "o-1")] {
            let record = guarded.record(&key).await.expect("a record");
            let State::InProgress { lease_until } = record.state else { panic!("{record:?}") };
            assert_eq!(lease_until, guarded.now().plus(TIME + GRACE), "{record:?}");
        }
        gate.open();
    };
    let (invoked, parcels, orders, ()) = tokio::join!(
        invoke(&direct, &guarded, &payload),
        deliver_within(&by_queue, &parcels, now, TIME),
        deliver_within(&by_route, &orders, now, TIME),
        check,
    );
    invoked.expect("a result");
    assert!(parcels.expect("an answer").is_empty() && orders.expect("an answer").is_empty());
    assert_eq!(queue.take_dead().len(), 0);
}
