//! Items that this version cannot read as a record: never guessed at, never run, never overwritten.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use lambda_idempotency::{
    internal::{FinishOutcome, Report, Request},
    record::{Head, UnknownCause},
};

use crate::support::{
    guarded::{
        BODY, Guarded, Item, body_of, completed, fingerprints, item_key, owned, random, replayed, reported,
        request, written,
    },
    on_each_store,
};

on_each_store!(
    a_malformed_item_is_unreadable_and_never_runs,
    a_record_of_a_newer_schema_is_left_alone,
    a_completion_does_not_overwrite_what_it_cannot_read,
    unreadable_records_block_no_others,
    a_damaged_body_is_unreadable_and_a_missing_one_is_left_out,
    records_of_schema_1_are_read,
);

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
    let reports = [
        None,
        Some(completed("{}")),
        Some(Report::NotExecuted),
        Some(Report::PerhapsExecuted(UnknownCause::Panicked)),
    ];
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

// R16
async fn a_malformed_item_is_unreadable_and_never_runs(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    for (request, whole) in in_each_state(&guarded).await {
        let state = whole["state"].as_s().unwrap();
        // `reconcile_shard` is only for the index and is not read.
        for name in whole.keys().filter(|name| !matches!(name.as_str(), "pk" | "sk" | "reconcile_shard")) {
            let mut damaged = Vec::from([None, Some(AttributeValue::Bool(true)), Some(bytes([1, 2, 3]))]);
            if matches!(whole[name], AttributeValue::S(_)) {
                damaged.push(Some(text("nonsense")));
            }
            for damage in damaged {
                // The index accepts only a number there.
                if name == "reconcile_at" && damage.is_some() {
                    continue;
                }
                // Older records lack these.
                let notes = ["origin", "last_failure", "settled_note"].contains(&&**name);
                let later = ["asked", "began_at", "retention", "settled_by"].contains(&&**name);
                if (notes || later) && damage.is_none() {
                    continue;
                }
                // Any text is a valid note.
                if notes && damage == Some(text("nonsense")) {
                    continue;
                }
                // Three bytes are a valid body; that its length is wrong is tested below.
                if name == "body" && damage == Some(bytes([1, 2, 3])) {
                    continue;
                }
                let mut item = whole.clone();
                item.remove(name);
                item.extend(damage.clone().map(|damage| (name.clone(), damage)));
                guarded.write_raw(item.clone()).await;
                let reserved = executor.reserve(&request).await;
                assert_eq!(reported(&reserved), "unreadable", "{state}: {name} {damage:?}");
                assert_eq!(guarded.item(&request.key).await, Some(item));
            }
        }
    }
}

// T36, R16
async fn a_record_of_a_newer_schema_is_left_alone(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for (request, mut item) in in_each_state(&guarded).await {
        item.insert("schema".into(), number(2));
        item.insert("written_by_a_later_version".into(), AttributeValue::Bool(true));
        guarded.write_raw(item.clone()).await;
        assert_eq!(reported(&guarded.executor().reserve(&request).await), "unreadable");
        assert_eq!(guarded.item(&request.key).await, Some(item));
    }
}

// T36, R12
async fn a_completion_does_not_overwrite_what_it_cannot_read(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    let mut item = guarded.item(&request.key).await.unwrap();
    item.insert("schema".into(), number(2));
    item.insert("revision".into(), bytes([7; 16]));
    guarded.write_raw(item.clone()).await;

    let ended = guarded.clock.passing(executor.finish(ours, completed("{}"))).await;
    assert!(matches!(ended, FinishOutcome::Unwritten), "{ended:?}");
    assert_eq!(guarded.item(&request.key).await, Some(item));
}

// R16: they are not failures of the store, and do not open the breaker.
async fn unreadable_records_block_no_others(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, bad) = (guarded.executor(), request());
    guarded.write_raw(item_key(&bad.key)).await;
    for _ in 0..10 {
        assert_eq!(reported(&executor.reserve(&bad).await), "unreadable");
    }
    assert_eq!(reported(&executor.reserve(&request()).await), "owned");
}

// R13, R14
async fn a_damaged_body_is_unreadable_and_a_missing_one_is_left_out(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    let packed = "all work and no play ".repeat(100);
    for body in [b"{}".to_vec().into(), packed.into(), random(3000)] {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, completed(body)).await);
        assert_eq!(reported(&executor.reserve(&request).await), "replay");

        let holds_body = |item: &&Item| item.contains_key("body");
        let items = guarded.collection(&request.key).await;
        let whole = items.iter().find(holds_body).expect("the body is kept").clone();
        for damage in [&b"torn"[..], b""] {
            let mut item = whole.clone();
            item.insert("body".into(), bytes(damage));
            guarded.write_raw(item).await;
            assert_eq!(reported(&executor.reserve(&request).await), "unreadable", "{damage:?}");
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

// T36: the first layout. Later versions read it for as long as such records can exist.
async fn records_of_schema_1_are_read(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let now = guarded.now().as_millis();
    let item_of = |request: &Request, state: &str| {
        let print = fingerprints(BODY).current();
        let mut item = item_key(&request.key);
        item.extend(
            [
                ("schema", number(1)),
                ("state", text(state)),
                ("revision", bytes([1; 16])),
                ("attempt", bytes([2; 16])),
                ("attempts", number(1)),
                ("fingerprint", bytes(*print.digest())),
                ("fingerprint_rule", number(print.rule())),
                ("created_at", number(now)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        item
    };
    let far = AttributeValue::N((now / 1000 + 3600).to_string());
    let header = |name, value| AttributeValue::L(vec![text(name), text(value)]);
    let completed = [
        ("completed_at", number(now)),
        ("expires_at", far.clone()),
        ("status", number(402)),
        ("headers", AttributeValue::L(vec![header("content-type", "application/json")])),
        ("body", bytes(*b"{\"declined\":true}")),
        ("body_encoding", text("identity")),
        ("body_place", text("record")),
        ("body_length", number(17)),
    ];
    let cases = [
        ("pending", vec![], "in flight"),
        ("in_progress", vec![("lease_until", number(now + 1000))], "in flight"),
        ("completed", completed.to_vec(), "replay"),
        ("failed_retryable", vec![("failed_at", number(now)), ("expires_at", far)], "owned"),
        (
            "unknown",
            vec![("cause", text("lease_expired")), ("since", number(now)), ("reconcile_at", number(now))],
            "unknown",
        ),
    ];
    for (state, attributes, answer) in cases {
        let request = request();
        let mut item = item_of(&request, state);
        item.extend(attributes.into_iter().map(|(name, value)| (name.to_owned(), value)));
        guarded.write_raw(item).await;
        let reserved = guarded.executor().reserve(&request).await;
        assert_eq!(reported(&reserved), answer, "{state}");
        if answer == "replay" {
            let replay = replayed(reserved);
            let content_type = ("content-type".to_owned(), "application/json".to_owned());
            assert_eq!(replay.answer.head, Head::Http { status: 402, headers: vec![content_type] });
            assert_eq!(body_of(&replay).map(|body| &body[..]), Some(&b"{\"declined\":true}"[..]));
        }
    }
}
