//! The main job, as a client of the deployed API sees it: the local cloud with real processes, on each store.

use std::{path::Path, process::Command};

use futures_util::future::join_all;
use macro_rules_attribute::apply;

use crate::support::{local_cloud::LocalCloud, on_each_store};

const IN_FLIGHT: (u16, &str) = (409, "in-flight");
const UNKNOWN: (u16, &str) = (409, "outcome-unknown");
const CRASHED: (u16, &str) = (502, "");
const GATEWAY_TIMEOUT: (u16, &str) = (504, "");

/// A cloud without reconciliation: `rest` shows how unknown outcomes are settled.
async fn still(endpoint: &str, variables: &[(&str, &str)]) -> LocalCloud {
    let never = [("POLL_MS", "86400000"), ("SWEEP_MS", "86400000")];
    LocalCloud::on(endpoint, &[&never, variables].concat()).await
}

// T20
#[apply(on_each_store)]
async fn of_a_hundred_identical_requests_through_four_processes_one_charges(endpoint: &str) {
    let cloud = still(endpoint, &[("ENVIRONMENTS", "4")]).await;
    // Four simultaneous payments start four processes.
    let warm = ["w1", "w2", "w3", "w4"].map(|key| cloud.pay(key, "tok_slow_300"));
    assert!(join_all(warm).await.iter().all(|answer| answer.status == 201));
    assert_eq!(cloud.environments().await.len(), 4);

    let answers = join_all((0..100).map(|_| cloud.pay("order-1", "tok_ok"))).await;
    let (first, rest): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 201 && !answer.replayed);
    assert_eq!(first.len(), 1, "{answers:?}");
    assert!(rest.iter().all(|answer| answer.problem() == IN_FLIGHT || answer.replayed), "{rest:?}");
    assert_eq!(cloud.charged("tok_ok").await, 1);
    let payment: serde_json::Value = serde_json::from_slice(&first[0].body).unwrap();
    let charges = cloud.charges().await;
    let charge = charges.iter().find(|charge| charge.source == "tok_ok").unwrap();
    assert_eq!((&*charge.id, &*charge.tenant), (payment["chargeId"].as_str().unwrap(), "acme"));
    assert_eq!((charge.amount_cents, &*charge.currency), (1999, "EUR"));
    let key = charge.key.as_deref();
    assert!(key.is_some_and(|key| key != "order-1"), "the provider gets a separate key: {key:?}");
    for replay in join_all((0..20).map(|_| cloud.pay("order-1", "tok_ok"))).await {
        assert!(replay.replayed && replay.status == 201);
        assert_eq!((&replay.body, &replay.location), (&first[0].body, &first[0].location));
    }
}

// T4
#[apply(on_each_store)]
async fn a_worker_dying_after_the_charge_leaves_one_charge_and_an_unknown(endpoint: &str) {
    let cloud = still(endpoint, &[]).await;
    assert_eq!(cloud.pay("order-1", "tok_crash_after").await.problem(), CRASHED);
    assert_eq!(cloud.pay("order-1", "tok_crash_after").await.problem(), IN_FLIGHT);
    let answer = cloud.retry_past("order-1", "tok_crash_after", &[IN_FLIGHT]).await;
    assert_eq!(answer.problem(), UNKNOWN);
    assert_eq!(cloud.state("order-1").await, "unknown");
    assert_eq!(cloud.pay("order-1", "tok_crash_after").await.problem(), UNKNOWN);
    assert_eq!(cloud.charged("tok_crash_after").await, 1);
}

#[apply(on_each_store)]
async fn a_worker_dying_before_the_charge_leaves_no_charge_and_an_unknown(endpoint: &str) {
    let cloud = still(endpoint, &[]).await;
    assert_eq!(cloud.pay("order-1", "tok_crash_before").await.problem(), CRASHED);
    let answer = cloud.retry_past("order-1", "tok_crash_before", &[IN_FLIGHT]).await;
    assert_eq!(answer.problem(), UNKNOWN);
    assert_eq!(cloud.charges().await, []);
}

#[apply(on_each_store)]
async fn a_worker_killed_during_the_charge_leaves_one_charge_and_an_unknown(endpoint: &str) {
    let cloud = still(endpoint, &[("PROVIDER_TIMEOUT_MS", "6000")]).await;
    let kill = async {
        // The record exists before the charge begins.
        cloud.until(async || cloud.state("order-1").await == "in_progress", "the charge begins").await;
        for process in cloud.environments().await {
            Command::new("kill").args(["-9", &process.to_string()]).status().expect("kill can be run");
        }
    };
    // The provider charges the slow card, even if its caller has gone. The status is read through an environment other than the killed one.
    let (answer, ()) = tokio::join!(cloud.pay("order-1", "tok_slow_2000"), kill);
    assert_eq!(answer.problem(), CRASHED);
    // Until its death is noticed, a dead environment may still be sent a request.
    let answer = cloud.retry_past("order-1", "tok_slow_2000", &[IN_FLIGHT, CRASHED]).await;
    assert_eq!(answer.problem(), UNKNOWN);
    assert_eq!(cloud.charged("tok_slow_2000").await, 1);
}

#[apply(on_each_store)]
async fn an_answer_that_is_lost_leaves_an_unknown_and_no_second_charge(endpoint: &str) {
    let cloud = still(endpoint, &[]).await;
    for (card, charges) in [("tok_timeout_charged", 1), ("tok_timeout_not_charged", 0)] {
        assert_eq!(cloud.pay(card, card).await.problem(), (504, "charge-unknown"));
        assert_eq!(cloud.pay(card, card).await.problem(), UNKNOWN);
        assert_eq!(cloud.state(card).await, "unknown");
        assert_eq!(cloud.charged(card).await, charges, "{card}");
    }
}

#[apply(on_each_store)]
async fn a_refused_connection_is_no_charge_and_the_next_retry_runs(endpoint: &str) {
    let cloud = still(endpoint, &[]).await;
    for _ in 0..2 {
        assert_eq!(cloud.pay("order-1", "tok_refused").await.problem(), (503, "provider-away"));
        assert_eq!(cloud.state("order-1").await, "failed_retryable");
    }
    assert_eq!(cloud.charges().await, []);
}

// T18
#[apply(on_each_store)]
async fn a_panic_is_an_unknown(endpoint: &str) {
    let cloud = still(endpoint, &[]).await;
    for (card, charges) in [("tok_panic_before", 0), ("tok_panic_after", 1), ("tok_error", 1)] {
        assert_eq!(cloud.pay(card, card).await.status, 500, "{card}");
        assert_eq!(cloud.pay(card, card).await.problem(), UNKNOWN, "{card}");
        assert_eq!(cloud.charged(card).await, charges, "{card}");
    }
}

// T21, T31
#[apply(on_each_store)]
async fn a_client_that_the_gateway_timed_out_gets_the_answer_later(endpoint: &str) {
    let cloud = still(endpoint, &[("GATEWAY_TIMEOUT_MS", "400")]).await;
    let card = "tok_slow_800";
    assert_eq!(cloud.pay("order-1", card).await.problem(), GATEWAY_TIMEOUT);
    let answer = cloud.retry_past("order-1", card, &[IN_FLIGHT, GATEWAY_TIMEOUT]).await;
    assert!(answer.status == 201 && answer.replayed, "{answer:?}");
    assert_eq!(cloud.charged(card).await, 1);
}

// T14, T25: bad input through the whole stack. Each gets a problem document, and nothing is charged.
#[tokio::test]
async fn bad_input_is_a_problem_and_charges_nothing() {
    let cloud = LocalCloud::start(&[]).await;
    let send = |key: Option<&str>, body: String| {
        let request = cloud.post("/payments").bearer_auth("acme").header("Content-Type", "application/json");
        let request = if let Some(key) = key { request.header("Idempotency-Key", key) } else { request };
        request.body(body).send()
    };
    let order = r#"{"customerId":"c-1","amountCents":1999,"currency":"EUR","source":"tok_ok"}"#;
    let padded = |length: usize| format!("{}{order}", " ".repeat(length));
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let cases = [
        (None, order.to_owned(), 400, "urn:lambda-idempotency:key-missing"),
        (Some("a, b"), order.to_owned(), 400, "urn:lambda-idempotency:key-malformed"),
        (Some("json"), "{nonsense".to_owned(), 400, "urn:payments:invalid-order"),
        (Some("deep"), deep, 422, "urn:payments:invalid-order"),
        (Some("cents"), order.replace("1999", "19.99"), 422, "urn:payments:invalid-order"),
        (Some("much"), order.replace("1999", "0"), 422, "urn:payments:invalid-order"),
        (Some("large"), padded(5_500_000), 413, "urn:payments:invalid-order"),
    ];
    for (key, body, status, problem) in cases {
        let answer = send(key, body).await.unwrap();
        assert_eq!(answer.status(), status, "{key:?}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{key:?}");
        let document: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(document["type"], problem, "{key:?}");
    }
    let anonymous = cloud.post("/payments").header("Idempotency-Key", "k").body(order).send().await.unwrap();
    assert_eq!(anonymous.status(), 401);
    assert_eq!(cloud.charges().await, []);
    assert_eq!(send(Some("one-megabyte"), padded(1_000_000)).await.unwrap().status(), 201);
}

#[tokio::test]
async fn no_process_survives_the_local_cloud() {
    let cloud = LocalCloud::start(&[]).await;
    cloud.pay("order-1", "tok_ok").await;
    let mut processes = cloud.environments().await;
    assert!(!processes.is_empty());
    processes.push(cloud.process_id());
    drop(cloud);
    for process in processes {
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "{process} lives");
    }
}
