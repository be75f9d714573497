//! What is kept of an answer, and what a replay returns.

use std::{sync::Arc, time::Duration};

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::IntoResponse,
};
use lambda_idempotency::{
    engine::{Execution, Executor},
    http::SAFE_HEADERS,
    operation::Operation,
    record::Head,
    store::{Store, memory::MemoryStore},
    time::Timestamp,
    time_budget::CLOCK_SKEW,
    world::World,
};
use macro_rules_attribute::apply;

use crate::support::{
    guarded::{completed, operation, owned, random, replayed, request, written},
    http::{
        Counter, PAY, api, clock, dynamodb, execution, guard, guard_of, order, pay, send, state, until_state,
    },
    on_each_store,
};

// T31
#[apply(on_each_store)]
async fn answers_of_2xx_and_4xx_are_kept_and_replayed_byte_for_byte(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let runs = Counter::default();
    let counter = runs.clone();
    let app = api(guard(store.clone()), move |parts, _| {
        let run = counter.add();
        let status = StatusCode::from_bytes(parts.headers["x-status"].as_bytes()).unwrap();
        let mut body: Vec<u8> = (0..=255).cycle().take(run * 700).collect();
        body.extend(b"\r\n\0{\"spaces\" : 1}");
        async move { (status, [("content-type", "application/octet-stream")], body) }
    });
    for (number, status) in ["200", "201", "204", "302", "400", "402", "404", "422", "499"].iter().enumerate()
    {
        let request = || order(status).header("x-status", *status).body("{}".into()).unwrap();
        let first = send(&app, request()).await;
        assert_eq!(first.status.to_string(), *status);
        assert_eq!(state(&store, status).await, "completed");
        for _ in 0..2 {
            send(&app, request()).await.assert_replay_of(&first);
        }
        assert_eq!(runs.count(), number + 1);
    }
}

const KEPT: [(&str, &str); 21] = [
    ("content-type", "text/plain"),
    ("link", "</1>; rel=\"next\""),
    ("link", "</0>; rel=\"prev\""),
    ("link", "</9>; rel=\"last\""),
    ("location", "/payments/1"),
    ("etag", "\"1\""),
    ("content-language", "de"),
    ("content-range", "bytes 0-3/10"),
    ("accept", "application/json"),
    ("accept-patch", "application/merge-patch+json"),
    ("accept-post", "application/json"),
    ("preference-applied", "return=minimal"),
    ("x-lambda-http-content-encoding", "text"),
    ("vary", "accept"),
    ("x-payment-id", "1"),
    ("allow", "POST"),
    ("content-security-policy", "script-src 'nonce-1'"),
    ("content-digest", "sha-256=:1:"),
    ("repr-digest", "sha-256=:1:"),
    ("x-content-type-options", "nosniff"),
    ("idempotent-replayed-body", "omitted"),
];

const NOT_KEPT: [(&str, &str); 17] = [
    ("set-cookie", "session=1"),
    ("set-cookie", "other=2"),
    ("authorization", "Bearer secret"),
    ("date", "Sat, 21 Nov 2026 10:00:00 GMT"),
    ("connection", "close"),
    ("keep-alive", "timeout=5"),
    ("proxy-authenticate", "Basic"),
    ("www-authenticate", "Basic"),
    ("te", "trailers"),
    ("upgrade", "h2c"),
    ("x-request-id", "r-1"),
    ("x-amzn-trace-id", "Root=1"),
    ("access-control-allow-origin", "https://shop.example"),
    ("age", "9"),
    ("retry-after", "9"),
    ("strict-transport-security", "max-age=1"),
    ("idempotency-key", "forged"),
];

// T26
#[apply(on_each_store)]
async fn safe_headers_are_replayed_in_order_and_no_others(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let guard = guard_of(store, Operation::new(PAY).keep_header("X-Payment-Id"));
    let app = api(guard, |_, _| async {
        let mut headers = HeaderMap::new();
        let forged =
            [("idempotent-replayed", "true"), ("idempotency-expires", "Sat, 21 Nov 2026 10:00:00 GMT")];
        let others = [("trailer", "expires"), ("cache-control", "max-age=600")];
        for (name, value) in KEPT.into_iter().chain(NOT_KEPT).chain(forged).chain(others) {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        (headers, "paid").into_response()
    });
    let first = send(&app, pay("order-1")).await;
    for (name, _) in NOT_KEPT {
        assert!(first.headers.contains_key(name), "the first answer is the handler's own: {name}");
    }
    assert_eq!(first.headers.get("idempotent-replayed"), None, "the first answer is no replay");
    assert_eq!(first.headers.get("trailer"), None, "the body is sent without trailers");
    assert_ne!(first.header("idempotency-expires"), Some("Sat, 21 Nov 2026 10:00:00 GMT"));
    assert_eq!(first.headers.get_all("idempotency-expires").iter().count(), 1);
    let replay = send(&app, pay("order-1")).await;
    for (name, _) in KEPT {
        let values = |headers: &HeaderMap| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(values(&replay.headers), values(&first.headers), "{name}");
    }
    assert!(replay.replayed());
    let names: Vec<_> = replay.headers.keys().map(HeaderName::as_str).collect();
    for name in names {
        let about_it = [
            "idempotent-replayed",
            "idempotency-expires",
            "idempotency-retention",
            "content-length",
            "cache-control",
        ]
        .contains(&name);
        assert!(about_it || KEPT.iter().any(|(kept, _)| *kept == name), "{name} is replayed");
    }
}

// T82: a cache would store the answer of a PATCH as a fresh one of its `Content-Location` (RFC 5789, section 2).
#[apply(on_each_store)]
async fn a_replay_is_not_stored_by_caches(endpoint: &str) {
    let headers = [("cache-control", "max-age=600"), ("content-location", "/doc/1"), ("etag", "\"2\"")];
    for body in ["changed", ""] {
        let app = api(guard(dynamodb(endpoint).await), move |_, _| async move { (headers, body) });
        let (first, replay) = (send(&app, pay("order-1")).await, send(&app, pay("order-1")).await);
        replay.assert_replay_of(&first);
        assert_eq!(first.header("cache-control"), Some("max-age=600"), "the first answer is fresh");
        let lines = replay.headers.get_all("cache-control").iter();
        assert!(lines.eq(["no-store"]), "{replay:?}");
        assert_eq!(replay.header("etag"), Some("\"2\""));
    }
}

// T26: an answer that is not kept has no expiry, even if the handler sets the header.
#[tokio::test]
async fn an_answer_that_is_not_kept_has_no_expiry() {
    let app = api(guard(MemoryStore::new()), |_, _| async {
        let headers =
            [("idempotency-expires", "Sat, 21 Nov 2026 10:00:00 GMT"), ("idempotent-replayed", "true")];
        (axum::Extension(lambda_idempotency::http::Outcome::PerhapsExecuted), headers)
    });
    let first = send(&app, pay("order-1")).await;
    assert!(!first.replayed() && first.headers.get("idempotency-expires").is_none(), "{first:?}");
}

// T26
#[test]
fn no_configuration_makes_a_header_kept_that_must_not_be_replayed() {
    for name in [
        "Set-Cookie",
        "Cache-Control",
        "authorization",
        "date",
        "connection",
        "transfer-encoding",
        "content-length",
        "no name",
    ] {
        let kept = std::panic::catch_unwind(|| {
            drop(Operation::new(PAY).keep_header(name));
        });
        assert!(kept.is_err(), "{name}");
    }
    for (name, _) in NOT_KEPT {
        assert!(SAFE_HEADERS.iter().all(|safe| *safe != name), "{name} is listed as safe");
    }
}

// T27
#[apply(on_each_store)]
async fn a_caller_that_changes_a_replay_changes_no_later_one(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let app = api(guard(store), |_, _| async { ([("location", "/payments/1")], vec![b'a'; 2000]) });
    let first = send(&app, pay("order-1")).await;
    for _ in 0..2 {
        let mut replay = send(&app, pay("order-1")).await;
        replay.assert_replay_of(&first);
        replay.headers.insert("location", HeaderValue::from_static("/elsewhere"));
        let mut body = replay.body.try_into_mut().unwrap_or_else(|shared| shared[..].into());
        body.fill(b'z');
    }
    send(&app, pay("order-1")).await.assert_replay_of(&first);
}

// T27: an in-memory store could share its buffers with callers.
#[tokio::test]
async fn changing_a_returned_record_changes_nothing_in_a_memory_store() {
    let store = MemoryStore::new();
    let executor = Executor::new(store.clone(), operation()).world(clock());
    for length in [10, 20_000] {
        let (request, body) = (request(), random(length));
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, completed(body.clone())).await);
        let kept = store.load(&request.key).await.unwrap().unwrap();
        for _ in 0..2 {
            let replay = replayed(executor.reserve(&request).await);
            assert!(replay.answer.body == body);
            let Head::Http { mut headers, .. } = replay.answer.head else { panic!("an HTTP answer") };
            Arc::make_mut(&mut headers).iter_mut().for_each(|(_, value)| value.push('z'));
            // Changed in place if the buffer is not shared, as a careless caller would do.
            let mut changed = replay.answer.body.try_into_mut().unwrap_or_else(|shared| shared[..].into());
            changed.fill(b'z');
            assert_eq!(store.load(&request.key).await.unwrap().as_ref(), Some(&kept));
        }
    }
}

// T12
#[apply(on_each_store)]
async fn an_answer_past_its_time_is_gone_and_the_key_runs_again(endpoint: &str) {
    let (store, clock) = (dynamodb(endpoint).await, clock());
    let retain = Duration::from_secs(3600);
    let runs = Counter::default();
    let counter = runs.clone();
    let operation = Operation::new(PAY).retain(retain);
    let app = api(guard_of(store, operation).world(clock.clone()), move |_, _| {
        let run = counter.add();
        async move { format!("run {run}") }
    });
    let first = send(&app, pay("order-1")).await;
    // In whole seconds, and rounded up.
    let expires = httpdate::parse_http_date(first.header("idempotency-expires").unwrap()).unwrap();
    let expires = Timestamp::from(expires);
    assert_eq!(expires, clock.now().plus(retain).rounded_up_to_second());

    // A clock may be ahead of the clock that announced the time.
    let absent_from = expires.plus(CLOCK_SKEW);
    clock.set(Timestamp::from_millis(absent_from.as_millis() - 1));
    send(&app, pay("order-1")).await.assert_replay_of(&first);
    clock.set(absent_from);
    let again = send(&app, pay("order-1")).await;
    assert!(!again.replayed());
    assert_eq!((&again.body[..], runs.count()), (&b"run 2"[..], 2));
}

#[tokio::test]
async fn a_later_attempt_sends_the_same_downstream_key() {
    use lambda_idempotency::http::Outcome;
    let store = MemoryStore::new();
    let app = api(guard(store.clone()), |parts, _| async move {
        let execution: &Execution = execution(&parts);
        let outcome = if execution.attempts() == 1 { Outcome::NotExecuted } else { Outcome::Completed };
        (axum::Extension(outcome), execution.downstream_key("charge"))
    });
    let first = send(&app, pay("order-1")).await;
    until_state(&store, "order-1", "failed_retryable").await;
    let second = send(&app, pay("order-1")).await;
    assert_eq!(first.body, second.body);
    assert!(!second.replayed());
    send(&app, pay("order-1")).await.assert_replay_of(&second);
}
