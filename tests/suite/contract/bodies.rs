//! Response bodies of every size. The effect is always recorded as completed, and a kept body is replayed unchanged.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use lambda_idempotency::{
    engine::{Executor, Replay, Report, Request},
    operation::Operation,
    record::{Answer, State},
};
use macro_rules_attribute::apply;

use crate::support::{
    clock::in_time,
    faults::{Fault, Late},
    guarded::{
        Guarded, body_of, completed, operation, outcome_of, owned, random, record_key, replayed, request,
        written,
    },
    meter::size,
    on_each_store,
};

/// The bytes that one write capacity unit covers.
const CAPACITY_UNIT: usize = 1024;

/// Text that compresses well, as JSON does.
fn json(length: usize) -> Bytes {
    let line = r#"{"id":"pay_2f1c9a7e4b","amountCents":1999,"currency":"EUR","status":"captured"},"#;
    line.bytes().cycle().take(length).collect::<Vec<_>>().into()
}

/// Runs the operation to its end with this body, and returns what a duplicate gets.
pub async fn replay_of(executor: &Executor, request: &Request, body: &Bytes) -> Replay {
    let ours = owned(executor.reserve(request).await);
    written(executor.finish(ours, completed(body.clone())).await);
    replayed(executor.reserve(request).await)
}

/// Where the body of a completed request was kept.
pub async fn place(guarded: &Guarded, request: &Request) -> &'static str {
    let record = guarded.record(&request.key).await.expect("a record");
    let State::Completed { answer, .. } = &record.state else { panic!("{record:?}") };
    let item = guarded.item(&request.key).await.expect("an item");
    let packed = item.get("body_encoding").is_some_and(|encoding| encoding.as_s().unwrap() == "zlib");
    match (answer.body_place(), packed) {
        ("record", false) => "inline",
        ("record", true) => "inline, packed",
        ("body_item", true) => "body item, packed",
        (place, _) => place,
    }
}

// T16
#[apply(on_each_store)]
async fn a_body_is_replayed_byte_for_byte_or_left_out(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor();
    let mebibyte = 1024 * 1024;
    for (body, expected) in [
        (Bytes::new(), "inline"),
        (random(100), "inline"),
        (json(100), "inline"),
        (json(20_000), "inline, packed"),
        (random(1_000), "body_item"),
        (random(20_000), "body_item"),
        (json(300_000), "body item, packed"),
        (random(300_000), "body_item"),
        (random(390_000), "body_item"),
        (random(405_999), "body_item"),
        (random(406_000), "body_item"),
        (random(406_001), "omitted"),
        (random(409_600), "omitted"),
        (random(410_000), "omitted"),
        (json(mebibyte), "body item, packed"),
        (random(mebibyte), "omitted"),
        (random(5 * mebibyte), "omitted"),
    ] {
        let request = request();
        let replay = replay_of(&executor, &request, &body).await;
        let length = body.len();
        assert_eq!(place(&guarded, &request).await, expected, "{length} bytes");
        let kept = (expected != "omitted").then_some(body);
        assert!(body_of(&replay) == kept.as_ref(), "{length} bytes came back as others");
        assert_eq!(replay.answer.head.status(), Some(201));
        let item = guarded.item(&request.key).await.unwrap();
        assert!(size(&item) <= CAPACITY_UNIT, "{length} bytes make a record of {}", size(&item));
        assert_eq!(item["body_length"], AttributeValue::N(length.to_string()));
    }
}

// T16: an item's size limit includes its key and every attribute's name.
#[apply(on_each_store)]
async fn the_longest_key_leaves_capacity_for_the_largest_body(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let mut request = request();
    request.key = record_key(&"#".repeat(255), &"\u{1f511}".repeat(255));
    let body = random(406_000);
    let replay = replay_of(&guarded.executor(), &request, &body).await;
    assert_eq!(place(&guarded, &request).await, "body_item");
    assert!(body_of(&replay) == Some(&body));
}

#[apply(on_each_store)]
async fn the_body_is_written_before_the_record_names_it_and_lives_longer(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request, late) = (guarded.executor(), request(), Late::timing_out());
    let ours = owned(executor.reserve(&request).await);
    guarded.faults.script("PutItem", [Fault::Pass, late.fault(), late.fault(), late.fault()]);
    let report = async {
        written(guarded.clock.passing(executor.finish(ours, completed(random(20_000)))).await);
    };
    let meanwhile = async {
        late.held(1).await;
        let items = guarded.collection(&request.key).await;
        assert!(items.iter().any(|item| item.contains_key("body")), "the body first");
    };
    tokio::join!(report, meanwhile);
    assert_eq!(guarded.faults.left(), 0);

    let items = guarded.collection(&request.key).await;
    let expiry = |has_body: bool| {
        let item = items.iter().find(|item| item.contains_key("body") == has_body).expect("two items");
        item["expires_at"].as_n().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(items.len(), 2);
    assert!(expiry(true) >= expiry(false) + 3600, "a body must not be deleted before its record");
    assert_eq!(outcome_of(&executor.reserve(&request).await), "replay");
}

// T16
#[apply(on_each_store)]
async fn a_body_that_the_store_refuses_is_left_out(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    guarded.faults.script("PutItem", [Fault::AccessDenied]);
    written(executor.finish(ours, completed(random(20_000))).await);
    assert_eq!((guarded.faults.sent("PutItem"), guarded.faults.left()), (2, 0));
    let replay = replayed(executor.reserve(&request).await);
    let left_out = (place(&guarded, &request).await, body_of(&replay), replay.answer.head.status());
    assert_eq!(left_out, ("omitted", None, Some(201)));
}

// T16
#[apply(on_each_store)]
async fn a_body_the_store_keeps_rejecting_is_abandoned_before_the_record_suffers(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    // Exactly as many tries as fit into half of the operation's completion timeout. With one fault fewer the body would be kept.
    guarded.faults.script("PutItem", vec![Fault::Status(500); 10]);
    written(guarded.clock.passing(executor.finish(ours, completed(random(20_000)))).await);
    assert_eq!((guarded.faults.sent("PutItem"), guarded.faults.left()), (2, 0));
    assert_eq!(body_of(&replayed(executor.reserve(&request).await)), None);
    assert_eq!(place(&guarded, &request).await, "omitted");
}

// T16: the record matters more than its body.
#[apply(on_each_store)]
async fn a_body_that_hangs_is_left_out_in_time_for_the_record(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    // Half of the time left after the answer's 300 ms. If none is left, a little.
    for (left, waited) in [(2300, 1000), (200, 100)] {
        let (left, waited) = (Duration::from_millis(left), Duration::from_millis(waited));
        let (executor, mut request, late) = (guarded.executor(), request(), Late::hanging());
        request.deadline = Some(guarded.now().plus(left));
        let ours = owned(executor.reserve(&request).await);
        guarded.faults.script("PutItem", [late.fault()]);
        let time_passes = async {
            late.held(1).await;
            guarded.clock.advance(waited);
        };
        let report = executor.finish(ours, completed(random(20_000)));
        written(in_time(async { tokio::join!(report, time_passes).0 }).await);
        assert_eq!(body_of(&replayed(executor.reserve(&request).await)), None);
        assert_eq!(place(&guarded, &request).await, "omitted");
    }
}

// T16: more headers than any front delivers or a record can hold.
#[apply(on_each_store)]
async fn headers_that_no_record_can_hold_are_left_out(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor_of(operation().keep_header("x-large"));
    for (length, kept) in [(8 * 1024, 1), (60 * 1024, 1), (70 * 1024, 0), (500 * 1024, 0)] {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        let headers = vec![("x-large".to_owned(), "x".repeat(length))];
        let report = Report::Completed(Answer::http(201, headers, "{}"));
        written(guarded.clock.passing(executor.finish(ours, report)).await);
        let replay = replayed(executor.reserve(&request).await);
        let head = &replay.answer.head;
        assert_eq!((head.status(), head.headers().len()), (Some(201), kept));
        assert_eq!(body_of(&replay).map(|body| &body[..]), Some(&b"{}"[..]));
    }
}

// T2
#[apply(on_each_store)]
async fn a_body_whose_answer_was_lost_is_kept_once(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(2)).await;
    let (executor, request, body) = (guarded.executor(), request(), random(20_000));
    let ours = owned(executor.reserve(&request).await);
    guarded.faults.script("PutItem", vec![Fault::DropAnswer; 5]);
    written(guarded.clock.passing(executor.finish(ours, completed(body.clone()))).await);
    assert_eq!(guarded.faults.left(), 0);
    assert!(body_of(&replayed(executor.reserve(&request).await)) == Some(&body));
    assert_eq!(guarded.collection(&request.key).await.len(), 2);
}

#[apply(on_each_store)]
async fn status_and_headers_are_replayed_unchanged(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let executor = guarded.executor_of(
        ["x-empty", "x-text", "x-header", "retry-after"]
            .into_iter()
            .fold(operation(), Operation::keep_header),
    );
    let many: Vec<_> = (0..200).map(|i| ("x-header".to_owned(), format!("{i}").repeat(20))).collect();
    for (status, headers) in [
        (204, vec![]),
        (402, vec![("link".to_owned(), "<a>".to_owned()), ("link".to_owned(), "<b>".to_owned())]),
        (
            201,
            vec![("x-empty".to_owned(), String::new()), ("x-text".to_owned(), "\u{fc}\u{1f4b6}".to_owned())],
        ),
        (200, many),
        (503, vec![("retry-after".to_owned(), "1".to_owned())]),
    ] {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        let body = Bytes::from_static(b"\0\xff");
        let report = Report::Completed(Answer::http(status, headers.clone(), body.clone()));
        written(executor.finish(ours, report).await);
        let replay = replayed(executor.reserve(&request).await);
        assert_eq!((replay.answer.head.status(), replay.answer.head.headers()), (Some(status), &headers[..]));
        assert_eq!(body_of(&replay), Some(&body));
    }
}
