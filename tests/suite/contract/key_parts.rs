//! Keys of several parts, which are kept as a hash.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderName, Request},
    routing::post,
};
use lambda_idempotency::{
    Execution, Failure, Guard, Idempotency, KeyFrom, Operation, RunError,
    event::{Consumer, MemorySource, invocation},
    http::Profile,
    key::{IdempotencyKey, age::KeyTime},
    store::memory::MemoryStore,
};
use serde_json::{Value, json};

use crate::support::{
    http::{Answer, Counter, PAY, Resolver, TENANT, caller, clock, execution, send, tenant},
    messages::{QUEUE, deliver, message},
};

/// A route whose key is there. It answers with the key.
fn api(from: KeyFrom, operation: Operation, runs: &Counter) -> Router {
    let guard = Idempotency::new(MemoryStore::new(), operation).tenant(caller as Resolver).world(clock());
    let guard = guard.profile(Profile::ietf_draft().key_from(from));
    let runs = runs.clone();
    let handler = async move |request: Request<Body>| {
        runs.add();
        execution(&request.into_parts().0).idempotency_key().as_str().to_owned()
    };
    Router::new().route("/a", post(handler).route_layer(guard))
}

async fn order(app: &Router, headers: &[(&'static str, &str)], body: &Value) -> Answer {
    let mut request =
        Request::post("/a").header("content-type", "application/json").extension(tenant(TENANT));
    for (name, value) in headers {
        request = request.header(HeaderName::from_static(name), *value);
    }
    send(app, request.body(body.to_string().into()).unwrap()).await
}

fn shop_and_number() -> KeyFrom {
    KeyFrom::all([KeyFrom::header("X-Shop"), KeyFrom::body("/number")])
}

// The hash is longer than any part.
#[tokio::test]
async fn each_part_of_a_key_is_as_long_as_the_operation_asks() {
    let runs = Counter::default();
    let operation = || Operation::new(PAY).min_key_length(4);
    let app = api(shop_and_number(), operation(), &runs);
    for (shop, number) in [("teashop", "123"), ("tea", "1234")] {
        let refused = order(&app, &[("x-shop", shop)], &json!({ "number": number })).await;
        refused.assert_problem(400, "key-malformed");
        assert_eq!(refused.json()["reason"], "too-short");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.starts_with("A part of the idempotency key is shorter than 4 characters. "),
            "{detail}"
        );
    }
    assert_eq!(runs.count(), 0);
    assert_eq!(order(&app, &[("x-shop", "teas")], &json!({ "number": "1234" })).await.status, 200);

    // Functions and messages, too.
    let guard = Guard::new(MemoryStore::new(), operation(), tenant(TENANT));
    let counted = runs.clone();
    let count = move |_: Execution, _: Value| {
        let run = counted.add();
        async move { Ok::<_, Failure>(run) }
    };
    let refused = guard.run(&["teashop", "123"], json!({}), count.clone()).await;
    assert!(matches!(&refused, Err(RunError::MayNotBegin(why)) if why == "too-short"), "{refused:?}");
    let queue = MemorySource::new(QUEUE);
    let from = KeyFrom::all([KeyFrom::body("/shop"), KeyFrom::body("/number")]);
    let consumer = Consumer::new(queue.clone(), from).world(clock()).each(guard, count);
    let short = message("m-1", json!({ "shop": "teashop", "number": 123 }));
    let long = message("m-2", json!({ "shop": "teashop", "number": 1234 }));
    assert!(deliver(&consumer, &[short, long]).await.expect("an answer").is_empty());
    assert_eq!((queue.take_dead().len(), runs.count()), (1, 2));
}

#[test]
fn a_key_without_a_time_is_found_at_start_up() {
    let day = Duration::from_secs(24 * 3600);
    let operation = || Operation::new(PAY).retain(2 * day).refuse_older_than(day, KeyTime::UuidV7);
    let of_requests = |from: KeyFrom| {
        let profile = Profile::ietf_draft().key_from(from);
        drop(Idempotency::new(MemoryStore::new(), operation()).profile(profile));
    };
    let guard = || Guard::new(MemoryStore::new(), operation(), tenant(TENANT));
    let nothing = async |_: Execution, _: Value| Ok::<_, Failure>(());
    let of_messages = |from: KeyFrom| {
        drop(Consumer::new(MemorySource::new(QUEUE), from).each(guard(), nothing));
    };
    let of_tenants = |from: KeyFrom| {
        let consumer = Consumer::new(MemorySource::new(QUEUE), from);
        drop(consumer.each_of_tenants(|_| None, guard(), nothing));
    };
    let of_calls = |from: KeyFrom| drop(invocation(guard(), from, nothing));
    let panics = |start: &dyn Fn(KeyFrom), from: KeyFrom| {
        let panic = catch_unwind(AssertUnwindSafe(|| start(from))).err()?;
        Some(panic.downcast_ref::<String>().expect("a message").clone())
    };
    let two = || KeyFrom::all([KeyFrom::body("/a"), KeyFrom::body("/b")]);
    for (name, start) in [
        ("requests", &of_requests as &dyn Fn(KeyFrom)),
        ("messages", &of_messages),
        ("tenants", &of_tenants),
        ("calls", &of_calls),
    ] {
        for from in [two(), KeyFrom::first([KeyFrom::body("/id"), two()]), KeyFrom::all([two()])] {
            let panic = panics(start, from).expect("a panic");
            assert!(panic.contains("refuse_older_than()") && panic.contains(PAY), "{name}: {panic}");
        }
        for from in [KeyFrom::body("/id"), KeyFrom::all([KeyFrom::body("/id")])] {
            assert_eq!(panics(start, from), None, "{name}");
        }
    }
    assert!(panics(&of_messages, KeyFrom::content()).is_some());
}

// `["x", "y"]` with `["z"]`, and `["x"]` with `["y", "z"]`, would be one key.
#[tokio::test]
async fn places_with_different_numbers_of_parts_are_no_part_of_a_key() {
    let [a, b, c] = ["/a", "/b", "/c"].map(KeyFrom::body);
    let pair = KeyFrom::all([a.clone(), b.clone()]);
    let either = KeyFrom::first([c.clone(), pair.clone()]);
    let all = |several: &[&KeyFrom]| {
        let several: Vec<_> = several.iter().map(|from| (*from).clone()).collect();
        let built = catch_unwind(AssertUnwindSafe(|| KeyFrom::all(several)));
        built.map_err(|panic| panic.downcast_ref::<String>().cloned().expect("a message"))
    };
    for several in [&[&either, &a][..], &[&a, &either], &[&either], &[&KeyFrom::first([either.clone()])]] {
        assert!(all(several).expect_err("a panic").contains("different numbers of parts"));
    }
    let envelope = KeyFrom::first([KeyFrom::envelope(), c.clone()]);
    assert!(all(&[&envelope, &a]).is_err(), "its id may have several parts");
    for several in [
        &[&KeyFrom::first([pair.clone(), KeyFrom::all([c.clone(), a.clone()])]), &b][..],
        &[&KeyFrom::first([a.clone(), c.clone()]), &b],
        &[&KeyFrom::envelope(), &a],
    ] {
        assert!(all(several).is_ok());
    }
    // Alone, a key of one part is never the hash of two.
    let runs = Counter::default();
    let app = api(either, Operation::new(PAY), &runs);
    for (body, key) in [(json!({ "c": "1" }), &["1"][..]), (json!({ "a": "1", "b": "2" }), &["1", "2"])] {
        let key = IdempotencyKey::of(key).unwrap();
        assert_eq!(order(&app, &[], &body).await.body, key.as_str());
    }
}
