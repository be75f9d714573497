//! Webhooks: who signed an event, which one it is, and what its sender is answered.

use std::time::Duration;

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::any,
};
use lambda_idempotency::{
    Idempotency, Operation,
    http::{Outcome, Profile, Webhook},
    key::{IdempotencyKey, RecordKey, signature::SignatureError},
    operation::WhileInFlight,
    record::Place,
    store::{Store, memory::MemoryStore},
    time::Timestamp,
    time_budget::{GITHUB_REDELIVERY, SIGNATURE_TOLERANCE},
    world::{ManualWorld, SystemWorld, World},
};
use macro_rules_attribute::apply;
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::support::{
    faults::Fault,
    guarded::Guarded,
    http::{Answer, Counter, Gate, Guard, clock, dynamodb, execution, record_key, send, until},
    on_each_store,
    webhooks::{Headers, OTHER_SECRET, RECEIVE, SECRET, SENDERS, Sender, deliver, request},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// What each sender takes, and GitHub too.
fn operation() -> Operation {
    let wait = WhileInFlight::Wait(Duration::from_secs(4));
    Operation::new(RECEIVE).retain(4 * DAY).while_in_flight(wait)
}

fn guard_of(store: impl Store, operation: Operation, webhook: Webhook, clock: &ManualWorld) -> Guard {
    Idempotency::new(store, operation).webhook(webhook).world(clock.clone())
}

/// A receiver that answers by its body: with that status, or with the number of its run.
fn receiver(guard: Guard, runs: &Counter) -> Router {
    let runs = runs.clone();
    let handler = async move |request: Request<Body>| -> Response {
        let run = runs.add();
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body in memory");
        let text = String::from_utf8_lossy(&body);
        if text.contains("does nothing") && run == 1 {
            return (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response();
        }
        if text.contains("fails") {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        let execution = execution(&parts);
        let key = execution.idempotency_key().as_str();
        format!("{run} {} {key} {}", execution.tenant().as_str(), body.len()).into_response()
    };
    Router::new().route("/{endpoint}", any(handler).layer(guard))
}

/// A receiver of this sender with one secret.
fn app(store: impl Store, sender: Sender, clock: &ManualWorld, runs: &Counter) -> Router {
    let webhook = sender.webhook(&[SECRET]).expect("a webhook");
    receiver(guard_of(store, operation(), webhook, clock), runs)
}

fn record_of(sender: Sender, id: &str) -> RecordKey {
    let key = IdempotencyKey::of(&sender.key(id)).expect("a key");
    record_key(sender.tenant(), RECEIVE, key.as_str())
}

/// A delivery of `fixtures/webhooks.json`: made by the sender's own library, or from its documentation, as it says.
#[derive(Deserialize)]
struct Vector {
    sender: String,
    made_by: String,
    secret: String,
    at: u64,
    headers: std::collections::BTreeMap<String, String>,
    body: String,
    tenant: String,
    key: Vec<String>,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../fixtures/webhooks.json")).expect("a fixture is JSON")
}

impl Vector {
    fn webhook(&self) -> Webhook {
        let sender = match &*self.sender {
            "stripe" => Sender::Stripe,
            "github" => Sender::GitHub,
            "shopify" => Sender::Shopify,
            "svix" => Sender::Svix,
            _ => Sender::Standard,
        };
        sender.webhook(&[&self.secret]).expect("a webhook")
    }

    fn request(&self, body: &str) -> Request<Body> {
        let request = self.headers.iter().fold(Request::post("/hook"), |request, (name, value)| {
            request.header(name.as_str(), value.as_str())
        });
        request.body(body.to_owned().into()).expect("a request")
    }
}

#[tokio::test]
async fn what_a_senders_own_library_signs_is_accepted_and_nothing_else() {
    assert!(vectors().len() >= 7);
    for vector in vectors() {
        let (store, runs) = (MemoryStore::new(), Counter::default());
        let clock = ManualWorld::at(Timestamp::from_secs(vector.at));
        let app = receiver(guard_of(store, operation(), vector.webhook(), &clock), &runs);
        let changed = format!("{} ", vector.body);
        send(&app, vector.request(&changed)).await.assert_problem(401, "signature-refused");
        let answer = send(&app, vector.request(&vector.body)).await;
        let key: Vec<_> = vector.key.iter().map(String::as_str).collect();
        let key = IdempotencyKey::of(&key).unwrap();
        let expected = format!("1 {} {} {}", vector.tenant, key.as_str(), vector.body.len());
        assert_eq!((answer.status, &*answer.body), (200, expected.as_bytes()), "{}", vector.made_by);
        send(&app, vector.request(&vector.body)).await.assert_replay_of(&answer);
    }
}

// Stripe's `pending_webhooks` differs between the deliveries of one event.
#[apply(on_each_store)]
async fn an_event_runs_once_though_its_next_delivery_differs(endpoint: &str) {
    for sender in SENDERS {
        let (guarded, clock, runs) = (Guarded::on(endpoint).await, clock(), Counter::default());
        let app = app(guarded.store(), sender, &clock, &runs);
        let event = |delivery| {
            let body = sender.body("evt_1", delivery);
            (sender.headers(SECRET, "evt_1", body.as_bytes(), clock.now()), body)
        };
        let (headers, body) = event(2);
        let first = deliver(&app, &headers, body).await;
        assert_eq!(first.status, 200, "{sender:?} {first:?}");
        clock.advance(Duration::from_secs(3600));
        let (headers, body) = event(1);
        deliver(&app, &headers, body).await.assert_replay_of(&first);
        assert_eq!(runs.count(), 1, "{sender:?}");
        assert!(guarded.record(&record_of(sender, "evt_1")).await.is_some(), "{sender:?}");
    }
}

/// Fails unless this is a refusal by its signature, for this reason.
#[track_caller]
fn assert_refused(answer: &Answer, reason: &str) {
    answer.assert_problem(401, "signature-refused");
    assert_eq!(answer.json()["reason"], reason, "{answer:?}");
    assert_eq!(answer.header("www-authenticate"), Some("Signature"));
}

#[apply(on_each_store)]
async fn a_signature_that_is_not_the_senders_begins_nothing(endpoint: &str) {
    for sender in SENDERS {
        let (guarded, clock, runs) = (Guarded::on(endpoint).await, clock(), Counter::default());
        let app = app(guarded.store(), sender, &clock, &runs);
        let body = sender.body("evt_1", 1);
        let signed = |secret, at| sender.headers(secret, "evt_1", body.as_bytes(), at);
        let now = clock.now();
        let mut refused: Vec<(Headers, &str)> = vec![
            (Vec::new(), "missing"),
            (signed(OTHER_SECRET, now), "mismatch"),
            (sender.headers(SECRET, "evt_1", b"another body", now), "mismatch"),
        ];
        let name = signed(SECRET, now)[0].0;
        for text in ["", "v1", "sha256=", "t=1,v1=zz", "sha256=zz", "v1,zz", "AAAA", "t=,v1=", "é"] {
            let mut headers = signed(SECRET, now);
            headers[0].1 = text.to_owned();
            let reason = if sender == Sender::Stripe && text == "t=1,v1=zz"
                || sender.is_standard() && text == "v1,zz"
            {
                "mismatch"
            } else {
                "malformed"
            };
            refused.push((headers, reason));
        }
        let twice: Headers = [&signed(SECRET, now)[..1], &signed(SECRET, now)].concat();
        refused.push((twice, "repeated"));
        if sender == Sender::Stripe || sender.is_standard() {
            let second = Duration::from_secs(1);
            refused.push((signed(SECRET, now.minus(SIGNATURE_TOLERANCE + second)), "too-old"));
            refused.push((signed(SECRET, now.plus(SIGNATURE_TOLERANCE + second)), "future"));
            // A time counts only once it is authentic.
            refused.push((signed(OTHER_SECRET, now.minus(SIGNATURE_TOLERANCE + second)), "mismatch"));
        }
        if sender.is_standard() {
            // What it covers besides the body.
            for name in signed(SECRET, now)[1..].iter().map(|(name, _)| *name) {
                let mut headers = signed(SECRET, now);
                headers.retain(|(header, _)| *header != name);
                refused.push((headers, "missing"));
                let mut headers = signed(SECRET, now);
                headers.push((name, "1".to_owned()));
                refused.push((headers, "repeated"));
            }
            let mut other = signed(SECRET, now);
            other[2].1 = "evt_2".to_owned();
            refused.push((other, "mismatch"));
        }
        for (headers, reason) in refused {
            let answer = deliver(&app, &headers, body.clone()).await;
            assert_refused(&answer, reason);
            assert!(!String::from_utf8_lossy(&answer.body).contains("evt_1"), "{answer:?}");
        }
        assert_eq!((runs.count(), guarded.faults.sent("PutItem")), (0, 0), "{sender:?} {name}");
        assert_eq!(deliver(&app, &signed(SECRET, now), body.clone()).await.status, 200, "{sender:?}");
    }
}

// A layer that guards POST alone would let anyone run the handler by PUT.
#[tokio::test]
async fn no_method_and_no_key_of_a_client_passes_unsigned() {
    let runs = Counter::default();
    for sender in SENDERS {
        let app = app(MemoryStore::new(), sender, &clock(), &runs);
        for method in ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "POST"] {
            let request = Request::builder().method(method).uri("/hook").header("idempotency-key", "k-1");
            let answer = send(&app, request.body(Body::from("{}")).unwrap()).await;
            assert_eq!(answer.status, 401, "{sender:?} {method}");
        }
    }
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_signed_event_runs_once_whatever_its_method() {
    for sender in SENDERS {
        let (clock, runs) = (clock(), Counter::default());
        let app = app(MemoryStore::new(), sender, &clock, &runs);
        let body = sender.body("evt_1", 1);
        let headers = sender.headers(SECRET, "evt_1", body.as_bytes(), clock.now());
        let put = async || {
            let mut put = request(&headers, body.clone());
            *put.method_mut() = axum::http::Method::PUT;
            send(&app, put).await
        };
        let first = put().await;
        assert_eq!(first.status, 200, "{sender:?} {first:?}");
        put().await.assert_replay_of(&first);
        deliver(&app, &headers, body.clone()).await.assert_replay_of(&first);
        assert_eq!(runs.count(), 1, "{sender:?}");
    }
}

// Any sender can do this: each digest is compared with each secret's.
#[tokio::test]
async fn a_signature_with_too_many_digests_is_refused() {
    for sender in [Sender::Stripe, Sender::Standard, Sender::Svix] {
        let (clock, runs) = (clock(), Counter::default());
        let app = app(MemoryStore::new(), sender, &clock, &runs);
        let body = sender.body("evt_1", 1);
        let headers = |others| {
            let mut headers = sender.headers(SECRET, "evt_1", body.as_bytes(), clock.now());
            let signed = &mut headers[0].1;
            *signed = match sender {
                Sender::Stripe => signed.clone() + &format!(",v1={}", "0".repeat(64)).repeat(others),
                _ => format!("v1,{}= ", "A".repeat(43)).repeat(others) + signed,
            };
            headers
        };
        assert_refused(&deliver(&app, &headers(16), body.clone()).await, "malformed");
        assert_eq!(runs.count(), 0);
        assert_eq!(deliver(&app, &headers(15), body.clone()).await.status, 200, "{sender:?}");
    }
}

#[tokio::test]
async fn an_event_is_signed_by_any_secret_while_they_are_changed() {
    for sender in SENDERS {
        let (clock, runs) = (clock(), Counter::default());
        let webhook = sender.webhook(&[OTHER_SECRET, SECRET]).unwrap();
        let app = receiver(guard_of(MemoryStore::new(), operation(), webhook, &clock), &runs);
        for (secret, id) in [(SECRET, "evt_1"), (OTHER_SECRET, "evt_2")] {
            let body = sender.body(id, 1);
            let headers = sender.headers(secret, id, body.as_bytes(), clock.now());
            assert_eq!(deliver(&app, &headers, body).await.status, 200, "{sender:?}");
        }
    }
}

// Before the signature is computed over it, and before a body comes that never ends.
#[tokio::test]
async fn a_huge_body_is_refused_before_its_signature_is_computed() {
    for sender in SENDERS {
        let (clock, runs) = (clock(), Counter::default());
        let webhook = sender.webhook(&[SECRET]).unwrap();
        let guard = guard_of(MemoryStore::new(), operation(), webhook, &clock).longest_bodies(1000, 1000);
        let app = receiver(guard, &runs);
        let wrong = sender.headers(OTHER_SECRET, "evt_1", b"", clock.now());
        deliver(&app, &wrong, vec![b' '; 1001]).await.assert_problem(413, "body-too-long");
        assert_refused(&deliver(&app, &wrong, vec![b' '; 1000]).await, "mismatch");
        let endless =
            || Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        assert_refused(&deliver(&app, &Vec::new(), endless()).await, "missing");
        assert_eq!(runs.count(), 0);
    }
}

#[tokio::test]
async fn a_signed_event_without_its_id_is_refused() {
    let clock = clock();
    let now = clock.now();
    let of = |sender: Sender, body: &str, drop: &str, id: &str| {
        let mut headers = sender.headers(SECRET, id, body.as_bytes(), now);
        headers.retain(|(name, _)| *name != drop);
        (sender, headers, body.to_owned())
    };
    let mut twice = of(Sender::GitHub, "{}", "", "id-1");
    twice.1.push(("x-github-delivery", "id-2".to_owned()));
    for ((sender, headers, body), (problem, reason)) in [
        (of(Sender::Stripe, "no JSON", "", ""), ("key-missing", "missing")),
        (of(Sender::Stripe, "{}", "", ""), ("key-missing", "missing")),
        (of(Sender::Stripe, r#"{"id":7}"#, "", ""), ("key-malformed", "not-a-string")),
        (of(Sender::Stripe, r#"{"id":"a","id":"b"}"#, "", ""), ("key-malformed", "repeated")),
        (of(Sender::Stripe, r#"{"id":"a","account":7}"#, "", ""), ("key-malformed", "not-a-string")),
        (
            of(Sender::Stripe, r#"{"id":"a","object":"v2.core.event","context":""}"#, "", ""),
            ("key-malformed", "not-a-string"),
        ),
        (
            of(Sender::Stripe, r#"{"id":"a","account":"b","account":"c"}"#, "", ""),
            ("key-malformed", "not-a-string"),
        ),
        (of(Sender::GitHub, "{}", "x-github-delivery", "id-1"), ("key-missing", "missing")),
        (twice, ("key-malformed", "repeated")),
        (of(Sender::GitHub, "{}", "", "a,b"), ("key-malformed", "list")),
        (of(Sender::Shopify, "{}", "x-shopify-event-id", "id-1"), ("key-missing", "missing")),
        (of(Sender::Shopify, "{}", "x-shopify-topic", "id-1"), ("key-missing", "missing")),
    ] {
        let runs = Counter::default();
        let app = app(MemoryStore::new(), sender, &clock, &runs);
        let answer = deliver(&app, &headers, body.clone()).await;
        answer.assert_problem(400, problem);
        assert_eq!((&answer.json()["reason"], runs.count()), (&reason.into(), 0), "{sender:?} {body}");
    }
}

// One text `a.1.2.b` would be the event `a` at 1, or `a.1` at 2.
#[tokio::test]
async fn an_id_of_standard_webhooks_has_no_dot() {
    let (clock, runs) = (clock(), Counter::default());
    let app = app(MemoryStore::new(), Sender::Standard, &clock, &runs);
    let body = format!("{}.pay", clock.now().as_millis() / 1000);
    let mut headers = Sender::Standard.headers(SECRET, "msg_1", body.as_bytes(), clock.now());
    assert_eq!(deliver(&app, &headers, body.clone()).await.status, 200);
    headers[2].1 = format!("msg_1.{}", headers[1].1);
    headers[1].1 = body.trim_end_matches(".pay").to_owned();
    assert_refused(&deliver(&app, &headers, "pay").await, "malformed");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn each_account_of_stripe_is_a_tenant() {
    let (clock, runs) = (clock(), Counter::default());
    let webhook = Sender::Stripe.webhook(&[SECRET]).unwrap().tenant("shop");
    let app = receiver(guard_of(MemoryStore::new(), operation(), webhook, &clock), &runs);
    for (body, answer) in [
        (r#"{"id":"evt_1","account":"acct_1"}"#, "1 acct_1 evt_1 33"),
        (r#"{"id":"evt_1","account":"acct_2"}"#, "2 acct_2 evt_1 33"),
        (r#"{"id":"evt_1","account":null}"#, "3 shop evt_1 29"),
        (r#"{"id":"evt_1"}"#, "3 shop evt_1 29"),
        (r#"{"id":"evt_1","object":"v2.core.event","context":"acct_1"}"#, "1 acct_1 evt_1 33"),
        (r#"{"id":"evt_2","object":"v2.core.event","context":"org_1/acct_1"}"#, "4 org_1/acct_1 evt_2 64"),
        (r#"{"id":"evt_2","object":"v2.core.event","context":null}"#, "5 shop evt_2 54"),
        // By the version of its endpoint, the next delivery may have none.
        (r#"{"id":"evt_1","object":"event","context":"acct_3"}"#, "3 shop evt_1 29"),
        (r#"{"id":"evt_1","object":"event","context":"acct_3","account":"acct_2"}"#, "2 acct_2 evt_1 33"),
    ] {
        let headers = Sender::Stripe.headers(SECRET, "", body.as_bytes(), clock.now());
        assert_eq!(deliver(&app, &headers, body).await.body, answer);
    }
}

// `orders/create` and `orders/paid` of one order have one `X-Shopify-Event-Id`, and one body.
#[tokio::test]
async fn each_topic_of_one_event_of_shopify_runs() {
    let (clock, runs) = (clock(), Counter::default());
    let app = app(MemoryStore::new(), Sender::Shopify, &clock, &runs);
    for (topic, count) in [("orders/create", 1), ("orders/paid", 2), ("orders/paid", 2)] {
        let mut headers = Sender::Shopify.headers(SECRET, "e-1", b"{}", clock.now());
        headers[2].1 = topic.to_owned();
        assert_eq!(deliver(&app, &headers, "{}").await.status, 200);
        assert_eq!(runs.count(), count);
    }
}

// Only what is signed is bound to its signature: `docs/guide.md` says what follows from that.
#[tokio::test]
async fn a_copy_under_another_id_runs_only_if_ids_are_unsigned() {
    for sender in SENDERS {
        let runs_again = [Sender::GitHub, Sender::Shopify].contains(&sender);
        let (clock, runs) = (clock(), Counter::default());
        let app = app(MemoryStore::new(), sender, &clock, &runs);
        let body = sender.body("evt_1", 1);
        let mut headers = sender.headers(SECRET, "evt_1", body.as_bytes(), clock.now());
        assert_eq!(deliver(&app, &headers, body.clone()).await.status, 200);
        for (_, value) in &mut headers {
            *value = value.replace("evt_1", "evt_2");
        }
        let body = if sender == Sender::Stripe { sender.body("evt_2", 1) } else { body };
        let copy = deliver(&app, &headers, body).await;
        assert_eq!((copy.status == 200, runs.count() == 2), (runs_again, runs_again), "{sender:?}");
    }
}

/// A receiver whose first event waits at the gate, and its deliveries.
struct Held {
    app: Router,
    gate: Gate,
    headers: Headers,
    body: String,
}

impl Held {
    fn of(sender: Sender, store: impl Store, operation: Operation) -> Self {
        let (gate, webhook) = (Gate::closed(), sender.webhook(&[SECRET]).unwrap());
        let guard = Idempotency::new(store, operation).webhook(webhook).world(SystemWorld);
        let held = gate.clone();
        let handler = any(async move || held.pass().await);
        let body = sender.body("evt_1", 1);
        let headers = sender.headers(SECRET, "evt_1", body.as_bytes(), SystemWorld.now());
        Self { app: Router::new().route("/hook", handler.layer(guard)), gate, headers, body }
    }

    fn deliver(&self) -> JoinHandle<Answer> {
        let (app, request) = (self.app.clone(), request(&self.headers, self.body.clone()));
        tokio::spawn(async move { send(&app, request).await })
    }
}

#[apply(on_each_store)]
async fn a_delivery_in_flight_makes_its_sender_come_again(endpoint: &str) {
    for sender in [Sender::Stripe, Sender::Shopify, Sender::Standard, Sender::Svix] {
        let refuses = operation().while_in_flight(WhileInFlight::Refuse);
        let held = Held::of(sender, dynamodb(endpoint).await, refuses);
        let first = held.deliver();
        held.gate.reached(1).await;
        let second = held.deliver().await.unwrap();
        second.assert_problem(409, "in-flight");
        assert!(second.header("retry-after").is_some());
        held.gate.open();
        let first = first.await.unwrap();
        held.deliver().await.unwrap().assert_replay_of(&first);
    }
}

#[apply(on_each_store)]
async fn a_delivery_of_github_waits_for_what_is_in_flight(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let held = Held::of(Sender::GitHub, guarded.store(), operation());
    let first = held.deliver();
    held.gate.reached(1).await;
    let second = held.deliver();
    until(|| guarded.faults.asked("GetItem") > 1).await;
    assert!(!second.is_finished());
    held.gate.open();
    second.await.unwrap().assert_replay_of(&first.await.unwrap());
}

// GitHub delivers an event once: it is kept, and a worker executes it.
#[apply(on_each_store)]
async fn an_event_of_github_may_be_accepted_as_work(endpoint: &str) {
    let (guarded, clock, runs) = (Guarded::on(endpoint).await, clock(), Counter::default());
    let later = Operation::new(RECEIVE).retain(GITHUB_REDELIVERY).asynchronous(DAY);
    let webhook = Sender::GitHub.webhook(&[SECRET]).unwrap();
    let app = receiver(guard_of(guarded.store(), later, webhook, &clock), &runs);
    let headers = Sender::GitHub.headers(SECRET, "id-1", b"{}", clock.now());
    for _ in 0..2 {
        assert_eq!(deliver(&app, &headers, "{}").await.status, 202);
    }
    let record = guarded.record(&record_of(Sender::GitHub, "id-1")).await.expect("a record");
    assert_eq!((record.state.name(), runs.count()), ("pending", 0));
    // Its worker needs to know what it is, and never how it was signed.
    let store = guarded.undisturbed_store();
    let kept = store
        .load_body(&record.key, record.accepted.unwrap().request, Place::BodyItem)
        .await
        .unwrap()
        .unwrap();
    let kept = String::from_utf8_lossy(&kept);
    assert!(kept.contains("x-github-delivery") && !kept.contains("x-hub-signature"), "{kept}");
    let wrong = Sender::GitHub.headers(OTHER_SECRET, "id-2", b"{}", clock.now());
    assert_refused(&deliver(&app, &wrong, "{}").await, "mismatch");
}

// T5: operations of two endpoints that have one name would take an event from each other.
#[tokio::test]
async fn one_event_at_two_endpoints_is_not_one_delivery() {
    let (store, clock, runs) = (MemoryStore::new(), clock(), Counter::default());
    let app = app(store, Sender::Stripe, &clock, &runs);
    let body = Sender::Stripe.body("evt_1", 1);
    let headers = Sender::Stripe.headers(SECRET, "evt_1", body.as_bytes(), clock.now());
    assert_eq!(deliver(&app, &headers, body.clone()).await.status, 200);
    let other = Request::post("/another").body(Body::from(body)).unwrap();
    let (mut parts, body) = other.into_parts();
    let signed = request(&headers, "");
    parts.headers = signed.headers().clone();
    send(&app, Request::from_parts(parts, body)).await.assert_problem(422, "key-reused");
    assert_eq!(runs.count(), 1);
}

// No marker is written before the handler has done its work.
#[apply(on_each_store)]
async fn an_event_whose_handler_did_nothing_runs_again(endpoint: &str) {
    for sender in SENDERS {
        let (clock, runs) = (clock(), Counter::default());
        let app = app(dynamodb(endpoint).await, sender, &clock, &runs);
        let event = async |id: &str, body: String| {
            let headers = sender.headers(SECRET, id, body.as_bytes(), clock.now());
            deliver(&app, &headers, body).await
        };
        let nothing = || sender.body("evt_1", 1).replace("note", "does nothing");
        assert_eq!(event("evt_1", nothing()).await.status, 503);
        assert_eq!(event("evt_1", nothing()).await.status, 200);
        assert_eq!(runs.count(), 2);
        // Perhaps it did something: the sender comes again, until that is known.
        let fails = || sender.body("evt_2", 1).replace("note", "fails");
        assert_eq!(event("evt_2", fails()).await.status, 500);
        event("evt_2", fails()).await.assert_problem(409, "outcome-unknown");
        assert_eq!(runs.count(), 3);
    }
}

#[apply(on_each_store)]
async fn a_store_that_is_away_makes_the_sender_come_again(endpoint: &str) {
    for sender in SENDERS {
        let (guarded, clock, runs) = (Guarded::on(endpoint).await, clock(), Counter::default());
        let app = app(guarded.store(), sender, &clock, &runs);
        let body = sender.body("evt_1", 1);
        let headers = sender.headers(SECRET, "evt_1", body.as_bytes(), clock.now());
        guarded.faults.for_all("PutItem", Fault::AccessDenied);
        deliver(&app, &headers, body.clone()).await.assert_problem(503, "store-unavailable");
        guarded.faults.clear();
        clock.advance(Duration::from_secs(3));
        assert_eq!((deliver(&app, &headers, body).await.status, runs.count()), (200, 1));
    }
}

#[tokio::test]
async fn a_profile_that_is_set_later_leaves_the_id_the_key() {
    let (clock, runs) = (clock(), Counter::default());
    for sender in SENDERS {
        let webhook = sender.webhook(&[SECRET]).unwrap();
        let profile = Profile::acp().documentation("https://example.com");
        let app =
            receiver(guard_of(MemoryStore::new(), operation(), webhook, &clock).profile(profile), &runs);
        let body = sender.body("evt_1", 1);
        let mut headers = sender.headers(SECRET, "evt_1", body.as_bytes(), clock.now());
        headers.push(("idempotency-key", "k-1".to_owned()));
        let answer = deliver(&app, &headers, body).await;
        let key = IdempotencyKey::of(&sender.key("evt_1")).unwrap();
        assert!(String::from_utf8_lossy(&answer.body).contains(key.as_str()), "{answer:?}");
    }
}

#[test]
fn a_secret_that_can_be_guessed_is_refused_and_none_is_shown() {
    for sender in SENDERS {
        assert_eq!(sender.webhook(&[]).err(), Some(SignatureError::NoSecret), "{sender:?}");
        assert_eq!(sender.webhook(&["c2hvcnQ="]).err(), Some(SignatureError::ShortSecret), "{sender:?}");
        let shown = format!("{:?}", sender.webhook(&[SECRET]).unwrap());
        assert!(!shown.contains(SECRET) && !shown.contains("MfKQ9"), "{shown}");
    }
    // Supabase shows the last one (standard-webhooks/standard-webhooks#235): a library that decodes leniently has another key, and refuses all.
    let versioned = format!("v1,{SECRET}");
    for text in ["whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_no Base64!", "whsk_AAAA", &*versioned] {
        for webhook in [Webhook::standard([text]), Webhook::svix([text])] {
            assert_eq!(webhook.err(), Some(SignatureError::SecretNotBase64), "{text}");
        }
    }
    assert!(Webhook::standard([SECRET.trim_start_matches("whsec_")]).is_ok());
}
