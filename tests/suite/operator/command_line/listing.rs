//! `list`: which records are listed, in which order, and the messages about tables that cannot be listed.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{record::SettledBy, store::dynamodb::table as definition};
use serde_json::{Value, json};

use super::{TENANT, table, table::own};
use crate::support::{
    client::client,
    command::CommandLine,
    embedded,
    guarded::{Item, record_key},
};

const HOUR: Duration = Duration::from_secs(3600);

fn keys(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|record| record["key"].as_str().unwrap()).collect()
}

// T50
#[tokio::test]
async fn escalated_outcomes_are_listed_first_and_then_the_oldest() {
    let table = table().await;
    // More than there are partitions, whose order is not by age.
    for number in 0..20_u32 {
        table.unknown_since(own(&format!("asked-{number:02}")), HOUR * (20 - number), false).await;
    }
    let old = table.unknown_since(own("escalated-old"), 3 * HOUR, true).await;
    table.unknown_since(own("escalated-new"), Duration::from_secs(60), true).await;
    let asked: Vec<_> = (0..20).map(|number| format!("asked-{number:02}")).collect();
    let expected: Vec<_> =
        ["escalated-old", "escalated-new"].into_iter().chain(asked.iter().map(|key| &**key)).collect();

    assert_eq!(keys(&table.cli.json(&["list"]).await), expected);
    let listed = table.cli.run(&["list", "--limit", "4", "--output", "json"]).await;
    assert!(listed.stderr.contains("There are more"), "{listed:?}");
    assert_eq!(keys(&serde_json::from_str(&listed.stdout).unwrap()), expected[..4]);
    let escalated = table.cli.json(&["list", "--escalated", "--tenant", TENANT]).await;
    assert_eq!(
        (keys(&escalated), &escalated[0]["unknown"]["escalated"]),
        (expected[..2].to_vec(), &json!(true))
    );
    assert_eq!(escalated[0]["hash"], old.key.hash().to_string());
    let shown = table.cli.run(&["list", "--limit", "1"]).await.stdout;
    let line = shown.lines().nth(1).unwrap_or_default();
    assert!(line.contains(&old.key.hash().to_string()) && line.contains("3h 0m"), "{shown}");
    assert!(line.contains("never: escalated, it waits for an operator"), "{shown}");
    table.cli.run(&["list", "--escalated", "--state", "stale"]).await.assert_refused(2, "--escalated");
}

// T81
#[tokio::test]
async fn a_list_has_some_of_each_tenant_however_many_one_has() {
    let table = table().await;
    for number in 0..30_u32 {
        let flood = record_key("flood", &format!("flood-{number:02}"));
        table.unknown_since(flood, HOUR * (60 - number), true).await;
    }
    for (key, hours) in [("new", 2), ("newer", 1)] {
        table.unknown_since(own(key), HOUR * hours, true).await;
    }
    table.unknown_since(own("asked"), HOUR, false).await;
    for kind in [&["list", "--limit", "6"][..], &["list", "--escalated", "--limit", "6"]] {
        let ran = table.cli.run(&[kind, &["--output", "json"]].concat()).await;
        let listed = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(keys(&listed), ["flood-00", "flood-01", "flood-02", "flood-03", "new", "newer"]);
        assert!(ran.stderr.contains("some of each tenant's"), "{ran:?}");
    }
    // Of one tenant, the oldest.
    let ran = table.cli.run(&["list", "--tenant", "flood", "--limit", "2", "--output", "json"]).await;
    assert_eq!(keys(&serde_json::from_str(&ran.stdout).unwrap()), ["flood-00", "flood-01"]);
    assert_eq!(ran.stderr, "There are more: raise --limit.\n");
}

#[tokio::test]
async fn a_list_that_leaves_out_unreadable_records_never_says_none() {
    let table = table().await;
    for kind in [&["list"][..], &["list", "--escalated"], &["list", "--pending"], &["list", "--released"]] {
        assert!(table.cli.run(kind).await.stdout.starts_with("None."), "{kind:?}");
    }
    // Of a version that this one does not know.
    let newer = |mut item: Item| {
        item.insert("schema".into(), AttributeValue::N("999".into()));
        item
    };
    table.unknown_since(own("unknown"), HOUR, true).await;
    table.dead("dead").await;
    table.released(own("released"), SettledBy::Worker, HOUR).await;
    for item in table.items().await.into_values() {
        table.write_raw(newer(item)).await;
    }
    for kind in
        [&["list"][..], &["list", "--escalated"], &["list", "--state", "stale"], &["list", "--released"]]
    {
        let ran = table.cli.run(kind).await;
        assert!(!ran.stdout.contains("None."), "{kind:?}: {ran:?}");
        ran.assert_refused(1, "one record cannot be read");
        let ran = table.cli.run(&[kind, &["--output", "json"]].concat()).await;
        assert_eq!((ran.code, ran.stdout.trim()), (Some(1), "[]"), "{kind:?}");
    }
}

// A scan is not ordered by age, so it does not end at the limit.
#[tokio::test]
async fn the_oldest_of_a_scan_come_first_however_small_the_limit() {
    let table = table().await;
    for minutes in [3, 1, 9, 7, 5_u32] {
        let ago = Duration::from_secs(60) * minutes;
        table.released(own(&format!("k-{minutes}")), SettledBy::Worker, ago).await;
        table.dead_since(&format!("dead-{minutes}"), ago).await;
    }
    for (kind, oldest) in
        [(&["list", "--released"][..], ["k-9", "k-7"]), (&["list", "--state", "stale"], ["dead-9", "dead-7"])]
    {
        let ran = table.cli.run(&[kind, &["--limit", "2", "--output", "json"]].concat()).await;
        assert!(ran.stderr.contains("There are more"), "{ran:?}");
        assert_eq!(keys(&serde_json::from_str(&ran.stdout).unwrap()), oldest);
    }
}

#[tokio::test]
async fn a_missing_index_is_reported_with_its_remedy() {
    let (client, name) = (client(embedded::endpoint()), "without-index");
    let whole = definition::create(&client, name);
    let keys = whole.get_attribute_definitions().clone().unwrap_or_default();
    let keys = keys.into_iter().filter(|key| ["pk", "sk"].contains(&key.attribute_name()));
    let plain = whole.set_global_secondary_indexes(None).set_attribute_definitions(Some(keys.collect()));
    plain.send().await.expect("a table without the index");
    let cli = CommandLine::new(embedded::endpoint(), name);
    for command in [&["list"][..], &["show", "abcdef"], &["watch"]] {
        cli.run(command)
            .await
            .assert_refused(1, "add the index `reconcile` (partition key `reconcile_shard`");
    }
    // Commands that need no index work.
    assert_eq!(cli.json(&["list", "--state", "stale"]).await, json!([]));
    cli.run(&["show", "abcdef", "--scan"]).await.assert_refused(3, "in the whole table");
}

#[tokio::test]
async fn a_table_without_records_is_reported() {
    let (client, name) = (client(embedded::endpoint()), "orders-of-another-team");
    let keys = definition::create(&client, name);
    let attribute = |name: &str, definitions: Vec<aws_sdk_dynamodb::types::AttributeDefinition>| {
        definitions.into_iter().filter(|each| each.attribute_name() == name).collect::<Vec<_>>()
    };
    let definitions = attribute("sk", keys.get_attribute_definitions().clone().unwrap_or_default());
    let key = aws_sdk_dynamodb::types::KeySchemaElement::builder()
        .attribute_name("sk")
        .key_type(aws_sdk_dynamodb::types::KeyType::Hash)
        .build()
        .expect("a key");
    let other = keys
        .set_global_secondary_indexes(None)
        .set_attribute_definitions(Some(definitions))
        .set_key_schema(Some(vec![key]));
    other.send().await.expect("a table with another key");
    let cli = CommandLine::new(embedded::endpoint(), name);
    for command in [&["list"][..], &["show", "a#b#c"], &["list", "--state", "stale"]] {
        cli.run(command).await.assert_refused(1, "not a table of idempotency records");
    }
}
