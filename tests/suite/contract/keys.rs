//! Which requests are guarded, which keys are accepted, and that no two callers share a record.

use std::collections::HashSet;

use axum::http::{HeaderValue, Method, Request};
use lambda_idempotency::{
    engine::Execution,
    http::{IDEMPOTENCY_KEY, KeySyntax, Profile},
    key::IdempotencyKey,
    operation::Operation,
    store::{Store, memory::MemoryStore},
};
use macro_rules_attribute::apply;

use crate::support::{
    guarded::Guarded,
    http::{
        Counter, ORDER, PAY, TENANT, api, dynamodb, execution, guard, guard_of, order, pay, record_key, send,
        state, tenant, unkeyed,
    },
    on_each_store,
};

// A message's key of several parts is hashed: a client that sent the hash would occupy it.
#[tokio::test]
async fn no_client_can_send_a_key_that_is_a_hash() {
    let runs = Counter::default();
    let hash = IdempotencyKey::of(&["shop", "1"]).expect("a key").as_str().to_owned();
    for profile in [Profile::ietf_draft(), Profile::stripe(), Profile::acp()] {
        for syntax in [KeySyntax::Either, KeySyntax::Bare, KeySyntax::Item] {
            let counter = runs.clone();
            let guard = guard(MemoryStore::new()).profile(profile.clone().key_syntax(syntax));
            let app = api(guard, move |_, _| {
                counter.add();
                async {}
            });
            let written = if syntax == KeySyntax::Item { format!("\"{hash}\"") } else { hash.clone() };
            let refused = send(&app, order(&written).body(ORDER.into()).unwrap()).await;
            assert_eq!(refused.status, 400, "{refused:?}");
            assert!(refused.json().to_string().contains("sha256: and 43 digits"), "{refused:?}");
            let other = written.replace("sha256:", "sha512:");
            assert_eq!(send(&app, order(&other).body(ORDER.into()).unwrap()).await.status, 200);
        }
    }
    assert_eq!(runs.count(), 9);
}

// T34
#[apply(on_each_store)]
async fn every_bad_key_gets_a_400_with_its_own_reason(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let runs = Counter::default();
    let counter = runs.clone();
    let operation = Operation::new(PAY).min_key_length(4);
    let app = api(guard_of(guarded.store(), operation), move |_, _| {
        counter.add();
        async {}
    });
    let long = "k".repeat(256);
    let hash = format!("sha256:{}", &long[..43]);
    let quoted = format!("\"{long}\"");
    let cases: &[(&[&[u8]], &str)] = &[
        (&[], "missing"),
        (&[b"order-1", b"order-2"], "repeated"),
        (&[b"order-1", b"order-1"], "repeated"),
        (&[br#""order-1", "order-2""#], "list"),
        (&[b"order-1, order-2"], "list"),
        (&[br#""order-1";v=1"#], "parameters"),
        (&[br#""order-1"#], "malformed"),
        (&["schlüssel".as_bytes()], "character"),
        (&[b"order 1"], "character"),
        (&[b"\"or\xe9der\""], "character"),
        (&[b""], "empty"),
        (&[br#""""#], "empty"),
        (&[long.as_bytes()], "too-long"),
        (&[quoted.as_bytes()], "too-long"),
        (&[hash.as_bytes()], "reserved"),
        (&[b"abc"], "too-short"),
        (&[br#""abc""#], "too-short"),
    ];
    let mut reasons = HashSet::new();
    for (lines, reason) in cases {
        let mut request = unkeyed().body(ORDER.into()).unwrap();
        for line in *lines {
            request.headers_mut().append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        }
        let refused = send(&app, request).await;
        refused.assert_problem(400, if lines.is_empty() { "key-missing" } else { "key-malformed" });
        assert_eq!(refused.json()["reason"], *reason, "{lines:?}");
        reasons.insert(*reason);
        for line in lines.iter().filter(|line| line.len() > 3) {
            let echoed = refused.body.windows(line.len()).any(|window| window == *line);
            assert!(!echoed, "the key comes back in the problem: {line:?}");
        }
    }
    assert_eq!(reasons.len(), 10);
    assert_eq!((runs.count(), guarded.number_of_items().await), (0, 0));
}

#[apply(on_each_store)]
async fn every_legal_key_has_one_record_under_both_its_forms(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let app = api(guard(guarded.store()), |parts, _| async move {
        execution(&parts).idempotency_key().as_str().to_owned()
    });
    let longest = "k".repeat(255);
    // Each visible character alone, and the characters that separate parts elsewhere.
    let visible = ('!'..='~').map(String::from);
    let more =
        ["order-1", "a#b", "a%23b", "a%2Fb", "../a", "a/b", "a,b", "a;b=1", "{\"a\":1}", "record", &longest];
    let keys: Vec<_> = visible.chain(more.map(str::to_owned)).collect();
    for key in &keys {
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        let first = send(&app, pay(&quoted)).await;
        assert_eq!((first.status, &first.body[..]), (200, key.as_bytes()), "{key}");
        assert!(!first.replayed(), "{key}");
        // The same key without quotes, if it can be written without them.
        if !key.starts_with('"') && !key.contains(',') {
            send(&app, pay(key)).await.assert_replay_of(&first);
        }
    }
    // No key shares its record, because each was new. So none has two.
    assert_eq!(guarded.number_of_items().await, keys.len());
}

#[tokio::test]
async fn an_api_can_require_one_form_of_the_key() {
    let with = |syntax| guard(MemoryStore::new()).profile(Profile::ietf_draft().key_syntax(syntax));
    let strict = api(with(KeySyntax::Item), |_, _| async {});
    let refused = send(&strict, pay("order-1")).await;
    refused.assert_problem(400, "key-malformed");
    assert_eq!(refused.json()["reason"], "not-a-string");
    assert_eq!(send(&strict, pay("\"order-1\"")).await.status, 200);

    // Elsewhere it is the same key without its quotes: here it would be another record.
    let bare = api(with(KeySyntax::Bare), |_, _| async {});
    let refused = send(&bare, pay("\"order-1\"")).await;
    refused.assert_problem(400, "key-malformed");
    assert_eq!(refused.json()["reason"], "quoted");
    assert_eq!(send(&bare, pay("order-1")).await.status, 200);
}

// T34
#[apply(on_each_store)]
async fn a_keyless_request_is_never_run_nor_hashed_into_one_shared_record(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let runs = Counter::default();
    let counter = runs.clone();
    let app = api(guard(guarded.store()), move |_, _| {
        counter.add();
        async {}
    });
    for method in [Method::POST, Method::PATCH] {
        let request = unkeyed().method(method).body(ORDER.into()).unwrap();
        send(&app, request).await.assert_problem(400, "key-missing");
    }
    assert_eq!((runs.count(), guarded.number_of_items().await), (0, 0));
}

#[apply(on_each_store)]
async fn methods_that_are_not_guarded_pass_untouched_and_leave_no_record(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let app = api(guard(store.clone()), |parts, body| async move {
        assert!(parts.extensions.get::<Execution>().is_none());
        assert_eq!(parts.headers["idempotency-key"], "order-1, order-2; no key at all");
        ([("set-cookie", "a=b")], body)
    });
    let untouched = |method: Method| {
        Request::builder()
            .method(method)
            .uri("/payments")
            .header("idempotency-key", "order-1, order-2; no key at all")
            .body(ORDER.into())
            .unwrap()
    };
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS, Method::HEAD] {
        let answer = send(&app, untouched(method.clone())).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (200, Some("a=b")), "{method}");
        assert_eq!(answer.headers.get("idempotency-expires"), None);
        if method != Method::HEAD {
            assert_eq!(answer.body, ORDER);
        }
    }

    let app = api(guard(store.clone()), |_, _| async {});
    for (method, guarded) in [(Method::PUT, ""), (Method::PATCH, "completed"), (Method::POST, "completed")] {
        let key = format!("by-{method}");
        let request = order(&key).method(method.clone()).body(ORDER.into()).unwrap();
        assert_eq!(send(&app, request).await.status, 200);
        assert_eq!(state(&store, &key).await, guarded, "{method}");
    }
}

#[tokio::test]
async fn guard_also_guards_one_more_method_and_unguards_none() {
    let store = MemoryStore::new();
    let app = api(guard(store.clone()).guard_also(Method::PUT), |_, _| async {});
    let propfind = Method::from_bytes(b"PROPFIND").unwrap();
    let guarded = [Method::PUT, Method::POST, Method::PATCH, Method::CONNECT, propfind];
    let passing = [Method::DELETE, Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE];
    let methods = guarded.map(|method| (method, "completed")).into_iter();
    for (method, guarded) in methods.chain(passing.map(|method| (method, ""))) {
        let key = format!("by-{method}");
        send(&app, order(&key).method(method.clone()).body(ORDER.into()).unwrap()).await;
        assert_eq!(state(&store, &key).await, guarded, "{method}");
    }
}

// T15
#[apply(on_each_store)]
async fn a_key_belongs_to_one_tenant_and_one_operation_only(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let who = |operation: &'static str| {
        api(guard_of(store.clone(), Operation::new(operation)), |parts, _| async move {
            let execution = execution(&parts);
            format!("{} {}", execution.tenant().as_str(), execution.operation())
        })
    };
    let (pays, refunds) = (who(PAY), who("refund"));
    let triples = [
        ("a#b", PAY, "c"),
        ("a", PAY, "b#c"),
        ("a", "refund", "b#c"),
        ("a%23b", PAY, "c"),
        ("a#create-payment#b", PAY, "c"),
        ("a", PAY, "b#create-payment#c"),
        (TENANT, PAY, "c"),
        ("globex", PAY, "c"),
    ];
    for replayed in [false, true] {
        for (caller, operation, key) in triples {
            let app = if operation == PAY { &pays } else { &refunds };
            let mut request = pay(key);
            request.extensions_mut().insert(tenant(caller));
            let answer = send(app, request).await;
            assert_eq!(answer.body, format!("{caller} {operation}"), "{key}");
            assert_eq!(answer.replayed(), replayed);
            assert!(store.load(&record_key(caller, operation, key)).await.unwrap().is_some());
        }
    }
}
