//! Webhooks, signed together with the time of sending: `t=<unix seconds>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`.

use super::books::Webhook;
use futures_util::{StreamExt, stream};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use sha2::Sha256;
use std::{
    fmt::Write,
    time::{Duration, SystemTime},
};

const SIGNATURE: &str = "Provider-Signature";
/// Deliveries at once.
const AT_ONCE: usize = 4;
/// A receiver that takes longer does not count as having acknowledged.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The receiver of webhooks.
pub struct Receiver {
    url: String,
    secret: String,
    http: Client,
}

impl Receiver {
    pub fn new(url: String, secret: &str) -> Self {
        Self { url, secret: secret.to_owned(), http: Client::new() }
    }

    /// Sends each of these once, and returns the ids of those that the receiver acknowledged.
    pub async fn send(&self, webhooks: Vec<Webhook>) -> Vec<u64> {
        let sent = stream::iter(webhooks).map(|webhook| self.send_one(webhook)).buffer_unordered(AT_ONCE);
        sent.filter_map(|acknowledged| async move { acknowledged }).collect().await
    }

    async fn send_one(&self, webhook: Webhook) -> Option<u64> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = sign(&self.secret, now, &webhook.body);
        let request = self.http.post(&self.url).timeout(TIMEOUT).header(SIGNATURE, signature);
        let request = request.header("Content-Type", "application/json").body(webhook.body);
        request.send().await.is_ok_and(|answer| answer.status().is_success()).then_some(webhook.id)
    }
}

fn sign(secret: &str, time: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key may have any length");
    mac.update(format!("{time}.{body}").as_bytes());
    let mut signature = format!("t={time},v1=");
    for byte in mac.finalize().into_bytes() {
        let _ = write!(signature, "{byte:02x}");
    }
    signature
}
