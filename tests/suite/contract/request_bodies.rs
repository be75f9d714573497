//! Request bodies: which parts count for the fingerprint, and how large they may be.

use axum::{
    Json, Router,
    body::{Body, Bytes},
    http::{HeaderValue, Request},
    routing::post,
};
use futures_util::{StreamExt, stream};
use lambda_idempotency::{
    engine::Execution, fingerprint::FingerprintRule, http::IDEMPOTENCY_KEY, operation::Operation,
    store::memory::MemoryStore,
};
use macro_rules_attribute::apply;
use serde_json::Value;
use tower::{Layer, ServiceBuilder, service_fn};

use crate::support::{
    http::{Counter, Guard, PAY, api, dynamodb, guard, guard_of, order, pay, record, send, state},
    logs::Logs,
    on_each_store,
};

const MAX: usize = 6 * 1024 * 1024;

fn body(key: &str, body: impl Into<Body>) -> Request<Body> {
    order(key).body(body.into()).unwrap()
}

fn counted(guard: Guard) -> (Router, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let app = api(guard, move |_, body: Bytes| {
        counter.add();
        async move { body.len().to_string() }
    });
    (app, runs)
}

// T24
#[apply(on_each_store)]
async fn a_handler_that_changes_its_request_does_not_change_the_fingerprint(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let changes = |mut request: Request<Body>| {
        request.headers_mut().insert(IDEMPOTENCY_KEY, HeaderValue::from_static("other-key"));
        request.headers_mut().remove("content-type");
        *request.uri_mut() = "/elsewhere?a=b".parse().unwrap();
        *request.body_mut() = Body::from("something else");
        request
    };
    let handler = service_fn(|mut request: Request<Body>| async move {
        let execution = request.extensions().get::<Execution>().expect("an execution").clone();
        request.headers_mut().clear();
        request.extensions_mut().clear();
        drop(request);
        Ok::<_, std::convert::Infallible>(axum::http::Response::new(Body::from(
            execution.idempotency_key().as_str().to_owned(),
        )))
    });
    // A layer between guard and handler changes everything, and the handler discards the request.
    let app = guard(store.clone()).layer(ServiceBuilder::new().map_request(changes).service(handler));
    let first = send(&app, pay("order-1")).await;
    assert_eq!(first.body, "order-1");
    send(&app, pay("order-1")).await.assert_replay_of(&first);
    send(&app, body("order-1", "something else")).await.assert_problem(422, "key-reused");
    assert_eq!(record(&store, "other-key").await, None);
}

// T25
#[tokio::test]
async fn equivalent_json_is_one_request_and_different_numbers_are_another() {
    let cases = [
        (r#"{"id":9007199254740993}"#, r#"{"id":9007199254740992}"#, false),
        (r#"{"a":1,"b":[true,null]}"#, "{ \"b\" : [true, null],\n\"a\":1.0 }", true),
        (r#"{"a":1,"b":null}"#, r#"{"a":1}"#, false),
        (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false),
        (r#"{"a":1E400}"#, r#"{"a":1E401}"#, false),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, false),
        (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#, false),
        (r#"{"a":"\ud800"}"#, r#"{"a":"\ud801"}"#, false),
        (r#"{"a":"\u00e9"}"#, r#"{"a":"é"}"#, true),
        (r#"{"a":1"#, r#"{"a":1 "#, false),
        ("not json", "not JSON", false),
        ("", " ", false),
    ];
    for (sent, then, same) in cases {
        let (app, runs) = counted(guard(MemoryStore::new()));
        let first = send(&app, body("order-1", sent)).await;
        send(&app, body("order-1", sent)).await.assert_replay_of(&first);
        let retry = send(&app, body("order-1", then)).await;
        match same {
            true => retry.assert_replay_of(&first),
            false => retry.assert_problem(422, "key-reused"),
        }
        assert_eq!(runs.count(), 1, "{sent} and {then}");
    }
}

// T25
#[tokio::test]
async fn a_deep_body_is_accepted_and_distinguished_from_another() {
    let deep = |leaf: &str| format!("{}{leaf}{}", "[".repeat(200), "]".repeat(200));
    let (app, runs) = counted(guard(MemoryStore::new()));
    let first = send(&app, body("order-1", deep("1"))).await;
    assert_eq!(first.status, 200);
    send(&app, body("order-1", deep("1"))).await.assert_replay_of(&first);
    send(&app, body("order-1", deep("2"))).await.assert_problem(422, "key-reused");
    // A depth at which a recursive parser would crash the process.
    assert_eq!(send(&app, body("order-2", "[".repeat(1_000_000))).await.status, 200);
    assert_eq!(runs.count(), 2);
}

// T25
#[tokio::test]
async fn malformed_json_is_refused_by_the_handler_and_the_refusal_is_kept() {
    let store = MemoryStore::new();
    let handler = |_: Execution, Json(order): Json<Value>| async move { order.to_string() };
    let app = Router::new().route("/payments", post(handler).layer(guard(store.clone())));
    let first = send(&app, body("order-1", "{nonsense")).await;
    assert_eq!(first.status, 400);
    assert_eq!(state(&store, "order-1").await, "completed");
    send(&app, body("order-1", "{nonsense")).await.assert_replay_of(&first);
    send(&app, pay("order-1")).await.assert_problem(422, "key-reused");
}

#[tokio::test]
async fn a_6_mb_body_is_accepted_and_a_longer_one_never_runs() {
    let store = MemoryStore::new();
    let (app, runs) = counted(guard(store.clone()));
    for length in [1024 * 1024, MAX] {
        let key = format!("of-{length}");
        let first = send(&app, body(&key, vec![b'7'; length])).await;
        assert_eq!((first.status, &first.body[..]), (200, length.to_string().as_bytes()));
        send(&app, body(&key, vec![b'7'; length])).await.assert_replay_of(&first);
    }
    let streamed = stream::repeat(Bytes::from(vec![b'7'; 65_536])).map(Ok::<_, std::io::Error>);
    for (key, long) in [("long", Body::from(vec![b'7'; MAX + 1])), ("endless", Body::from_stream(streamed))] {
        send(&app, body(key, long)).await.assert_problem(413, "body-too-long");
        assert_eq!(record(&store, key).await, None);
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused_before_anything_is_done() {
    let store = MemoryStore::new();
    let (app, runs) = counted(guard(store.clone()));
    let half = stream::iter([Ok(Bytes::from_static(b"{"))]);
    let broken = half.chain(stream::iter([Err(std::io::Error::other("the client has gone"))]));
    send(&app, body("order-1", Body::from_stream(broken))).await.assert_problem(400, "body-unreadable");
    assert_eq!((record(&store, "order-1").await, runs.count()), (None, 0));
}

// T36
#[apply(on_each_store)]
async fn a_record_is_compared_by_the_rule_that_made_it(endpoint: &str) {
    let logs = Logs::capture();
    let store = dynamodb(endpoint).await;
    let (old, new) = (FingerprintRule::new(), FingerprintRule::new().leave_out("/sentAt"));
    let deployed = |operation: Operation| counted(guard_of(store.clone(), operation));
    let (before, _) = deployed(Operation::new(PAY).fingerprint(old.clone()));
    let (after, runs) = deployed(Operation::new(PAY).fingerprint(new.clone()).formerly(old));
    let (careless, careless_runs) = deployed(Operation::new(PAY).fingerprint(new));
    let sent_at = |time: u32| format!(r#"{{"amountCents":1999,"sentAt":{time}}}"#);

    let first = send(&before, body("older", sent_at(1))).await;
    send(&after, body("older", sent_at(1))).await.assert_replay_of(&first);
    send(&after, body("older", sent_at(2))).await.assert_problem(422, "key-reused");
    assert_eq!(runs.count(), 0);
    let first = send(&after, body("newer", sent_at(1))).await;
    send(&after, body("newer", sent_at(2))).await.assert_replay_of(&first);
    assert_eq!(runs.count(), 1);

    // A worker that does not know the rule runs nothing, and says so. This holds for a worker of the old version too.
    for (app, key) in [(&careless, "older"), (&before, "newer")] {
        let refused = send(app, body(key, sent_at(1))).await;
        refused.assert_problem(503, "record-unreadable");
        assert!(refused.header("retry-after").is_some());
        let hash = record(&store, key).await.unwrap().key.hash().to_string();
        assert!(logs.lines_with(&hash).iter().any(|line| line.level() == "ERROR"), "{key} is not logged");
    }
    assert_eq!(careless_runs.count(), 0);
}

/// A form with two fields, as a client sends it with this boundary.
fn form(key: &str, boundary: &str, amount: u32) -> Request<Body> {
    let field = |name: &str, value: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let form = field("customer", "c-1") + &field("amount", &amount.to_string());
    let mut request = body(key, format!("{form}--{boundary}--\r\n"));
    let content_type = format!("multipart/form-data; boundary={boundary}").parse().unwrap();
    request.headers_mut().insert("content-type", content_type);
    request
}

#[tokio::test]
async fn a_form_is_the_same_with_any_boundary() {
    let (app, runs) = counted(guard(MemoryStore::new()));
    let first = send(&app, form("order-1", "----WebKitFormBoundaryA1", 1)).await;
    send(&app, form("order-1", "----WebKitFormBoundaryB2", 1)).await.assert_replay_of(&first);
    send(&app, form("order-1", "----WebKitFormBoundaryA1", 2)).await.assert_problem(422, "key-reused");
    assert_eq!(runs.count(), 1);
}

fn urlencoded(key: &str, body: &'static [u8]) -> Request<Body> {
    let mut request = self::body(key, body);
    let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers_mut().insert("content-type", content_type);
    request
}

// T25
#[tokio::test]
async fn a_form_is_the_same_with_any_order_of_fields() {
    let (app, runs) = counted(guard(MemoryStore::new()));
    let first = send(&app, urlencoded("order-1", b"amount=1999&note=a+b")).await;
    send(&app, urlencoded("order-1", b"note=a%20b&amount=1999")).await.assert_replay_of(&first);
    for other in [
        &b"amount=1998&note=a+b"[..],
        b"amount=1999&note=a+b&note=c",
        b"amount=1999&note=a%2Bb",
        b"amount=1999&note=a%",
        b"amount=1999&note=\xff",
        b"",
    ] {
        send(&app, urlencoded("order-1", other)).await.assert_problem(422, "key-reused");
    }
    // A malformed body is accepted, and distinguished from another.
    let broken = send(&app, urlencoded("order-2", b"a=%zz&b=1")).await;
    send(&app, urlencoded("order-2", b"a=%zz&b=1")).await.assert_replay_of(&broken);
    for other in [&b"b=1&a=%zz"[..], b"a=%25zz&b=1", b"a=%ff&b=1"] {
        send(&app, urlencoded("order-2", other)).await.assert_problem(422, "key-reused");
    }
    assert_eq!(runs.count(), 2);
}

fn packed(time: u32, text: &str) -> Request<Body> {
    let mut packer = flate2::GzBuilder::new().mtime(time).write(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, text.as_bytes()).unwrap();
    let mut request = body("order-1", packer.finish().unwrap());
    request.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
    request
}

#[tokio::test]
async fn a_body_that_is_compressed_again_is_the_same() {
    let (app, runs) = counted(guard(MemoryStore::new()));
    let first = send(&app, packed(1, r#"{"a":1,"b":2}"#)).await;
    for same in [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#] {
        send(&app, packed(2, same)).await.assert_replay_of(&first);
    }
    send(&app, packed(1, r#"{"a":1,"b":3}"#)).await.assert_problem(422, "key-reused");
    let mut broken = packed(1, r#"{"a":1,"b":2}"#);
    *broken.body_mut() = Body::from("no gzip");
    send(&app, broken).await.assert_problem(422, "key-reused");
    assert_eq!(runs.count(), 1);
}

fn with(headers: &[(&'static str, &'static str)], body: &'static str) -> Request<Body> {
    let mut request = self::body("order-1", body);
    for (name, value) in headers {
        if *name == "content-type" {
            request.headers_mut().remove(*name);
        }
        request.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    request
}

#[tokio::test]
async fn one_body_of_two_media_types_is_two_requests() {
    let (app, runs) = counted(guard(MemoryStore::new()));
    let first = send(&app, with(&[("content-type", "application/json")], "{}")).await;
    let same = with(&[("content-type", "application/json; charset=utf-8")], "{}");
    send(&app, same).await.assert_replay_of(&first);
    for other in [
        "application/merge-patch+json",
        "application/json-patch+json",
        "text/json",
        "application/json; version=2",
    ] {
        send(&app, with(&[("content-type", other)], "{}")).await.assert_problem(422, "key-reused");
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_request_under_another_condition_is_another_request() {
    let (app, runs) = counted(guard(MemoryStore::new()));
    let first = send(&app, with(&[("if-match", "\"1\""), ("x-trace", "1")], "{}")).await;
    send(&app, with(&[("if-match", "\"1\""), ("x-trace", "2")], "{}")).await.assert_replay_of(&first);
    for other in [
        &[("if-match", "\"2\"")][..],
        &[],
        &[("if-match", "\"1\""), ("if-match", "\"2\"")],
        &[("if-match", "\"1\""), ("content-range", "bytes 0-1/2")],
        &[("if-none-match", "\"1\"")],
    ] {
        send(&app, with(other, "{}")).await.assert_problem(422, "key-reused");
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_header_that_an_api_declares_to_be_intent_counts() {
    let rule = FingerprintRule::new().header("api-version");
    let (app, runs) = counted(guard_of(MemoryStore::new(), Operation::new(PAY).fingerprint(rule)));
    let first = send(&app, with(&[("api-version", "1"), ("x-trace", "1")], "{}")).await;
    send(&app, with(&[("api-version", "1"), ("x-trace", "2")], "{}")).await.assert_replay_of(&first);
    for other in [with(&[("api-version", "2")], "{}"), with(&[], "{}")] {
        send(&app, other).await.assert_problem(422, "key-reused");
    }
    assert_eq!(runs.count(), 1);
}

// T36
#[tokio::test]
async fn a_custom_rule_replaces_a_former_one() {
    let store = MemoryStore::new();
    let deployed = |operation: Operation| counted(guard_of(store.clone(), operation));
    let sealed = || {
        // Only the order's number counts. The rest is encrypted anew for each try.
        FingerprintRule::custom(7, |content| {
            content.body.split(|byte| *byte == b':').next().unwrap().to_vec()
        })
    };
    let (before, _) = deployed(Operation::new(PAY));
    let (after, runs) = deployed(Operation::new(PAY).fingerprint(sealed()).formerly(FingerprintRule::new()));
    let first = send(&before, body("older", "1:x7")).await;
    send(&after, body("older", "1:x7")).await.assert_replay_of(&first);
    send(&after, body("older", "1:q9")).await.assert_problem(422, "key-reused");
    let first = send(&after, body("newer", "1:x7")).await;
    send(&after, body("newer", "1:q9")).await.assert_replay_of(&first);
    send(&after, body("newer", "2:x7")).await.assert_problem(422, "key-reused");
    assert_eq!(runs.count(), 1);
    send(&before, body("newer", "1:x7")).await.assert_problem(503, "record-unreadable");
}
