//! The index of unknown outcomes, beyond what every store promises: entries that other versions or other software wrote.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use lambda_idempotency::{
    engine::Report,
    key::RecordKey,
    record::Revision,
    store::{Survey, Unsettled as _},
    time::Timestamp,
};
use macro_rules_attribute::apply;
use sha2::{Digest, Sha256};

use crate::support::{
    guarded::{Guarded, Item, all_due, fresh, owned, request, written},
    logs::Logs,
    on_each_store,
};

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// An unknown outcome as this version writes it.
async fn unknown(guarded: &Guarded) -> (RecordKey, Item) {
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, Report::perhaps("handler_failed")).await);
    let item = guarded.item(&request.key).await.expect("a record");
    (request.key, item)
}

async fn place(guarded: &Guarded, item: &Item, shard: &str, reconcile_at: u64) {
    let mut item = item.clone();
    item.insert("reconcile_shard".to_owned(), text(shard));
    item.insert("reconcile_at".to_owned(), number(reconcile_at));
    let place = item["reconcile_place"].as_s().expect("a string");
    let (tenant, _) = place.split_once('#').expect("a tenant and a time");
    item.insert("reconcile_place".to_owned(), text(&format!("{tenant}#{reconcile_at:020}")));
    guarded.write_raw(item).await;
}

// They stay due for ever, and are always the longest overdue. They fill more than a page.
#[apply(on_each_store)]
async fn unreadable_keys_block_no_others(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (key, item) = unknown(&guarded).await;
    let now = guarded.now();
    place(&guarded, &item, "3", now.as_millis()).await;
    let foreign: Vec<_> = (0..60).map(|_| fresh::<Revision>().to_string()).collect();
    for (at, pk) in foreign.iter().enumerate() {
        let mut item = item.clone();
        item.insert("pk".to_owned(), text(pk));
        place(&guarded, &item, "3", at as u64).await;
    }
    let logs = Logs::capture();
    assert_eq!(all_due(&guarded.undisturbed_store(), now).await, [key]);
    for pk in [&foreign[0], &foreign[59]] {
        let hash: String = Sha256::digest(pk)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let lines = logs.lines_with(&hash);
        let [line] = &lines[..] else { panic!("each once: {lines:?}") };
        assert!(line.text.contains("a key in the table cannot be read") && !line.text.contains(pk));
    }
}

// T50
#[apply(on_each_store)]
async fn a_survey_counts_all_and_reports_if_more_exist(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let store = guarded.undisturbed_store();
    let survey = async || store.survey().await.expect("the store answers");
    assert_eq!(survey().await, Survey::NOTHING);

    let (first, item) = unknown(&guarded).await;
    let since = guarded.now();
    guarded.clock.advance(std::time::Duration::from_secs(60));
    unknown(&guarded).await;
    let seen = survey().await;
    assert_eq!((seen.unknown, seen.escalated, seen.oldest, seen.whole), (2, 0, Some(since), true));
    place(&guarded, &item, "escalated-0", u64::MAX).await;
    let seen = survey().await;
    assert_eq!((seen.unknown, seen.escalated, seen.oldest, seen.whole), (2, 1, Some(since), true));

    // Its age cannot be read, so it may be older than the oldest readable one.
    let mut damaged = item.clone();
    damaged.insert("since".to_owned(), text("long ago"));
    place(&guarded, &damaged, "escalated-0", u64::MAX).await;
    let seen = survey().await;
    assert_eq!((seen.unknown, seen.whole), (2, false));
    guarded.delete(&first).await;
    assert!(survey().await.whole);

    // More than one page of a partition.
    for large in 0..5 {
        let mut item = item.clone();
        item.insert("pk".to_owned(), text(&format!("a#b#{large}")));
        item.insert("padding".to_owned(), AttributeValue::B(Blob::new(vec![0; 300_000])));
        place(&guarded, &item, "escalated-7", Timestamp::MAX.as_millis()).await;
    }
    let seen = survey().await;
    assert!(!seen.whole && seen.escalated < 5 && seen.escalated > 0, "{seen:?}");

    // T60: nor does a tenant that fills pages hide the others, whose places come after its.
    let long_ago = since.minus(std::time::Duration::from_secs(86_400));
    let mut other = item.clone();
    other.insert("pk".to_owned(), text("other#b#1"));
    other.insert("since".to_owned(), number(long_ago.as_millis()));
    other.insert("reconcile_place".to_owned(), text("zz#"));
    place(&guarded, &other, "escalated-7", Timestamp::MAX.as_millis()).await;
    let seen = survey().await;
    assert_eq!((seen.oldest, seen.whole), (Some(long_ago), false), "{seen:?}");
}
