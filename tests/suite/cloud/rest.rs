//! Every crash is settled. Without any retry, each record ends as what really happened.

use std::process::Command;

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{local_cloud::LocalCloud, on_each_store};

const UNKNOWN: (u16, &str) = (409, "outcome-unknown");
const NEVER: &str = "86400000";

/// A cloud with short durations, and with stream, queues and schedules running.
async fn cloud(endpoint: &str, variables: &[(&str, &str)]) -> LocalCloud {
    let quick = [
        ("FUNCTION_TIMEOUT_MS", "6000"),
        ("WINDOW_MS", "200"),
        ("POLL_MS", "200"),
        ("SWEEP_MS", NEVER),
        ("RECONCILE_FIRST_BACKOFF_MS", "100"),
        ("RECONCILE_MAX_BACKOFF_MS", "500"),
        ("NOT_FOUND_GRACE_MS", "2000"),
    ];
    LocalCloud::on(endpoint, &[&quick, variables].concat()).await
}

/// Waits, without a retry, until the operation is in this state.
async fn rests(cloud: &LocalCloud, key: &str, state: &str) {
    cloud.until(async || cloud.state(key).await == state, &format!("{key} becomes {state}")).await;
}

/// Checks that both ledgers agree about today, with the function that compares them.
async fn ledgers_agree(cloud: &LocalCloud, charges: usize) {
    assert_eq!(cloud.charges().await.len(), charges);
    let today = ledgers::Day::of(std::time::SystemTime::now().into());
    let compare = cloud.post("/2015-03-31/functions/compare/invocations");
    let answer = compare.json(&json!({ "job": "compare", "day": today.to_string() })).send().await.unwrap();
    let [summary]: [Value; 1] = answer.json().await.unwrap();
    for (name, number) in [("only_ours", 0), ("only_theirs", 0), ("differs", 0)] {
        assert_eq!(summary[name], number, "{summary}");
    }
    assert_eq!(summary["theirs"], charges, "{summary}");
}

#[apply(on_each_store)]
async fn a_lost_answer_becomes_the_true_charge_without_a_retry(endpoint: &str) {
    let cloud = cloud(endpoint, &[]).await;
    assert_eq!(cloud.pay("k", "tok_timeout_charged").await.problem(), (504, "charge-unknown"));
    rests(&cloud, "k", "completed").await;
    let charge = cloud.charges().await.remove(0);
    let answer = cloud.pay("k", "tok_timeout_charged").await;
    let payment: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, answer.replayed, &payment["chargeId"]), (201, true, &json!(charge.id)));
    assert_eq!(answer.location, Some(format!("/payments/{}", payment["id"].as_str().unwrap())));
    ledgers_agree(&cloud, 1).await;
}

#[apply(on_each_store)]
async fn an_answer_lost_before_the_charge_is_retryable_and_runs_again(endpoint: &str) {
    let cloud = cloud(endpoint, &[]).await;
    let card = "tok_timeout_not_charged";
    assert_eq!(cloud.pay("k", card).await.problem(), (504, "charge-unknown"));
    assert_eq!(cloud.pay("k", card).await.problem(), UNKNOWN);
    rests(&cloud, "k", "failed_retryable").await;
    // It runs: its answer is lost again, so this is not a replay.
    assert_eq!(cloud.pay("k", card).await.problem(), (504, "charge-unknown"));
    ledgers_agree(&cloud, 0).await;
}

#[apply(on_each_store)]
async fn dead_workers_are_found_and_their_outcomes_settled(endpoint: &str) {
    let cloud = cloud(endpoint, &[]).await;
    let cards = [
        ("tok_crash_after", "completed"),
        ("tok_crash_before", "failed_retryable"),
        ("tok_panic_after", "completed"),
        ("tok_panic_before", "failed_retryable"),
        ("tok_error", "completed"),
    ];
    for (card, _) in cards {
        assert!(cloud.pay(card, card).await.status >= 500, "{card}");
    }
    for (card, state) in cards {
        rests(&cloud, card, state).await;
    }
    assert_eq!(cloud.pay("tok_crash_after", "tok_crash_after").await.problem(), (201, ""));
    ledgers_agree(&cloud, 3).await;
}

// T4
#[apply(on_each_store)]
async fn a_worker_killed_during_the_charge_is_settled_as_charged(endpoint: &str) {
    let cloud = cloud(endpoint, &[("PROVIDER_TIMEOUT_MS", "4000")]).await;
    let kill = async {
        cloud.until(async || cloud.state("k").await == "in_progress", "the charge begins").await;
        for process in cloud.environments().await {
            Command::new("kill").args(["-9", &process.to_string()]).status().expect("kill can be run");
        }
    };
    let (answer, ()) = tokio::join!(cloud.pay("k", "tok_slow_1500"), kill);
    assert_eq!(answer.status, 502);
    rests(&cloud, "k", "completed").await;
    ledgers_agree(&cloud, 1).await;
}

// T32
#[apply(on_each_store)]
async fn the_providers_report_comes_before_any_question(endpoint: &str) {
    let cloud = cloud(endpoint, &[("POLL_MS", NEVER)]).await;
    cloud.pay("fine", "tok_ok").await;
    cloud.pay("lost", "tok_timeout_charged").await;
    assert_eq!(cloud.state("lost").await, "unknown");
    let deliver =
        async || -> Value { cloud.post("/provider/deliver").send().await.unwrap().json().await.unwrap() };
    assert_eq!(deliver().await, json!({ "delivered": 2, "held": 0 }));
    assert_eq!(cloud.state("lost").await, "completed");
    assert_eq!(cloud.pay("lost", "tok_timeout_charged").await.problem(), (201, ""));
    ledgers_agree(&cloud, 2).await;
}

#[apply(on_each_store)]
async fn an_outcome_that_cannot_be_found_out_is_escalated(endpoint: &str) {
    // No process listens on port 1.
    let away = [("FUNCTION_PROVIDER_URL", "http://127.0.0.1:1"), ("RECONCILE_ASKS", "3")];
    let cloud = cloud(endpoint, &away).await;
    // Otherwise the function would know that the charge was never sent. Its process must die to leave the outcome unknown.
    assert_eq!(cloud.pay("k", "tok_crash_before").await.status, 502);
    let is_escalated = async || {
        let shown: Value = cloud.get("/metrics").send().await.unwrap().json().await.unwrap();
        let mut rows = shown["metrics"].as_array().unwrap().iter();
        rows.any(|row| row["name"] == "api.idempotency.unknown.escalated" && row["last"] == 1.0)
    };
    cloud.until(is_escalated, "a poll counts it").await;
    rests(&cloud, "k", "unknown").await;
    assert_eq!(cloud.pay("k", "tok_crash_before").await.problem(), UNKNOWN);
}
