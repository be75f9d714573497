//! Leases are judged by the store's clock: that of an operator's machine may be wrong.

use axum::{Router, body::Bytes, http::HeaderMap};
use lambda_idempotency::{
    time::Timestamp,
    world::{SystemWorld, World},
};
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{WHY, relayed, served, table};
use crate::support::embedded;

const HOUR: Duration = Duration::from_secs(3600);

/// A relay to the store, which says that this is the time.
async fn at(now: Timestamp) -> String {
    let client = reqwest::Client::new();
    let now: SystemTime = UNIX_EPOCH + Duration::from_millis(now.as_millis());
    let relay = async move |headers: HeaderMap, body: Bytes| {
        let mut answer = relayed(&client, embedded::endpoint(), headers, body).await;
        answer.headers_mut().insert("date", httpdate::fmt_http_date(now).parse().expect("a header"));
        answer
    };
    served(Router::new().fallback(relay)).await
}

// T39
#[tokio::test]
async fn a_lease_is_judged_by_the_stores_clock_and_not_the_machines() {
    let table = table().await;
    table.in_progress("live").await;
    table.dead("dead").await;
    let sweep = [&["sweep"][..], &WHY, &["--output", "json"]].concat();
    // The machine is an hour ahead: to the store, neither lease has expired.
    let ahead = table.cli.through(&at(SystemWorld.now().minus(HOUR)).await);
    let ran = ahead.run(&sweep).await;
    assert!(ran.code == Some(0) && ran.stderr.contains("is 1h 0m ahead"), "{ran:?}");
    for key in ["live", "dead"] {
        assert_eq!(table.record(key).await.state.name(), "in_progress");
        let settle = ["settle", &table.name(key), "--not-executed"];
        let ran = ahead.run(&[&settle[..], &WHY].concat()).await;
        assert!(ran.code == Some(3) && ran.stderr.contains("its lease has not expired"), "{ran:?}");
    }
    // It is an hour behind: both have.
    let behind = table.cli.through(&at(SystemWorld.now().plus(HOUR)).await);
    let ran = behind.run(&sweep).await;
    assert!(ran.stderr.contains("is 59m") || ran.stderr.contains("is 1h 0m behind"), "{ran:?}");
    let swept: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(swept["lease_expired"], json!(2), "{swept}");
    // It is right.
    assert_eq!(table.cli.run(&["list"]).await.stderr, "");
}
