//! What the queue sees of one message: the table in the module's documentation, row by row.

use std::time::Duration;

use lambda_idempotency::{
    Failure,
    event::{Consumer, KeyFrom, MemorySource},
};
use macro_rules_attribute::apply;
use serde_json::Value;

use super::{consumer, guard, parcel, parcel_that, queue, record_key, ships};
use crate::support::{
    clock::in_time,
    faults::{ANY, Fault},
    guarded::{GRACE, Guarded, LEASE},
    http::{Counter, Gate},
    messages::{deliver, message, received},
    on_each_store,
};

/// Until when the one message that was handed back is hidden.
#[track_caller]
fn hidden(queue: &MemorySource) -> Duration {
    let hidden = queue.take_hidden();
    let [(receipt, after)] = &hidden[..] else { panic!("{hidden:?}") };
    assert_eq!(receipt, "receipt of m-1");
    *after
}

const HANDED_BACK: [&str; 1] = ["m-1"];

#[apply(on_each_store)]
async fn a_message_that_comes_ten_times_runs_once(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    for times in 1..=10 {
        let message = received(&format!("m-{times}"), parcel("p-1"), times);
        assert!(deliver(&consumer, &[message]).await.expect("an answer").is_empty());
    }
    assert_eq!(runs.count(), 1);
    assert!(queue.take_dead().is_empty() && queue.take_hidden().is_empty());
}

// T31: SQS deletes what is acknowledged.
#[apply(on_each_store)]
async fn no_message_is_acknowledged_before_its_record_is_completed(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    let messages = [message("m-1", parcel("p-1"))];
    let handed_back = guarded.ends_written(2, deliver(&consumer, &messages)).await;
    assert!(handed_back.expect("an answer").is_empty());
    let record = guarded.record(&record_key(&["p-1"])).await.expect("a record");
    assert_eq!((record.state.name(), runs.count()), ("completed", 1));
}

// T78: its environment was frozen, and all that it runs at once with it.
#[apply(on_each_store)]
async fn a_message_whose_function_stood_still_past_its_lease_is_held(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let (gate, effects) = (Gate::closed(), Counter::default());
    let (held, counted) = (gate.clone(), effects.clone());
    let function = move |_, _: Value| {
        let (held, counted) = (held.clone(), counted.clone());
        async move {
            held.pass().await;
            counted.add();
            Ok::<_, Failure>(())
        }
    };
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), function);
    let messages = [message("m-1", parcel("p-1"))];
    let mut batch = Box::pin(deliver(&consumer, &messages));
    tokio::select! {
        _ = &mut batch => panic!("the gate is closed"),
        () = gate.reached(1) => {}
    }
    guarded.clock.advance(LEASE);
    gate.open();
    assert_eq!(batch.await.expect("an answer"), HANDED_BACK);
    let record = guarded.record(&record_key(&["p-1"])).await.expect("a record");
    assert_eq!((record.state.name(), effects.count(), queue.take_dead().len()), ("unknown", 0, 0));
    hidden(&queue);
}

#[apply(on_each_store)]
async fn a_message_that_did_nothing_comes_again_later_each_time(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).max_attempts(4).each(guard(&guarded), ships(&runs));
    for (times, seconds) in [(1, 1), (2, 2), (3, 4)] {
        let message = received("m-1", parcel_that("p-1", "nothing"), times);
        assert_eq!(deliver(&consumer, &[message]).await.expect("an answer"), HANDED_BACK);
        assert_eq!(hidden(&queue), Duration::from_secs(seconds));
    }
    // Its attempts are counted, not its receives.
    let last = received("m-1", parcel_that("p-1", "nothing"), 40);
    assert!(deliver(&consumer, &[last]).await.expect("an answer").is_empty());
    let dead = queue.take_dead();
    assert_eq!((dead.len(), &*dead[0].reason, runs.count()), (1, "it was tried 4 times: no connection", 4));
    // Sent back from there, it is tried once more.
    let redriven = message("m-2", parcel_that("p-1", "nothing"));
    assert!(deliver(&consumer, &[redriven]).await.expect("an answer").is_empty());
    assert_eq!((queue.take_dead().len(), runs.count()), (1, 5));
}

// T17: the table was slow, and no function ran.
#[apply(on_each_store)]
async fn a_reservation_that_is_taken_back_buries_no_message(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (queue, runs) = (queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).max_attempts(2).each(guard(&guarded), ships(&runs));
    let key = record_key(&["p-1"]);
    for times in 1..=3 {
        if times < 3 {
            // It is applied, and its answer is lost.
            guarded.faults.script("PutItem", [Fault::DropAnswer]);
        }
        let message = received("m-1", parcel_that("p-1", "nothing"), times);
        let tried = async {
            assert_eq!(deliver(&consumer, &[message]).await.expect("an answer"), HANDED_BACK);
            while guarded.record(&key).await.is_some_and(|record| record.state.name() == "in_progress") {}
        };
        in_time(guarded.clock.passing(tried)).await;
    }
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
}

#[apply(on_each_store)]
async fn a_refused_message_is_dead_with_the_reason(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    // The second time, its process had died before the first dead letter was sent.
    for _ in 0..2 {
        let message = message("m-1", parcel_that("p-1", "refuses"));
        assert!(deliver(&consumer, &[message]).await.expect("an answer").is_empty());
        let dead = queue.take_dead();
        assert_eq!((dead.len(), &*dead[0].reason), (1, "no such address"));
        assert_eq!(dead[0].body, parcel_that("p-1", "refuses").to_string());
    }
    assert_eq!(runs.count(), 1);
}

// T1: an acknowledged message would be lost if nothing was done.
#[apply(on_each_store)]
async fn a_message_with_an_unknown_outcome_is_held(endpoint: &str) {
    for does in ["fails", "panics"] {
        let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
        let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
        for times in 1..=3 {
            let message = received("m-1", parcel_that("p-1", does), times);
            assert_eq!(deliver(&consumer, &[message]).await.expect("an answer"), HANDED_BACK);
            assert!(hidden(&queue) >= Duration::from_secs(60), "{does}");
        }
        let record = guarded.record(&record_key(&["p-1"])).await.expect("a record");
        assert_eq!((record.state.name(), runs.count()), ("unknown", 1));
    }
}

// T67
#[apply(on_each_store)]
async fn a_message_in_flight_comes_again_after_the_lease(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let body = parcel("p-1");
    let dying = guard(&guarded);
    let died = dying.run(&["p-1"], body.clone(), async |_, _: Value| -> Result<String, Failure> {
        std::future::pending().await
    });
    let mut died = Box::pin(died);
    let reserved = in_time(async {
        while guarded.record(&record_key(&["p-1"])).await.is_none() {
            tokio::task::yield_now().await;
        }
    });
    tokio::select! {
        _ = &mut died => panic!("it never ends"),
        () = reserved => {}
    }
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    assert_eq!(deliver(&consumer, &[message("m-1", &body)]).await.expect("an answer"), HANDED_BACK);
    let after = hidden(&queue);
    assert_eq!(after, LEASE + GRACE + Duration::from_secs(2));
    // One receive later its worker is found dead.
    guarded.clock.advance(after);
    assert_eq!(deliver(&consumer, &[received("m-1", &body, 2)]).await.expect("an answer"), HANDED_BACK);
    let record = guarded.record(&record_key(&["p-1"])).await.expect("a record");
    assert_eq!((record.state.name(), runs.count()), ("unknown", 0));
}

// A later version of the function returns another type. A queue needs no result.
#[apply(on_each_store)]
async fn a_completed_message_is_acknowledged_whatever_its_result(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let now = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    assert!(deliver(&now, &[message("m-1", parcel("p-1"))]).await.expect("an answer").is_empty());
    let later = consumer(&guarded, &queue)
        .each(guard(&guarded), async |_, _: Value| -> Result<u64, Failure> { panic!("it ran") });
    assert!(deliver(&later, &[message("m-1", parcel("p-1"))]).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
}

#[apply(on_each_store)]
async fn another_message_under_the_same_key_is_dead(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    let (first, other) =
        (parcel("p-1"), serde_json::json!({ "id": "p-1", "does": "ships", "to": "elsewhere" }));
    for body in [first, other] {
        assert!(deliver(&consumer, &[message("m-1", body)]).await.expect("an answer").is_empty());
    }
    let dead = queue.take_dead();
    assert_eq!((dead.len(), &*dead[0].reason, runs.count()), (1, "the key was used for another input", 1));
}

// Proxies add members, and producers write the time of each send.
#[apply(on_each_store)]
async fn a_cloud_event_is_another_if_what_it_says_is(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = Consumer::new(queue.clone(), KeyFrom::cloud_event()).each(guard(&guarded), ships(&runs));
    let mut event = serde_json::json!({
        "specversion": "1.0", "id": "e-1", "source": "/shop", "type": "ordered", "does": "ships", "time": "2026-01-01T00:00:00Z",
        "data": { "cents": 10 }
    });
    assert!(deliver(&consumer, &[message("m-1", &event)]).await.expect("an answer").is_empty());
    event["time"] = "2026-01-01T00:05:00Z".into();
    event["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into();
    assert!(deliver(&consumer, &[message("m-2", &event)]).await.expect("an answer").is_empty());
    assert_eq!((runs.count(), queue.take_dead().len()), (1, 0));
    for (member, value) in [
        ("type", serde_json::json!("cancelled")),
        ("subject", serde_json::json!("o-2")),
        ("data", serde_json::json!({ "cents": 11 })),
        ("data_base64", serde_json::json!("AAAA")),
        // It is no CloudEvent then.
        ("specversion", serde_json::json!(1)),
        ("source", serde_json::Value::Null),
    ] {
        let mut other = event.clone();
        other[member] = value;
        assert!(deliver(&consumer, &[message("m-3", &other)]).await.expect("an answer").is_empty());
        assert_eq!((runs.count(), queue.take_dead().len()), (1, 1), "{member}");
    }
}

// Two credits that say the same are two.
#[apply(on_each_store)]
async fn another_event_under_one_key_is_dead_whatever_it_says(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer =
        Consumer::new(queue.clone(), KeyFrom::body("/data/id")).each(guard(&guarded), ships(&runs));
    let event = |id: &str, source: &str| {
        serde_json::json!({
            "specversion": "1.0", "id": id, "source": source, "type": "credited", "does": "ships", "data": { "id": "o-1" }
        })
    };
    for (id, source, dead) in [("e-1", "/a", 0), ("e-1", "/a", 0), ("e-2", "/a", 1), ("e-1", "/b", 1)] {
        let messages = [message("m-1", event(id, source))];
        assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
        assert_eq!((runs.count(), queue.take_dead().len()), (1, dead), "{id} of {source}");
    }
}

#[apply(on_each_store)]
async fn an_array_is_no_cloud_event(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, queue());
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/6"))
        .each(guard(&guarded), async |_, _: Value| -> Result<(), Failure> { Ok(()) });
    for (first, dead) in [("EUR", 0), ("USD", 1)] {
        let body = serde_json::json!([first, "alice", "bob", 100, null, null, "k-1"]);
        assert!(deliver(&consumer, &[message("m-1", body)]).await.expect("an answer").is_empty());
        assert_eq!(queue.take_dead().len(), dead, "{first}");
    }
}

#[apply(on_each_store)]
async fn while_the_store_is_away_messages_are_handed_back(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    // So often that it would be dead if that counted.
    let consumer = consumer(&guarded, &queue).max_attempts(1).each(guard(&guarded), ships(&runs));
    guarded.faults.for_all(ANY, Fault::DropRequest);
    for times in 1..=3 {
        let messages = [received("m-1", parcel("p-1"), times)];
        let delivered = deliver(&consumer, &messages);
        assert_eq!(guarded.clock.passing(delivered).await.expect("an answer"), HANDED_BACK);
    }
    guarded.faults.clear();
    assert_eq!((runs.count(), queue.take_hidden().len(), queue.take_dead().len()), (0, 3, 0));
}

#[apply(on_each_store)]
async fn a_record_that_cannot_be_read_is_never_run_over(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    assert!(deliver(&consumer, &[message("m-1", parcel("p-1"))]).await.expect("an answer").is_empty());
    let mut item = guarded.item(&record_key(&["p-1"])).await.expect("an item");
    item.insert("schema".into(), aws_sdk_dynamodb::types::AttributeValue::N("99".into()));
    guarded.write_raw(item).await;
    assert!(deliver(&consumer, &[message("m-1", parcel("p-1"))]).await.expect("an answer").is_empty());
    let dead = queue.take_dead();
    assert_eq!((dead.len(), runs.count()), (1, 1));
    assert_eq!(dead[0].reason, "the record cannot be read");
}
