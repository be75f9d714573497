//! How an order ends that its route does not answer: problems of the guard, handlers that break, and what the queue sees of both.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::{
    Extension,
    body::Bytes,
    http::{Response, StatusCode, request},
    response::IntoResponse,
};
use lambda_idempotency::{
    Answer, Operation,
    engine::SingleTransaction,
    event::{BatchFunction, Consumer, KeyFrom, MemorySource, Message},
    http::Outcome,
    key::age::KeyTime,
    operation::WhileInFlight,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{
    queue,
    routes::{DAY, consumer, order_of, request, shop, shop_of},
};
use crate::support::{
    guarded::{GRACE, Guarded, LEASE},
    http::{Counter, Gate, Guard, PAY, TENANT, api, execution, guard_of, record_key, send},
    messages::{deliver, message, received},
    on_each_store, tables,
};

fn guard(guarded: &Guarded, operation: Operation) -> Guard {
    guard_of(guarded.store(), operation).world(guarded.clock.clone())
}

/// Whether the message is handed back, and why it is dead.
async fn ends(consumer: &impl BatchFunction, queue: &MemorySource, message: Value) -> (bool, Option<String>) {
    let back = deliver(consumer, &[message]).await.expect("an answer");
    (!back.is_empty(), queue.take_dead().pop().map(|dead| dead.reason))
}

fn dead(reason: &str) -> (bool, Option<String>) {
    (false, Some(reason.to_owned()))
}

const BACK: (bool, Option<String>) = (true, None);
const ACKNOWLEDGED: (bool, Option<String>) = (false, None);

#[apply(on_each_store)]
async fn an_order_that_its_guard_refuses_is_dead_with_the_problem(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, shop(&guarded, &runs), &queue);
    let order = |sku: &str| message("m-1", json!({ "orderId": "o-1", "sku": sku }));
    assert_eq!(ends(&consumer, &queue, order("tea")).await, ACKNOWLEDGED);
    assert_eq!(
        ends(&consumer, &queue, order("coffee")).await,
        dead("key-reused (422): The Idempotency-Key was used for another request")
    );
    let mut item = guarded.item(&record_key(TENANT, PAY, "o-1")).await.expect("an item");
    item.insert("schema".into(), AttributeValue::N("99".into()));
    guarded.write_raw(item).await;
    assert_eq!(
        ends(&consumer, &queue, order("tea")).await,
        dead("record-unreadable (503): The record of this operation cannot be read now")
    );
    let of_nobody = |message: &Message| {
        let mut request = request(message)?;
        request.extensions_mut().clear();
        Ok(request)
    };
    let nobodys = Consumer::new(queue.clone(), KeyFrom::body("/orderId"));
    let nobodys = nobodys.route(shop(&guarded, &runs), of_nobody);
    assert_eq!(
        ends(&nobodys, &queue, order("tea")).await,
        dead("tenant-missing (401): The caller is not authenticated")
    );
    assert_eq!((runs.count(), queue.take_hidden().len()), (1, 0));
}

// T43
#[apply(on_each_store)]
async fn an_order_with_a_key_that_is_too_old_is_dead(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let hour = Duration::from_secs(3600);
    let operation = Operation::new(PAY).refuse_older_than(hour, KeyTime::UuidV7);
    let consumer = consumer(&guarded, shop_of(guard(&guarded, operation), &runs), &queue);
    let made = |before: Duration| {
        let at = guarded.now().minus(before).as_millis() / 1000;
        let key = uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, at, 0));
        message("m-1", json!({ "orderId": key.to_string() }))
    };
    assert_eq!(
        ends(&consumer, &queue, made(2 * hour)).await,
        dead("key-too-old (400): The Idempotency-Key is older than this operation accepts")
    );
    let undated = message("m-1", json!({ "orderId": "o-1" }));
    assert_eq!(
        ends(&consumer, &queue, undated).await,
        dead("key-malformed (400): The Idempotency-Key must be a UUID of version 7")
    );
    assert_eq!((runs.count(), queue.take_hidden().len()), (0, 0));
    assert_eq!(ends(&consumer, &queue, made(hour / 2)).await, ACKNOWLEDGED);
}

// T18: nothing is accepted, and clients of HTTP send it again. In its dead letter it waits for a person, and later messages overtake it.
#[apply(on_each_store)]
async fn an_order_that_cannot_be_accepted_now_comes_again(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let later = guard(&guarded, Operation::new(PAY).asynchronous(DAY));
    let accept = later.accept(|_, _, body: Bytes| async move {
        let order: Value = serde_json::from_slice(&body).expect("JSON");
        let status = order["status"].as_u64().expect("a status");
        assert_ne!(status, 0, "it panics");
        let status = u16::try_from(status).expect("a status");
        Response::builder().status(status).body(Bytes::new()).expect("a response")
    });
    let consumer = consumer(&guarded, api(accept, |_, _| async {}), &queue);
    let order = |status: u16, times| {
        received("m-1", json!({ "orderId": status.to_string(), "status": status }), times)
    };
    for passing in [503, 500, 429, 0] {
        assert_eq!(ends(&consumer, &queue, order(passing, 1)).await, BACK, "{passing}");
        assert_eq!(ends(&consumer, &queue, order(passing, 19)).await, BACK, "{passing}");
        let end = ends(&consumer, &queue, order(passing, 20)).await;
        assert_eq!(end, dead("it was received 20 times"), "{passing}");
    }
    let refused = ends(&consumer, &queue, order(422, 1)).await;
    assert_eq!(refused, dead("the request was refused with 422"));
    assert_eq!(guarded.number_of_items().await, 0);
    assert_eq!(ends(&consumer, &queue, order(202, 1)).await, ACKNOWLEDGED);
}

// T1: no number of receives makes an unknown outcome a known one.
#[apply(on_each_store)]
async fn an_order_with_an_unknown_outcome_is_held(endpoint: &str) {
    for does in ["fails", "panics"] {
        let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
        let consumer = Consumer::new(queue.clone(), KeyFrom::body("/orderId")).world(guarded.clock.clone());
        let consumer = consumer.max_attempts(1).route(shop(&guarded, &runs), request);
        for times in 1..=3 {
            let order = received("m-1", json!({ "orderId": "o-1", "does": does }), times);
            assert_eq!(ends(&consumer, &queue, order).await, BACK, "{does}, {times}");
            let hidden = queue.take_hidden();
            assert!(hidden.len() == 1 && hidden[0].1 >= Duration::from_secs(60), "{does}: {hidden:?}");
        }
        assert_eq!(runs.count(), 1);
    }
}

// T67: 202 is no answer of the order either.
#[apply(on_each_store)]
async fn an_order_in_flight_comes_again_after_the_lease(endpoint: &str) {
    for in_flight in [WhileInFlight::Refuse, WhileInFlight::Accept] {
        let (guarded, queue, gate) = (Guarded::on(endpoint).await, queue(), Gate::closed());
        let (runs, held) = (Counter::default(), gate.clone());
        let counted = runs.clone();
        let app = api(guard(&guarded, Operation::new(PAY).while_in_flight(in_flight)), move |_, _| {
            let (counted, held) = (counted.clone(), held.clone());
            async move {
                counted.add();
                held.pass().await;
                StatusCode::CREATED
            }
        });
        let consumer = consumer(&guarded, app.clone(), &queue);
        let mut by_http = order_of(&json!({ "sku": "tea" }));
        by_http.headers_mut().insert("idempotency-key", "o-1".parse().expect("a header"));
        let first = tokio::spawn(async move { send(&app, by_http).await });
        gate.reached(1).await;
        let order = |times| received("m-1", json!({ "orderId": "o-1", "sku": "tea" }), times);
        for times in 1..=3 {
            assert_eq!(ends(&consumer, &queue, order(times)).await, BACK, "{in_flight:?}");
            let hidden: Vec<_> = queue.take_hidden().into_iter().map(|(_, after)| after).collect();
            assert_eq!(hidden, [LEASE + GRACE + Duration::from_secs(2)], "{in_flight:?}");
        }
        gate.open();
        assert_eq!(first.await.expect("it ends").status, 201);
        assert_eq!(ends(&consumer, &queue, order(4)).await, ACKNOWLEDGED);
        assert_eq!(runs.count(), 1);
    }
}

// Nothing is unknown of them, so they would be run for ever.
#[apply(on_each_store)]
async fn an_order_that_always_breaks_is_dead_after_its_attempts(endpoint: &str) {
    let resumes = || Operation::new(PAY).resumes(["charge"], DAY);
    let cases = [
        (Operation::new(PAY).effects_in_transaction(), false, "it was tried 2 times"),
        (resumes(), false, "it was tried 2 times"),
        (resumes(), true, "it was tried 2 times, and parts of it may be done"),
    ];
    for (operation, has_phase, reason) in cases {
        for panics in [true, false] {
            let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
            let (counted, charges) = (runs.clone(), Counter::default());
            let charged = charges.clone();
            let app = api(guard(&guarded, operation.clone()), move |parts: request::Parts, _| {
                let (counted, charged) = (counted.clone(), charged.clone());
                async move {
                    counted.add();
                    if has_phase {
                        let charge = execution(&parts).phase("charge").keys_live(DAY);
                        charge.call(async |_| Ok(charged.add())).await.expect("a charge");
                    }
                    assert!(!panics, "in the handler");
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            });
            let consumer = consumer(&guarded, app, &queue);
            let order = |times| received("m-1", json!({ "orderId": "o-1" }), times);
            assert_eq!(ends(&consumer, &queue, order(1)).await, BACK, "{reason}");
            assert_eq!(ends(&consumer, &queue, order(2)).await, dead(reason), "panics: {panics}");
            assert_eq!((runs.count(), charges.count()), (2, usize::from(has_phase)));
        }
    }
}

// T18: no record counts its executions, so receives do.
#[apply(on_each_store)]
async fn an_order_of_one_transaction_ends_as_its_commit(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let table = tables::domain_table(&guarded.undisturbed).await;
    let app =
        api(guard(&guarded, Operation::new(PAY)).single_transaction(), move |parts: request::Parts, body| {
            let row: Value = serde_json::from_slice(&body).expect("JSON");
            let write = table.put(json!({ "id": row["sku"] })).if_absent();
            async move {
                let transaction: &SingleTransaction = parts.extensions.get().expect("a transaction");
                transaction.write(write.or_answer(Answer::json(409, "{}"))).expect("a write");
                match row["does"].as_str() {
                    Some("panics") => panic!("in the handler"),
                    Some("nothing") => {
                        (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response()
                    }
                    _ => StatusCode::CREATED.into_response(),
                }
            }
        });
    let consumer = consumer(&guarded, app, &queue);
    let order = |id: &str, sku: &str, does: &str, times| {
        received("m-1", json!({ "orderId": id, "sku": sku, "does": does }), times)
    };
    for times in 1..=3 {
        assert_eq!(ends(&consumer, &queue, order("o-1", "tea", "sells", times)).await, ACKNOWLEDGED);
        // It is sold: a kept answer.
        assert_eq!(ends(&consumer, &queue, order("o-2", "tea", "sells", times)).await, ACKNOWLEDGED);
    }
    for does in ["nothing", "panics"] {
        assert_eq!(ends(&consumer, &queue, order(does, "milk", does, 1)).await, BACK, "{does}");
        assert_eq!(ends(&consumer, &queue, order(does, "milk", does, 19)).await, BACK, "{does}");
        let end = ends(&consumer, &queue, order(does, "milk", does, 20)).await;
        assert_eq!(end, dead("it was received 20 times"), "{does}");
    }
    assert_eq!(guarded.number_of_items().await, 2);
}
