//! `watch` and `sweep`: open records, and what a sweep does with them.

use std::{
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
};

use aws_sdk_dynamodb::types::AttributeValue;
use axum::{
    Json, Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{TENANT, relayed, served, table};
use crate::support::{clock::in_time, embedded};

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

/// A relay to the store that refuses every scan but the first.
async fn one_scan() -> String {
    let (client, scans) = (reqwest::Client::new(), AtomicUsize::new(0));
    let scans = std::sync::Arc::new(scans);
    let relay = async move |headers: HeaderMap, body: Bytes| {
        let target = headers["x-amz-target"].to_str().expect("a target");
        if target.ends_with(".Scan") && scans.fetch_add(1, Ordering::SeqCst) > 0 {
            let error =
                json!({ "__type": "com.amazon.coral.service#AccessDeniedException", "Message": "no" });
            return (StatusCode::BAD_REQUEST, Json(error)).into_response();
        }
        relayed(&client, embedded::endpoint(), headers, body).await
    };
    served(Router::new().fallback(relay)).await
}

// T50: the whole table takes hours.
#[tokio::test]
async fn a_sweep_that_ends_early_has_expired_what_it_found() {
    let table = table().await;
    for number in 0..8 {
        table.dead(&format!("dead-{number}")).await;
    }
    // More than a page.
    for number in 0..4 {
        let text = |text: String| AttributeValue::S(text);
        let item = [
            ("pk", text("acme#create-payment#k".into())),
            ("sk", text(format!("body#{number}"))),
            ("body", text("7".repeat(390_000))),
        ];
        table.write_raw(item.map(|(name, value)| (name.to_owned(), value)).into()).await;
    }
    let ran = table.cli.through(&one_scan().await).run(&["sweep", "--reason", "x", "--yes"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let mut expired = 0;
    for number in 0..8 {
        let key = format!("dead-{number}");
        let is_expired = table.record(&key).await.state.name() == "unknown";
        // Each is printed as it is found.
        assert_eq!(ran.stdout.contains(&table.name(&key)), is_expired, "{ran:?}");
        expired += u32::from(is_expired);
    }
    assert!(expired > 0 && ran.stdout.contains(&format!("{expired} expired")), "{ran:?}");
}

#[tokio::test]
async fn watch_prints_open_records_line_by_line_until_it_is_interrupted() {
    let table = table().await;
    table.unknown("unknown").await;
    table.dead("dead").await;
    table.alarmed("alarmed").await;
    let mut watch = table.cli.command(&["watch", "--every", "1s", "--output", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("watch can be run");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let seen: Value = in_time(async {
        loop {
            let line = lines.next_line().await.unwrap().expect("watch continues");
            let seen: Value = serde_json::from_str(&line).expect("each line is JSON");
            if !seen["stale"].is_null() {
                break seen;
            }
        }
    })
    .await;
    assert_eq!((&seen["unknown"]["count"], &seen["stale"]["count"]), (&json!(1), &json!(1)));
    assert_eq!(seen["stale"]["records"][0]["key"], "dead");
    assert_eq!(
        (&seen["alarmed"]["count"], &seen["alarmed"]["records"][0]["key"]),
        (&json!(1), &json!("alarmed"))
    );
    let id = watch.id().expect("watch runs").to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(watch.wait().await.unwrap().code(), Some(0));
}
