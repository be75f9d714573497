//! `watch` and `sweep`: open records, and what a sweep does with them.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{TENANT, table};

#[tokio::test]
async fn a_sweep_expires_only_records_that_are_listed_as_stale() {
    let table = table().await;
    table.in_progress("live").await;
    table.unknown("unknown").await;
    table.dead("dead").await;
    let stale = table.cli.json(&["list", "--state", "stale", "--tenant", TENANT]).await;
    assert_eq!((stale.as_array().unwrap().len(), &stale[0]["key"]), (1, &json!("dead")));
    assert_eq!(table.cli.json(&["list", "--state", "stale", "--tenant", "shop-b"]).await, json!([]));
    assert_eq!(table.record("dead").await.state.name(), "in_progress");

    // As every other change, it needs a reason and a confirmation.
    assert_eq!(table.cli.run(&["sweep", "--yes"]).await.code, Some(2));
    table.cli.run(&["sweep", "--reason", "a crash"]).await.assert_refused(2, "--yes");
    assert_eq!(table.record("dead").await.state.name(), "in_progress");
    let swept = table.cli.json(&["sweep", "--reason", "a crash", "--yes"]).await;
    assert_eq!((&swept["lease_expired"], &swept["scanned"]), (&json!(1), &json!(3)));
    assert_eq!(swept["records"][0]["was"]["key"], "dead");
    for (key, state) in [("dead", "unknown"), ("live", "in_progress"), ("unknown", "unknown")] {
        assert_eq!(table.record(key).await.state.name(), state);
    }
    let shown = table.cli.json(&["show", &table.name("dead")]).await;
    assert_eq!(
        (&shown["audit"][0]["what"], &shown["audit"][0]["reason"]),
        (&json!("sweep"), &json!("a crash"))
    );
    let ran = table.cli.run(&["list", "--state", "unknown"]).await;
    for key in ["dead", "unknown"] {
        assert!(ran.stdout.contains(&table.name(key)), "{ran:?}");
    }
}

#[tokio::test]
async fn watch_prints_open_records_line_by_line_until_it_is_interrupted() {
    let table = table().await;
    table.unknown("unknown").await;
    table.dead("dead").await;
    let mut watch = table.cli.command(&["watch", "--every", "1s", "--output", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("watch can be run");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let seen: Value = loop {
        let line = lines.next_line().await.unwrap().expect("watch continues");
        let seen: Value = serde_json::from_str(&line).expect("each line is JSON");
        if !seen["stale"].is_null() {
            break seen;
        }
    };
    assert_eq!((&seen["unknown"]["count"], &seen["stale"]["count"]), (&json!(1), &json!(1)));
    assert_eq!(seen["stale"]["records"][0]["key"], "dead");
    let id = watch.id().expect("watch runs").to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(watch.wait().await.unwrap().code(), Some(0));
}
