//! `list --released` and `hold`: a deployment released what it did.

use std::{collections::BTreeSet, time::Duration};

use lambda_idempotency::{
    record::{Record, SettledBy, State},
    store::Store,
};
use serde_json::{Value, json};

use super::{
    WHY, table,
    table::{OperatorsTable, own},
};
use crate::support::guarded::record_key;

const MINUTE: Duration = Duration::from_secs(60);

fn keys(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|record| record["key"].as_str().unwrap()).collect()
}

/// Released by a worker before, and after, a deployment; after it, by certainty too. Another one is completed.
async fn deployed() -> (OperatorsTable, [Record; 4]) {
    let table = table().await;
    let before = table.released(own("before"), SettledBy::Worker, 120 * MINUTE).await;
    let wrong = table.released(own("wrong"), SettledBy::Worker, 30 * MINUTE).await;
    let later = table.released(own("later"), SettledBy::NotBegun, 20 * MINUTE).await;
    let certain = table.released(own("certain"), SettledBy::Certainty, 10 * MINUTE).await;
    table.returned(own("returned"), 90 * MINUTE).await;
    table.completed("done", "kept").await;
    table.unknown("unknown").await;
    (table, [before, wrong, later, certain])
}

#[tokio::test]
async fn released_records_are_listed_by_time_and_by_who_released_them() {
    let (table, [before, ..]) = deployed().await;
    let list = async |more: &[&str]| {
        let listed = table.cli.json(&[&["list", "--released"][..], more].concat()).await;
        keys(&listed).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(list(&[]).await, ["before", "returned", "wrong", "later", "certain"]);
    // Accepted work does not say when it was returned.
    assert_eq!(list(&["--since", "1h"]).await, ["returned", "wrong", "later", "certain"]);
    assert_eq!(list(&["--since", "1h", "--by", "worker"]).await, ["returned", "wrong"]);
    assert_eq!(
        list(&["--by", "worker", "--by", "certainty"]).await,
        ["before", "returned", "wrong", "certain"]
    );
    assert_eq!(list(&["--operation", "refund"]).await, [] as [&str; 0]);
    assert_eq!(list(&["--tenant", "shop-b"]).await, [] as [&str; 0]);
    let shown =
        table.cli.run(&["list", "--released", "--since", "2020-01-01T00:00:00Z", "--limit", "1"]).await;
    let line = shown.stdout.lines().nth(1).unwrap_or_default();
    assert!(line.contains(&before.key.hash().to_string()) && line.contains("(2h 0m ago)"), "{shown:?}");
    assert!(line.contains("worker") && shown.stderr.contains("There are more"), "{shown:?}");
    for (usage, text) in [
        (&["list", "--since", "1h"][..], "--released"),
        (&["list", "--released", "--by", "me"], "assumption"),
    ] {
        let ran = table.cli.run(usage).await;
        assert!(ran.code == Some(2) && ran.stderr.contains(text), "{ran:?}");
    }
}

// T53: a retry would do it again.
#[tokio::test]
async fn what_a_deployment_released_is_held_and_no_retry_runs_it() {
    let (table, [before, wrong, ..]) = deployed().await;
    let elsewhere = record_key("shop-b", "wrong");
    let of_another = table.released(elsewhere.clone(), SettledBy::Worker, 30 * MINUTE).await;
    let hold = ["hold", "--released", "--since", "1h", "--operation", "create-payment", "--tenant", "shop-a"];
    table.cli.run(&[&hold[..], &["--reason", "x"]].concat()).await.assert_refused(2, "--yes");
    let held = table.cli.json(&[&hold[..], &WHY].concat()).await;
    assert_eq!((&held["held"], &held["not_held"]), (&json!(4), &json!([])), "{held}");

    for key in ["wrong", "later", "certain"] {
        assert_eq!(table.retry(key).await, "unknown");
        let shown = table.cli.json(&["show", &table.name(key)]).await;
        let [line] = &shown["audit"].as_array().unwrap()[..] else { panic!("{shown}") };
        assert_eq!((&line["what"], &line["reason"]), (&json!("hold"), &json!(WHY[2])));
        assert_eq!(
            (&line["before"]["state"], &line["after"]["state"]),
            (&json!("failed_retryable"), &json!("unknown"))
        );
        assert_eq!(shown["record"]["reported"], "effect");
        assert_eq!(shown["record"]["unknown"]["escalated"], true);
        assert_eq!(shown["record"]["unknown"]["cause"], "held");
        let failure = shown["record"]["last_failure"].as_str().unwrap();
        assert!(failure.starts_with("held: ") && failure.contains(", by olga@"), "{failure}");
    }
    assert_eq!(table.record("wrong").await.attempts, wrong.attempts);
    assert_eq!(table.record("before").await, before, "it was released before the deployment");
    let escalated = table.cli.json(&["list", "--escalated"]).await;
    let escalated: BTreeSet<_> = keys(&escalated).into_iter().collect();
    assert_eq!(escalated, ["wrong", "later", "certain", "returned"].into());
    let listed = table.cli.run(&["list"]).await.stdout;
    assert_eq!(listed.matches(", by olga@").count(), 4, "{listed}");
    assert_eq!(table.record("returned").await.state.name(), "unknown");
    assert_eq!(table.store.load(&elsewhere).await.unwrap(), Some(of_another), "another tenant's");
    // Again: nothing is left to hold.
    let held = table.cli.json(&[&hold[..], &["--by", "worker"], &WHY].concat()).await;
    assert_eq!((&held["held"], &held["records"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn a_record_that_cannot_be_held_is_named_with_its_reason() {
    let (table, _) = deployed().await;
    let [wrong, certain, done] = ["wrong", "certain", "done"].map(|key| table.name(key));
    let ran = table.cli.run(&[&["hold", &wrong, &certain, &done][..], &WHY].concat()).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("2 held") && ran.stdout.contains("the record is completed"), "{ran:?}");
    assert!(ran.stderr.contains("1 not held") && ran.stderr.contains(&done), "{ran:?}");
    assert_eq!((table.retry("wrong").await, table.retry("certain").await), ("unknown", "unknown"));
    // A restored table may have forgotten what came later.
    let between = table.between_workers(own("between"), MINUTE, false).await;
    let ran = table.cli.run(&[&["hold", &table.name("between")][..], &WHY].concat()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let held = table.record("between").await;
    assert_eq!((held.state.name(), held.attempts), ("unknown", between.attempts));
    // The provider may deny it, or its retry may run again.
    let ran = table.cli.run(&[&["hold", &table.name("unknown")][..], &WHY].concat()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = table.cli.run(&[&["hold", &table.name("unknown")][..], &WHY].concat()).await;
    assert!(ran.code == Some(3) && ran.stderr.contains("the record is held"), "{ran:?}");
    // One without a record does not keep the others from being held.
    let later = table.name("later");
    let named = ["hold", &table.name("k-9"), &later, "--output", "json"];
    let ran = table.cli.run(&[&named[..], &WHY].concat()).await;
    assert!(ran.code == Some(3) && ran.stderr.contains("has no record"), "{ran:?}");
    let done: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&done["held"], &done["not_held"][0]["name"]), (&json!(1), &json!(table.name("k-9"))));
    assert_eq!(table.retry("later").await, "unknown");
    for usage in [&["hold"][..], &["hold", "--released"], &["hold", &wrong, "--since", "1h"]] {
        assert_eq!(table.cli.run(&[usage, &WHY].concat()).await.code, Some(2), "{usage:?}");
    }
}

// T53: a retry would resume it, and do again what its worker said was not done.
#[tokio::test]
async fn operations_between_workers_are_held_with_what_was_released() {
    let (table, _) = deployed().await;
    table.between_workers(own("between"), MINUTE, false).await;
    let elsewhere = record_key("shop-b", "between");
    let of_another = table.between_workers(elsewhere.clone(), MINUTE, false).await;
    let which = ["--operation", "create-payment", "--tenant", "shop-a"];
    let hold =
        [&["hold", "--released", "--since", "25m", "--by", "not_begun", "--between-workers"], &which[..]];
    let plan = table.cli.run(&[&hold.concat()[..], &WHY].concat()).await;
    assert!(plan.code == Some(0) && plan.stdout.contains("2 held"), "{plan:?}");
    assert!(plan.stdout.contains(&table.name("between")), "it is in the plan: {plan:?}");
    for key in ["later", "between"] {
        assert!(table.record(key).await.is_held(), "{key}");
    }
    assert_eq!(table.record("wrong").await.state.name(), "failed_retryable");
    assert_eq!(table.store.load(&elsewhere).await.unwrap(), Some(of_another), "another tenant's");
    let alone = table.cli.json(&[&["hold", "--between-workers"][..], &WHY].concat()).await;
    assert_eq!((&alone["held"], &alone["records"][0]["was"]["tenant"]), (&json!(1), &json!("shop-b")));
}

// T35: the table has forgotten what was executed since.
#[tokio::test]
async fn what_a_restored_table_cannot_know_is_held_in_one_command() {
    let (table, _) = deployed().await;
    table.between_workers(own("between"), MINUTE, false).await;
    table.dead("dead").await;
    let accepted = table.returned(own("accepted"), MINUTE).await;
    table.replace(Record { state: State::Pending { released_by: None }, ..accepted }).await;
    let unknown = table.record("unknown").await;
    let resumes = table.between_workers(own("resumes"), MINUTE, false).await;
    table.replace(Record { state: unknown.state.clone(), ..resumes }).await;

    let hold = [&["hold", "--restored"][..], &WHY].concat();
    let held = table.cli.json(&hold).await;
    let keys: BTreeSet<_> =
        held["records"].as_array().unwrap().iter().map(|done| done["was"]["key"].as_str().unwrap()).collect();
    let expected =
        ["accepted", "before", "between", "certain", "dead", "later", "resumes", "returned", "wrong"];
    assert_eq!(keys, expected.into());
    assert_eq!((&held["held"], &held["not_held"]), (&json!(9), &json!([])));
    assert_eq!(table.record("unknown").await, unknown, "it is asked about");
    assert_eq!(table.record("done").await.state.name(), "completed");
    // Again: what was held is left alone. A worker that still runs is not held, and is named.
    table.in_progress("alive").await;
    let ran = table.cli.run(&[&hold[..], &["--output", "json"]].concat()).await;
    assert!(ran.code == Some(3) && ran.stderr.contains(&table.name("alive")), "{ran:?}");
    let again: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&again["held"], &again["not_held"][0]["name"]), (&json!(0), &json!(table.name("alive"))));
}
