//! Items that this version cannot read as a record. They are never guessed at, never run, never overwritten.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use lambda_idempotency::{
    engine::{Report, Request},
    record::Says,
};
use macro_rules_attribute::apply;

use crate::support::{
    embedded,
    guarded::{
        Guarded, Item, body_of, completed, item_key, outcome_of, owned, random, replayed, request, written,
    },
    on_each_store,
};

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn number(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn bytes(bytes: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// A request with its record's item, for each state that the executor leaves.
async fn in_each_state(guarded: &Guarded) -> Vec<(Request, Item)> {
    let executor = guarded.executor();
    let reports =
        [None, Some(completed("{}")), Some(Report::NotExecuted(None)), Some(Report::perhaps("panicked"))];
    let mut records = Vec::new();
    for report in reports {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        if let Some(report) = report {
            written(executor.finish(ours, report).await);
        }
        let item = guarded.item(&request.key).await.expect("a record");
        records.push((request, item));
    }
    records
}

// On one store, because the library reads an item alike whichever store returned it.
#[tokio::test]
async fn a_malformed_item_is_unreadable_and_never_runs() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let executor = guarded.executor();
    for (request, whole) in in_each_state(&guarded).await {
        let state = whole["state"].as_s().unwrap();
        for name in whole.keys().filter(|name| !matches!(name.as_str(), "pk" | "sk")) {
            let mut damaged = Vec::from([None, Some(AttributeValue::Bool(true)), Some(bytes([1, 2, 3]))]);
            if matches!(whole[name], AttributeValue::S(_)) {
                damaged.push(Some(text("nonsense")));
            }
            for damage in damaged {
                // The index accepts only texts there.
                if ["reconcile_place", "reconcile_shard"].contains(&&**name) && damage.is_some() {
                    continue;
                }
                // Not each record has notes.
                let notes = ["origin", "last_failure", "note"].contains(&&**name);
                if notes && damage.is_none() {
                    continue;
                }
                // Any text is a valid note.
                if notes && damage == Some(text("nonsense")) {
                    continue;
                }
                // Three bytes are a valid body. That its length is wrong is tested below.
                if name == "body" && damage == Some(bytes([1, 2, 3])) {
                    continue;
                }
                let mut item = whole.clone();
                item.remove(name);
                item.extend(damage.clone().map(|damage| (name.clone(), damage)));
                guarded.write_raw(item.clone()).await;
                let reserved = executor.reserve(&request).await;
                assert_eq!(outcome_of(&reserved), "unreadable", "{state}: {name} {damage:?}");
                assert_eq!(guarded.item(&request.key).await, Some(item));
            }
        }
    }
}

// T36
#[apply(on_each_store)]
async fn a_record_of_another_schema_is_left_alone(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (request, mut item) in in_each_state(&guarded).await {
        for schema in [1, 3] {
            item.insert("schema".into(), number(schema));
            item.insert("written_by_another_version".into(), AttributeValue::Bool(true));
            guarded.write_raw(item.clone()).await;
            assert_eq!(outcome_of(&guarded.executor().reserve(&request).await), "unreadable");
            assert_eq!(guarded.item(&request.key).await, Some(item.clone()));
        }
    }
}

// T36
#[apply(on_each_store)]
async fn a_completion_does_not_overwrite_an_unreadable_record(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    let mut item = guarded.item(&request.key).await.unwrap();
    item.insert("schema".into(), number(3));
    item.insert("revision".into(), bytes([7; 16]));
    guarded.write_raw(item.clone()).await;

    let ended = guarded.clock.passing(executor.finish(ours, completed("{}"))).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
    assert_eq!(guarded.item(&request.key).await, Some(item));
}

// They are not failures of the store, and do not open the breaker.
#[apply(on_each_store)]
async fn unreadable_records_block_no_others(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, bad) = (guarded.executor(), request());
    guarded.write_raw(item_key(&bad.key)).await;
    for _ in 0..10 {
        assert_eq!(outcome_of(&executor.reserve(&bad).await), "unreadable");
    }
    assert_eq!(outcome_of(&executor.reserve(&request()).await), "owned");
}

#[apply(on_each_store)]
async fn a_damaged_body_is_unreadable_and_a_missing_one_is_left_out(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    let packed = "all work and no play ".repeat(100);
    for body in [b"{}".to_vec().into(), packed.into(), random(3000)] {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, completed(body)).await);
        assert_eq!(outcome_of(&executor.reserve(&request).await), "replay");

        let holds_body = |item: &&Item| item.contains_key("body");
        let items = guarded.collection(&request.key).await;
        let whole = items.iter().find(holds_body).expect("the body is kept").clone();
        for damage in [&b"torn"[..], b""] {
            let mut item = whole.clone();
            item.insert("body".into(), bytes(damage));
            guarded.write_raw(item).await;
            assert_eq!(outcome_of(&executor.reserve(&request).await), "unreadable", "{damage:?}");
        }
        if whole["sk"] != text("record") {
            let delete = guarded.undisturbed.delete_item().table_name(&guarded.table);
            let delete = delete.key("pk", whole["pk"].clone()).key("sk", whole["sk"].clone());
            delete.send().await.unwrap();
            let replay = replayed(executor.reserve(&request).await);
            assert_eq!((replay.answer.head.status(), body_of(&replay)), (Some(201), None));
        }
    }
}
