//! `ask`: asking the provider immediately.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    TENANT, WHY,
    queues::{Queues, RECONCILE},
    table,
    table::own,
};
use crate::support::guarded::{OPERATION, record_key};

#[tokio::test]
async fn ask_sends_the_question_and_leaves_a_line() {
    let table = table().await;
    for record in [table.unknown("k-1").await, table.dead("dead").await] {
        let name = record.key.partition_key();
        let queues = Queues::default();
        let address = queues.serve().await;
        let ask = ["ask", &name, "--queue", RECONCILE, "--sqs-endpoint-url", &address];
        table.cli.run(&[&ask[..], &["--reason", "x"]].concat()).await.assert_refused(2, "--yes");
        assert_eq!(queues.of(RECONCILE).0, [] as [&str; 0]);
        let ran = table.cli.run(&[&ask[..], &WHY].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(
            ran.stdout.contains("idempotency show") && ran.stdout.contains(&record.key.hash().to_string())
        );
        let sent: Vec<Value> =
            queues.of(RECONCILE).0.iter().map(|body| serde_json::from_str(body).expect("JSON")).collect();
        assert_eq!(sent, [json!({ "version": 1, "kind": "ask", "key": name })]);
        let shown = table.cli.json(&["show", &name]).await;
        assert_eq!(
            (&shown["audit"][0]["what"], &shown["audit"][0]["reason"]),
            (&json!("ask"), &json!(WHY[2]))
        );

        // Sending fails after the audit line was written. The line records the intention.
        queues.refuse_sending();
        let ran = table.cli.run(&[&ask[..], &WHY, &["--output", "json"]].concat()).await;
        ran.assert_refused(1, "no such queue");
    }
}

#[tokio::test]
async fn all_unknown_outcomes_of_an_operation_are_asked_about_at_once() {
    let table = table().await;
    let mut ours: Vec<_> = ["k-1", "k-2", "k-3"].map(|key| table.name(key)).into();
    for (key, escalated) in [("k-1", true), ("k-2", false), ("k-3", true)] {
        table.unknown_since(own(key), Duration::from_secs(60), escalated).await;
    }
    table.unknown_since(record_key("shop-b", "k-1"), Duration::from_secs(60), true).await;
    table.between_workers(own("resumes"), Duration::from_secs(60), true).await;
    let queues = Queues::default();
    let address = queues.serve().await;
    let ask = ["ask", "--all", "--queue", RECONCILE, "--sqs-endpoint-url", &address];
    let one = [&ask[..], &["--tenant", TENANT, "--operation", OPERATION]].concat();
    table.cli.run(&[&one[..], &["--reason", "x"]].concat()).await.assert_refused(2, "--yes");
    let asked = table.cli.json(&[&one[..], &WHY].concat()).await;
    assert_eq!(asked["asked"], 3, "{asked}");
    let sent = |queues: &Queues| {
        let bodies = queues.of(RECONCILE).0;
        let key = |body: &String| {
            serde_json::from_str::<Value>(body).expect("JSON")["key"].as_str().unwrap().to_owned()
        };
        let mut keys: Vec<_> = bodies.iter().map(key).collect();
        keys.sort();
        keys
    };
    ours.sort();
    assert_eq!(sent(&queues), ours);
    let shown = table.cli.json(&["show", &ours[0]]).await;
    assert_eq!((&shown["audit"][0]["what"], &shown["audit"][0]["reason"]), (&json!("ask"), &json!(WHY[2])));
    // Of each tenant, and of an operation that has none.
    assert_eq!(table.cli.json(&[&ask[..], &WHY].concat()).await["asked"], 4);
    assert_eq!(table.cli.json(&[&ask[..], &["-o", "refund"], &WHY].concat()).await["asked"], 0);
    let named = [&ask[..], &[ours[0].as_str()], &WHY].concat();
    assert_eq!(table.cli.run(&named).await.code, Some(2), "all, or one");

    queues.refuse_sending();
    let ran = table.cli.run(&[&ask[..], &WHY].concat()).await;
    assert!(ran.code == Some(1) && ran.stdout.contains("0 sent"), "{ran:?}");
}

#[tokio::test]
async fn only_unknown_outcomes_are_asked_about() {
    let table = table().await;
    table.in_progress("live").await;
    table.completed("done", "kept").await;
    let queues = Queues::default();
    let address = queues.serve().await;
    for (key, why) in
        [("live", "its lease has not expired"), ("done", "is completed"), ("k-9", "has no record of tenant")]
    {
        let name = table.name(key);
        let ask = ["ask", &name, "--queue", RECONCILE, "--sqs-endpoint-url", &address];
        table.cli.run(&[&ask[..], &WHY].concat()).await.assert_refused(3, why);
    }
    assert_eq!(queues.of(RECONCILE).0, [] as [&str; 0]);
    assert!(table.sort_keys().await.iter().all(|sk| sk == "record"), "no line without a question");
    table.cli.run(&[&["ask", "a#b#c"][..], &WHY].concat()).await.assert_refused(2, "RECONCILE_QUEUE_URL");
}
