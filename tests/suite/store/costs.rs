//! What each case costs in round trips and capacity units: the table in docs/costs.md and in the documentation, row by row.

use lambda_idempotency::{
    engine::Committed,
    internal::{Report, Request},
    operation::OnLeaseExpiry,
};
use macro_rules_attribute::apply;

use crate::support::{
    bank::Bank,
    guarded::{
        GRACE, Guarded, LEASE, body_of, completed, fingerprints, operation, outcome_of, owned, random,
        replayed, request, written,
    },
    meter::size,
    on_each_store,
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
        (Report::NotExecuted, 2.0),
        (Report::PerhapsExecuted("handler_failed"), 3.0),
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
    let unknown = ended(&guarded, Report::PerhapsExecuted("panicked")).await;
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
    let released = ended(&guarded, Report::NotExecuted).await;
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

// A kept phase costs the next execution nothing.
#[apply(on_each_store)]
async fn a_phase_costs_one_round_trip_and_its_write_units(endpoint: &str) {
    let bank = Bank::on(endpoint).await;
    let guarded = &bank.guarded;
    let resumes = operation().on_lease_expiry(OnLeaseExpiry::Resume(LEASE));
    let (executor, request) = (guarded.executor_of(resumes), request());
    for attempt in 1..=2 {
        let ours = owned(executor.reserve(&request).await);
        let execution = ours.execution();
        let is_first = attempt == 1;
        cost(guarded);
        let charge = execution.phase("charge").call(async |_| Ok("ch_2f1c9a7e4b3d4c5e".to_owned()));
        charge.await.expect("it is kept");
        assert_eq!(cost(guarded), if is_first { (1, 1.0, 0.0) } else { (0, 0.0, 0.0) });
        let committed = execution.commit("rows", vec![bank.take(10)]).await;
        assert_eq!(committed.expect("it is kept"), Committed::Written);
        // Two units for the record, because it is a transaction, and two for the row.
        assert_eq!(cost(guarded), if is_first { (1, 4.0, 0.0) } else { (0, 0.0, 0.0) });
        let long = execution.phase("long").call(async |_| Ok("x".repeat(1_000)));
        long.await.expect("it is kept");
        assert_eq!(cost(guarded), if is_first { (1, 2.0, 0.0) } else { (0, 0.0, 0.0) }, "it is over 1 KB");
        drop(ours);
        guarded.clock.advance(LEASE + GRACE);
    }
    assert_eq!(bank.cents("a").await, Some(90));
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
