//! A client of the payments API in the local cloud.

use super::local_cloud::LocalCloud;
use reqwest::Response;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a test waits for an event in another process. Success takes a fraction of this. Only a failure takes as long.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The parts of an answer that a client can distinguish.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub problem: Option<String>,
    pub replayed: bool,
    /// The body could not be kept in time.
    pub body_omitted: bool,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub(super) async fn of(response: Response) -> Self {
        let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (status, location) = (response.status().as_u16(), header("location"));
        let replayed = header("idempotent-replayed").as_deref() == Some("true");
        let body_omitted = header("idempotent-replayed-body").as_deref() == Some("omitted");
        let body = response.bytes().await.expect("the answer comes whole").to_vec();
        let document: Option<Value> = serde_json::from_slice(&body).ok();
        let problem = document.and_then(|document| Some(document.get("type")?.as_str()?.to_owned()));
        Self { status, problem, replayed, body_omitted, location, body }
    }

    /// Whether it is the operation's final answer: a payment, or a declined card. After any other answer, the client must be able to send
    /// the same request again.
    pub fn is_final(&self) -> bool {
        match self.problem() {
            (201 | 402, _) => true,
            (409, "in-flight" | "outcome-unknown") | (500 | 504, "charge-unknown") => false,
            (503, "store-unavailable" | "provider-away") | (502, "") => false,
            _ => panic!("of no use to a client: {self:?}"),
        }
    }

    /// The status and the problem's name.
    pub fn problem(&self) -> (u16, &str) {
        (
            self.status,
            self.problem.as_deref().map_or("", |problem| problem.rsplit(':').next().unwrap_or_default()),
        )
    }
}

impl LocalCloud {
    /// Starts a cloud on this DynamoDB, with separate tables, and with durations that are short, but not for a busy machine. Unknown outcomes stay unknown, because there is no poll
    /// unless `POLL_MS` is set.
    pub async fn on(endpoint: &str, variables: &[(&str, &str)]) -> Self {
        let prefix = format!("t{}-", Uuid::new_v4().simple());
        let mut all = vec![
            ("DYNAMODB_ENDPOINT", endpoint),
            ("TABLE_PREFIX", prefix.as_str()),
            ("FUNCTION_TIMEOUT_MS", "8000"),
            ("PROVIDER_TIMEOUT_MS", "3000"),
            ("LEASE_GRACE_MS", "500"),
            ("POLL_MS", "3600000"),
        ];
        all.extend(variables);
        Self::start(&all).await
    }

    /// Sends a payment of 19.99 with this card.
    pub async fn pay(&self, key: &str, source: &str) -> Answer {
        self.pay_cents(key, source, 1999).await
    }

    pub async fn pay_cents(&self, key: &str, source: &str, cents: u64) -> Answer {
        let order = json!({ "customerId": "c-1", "amountCents": cents, "currency": "EUR", "source": source });
        let request = self.post("/payments").bearer_auth("acme").header("Idempotency-Key", key).json(&order);
        Answer::of(request.send().await.expect("the front answers")).await
    }

    /// The operation's state from its status resource. The status code if it has none.
    pub async fn state(&self, key: &str) -> String {
        let request = self.get(&format!("/operations/{key}?operation=create-payment")).bearer_auth("acme");
        let answer = Answer::of(request.send().await.expect("the front answers")).await;
        let document: Value = serde_json::from_slice(&answer.body).expect("a status is JSON");
        document["state"].as_str().map_or_else(|| answer.status.to_string(), str::to_owned)
    }

    /// Retries the same payment until the answer is none of these.
    pub async fn retry_past(&self, key: &str, source: &str, past: &[(u16, &str)]) -> Answer {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let answer = self.pay(key, source).await;
            if !past.contains(&answer.problem()) {
                return answer;
            }
            assert!(Instant::now() < deadline, "still {answer:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until this is true.
    pub async fn until(&self, so: impl AsyncFn() -> bool, what: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !so().await {
            assert!(Instant::now() < deadline, "in time: {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends the same payment until the answer is final.
    pub async fn pay_in_the_end(&self, key: &str, source: &str, cents: u64) -> Answer {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let answer = self.pay_cents(key, source, cents).await;
            if answer.is_final() {
                return answer;
            }
            assert!(Instant::now() < deadline, "{key} has no answer: {answer:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How many charges were made with this card.
    pub async fn charged(&self, source: &str) -> usize {
        self.charges().await.iter().filter(|charge| charge.source == source).count()
    }

    /// The process ids of the payments function's live environments.
    pub async fn environments(&self) -> Vec<u32> {
        self.processes("payments").await
    }

    /// The process ids of a function's live environments.
    pub async fn processes(&self, function: &str) -> Vec<u32> {
        let answer = self.get("/environments").send().await.expect("the front answers");
        let document: Value = answer.json().await.expect("a JSON document");
        let environments = document["environments"].as_array().expect("a list");
        let environments = environments.iter().filter(|environment| environment["function"] == function);
        environments.filter_map(|environment| Some(environment["pid"].as_u64()? as u32)).collect()
    }
}
