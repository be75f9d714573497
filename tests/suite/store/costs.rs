//! What each case costs in round trips and capacity units: the table in docs/costs.md and in the documentation, row by row.

use std::{collections::HashSet, time::Duration};

use axum::{body::Bytes, http::Response};
use lambda_idempotency::{
    domain::Table,
    engine::{Committed, Execution, Report, Request},
    operation::Operation,
    outbox::Topics,
    queue::MemoryQueue,
    reconcile::Reconciliation,
    record::{Says, UnknownCause},
    store::{Outbox, Store as _, Unsettled as _, conformance::samples},
};
use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{
    embedded,
    guarded::{
        GRACE, Guarded, LEASE, body_of, completed, fingerprints, operation, outcome_of, owned, random,
        record_key, replayed, request, written,
    },
    http::{self, PAY, api, guard_of, send},
    meter::size,
    on_each_store,
    random::Random,
    tables,
};

/// A payment as the sample answers it, with content type and location (`completed` adds them). The request's key and tenant are UUIDs.
const PAYMENT: &str = r#"{"id":"pay_2f1c9a7e4b3d4c5e","customerId":"c-1","amountCents":1999,"currency":"EUR","status":"captured","createdAt":"2026-03-01T12:00:00Z"}"#;

/// Round trips, write units and read units since the meter was last read.
fn cost(guarded: &Guarded) -> (u32, f64, f64) {
    let used = guarded.meter.reading().total();
    guarded.meter.reset();
    (used.round_trips, used.billed_write_units(), used.read_units)
}

/// Runs a new operation that ends with this report.
async fn ended(guarded: &Guarded, report: Report) -> Request {
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, report).await);
    request
}

#[apply(on_each_store)]
async fn a_fresh_execution_costs_two_round_trips_and_two_write_units(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    // Only unknown outcomes are in an index.
    for (report, write_units) in [
        (completed(PAYMENT), 2.0),
        (Report::NotExecuted(None), 2.0),
        (Report::perhaps("handler_failed"), 3.0),
    ] {
        ended(&guarded, report).await;
        assert_eq!(cost(&guarded), (2, write_units, 0.0));
    }
}

#[apply(on_each_store)]
async fn a_fresh_execution_with_a_large_body_costs_the_body_besides(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = ended(&guarded, completed(random(20_000))).await;
    let cost = cost(&guarded);
    let bodies = guarded.collection(&request.key).await;
    let body = bodies.iter().find(|item| item.contains_key("body")).expect("a body item");
    assert_eq!(cost, (3, 2.0 + size(body).div_ceil(1024) as f64, 0.0));
}

#[apply(on_each_store)]
async fn a_replay_costs_one_round_trip_and_one_write_unit(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let request = ended(&guarded, completed(PAYMENT)).await;
    cost(&guarded);
    let replay = replayed(guarded.executor().reserve(&request).await);
    assert_eq!(body_of(&replay).map(|body| &body[..]), Some(PAYMENT.as_bytes()));
    assert_eq!(cost(&guarded), (1, 1.0, 0.0));
}

// 20 KB in the record would cost 20 write units at every retry, four times the price of reading them.
#[apply(on_each_store)]
async fn a_large_bodys_replay_costs_a_second_round_trip_and_read_units(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (length, read_units) in [(1_000, 1.0), (20_000, 5.0), (300_000, 74.0)] {
        let request = ended(&guarded, completed(random(length))).await;
        cost(&guarded);
        assert_eq!(outcome_of(&guarded.executor().reserve(&request).await), "replay");
        assert_eq!(cost(&guarded), (2, 1.0, read_units), "{length} bytes");
    }
}

#[apply(on_each_store)]
async fn a_duplicate_a_mismatch_and_an_unknown_cost_one_write_each(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, in_flight) = (guarded.executor(), request());
    let _ours = owned(executor.reserve(&in_flight).await);
    let mut mismatch = ended(&guarded, completed(PAYMENT)).await;
    mismatch.fingerprints = fingerprints("{}");
    let unknown = ended(&guarded, Report::perhaps("panicked")).await;
    cost(&guarded);
    for (request, answer) in [(in_flight, "in flight"), (mismatch, "mismatch"), (unknown, "unknown")] {
        assert_eq!(outcome_of(&executor.reserve(&request).await), answer);
        assert_eq!(cost(&guarded), (1, 1.0, 0.0), "{answer}");
    }
}

// Expiring a lease costs one more write, once.
#[apply(on_each_store)]
async fn a_take_over_costs_two_round_trips_and_its_completion(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    let released = ended(&guarded, Report::NotExecuted(None)).await;
    cost(&guarded);
    let ours = owned(executor.reserve(&released).await);
    assert_eq!(cost(&guarded), (2, 2.0, 0.0));
    written(executor.finish(ours, completed(PAYMENT)).await);
    assert_eq!(cost(&guarded), (1, 1.0, 0.0));

    let abandoned = request();
    drop(owned(executor.reserve(&abandoned).await));
    guarded.clock.advance(LEASE + GRACE);
    cost(&guarded);
    assert_eq!(outcome_of(&executor.reserve(&abandoned).await), "unknown");
    // The third unit is the index of unknown outcomes.
    assert_eq!(cost(&guarded), (2, 3.0, 0.0));
    assert_eq!(outcome_of(&executor.reserve(&abandoned).await), "unknown");
    assert_eq!(cost(&guarded), (1, 1.0, 0.0));
}

/// Commits a row to each of these tables in a phase of this name. DynamoDB Local does not count a second row of a table.
async fn commit(execution: &Execution, name: &str, tables: &[Table]) {
    let rows = tables.iter().map(|table| table.put(json!({ "id": name })));
    let committed = execution.commit(name, rows.collect()).await;
    assert_eq!(committed.expect("the table answers"), Committed::Written);
}

/// Keeps a result of this length.
async fn call(execution: &Execution, name: &str, length: usize) {
    let result = execution.phase::<String>(name).call(async |_| Ok(hex(length))).await;
    assert_eq!(result.expect("the store answers"), hex(length));
}

/// Text that compresses badly, always the same.
fn hex(length: usize) -> String {
    let mut random = Random::new(1);
    (0..length)
        .map(|_| random.of(&['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f']))
        .collect()
}

#[apply(on_each_store)]
async fn a_phase_costs_one_round_trip_and_a_kept_one_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let table = || tables::domain_table(&guarded.undisturbed);
    let rows = [table().await, table().await, table().await];
    let executor =
        guarded.executor_of(operation().resumes(["one-row", "three-rows", "short", "long"], LEASE));
    let request = request();
    let ours = owned(executor.reserve(&request).await);
    assert_eq!(cost(&guarded), (1, 1.0, 0.0));
    commit(ours.execution(), "one-row", &rows[..1]).await;
    assert_eq!(cost(&guarded), (1, 4.0, 0.0));
    commit(ours.execution(), "three-rows", &rows).await;
    assert_eq!(cost(&guarded), (1, 8.0, 0.0));
    call(ours.execution(), "short", 40).await;
    assert_eq!(cost(&guarded), (1, 1.0, 0.0));
    call(ours.execution(), "long", 1_450).await;
    assert_eq!(cost(&guarded), (1, 2.0, 0.0));
    let ended = executor.finish(ours, Report::NotExecuted(None)).await;
    assert!(matches!(ended, Says::Interrupted), "{ended:?}");
    cost(&guarded);

    let again = owned(executor.reserve(&request).await);
    cost(&guarded);
    commit(again.execution(), "one-row", &rows[..1]).await;
    commit(again.execution(), "three-rows", &rows).await;
    call(again.execution(), "short", 40).await;
    call(again.execution(), "long", 1_450).await;
    assert_eq!(cost(&guarded), (0, 0.0, 0.0));
    written(executor.finish(again, completed(PAYMENT)).await);
    assert_eq!(cost(&guarded), (1, 2.0, 0.0));
}

// T38
#[apply(on_each_store)]
async fn each_of_many_retries_of_a_key_costs_one_write_unit(endpoint: &str) {
    const RETRIES: u32 = 50;
    let guarded = Guarded::on(endpoint).await;
    let (executor, hot) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&hot).await);
    cost(&guarded);
    let in_flight = guarded.item(&hot.key).await;
    for _ in 0..RETRIES {
        assert_eq!(outcome_of(&executor.reserve(&hot).await), "in flight");
    }
    assert_eq!(cost(&guarded), (RETRIES, f64::from(RETRIES), 0.0));
    assert_eq!(guarded.item(&hot.key).await, in_flight, "nothing is written");

    // The owner and all other keys pay the usual cost.
    written(executor.finish(ours, completed(PAYMENT)).await);
    assert_eq!(cost(&guarded), (1, 1.0, 0.0));
    let other = ended(&guarded, completed(PAYMENT)).await;
    assert_eq!(cost(&guarded), (2, 2.0, 0.0));

    for _ in 0..RETRIES {
        assert_eq!(outcome_of(&executor.reserve(&hot).await), "replay");
    }
    assert_eq!(cost(&guarded), (RETRIES, f64::from(RETRIES), 0.0));
    assert_eq!(outcome_of(&executor.reserve(&other).await), "replay");
}

// On the embedded store alone: DynamoDB Local counts no second item of a table in a transaction.
#[tokio::test]
async fn a_message_costs_no_round_trip_and_three_write_units() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let topics = Topics::parse("order.placed=own").expect("a list");
    let topic = topics.topic("order.placed").expect("it is listed");
    for (messages, write_units) in [(1, 5.0), (3, 9.0)] {
        let (executor, request) = (guarded.executor(), request());
        let ours = owned(executor.reserve(&request).await);
        (0..messages).for_each(|n| ours.execution().publish(&topic, &n).expect("it is a message"));
        written(executor.finish(ours, completed(PAYMENT)).await);
        assert_eq!(cost(&guarded), (2, write_units, 0.0));

        let store = guarded.store();
        let waiting = store.undelivered(&request.key).await.expect("the store answers");
        cost(&guarded);
        for message in &waiting {
            store.remove(message).await.expect("the store answers");
        }
        assert_eq!(cost(&guarded), (messages, f64::from(messages), 0.0));
    }
}

// T63: a read that is not consistent may miss what has just been committed, which then waits for a sweep.
#[apply(on_each_store)]
async fn a_delivery_reads_consistently_and_costs_one_read_unit(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let topics = Topics::parse("order.placed=own").expect("a list");
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    let topic = topics.topic("order.placed").expect("it is listed");
    ours.execution().publish(&topic, &1).expect("it is a message");
    written(executor.finish(ours, completed(PAYMENT)).await);
    cost(&guarded);
    assert_eq!(guarded.store().undelivered(&request.key).await.expect("the store answers").len(), 1);
    assert_eq!(cost(&guarded), (1, 0.0, 1.0));
}

// As `a_message_costs_no_round_trip_and_three_write_units`.
#[tokio::test]
async fn an_accepted_request_costs_one_round_trip_and_four_write_units() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let operation = Operation::new(PAY).asynchronous(LEASE);
    let table = tables::domain_table(&guarded.undisturbed).await;
    for (rows, write_units) in [(0, 4.0), (2, 8.0)] {
        let table = table.clone();
        let guard = guard_of(guarded.store(), operation.clone()).accept(move |transaction, _, _| {
            let written =
                (0..rows).try_for_each(|n| transaction.write(table.put(json!({ "id": n.to_string() }))));
            let status = if written.is_ok() { 202 } else { 500 };
            async move { Response::builder().status(status).body(Bytes::new()).expect("a response") }
        });
        let order = http::order(&format!("r-{rows}")).body(PAYMENT.into()).expect("a request");
        assert_eq!(send(&api(guard, |_, _| async {}), order).await.status, 202);
        assert_eq!(cost(&guarded), (1, write_units, 0.0));
    }
}

// T60: the tenants in turn cost no more than one query of each partition, and a read of where the last poll stopped.
// On the embedded store alone: DynamoDB Local counts nothing for an empty answer.
#[tokio::test]
async fn a_poll_that_finds_nothing_costs_13_read_units() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let reconciliation =
        Reconciliation::new(guarded.store(), MemoryQueue::new()).world(guarded.clock.clone());
    reconciliation.poll(Duration::from_secs(45)).await.expect("the store answers");
    // A place to continue from, eight partitions that are due, and the sixteen of the survey.
    assert_eq!(cost(&guarded), (1 + 8 + 16, 0.0, 1.0 + 4.0 + 8.0));
}

// T60: a tenant is passed over by the index's order, not by reading its records.
#[tokio::test]
async fn a_poll_passes_over_a_flooding_tenant_without_reading_it() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (store, now) = (guarded.store(), guarded.now());
    for number in 0..500 {
        let (tenant, key) = if number < 8 { ("other", number) } else { ("flood", number) };
        let reserved =
            samples::in_progress(record_key(tenant, &key.to_string()), fingerprints("{}"), now, now);
        let unknown = samples::unknown(&reserved, UnknownCause::PerhapsExecuted, now);
        store.put(None, &unknown, &[]).await.expect("the store answers");
    }
    cost(&guarded);
    let (mut turns, mut from) = (Vec::new(), None);
    loop {
        let due = store.due(now, from.as_ref(), 8, &HashSet::new()).await.expect("the store answers");
        turns.extend(due.turns.into_iter().map(|turn| turn.keys.len()));
        from = due.next;
        if from.is_none() {
            break;
        }
    }
    let (round_trips, _, _) = cost(&guarded);
    // A page of each partition for the flood, and one for what comes after it.
    assert_eq!((turns, round_trips), (vec![8, 8], 16));
}
