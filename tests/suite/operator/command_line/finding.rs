//! From a hash in a log line to the record.

use std::{collections::HashMap, time::Duration};

use lambda_idempotency::key::{IdempotencyKey, RecordKey};
use serde_json::json;

use super::{
    table,
    table::{TENANT, own},
};
use crate::support::guarded::OPERATION;

/// Two keys whose hashes begin with the same four digits.
fn alike() -> (RecordKey, RecordKey) {
    let mut found = HashMap::new();
    (0..)
        .find_map(|number| {
            let key = own(&format!("k-{number}"));
            let other = found.insert(key.hash().to_string()[..4].to_owned(), key.clone())?;
            Some((other, key))
        })
        .expect("65,536 beginnings exist")
}

#[tokio::test]
async fn a_hash_in_a_log_leads_to_its_record() {
    let table = table().await;
    let (one, other) = alike();
    // In index partitions that are read one after the other.
    for (key, escalated) in [(&one, true), (&other, false)] {
        table.unknown_since(key.clone(), Duration::from_secs(60), escalated).await;
    }
    let (hash, beginning) = (one.hash().to_string(), one.hash().to_string()[..4].to_owned());
    for hash in [&hash, &hash.to_uppercase(), &hash[..15]] {
        let shown = table.cli.json(&["show", hash]).await;
        assert_eq!(shown["record"]["key"], one.idempotency_key().as_str(), "{hash}");
    }
    for more in [&[][..], &["--scan"]] {
        let ran = table.cli.run(&[&["show", &beginning][..], more].concat()).await;
        ran.assert_refused(3, "2 records have a hash that begins so");
        assert!(ran.stderr.contains(&hash) && ran.stderr.contains(&other.hash().to_string()), "{ran:?}");
    }

    // Settled records are found only by a scan.
    let settled = table.completed("settled", "kept").await.key.hash().to_string();
    table.cli.run(&["show", &settled]).await.assert_refused(3, "--scan");
    assert_eq!(table.cli.json(&["show", &settled, "--scan"]).await["record"]["state"], json!("completed"));
    table.cli.run(&["show", "0123456789abcdef", "--scan"]).await.assert_refused(3, "in the whole table");
    for no_hash in ["abc", "0123456789abcdef0", "wxyz"] {
        table.cli.run(&["show", no_hash]).await.assert_refused(2, "tenant#operation#key");
    }
    table.cli.run(&["show", "650"]).await.assert_refused(2, "a hash needs 4 digits or more");
}

// The names that a handler has used are not stored, so any name has a key.
#[tokio::test]
async fn a_downstream_key_is_shown_as_derived() {
    let table = table().await;
    let record = table.unknown("k-1").await;
    let shown = table.cli.run(&["show", &table.name("k-1"), "--phase", "charge", "--phase", "never"]).await;
    for phase in ["charge", "never"] {
        let label = format!("downstream key of `{phase}`");
        let line = shown.stdout.lines().find(|line| line.contains(&label)).expect("a line for each name");
        let key = record.key.downstream_key(&record.fingerprint, phase);
        assert!(line.contains(&key) && line.contains("derived, not looked up"), "{shown:?}");
    }
}

// Logs contain hashes, and only `show` accepts one.
#[tokio::test]
async fn a_hash_instead_of_a_name_gets_a_hint_at_show() {
    let table = table().await;
    for command in
        [&["ask", "--queue", "http://127.0.0.1:9/q"][..], &["settle", "--not-executed"], &["forget-response"]]
    {
        let arguments = [command, &["7AA1e216", "--reason", "because", "--yes"]].concat();
        table.cli.run(&arguments).await.assert_refused(2, "`idempotency show 7aa1e216`");
    }
    let named = ["settle", "--not-executed", "--reason", "because", "--yes", "no#such#record"];
    table.cli.run(&named).await.assert_refused(3, "has no record of tenant");
}

// The library hashes such a key, so that nobody can write it down.
#[tokio::test]
async fn a_key_of_several_parts_is_named_by_its_parts() {
    let table = table().await;
    let long = "x".repeat(300);
    for parts in [&["warehouse-2", "-7"][..], &["sha", "256"], &[&long], &["k-1"]] {
        let key = IdempotencyKey::of(parts).expect("a key");
        table.unknown(key.as_str()).await;
        let parts: Vec<_> = parts.iter().flat_map(|part| ["--key-part", part]).collect();
        let record = [&["--tenant", TENANT, "--operation", OPERATION][..], &parts].concat();
        let shown = table.cli.json(&[&["show"][..], &record].concat()).await;
        assert_eq!(shown["record"]["key"], key.as_str());
        let settle = ["settle", "--not-executed", "--reason", "because", "--yes"];
        assert_eq!(table.cli.run(&[&settle[..], &record].concat()).await.code, Some(0), "{parts:?}");
        assert_eq!(table.record(key.as_str()).await.state.name(), "failed_retryable");
    }
    let named = ["show", "--tenant", TENANT, "--operation", OPERATION];
    let of = async |more: &[&str]| table.cli.run(&[&named[..], more].concat()).await;
    of(&["--key-part", "7", "--key-part", "warehouse-2"]).await.assert_refused(3, "no record");
    of(&["--key-part", ""]).await.assert_refused(2, "it is empty");
    for (usage, text) in [
        (of(&["--key-part", "a", "k-1"]).await, "cannot be used with"),
        (of(&[]).await, "required arguments"),
        (table.cli.run(&["show", "--key-part", "a"]).await, "--operation"),
    ] {
        assert!(usage.code == Some(2) && usage.stderr.contains(text), "{usage:?}");
    }
}
