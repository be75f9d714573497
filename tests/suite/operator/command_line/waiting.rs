//! Accepted work that waits for a worker, and messages that wait for their delivery.

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use lambda_idempotency::{
    key::RecordKey,
    outbox::Topics,
    record::Record,
    store::{Companion, Outbox, Store, WriteOutcome, conformance::samples},
    world::{ManualWorld, SystemWorld, World},
};
use serde_json::{Value, json};

use super::{
    TENANT, table,
    table::{OperatorsTable, own},
};
use crate::support::{
    guarded::{BODY, OPERATION, fingerprints, operation},
    http::{api, execution, guard_of, order, send, tenant},
};

const MINUTE: Duration = Duration::from_secs(60);
const SECRET: &str = "tok_secret";

/// An operation that published so long ago, twice.
async fn published(table: &OperatorsTable, key: &str, ago: Duration) -> RecordKey {
    let began = ManualWorld::at(SystemWorld.now().minus(ago));
    let guard = guard_of(table.store.clone(), operation()).world(began);
    let topics = Topics::parse("order.placed=own order.paid=own").expect("a list");
    let app = api(guard, move |parts, _| {
        for topic in ["order.placed", "order.paid"] {
            let topic = topics.topic(topic).expect("it is listed");
            execution(&parts).publish(&topic, &json!({ "source": SECRET })).expect("it is published");
        }
        async { StatusCode::CREATED }
    });
    let request = order(key).extension(tenant(TENANT)).body(BODY.into()).expect("a request");
    assert_eq!(send(&app, request).await.status, 201);
    own(key)
}

/// Work that was accepted so long ago, with its request.
async fn accepted(table: &OperatorsTable, key: &str, ago: Duration) -> Record {
    let record = samples::pending(own(key), fingerprints(BODY), SystemWorld.now().minus(ago));
    let request = record.accepted.expect("it is accepted").request;
    let with = [Companion::KeepBody(request, Bytes::from_static(b"{}"), record.created_at)];
    assert_eq!(
        table.store.put(None, &record, &with).await.expect("the store answers"),
        WriteOutcome::Written
    );
    record
}

fn keys(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|record| record["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_record_is_shown_with_its_undelivered_messages_without_their_bodies() {
    let table = table().await;
    let key = published(&table, "k-1", MINUTE).await;
    let messages = table.store.undelivered(&key).await.unwrap();
    let shown = table.cli.json(&["show", &table.name("k-1")]).await;
    let seen = shown["undelivered"].as_array().unwrap();
    assert_eq!(seen.len(), 2);
    for ((seen, message), (number, topic)) in
        seen.iter().zip(&messages).zip([(0, "order.placed"), (1, "order.paid")])
    {
        assert_eq!(
            (&seen["number"], &seen["topic"], &seen["id"]),
            (&json!(number), &json!(topic), &json!(message.id()))
        );
        assert!(seen["published_at"].as_str().unwrap().ends_with('Z'));
    }
    let ran = table.cli.run(&["show", &table.name("k-1")]).await;
    let lines: Vec<_> = ran.stdout.lines().filter(|line| line.contains("undelivered")).collect();
    assert!(
        lines.len() == 2 && lines[0].contains("0: order.placed, published") && lines[0].contains("1m 0s ago"),
        "{ran:?}"
    );
    assert!(lines[1].contains(&messages[1].id()), "{ran:?}");
    assert!(!shown.to_string().contains(SECRET) && !ran.stdout.contains(SECRET));

    for message in &messages {
        table.store.remove(message).await.unwrap();
    }
    let shown = table.cli.json(&["show", &table.name("k-1")]).await;
    assert!(shown.get("undelivered").is_none() && shown.get("has_request").is_none(), "{shown}");
}

#[tokio::test]
async fn operations_with_messages_that_are_late_are_listed_oldest_first() {
    let table = table().await;
    assert_eq!(table.cli.run(&["list", "--undelivered"]).await.stdout, "None.\n");
    published(&table, "young", MINUTE).await;
    let late = published(&table, "late", 20 * MINUTE).await;
    published(&table, "later", 40 * MINUTE).await;
    let listed = table.cli.json(&["list", "--undelivered"]).await;
    assert_eq!(keys(&listed), ["later", "late"]);
    assert_eq!((&listed[1]["messages"], &listed[1]["first"]["topic"]), (&json!(2), &json!("order.placed")));
    assert_eq!((&listed[1]["tenant"], &listed[1]["operation"]), (&json!(TENANT), &json!(OPERATION)));

    // One was delivered.
    let messages = table.store.undelivered(&late).await.unwrap();
    table.store.remove(&messages[0]).await.unwrap();
    let shown = table.cli.run(&["list", "--undelivered"]).await.stdout;
    let line = shown.lines().nth(2).unwrap_or_default();
    for part in [&*late.partition_key(), &late.hash().to_string(), "20m", "order.paid", &messages[1].id()] {
        assert!(line.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains(SECRET), "{shown}");
    assert_eq!(table.cli.json(&["list", "--undelivered", "--tenant", "shop-b"]).await, json!([]));
    let some = table.cli.run(&["list", "--undelivered", "--limit", "1"]).await;
    assert!(some.stdout.lines().count() == 2 && some.stderr.contains("There are more"), "{some:?}");
    for other in [&["--pending"][..], &["--escalated"], &["--state", "stale"]] {
        let ran = table.cli.run(&[&["list", "--undelivered"], other].concat()).await;
        assert!(ran.code == Some(2) && ran.stderr.contains("cannot be used with"), "{ran:?}");
    }
}

#[tokio::test]
async fn pending_work_is_listed_with_the_time_until_which_it_is_claimed() {
    let table = table().await;
    table.unknown("unknown").await;
    table.dead("dead").await;
    accepted(&table, "new", MINUTE).await;
    let old = accepted(&table, "old", 2 * samples::CLAIM_WITHIN).await;
    let listed = table.cli.json(&["list", "--pending"]).await;
    assert_eq!(keys(&listed), ["old", "new"]);
    assert_eq!((&listed[0]["accepted"]["max_attempts"], &listed[0]["state"]), (&json!(2), &json!("pending")));
    assert_eq!(listed[0]["hash"], old.key.hash().to_string());
    let shown = table.cli.run(&["list", "--pending"]).await.stdout;
    let lines: Vec<_> = shown.lines().collect();
    assert!(
        lines[1].contains("not taken in time: due since 1h 0m") && lines[1].contains("0 of 2"),
        "{shown}"
    );
    assert!(lines[2].contains("no worker yet") && lines[2].contains("then it ends"), "{shown}");
    assert_eq!(table.cli.json(&["list", "--pending", "--tenant", "shop-b"]).await, json!([]));
    // Only what a sweep would end is stale.
    assert_eq!(keys(&table.cli.json(&["list", "--state", "stale"]).await), ["old", "dead"]);
    let ran = table.cli.run(&["list", "--pending", "--state", "stale"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("cannot be used with"), "{ran:?}");
}

#[tokio::test]
async fn accepted_work_is_shown_with_its_bound_and_its_request() {
    let table = table().await;
    let record = accepted(&table, "k-1", MINUTE).await;
    let request = record.accepted.expect("it is accepted").request;
    let name = table.name("k-1");
    let shown = table.cli.json(&["show", &name]).await;
    assert_eq!(
        (&shown["has_request"], &shown["record"]["accepted"]["request"]),
        (&json!(true), &json!(request.to_string()))
    );
    let text = table.cli.run(&["show", &name]).await.stdout;
    for part in ["0 of 2", "in 58m", "then it ends", "kept, until the record is settled"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    table.store.delete_body(&record.key, request).await.unwrap();
    // A worker executed it once, and certainly did nothing.
    let mut returned = table.record("k-1").await;
    returned.attempts = 1;
    returned.accepted.as_mut().expect("it is accepted").tries = 1;
    table.replace(returned).await;
    let text = table.cli.run(&["show", &name]).await.stdout;
    assert!(text.contains("missing: no worker can execute it"), "{text}");
    assert!(text.contains("1 of 2; 0 perhaps did something"), "{text}");
    assert_eq!(table.cli.json(&["show", &name]).await["has_request"], json!(false));
}
