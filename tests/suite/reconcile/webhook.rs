//! The webhook: which events it accepts from which senders, and what they cause (T46).

use std::time::{Duration, SystemTime};

use axum::{Router, body::Body, http::Request};
use lambda_idempotency::{
    key::signature::Secrets,
    operator::MessageSummary,
    queue::MemoryQueue,
    reconcile::Reconciliation,
    record::{AlarmKind, Evidence},
    store::{Store, conformance::samples},
    telemetry::{WEBHOOK_AGAIN, WEBHOOK_EARLY, WEBHOOK_REFUSED, WEBHOOK_UNREADABLE, WEBHOOK_UNSIGNED},
    time::Timestamp,
};
use payments::policy::{CHARGE_PHASE, CREATE_PAYMENT};
use serde_json::{Value, json};

use crate::support::{
    closed_queue::Closed,
    counts::counting,
    embedded,
    guarded::fingerprints,
    http::{record_key, send},
    payments_api::{PaymentsApi, TestProvider, order, sealing_keys},
};

const TENANT: &str = "acme";
const SECRET: &str = "a-secret-of-the-provider";

/// A payment whose outcome is unknown, and the webhook that may get its event.
struct Hook {
    api: PaymentsApi,
    provider: TestProvider,
    dead_letters: MemoryQueue,
    questions: MemoryQueue,
    webhook: Router,
}

impl Hook {
    async fn new() -> Self {
        let provider = TestProvider::start().await;
        let api = PaymentsApi::on(embedded::endpoint(), &provider.url).await;
        assert_eq!(api.pay(TENANT, "order-1", order("500")).await.status, 504);
        let (dead_letters, questions) = (MemoryQueue::new(), MemoryQueue::new());
        let reconciliation =
            Reconciliation::new(api.store(), dead_letters.clone()).questions_to(questions.clone());
        let webhook = api.webhook_of(reconciliation, secrets());
        Self { api, provider, dead_letters, questions, webhook }
    }

    /// The event about the first order.
    fn event(&self) -> Value {
        let (key, sent) = &self.provider.orders()[0];
        let metadata = sent["metadata"].clone();
        let charge = json!({
            "id": "ch_1", "amountCents": 1999, "currency": "EUR", "createdAt": now().as_millis(),
            "metadata": metadata,
        });
        json!({ "type": "charge.succeeded", "key": key, "charge": charge, "metadata": metadata })
    }

    async fn post(&self, signature: Option<&str>, body: impl Into<Body>) -> (u16, String) {
        let request = Request::post("/webhooks/provider");
        let request = signature
            .into_iter()
            .fold(request, |request, signature| request.header("provider-signature", signature));
        let answer = send(&self.webhook, request.body(body.into()).unwrap()).await;
        (answer.status, answer.json()["outcome"].as_str().expect("an outcome").to_owned())
    }

    /// Sends an event, signed now as the provider signs it.
    async fn send(&self, event: &Value) -> (u16, String) {
        self.post(Some(&secrets().sign(now(), event.to_string().as_bytes())), event.to_string()).await
    }

    async fn state(&self, key: &str) -> Value {
        self.api.get(TENANT, &format!("/operations/{key}")).await.json()["state"].clone()
    }

    /// Fails if a record was changed or a question was asked.
    async fn assert_untouched(&self, why: &str) {
        assert_eq!(self.state("order-1").await, "unknown", "{why}");
        assert!(self.dead_letters.take().is_empty() && self.questions.take().is_empty(), "{why}");
        assert_eq!(self.api.get(TENANT, "/payments").await.json()["payments"], json!([]), "{why}");
    }
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn secrets() -> Secrets {
    Secrets::new([SECRET]).unwrap()
}

fn returned(status: u16, outcome: &str) -> (u16, String) {
    (status, outcome.to_owned())
}

#[tokio::test]
async fn an_event_without_a_current_signature_is_refused_and_changes_nothing() {
    let hook = Hook::new().await;
    let event = hook.event().to_string();
    let signed_at = |at| secrets().sign(at, event.as_bytes());
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let signed = signed_at(now());
    let (time, digest) = signed.split_once(',').unwrap();
    for (what, signature) in [
        ("unsigned", None),
        ("empty", Some(String::new())),
        (
            "by another's secret",
            Some(Secrets::new(["another-secret-of-no-provider"]).unwrap().sign(now(), event.as_bytes())),
        ),
        ("of another body", Some(secrets().sign(now(), b"{}"))),
        ("old", Some(signed_at(now().minus(minutes(6))))),
        ("from the future", Some(signed_at(now().plus(minutes(6))))),
        ("at another time", Some(format!("t={},{digest}", now().plus(minutes(1)).as_millis() / 1000))),
        ("without a digest", Some(time.to_owned())),
        ("of no known scheme", Some(signed.replace("v1=", "v0="))),
        ("twice at once", Some(format!("{signed},{signed}"))),
    ] {
        assert_eq!(hook.post(signature.as_deref(), event.clone()).await, returned(401, "refused"), "{what}");
        hook.assert_untouched(what).await;
    }
    assert_eq!(hook.post(Some(&signed), event).await, returned(200, "settled"));
}

// T32
#[tokio::test]
async fn an_event_that_is_duplicated_or_replayed_settles_once() {
    let hook = Hook::new().await;
    let event = hook.event();
    let (first, second) = tokio::join!(hook.send(&event), hook.send(&event));
    let mut outcomes = [first.1, second.1];
    outcomes.sort();
    assert_eq!(outcomes, ["nothing to settle", "settled"]);
    assert_eq!(hook.send(&event).await, returned(200, "nothing to settle"));
    assert!(hook.dead_letters.take().is_empty());
    let payments = hook.api.get(TENANT, "/payments").await.json()["payments"].clone();
    assert_eq!(payments.as_array().expect("payments").len(), 1);
}

// T83: the provider has forgotten the key, or never heeded it.
#[tokio::test]
async fn a_second_charge_under_one_key_is_an_alarm_told_once() {
    let hook = Hook::new().await;
    let event = hook.event();
    assert_eq!(hook.send(&event).await, returned(200, "settled"));
    let key = record_key(TENANT, CREATE_PAYMENT, "order-1");
    let loaded = async || hook.api.store().load(&key).await.unwrap().expect("a record");
    let record = loaded().await;
    assert_eq!(record.effect_id.as_ref().map(ToString::to_string).as_deref(), Some("ch_1"));
    let mut second = event.clone();
    second["charge"]["id"] = json!("ch_2");
    assert_eq!(hook.send(&second).await, returned(200, "escalated"));
    assert_eq!(hook.send(&second).await, returned(200, "nothing to settle"));
    let [(dead_letter, _)] = &hook.dead_letters.take()[..] else { panic!("not one dead letter") };
    let dead_letter: Value = serde_json::from_str(dead_letter).unwrap();
    assert_eq!((&dead_letter["kind"], &dead_letter["effect_id"]), (&json!("contradiction"), &json!("ch_2")));
    let alarmed = loaded().await;
    assert!(alarmed.has_alarm(AlarmKind::SecondEffect) && alarmed.untold().is_none());
    assert_eq!((alarmed.state, alarmed.effect_id), (record.state, record.effect_id));
    // The first charge is no second effect, and its client gets its answer.
    assert_eq!(hook.send(&event).await, returned(200, "nothing to settle"));
    let retry = hook.api.pay(TENANT, "order-1", order("500")).await;
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, Some("true")));
}

#[tokio::test]
async fn events_of_other_kinds_are_ignored_with_any_content() {
    let hook = Hook::new().await;
    for event in [
        json!({ "type": "payout.created" }),
        json!({ "type": "", "key": 5, "charge": [], "metadata": "none" }),
        json!({ "type": "charge.updated", "key": null, "charge": { "id": 1 } }),
        json!({ "type": "x".repeat(1_000_000) }),
    ] {
        assert_eq!(hook.send(&event).await, returned(200, "ignored"));
        hook.assert_untouched("another kind").await;
    }
}

#[tokio::test]
async fn a_signed_event_that_cannot_be_read_is_no_success() {
    let hook = Hook::new().await;
    let mut short = hook.event();
    short["charge"].as_object_mut().unwrap().remove("createdAt");
    let mut chargeless = hook.event();
    chargeless.as_object_mut().unwrap().remove("charge");
    for body in [
        "".to_owned(),
        "not json".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"type":5}"#.to_owned(),
        short.to_string(),
        chargeless.to_string(),
        "[".repeat(100_000),
        format!("{}{}", hook.event(), "x"),
    ] {
        let signature = secrets().sign(now(), body.as_bytes());
        assert_eq!(hook.post(Some(&signature), body).await, returned(400, "unreadable"));
        hook.assert_untouched("unreadable").await;
    }
    let bytes = [0xFF, 0xFE, 0x00];
    let signature = secrets().sign(now(), &bytes);
    assert_eq!(hook.post(Some(&signature), bytes.to_vec()).await, returned(400, "unreadable"));
}

#[tokio::test]
async fn a_huge_body_and_another_method_are_refused() {
    let hook = Hook::new().await;
    let huge = "x".repeat(6 * 1024 * 1024);
    assert_eq!(hook.post(None, huge.clone()).await, returned(401, "refused"));
    assert_eq!(hook.post(None, huge + "x").await, returned(413, "too large"));
    let get = Request::get("/webhooks/provider").body(Body::empty()).unwrap();
    let refused = send(&hook.webhook, get).await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("POST")));
    let unsigned = Request::post("/webhooks/provider").body(Body::empty()).unwrap();
    let refused = send(&hook.webhook, unsigned).await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Signature")));
    hook.assert_untouched("refused").await;
}

// T46
#[tokio::test]
async fn a_charge_that_does_not_match_a_record_is_escalated() {
    let hook = Hook::new().await;
    let elsewhere = record_key("globex", CREATE_PAYMENT, "order-1");
    let another_operation = record_key(TENANT, "create-order", "order-1");
    let sealed = |key| json!({ "record": sealing_keys().seal(key) });
    for (what, metadata, key, expected) in [
        ("another tenant's", sealed(&elsewhere), None, "escalated"),
        ("an unknown key's", sealed(&record_key(TENANT, CREATE_PAYMENT, "order-9")), None, "escalated"),
        ("without a correlation", json!({}), None, "escalated"),
        ("under another downstream key", hook.event()["metadata"].clone(), Some("forged"), "escalated"),
        ("an unregistered operation", sealed(&another_operation), None, "escalated"),
    ] {
        let mut event = hook.event();
        event["metadata"] = metadata;
        if let Some(key) = key {
            event["key"] = key.into();
        }
        let answer = hook.send(&event).await;
        assert_eq!(answer.1, expected, "{what}");
        let dead_letters = hook.dead_letters.take();
        assert_eq!(dead_letters.len(), usize::from(expected == "escalated"), "{what}");
        for (dead_letter, _) in dead_letters {
            assert_eq!(MessageSummary::read(&dead_letter).kind.as_deref(), Some("contradiction"));
        }
        hook.assert_untouched(what).await;
    }
}

// T46
#[tokio::test]
async fn a_charge_against_a_kept_refusal_is_escalated() {
    let hook = Hook::new().await;
    assert_eq!(hook.api.pay(TENANT, "order-2", order("declined")).await.status, 402);
    let (key, sent) = hook.provider.orders()[1].clone();
    let mut event = hook.event();
    (event["key"], event["metadata"]) = (key.into(), sent["metadata"].clone());
    assert_eq!(hook.send(&event).await, returned(200, "escalated"));
    let [(dead_letter, _)] = &hook.dead_letters.take()[..] else { panic!("not one dead letter") };
    assert_eq!(MessageSummary::read(dead_letter).record, Some(record_key(TENANT, CREATE_PAYMENT, "order-2")));
    assert_eq!(hook.state("order-2").await, "completed");
    event["type"] = "charge.declined".into();
    assert_eq!(hook.send(&event).await, returned(200, "nothing to settle"));
}

// T46
#[tokio::test]
async fn an_escalation_that_cannot_be_sent_is_not_acknowledged() {
    let hook = Hook::new().await;
    let closed = hook.api.webhook_of(Reconciliation::new(hook.api.store(), Closed), secrets());
    let closed = Hook { webhook: closed, ..hook };
    for key in ["forged", ""] {
        let mut event = closed.event();
        event["key"] = key.into();
        assert_eq!(closed.send(&event).await, returned(503, "try again"));
        event["metadata"] = json!({});
        assert_eq!(closed.send(&event).await, returned(503, "try again"));
    }
    closed.assert_untouched("not acknowledged").await;
}

// T46
#[tokio::test]
async fn a_charge_during_a_live_lease_is_deferred_or_redelivered() {
    let hook = Hook::new().await;
    let (key, now) = (record_key(TENANT, CREATE_PAYMENT, "order-8"), now());
    let live = samples::in_progress(key.clone(), fingerprints("{}"), now, now.plus(Duration::from_secs(60)));
    hook.api.store().put(None, &live, &[]).await.unwrap();
    let mut event = hook.event();
    event["metadata"]["record"] = sealing_keys().seal(&key).into();
    event["key"] = key.downstream_key(&live.fingerprint, CHARGE_PHASE).into();

    assert_eq!(hook.send(&event).await, returned(200, "processed later"));
    let [(question, delay)] = &hook.questions.take()[..] else { panic!("not one question") };
    assert!(
        *delay <= Duration::from_secs(60) && question.contains("provider_report"),
        "{question} {delay:?}"
    );
    // Without a queue for it, the provider has to send it again.
    let alone =
        hook.api.webhook_of(Reconciliation::new(hook.api.store(), hook.dead_letters.clone()), secrets());
    let alone = Hook { webhook: alone, ..hook };
    let (answer, counted) = counting(alone.send(&event)).await;
    assert_eq!(answer, returned(503, "too early"));
    // It is no failure, and raises no alarm.
    assert_eq!((counted.get(WEBHOOK_EARLY), counted.get(WEBHOOK_AGAIN)), (Some(&1), None));
    let current = alone.api.store().load(&key).await.unwrap().expect("a record");
    assert_eq!((current.state, current.attempt), (live.state, live.attempt));
    assert_eq!(current.reported, Some(Evidence::Effect));
    alone.assert_untouched("in progress").await;
}

#[tokio::test]
async fn events_that_the_webhook_does_not_accept_are_counted() {
    let hook = Hook::new().await;
    let unreadable = secrets().sign(now(), b"{}");
    let ((), counted) = counting(async {
        hook.post(None, "{}").await;
        hook.post(Some("t=1,v1=00"), "{}").await;
        hook.post(Some(&unreadable), "{}").await;
        hook.send(&json!({ "type": "payout.created" })).await;
        let mut event = hook.event();
        event["metadata"]["record"] = "opens with no key".into();
        hook.send(&event).await;
    })
    .await;
    let expected = [WEBHOOK_AGAIN, WEBHOOK_REFUSED, WEBHOOK_UNREADABLE, WEBHOOK_UNSIGNED];
    assert_eq!(counted, expected.map(|name| (name.to_owned(), 1)).into());
}
