//! Senders of webhooks: what they sign, as their documentation says. `fixtures/webhooks.json` has what their own libraries sign.

use axum::{Router, body::Body, http::Request};
use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use lambda_idempotency::{http::Webhook, key::signature::SignatureError, time::Timestamp};
use sha2::Sha256;

use super::http::{Answer, send};

/// The operation of the guards of webhooks.
pub const RECEIVE: &str = "receive-event";

/// A secret that each sender can have.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub const OTHER_SECRET: &str = "whsec_T3RoZXIgc2VjcmV0IG9mIGFub3RoZXIh";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Stripe,
    GitHub,
    Shopify,
    Standard,
    Svix,
}

pub const SENDERS: [Sender; 5] =
    [Sender::Stripe, Sender::GitHub, Sender::Shopify, Sender::Standard, Sender::Svix];

pub type Headers = Vec<(&'static str, String)>;

impl Sender {
    pub fn webhook(self, secrets: &[&str]) -> Result<Webhook, SignatureError> {
        match self {
            Self::Stripe => Webhook::stripe(secrets),
            Self::GitHub => Webhook::github(secrets),
            Self::Shopify => Webhook::shopify(secrets),
            Self::Standard => Webhook::standard(secrets),
            Self::Svix => Webhook::svix(secrets),
        }
    }

    /// The tenant of its events.
    pub fn tenant(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::GitHub => "github",
            Self::Shopify => "shopify",
            Self::Standard => "webhooks",
            Self::Svix => "svix",
        }
    }

    /// Whether it signs by Standard Webhooks.
    pub fn is_standard(self) -> bool {
        [Self::Standard, Self::Svix].contains(&self)
    }

    /// The parts of the key of an event with this id.
    pub fn key(self, id: &str) -> Vec<&str> {
        if self == Self::Shopify { vec![id, "orders/create"] } else { vec![id] }
    }

    /// The body of an event; it is another one with each `delivery`.
    pub fn body(self, id: &str, delivery: usize) -> String {
        format!(r#"{{"id":"{id}","note":"Grüße — 🎉","pending_webhooks":{delivery}}}"#)
    }

    /// The headers of an event with this id and this body.
    pub fn headers(self, secret: &str, id: &str, body: &[u8], now: Timestamp) -> Headers {
        let seconds = (now.as_millis() / 1000).to_string();
        let signed = |secret: &[u8], pieces: &[&[u8]]| {
            let keyed = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
            let keyed = pieces.iter().fold(keyed, |keyed, piece| keyed.chain_update(piece));
            keyed.finalize().into_bytes()
        };
        match self {
            Self::Stripe => {
                let digest = signed(secret.as_bytes(), &[seconds.as_bytes(), b".", body]);
                vec![("stripe-signature", format!("t={seconds},v1={},v0=0", hex(&digest)))]
            }
            Self::GitHub => {
                let digest = signed(secret.as_bytes(), &[body]);
                vec![
                    ("x-hub-signature-256", format!("sha256={}", hex(&digest))),
                    ("x-github-delivery", id.to_owned()),
                ]
            }
            Self::Shopify => {
                let digest = signed(secret.as_bytes(), &[body]);
                vec![
                    ("x-shopify-hmac-sha256", BASE64_STANDARD.encode(digest)),
                    ("x-shopify-event-id", id.to_owned()),
                    ("x-shopify-topic", "orders/create".to_owned()),
                ]
            }
            Self::Standard | Self::Svix => {
                let [signature, time, of_event] = match self {
                    Self::Svix => ["svix-signature", "svix-timestamp", "svix-id"],
                    _ => ["webhook-signature", "webhook-timestamp", "webhook-id"],
                };
                let secret = BASE64_STANDARD.decode(secret.trim_start_matches("whsec_")).expect("Base64");
                let digest = signed(&secret, &[id.as_bytes(), b".", seconds.as_bytes(), b".", body]);
                vec![
                    (signature, format!("v1a,AAAA v1,{}", BASE64_STANDARD.encode(digest))),
                    (time, seconds),
                    (of_event, id.to_owned()),
                ]
            }
        }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A delivery to `/hook`.
pub fn request(headers: &Headers, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post("/hook").header("content-type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    request.body(body.into()).expect("a request")
}

pub async fn deliver(app: &Router, headers: &Headers, body: impl Into<Body>) -> Answer {
    send(app, request(headers, body)).await
}
