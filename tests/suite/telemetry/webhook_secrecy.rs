//! No data of a webhook is logged: neither of one that is accepted, nor of one that is refused.

use std::{collections::BTreeMap, time::Duration};

use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use lambda_idempotency::{
    Idempotency, Operation,
    operation::WhileInFlight,
    telemetry::{WEBHOOK_REFUSED, WEBHOOK_UNSIGNED},
    world::World,
};
use macro_rules_attribute::apply;
use serde_json::json;

use super::secrecy::Secrets;
use crate::support::{
    counts::counting,
    faults::Fault,
    guarded::Guarded,
    http::{clock, record_key},
    logs::{Line, Logs},
    on_each_store,
    webhooks::{Headers, RECEIVE, SENDERS, Sender, deliver},
};

#[apply(on_each_store)]
async fn no_event_its_id_or_its_secret_is_logged(endpoint: &str) {
    for sender in SENDERS {
        let (logs, secrets, clock) = (Logs::capture(), Secrets::new(), clock());
        let guarded = Guarded::on(endpoint).await;
        let marker = &secrets.marker;
        // The marker is of hexadecimal digits, which are of Base64 too.
        let (secret, other) = (format!("whsec_{marker}"), format!("whsec_{marker}{marker}"));
        let wait = WhileInFlight::Wait(Duration::from_secs(1));
        let operation = Operation::new(RECEIVE).retain(Duration::from_secs(400_000)).while_in_flight(wait);
        let webhook = sender.webhook(&[&secret]).unwrap().tenant(&secrets.tenant);
        let guard = Idempotency::new(guarded.store(), operation).webhook(webhook).world(clock.clone());
        let handler = async |body: Bytes| {
            let fails = body.windows(5).any(|word| word == b"fails");
            if fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
        };
        let app = Router::new().route("/hook", post(handler).route_layer(guard));
        let event = async |flow: &str, secret: &str, edit: &dyn Fn(&mut Headers)| {
            let id = secrets.key(flow);
            let body = json!({ "id": id, "does": flow, "account": secrets.tenant }).to_string();
            let mut headers = sender.headers(secret, &id, body.as_bytes(), clock.now());
            edit(&mut headers);
            deliver(&app, &headers, body).await.status
        };
        assert_eq!(event("kept", &secret, &|_| {}).await, 200);
        assert_eq!(event("kept", &secret, &|_| {}).await, 200);
        assert_eq!(event("fails", &secret, &|_| {}).await, 500);
        assert_eq!(event("fails", &secret, &|_| {}).await, 409);
        assert_eq!(event("forged", &other, &|_| {}).await, 401);
        assert_eq!(event("broken", &secret, &|headers| headers[0].1.clone_from(marker)).await, 401);
        assert_eq!(event("twice", &secret, &|headers| headers.push(headers[0].clone())).await, 401);
        assert_eq!(event("unsigned", &secret, &|headers| headers.clear()).await, 401);
        let not_json = format!("{marker} {{");
        let headers = sender.headers(&secret, &secrets.key("text"), not_json.as_bytes(), clock.now());
        let status = deliver(&app, &headers, not_json).await.status;
        assert_eq!(status, if sender == Sender::Stripe { 400 } else { 200 });
        guarded.faults.for_all("PutItem", Fault::AccessDenied);
        assert_eq!(event("away", &secret, &|_| {}).await, 503);

        secrets.assert_kept(logs);
        if sender != Sender::Shopify {
            let hash = record_key(&secrets.tenant, RECEIVE, &secrets.key("fails")).hash().to_string();
            assert!(!logs.lines_with(&hash).is_empty(), "{sender:?}: operators find it by its hash");
        }
    }
}

#[tokio::test]
async fn refused_webhooks_are_counted_and_the_first_is_logged() {
    let (logs, clock) = (Logs::capture(), clock());
    let name = format!("receive-{}", Secrets::new().marker);
    let operation = Operation::new(&name).retain(Duration::from_secs(400_000));
    let webhook = Sender::Stripe.webhook(&["whsec_of_the_endpoint"]).unwrap();
    let store = lambda_idempotency::MemoryStore::new();
    let guard = Idempotency::new(store, operation).webhook(webhook).world(clock.clone());
    let app = Router::new().route("/hook", post(async || "").route_layer(guard));
    let headers = Sender::Stripe.headers("whsec_of_another_endpoint", "", b"{}", clock.now());
    let ((), counts) = counting(async {
        for headers in [&Headers::new(), &headers, &headers, &Headers::new()] {
            assert_eq!(deliver(&app, headers, "{}").await.status, 401);
        }
    })
    .await;
    assert_eq!(counts, BTreeMap::from([(WEBHOOK_UNSIGNED.to_owned(), 2), (WEBHOOK_REFUSED.to_owned(), 2)]));
    let lines = logs.lines_with(&name);
    let levels: Vec<_> = lines.iter().map(Line::level).collect();
    // Anyone can send them: a flood does not fill the log.
    assert_eq!(levels, ["DEBUG", "WARN", "DEBUG", "DEBUG"], "{lines:?}");
    for line in &lines[1..3] {
        assert!(line.text.contains("\"mismatch\"") && line.text.contains("\"Stripe\""), "{line:?}");
    }
}
