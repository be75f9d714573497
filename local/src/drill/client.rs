//! What a drill sends: requests of clients, messages of producers.

use super::stage::{PATIENCE, PAUSE, Stage};
use futures_util::future::join_all;
use lambda_idempotency::telemetry::error_chain;
use serde_json::{Value, json};
use std::future::Future;
use tokio::time::{self, Instant};
use uuid::Uuid;

/// The clients of the drills, all of one tenant: also the one whose orders the queue has.
pub const TENANT: &str = "acme";

/// An idempotency key that no other request has.
pub fn fresh() -> String {
    Uuid::new_v4().to_string()
}

/// A payment with this card.
pub fn payment(source: &str) -> Value {
    json!({ "customerId": "drill", "amountCents": 100, "currency": "EUR", "source": source })
}

/// An order with this card.
pub fn order(source: &str) -> Value {
    let mut order = payment(source);
    order["sku"] = json!("drill");
    order["quantity"] = json!(1);
    order
}

impl Stage {
    /// A request, with the status of its answer, or 0 without one.
    pub fn request(&self, path: &str, key: &str, body: &Value) -> impl Future<Output = u16> + use<> {
        let request = self.cloud.http.post(format!("{}{path}", self.cloud.url)).bearer_auth(TENANT);
        let request = request.header("idempotency-key", format!("\"{key}\"")).json(body);
        async move { request.send().await.map_or(0, |answer| answer.status().as_u16()) }
    }

    /// Sends a request that gets this status.
    pub async fn post(&self, path: &str, key: &str, body: &Value, status: u16) -> Result<(), String> {
        match self.request(path, key, body).await {
            got if got == status => Ok(()),
            got => Err(format!("POST {path} answers {got}, not {status}")),
        }
    }

    /// Sends so many requests at once, each with a key of its own. Whatever their answers are.
    pub async fn flood(&self, path: &str, body: &Value, count: usize) {
        join_all((0..count).map(|_| self.request(path, &fresh(), body))).await;
    }

    /// Lets the provider send the webhooks that it holds.
    pub async fn deliver(&self) -> Result<(), String> {
        let sent = self.cloud.http.post(format!("{}/deliver", self.cloud.provider.url)).send().await;
        sent.map(drop).map_err(|error| error_chain(&error))
    }

    /// Sends a message to a queue.
    pub async fn send(&self, queue: &str, body: &str) -> Result<(), String> {
        let queue = self.queue(queue)?;
        let send = self.cloud.queues.client.send_message().queue_url(&queue.url).message_body(body);
        let send = match queue.is_fifo {
            true => send.message_group_id(fresh()).message_deduplication_id(fresh()),
            false => send,
        };
        send.send().await.map(drop).map_err(|error| error_chain(&error))
    }

    /// Takes every visible message out of a queue, as an operator does who has dealt with them.
    pub async fn empty(&self, queue: &str) -> Result<(), String> {
        let (client, url) = (&self.cloud.queues.client, &self.queue(queue)?.url);
        loop {
            let receive = client.receive_message().queue_url(url).max_number_of_messages(10).send().await;
            let messages = receive.map_err(|error| error_chain(&error))?.messages.unwrap_or_default();
            if messages.is_empty() {
                return Ok(());
            }
            for message in messages {
                let delete = client.delete_message().queue_url(url);
                let deleted =
                    delete.receipt_handle(message.receipt_handle().unwrap_or_default()).send().await;
                deleted.map_err(|error| error_chain(&error))?;
            }
        }
    }

    /// Drops all messages of a queue, also those in flight. SQS does that once a minute at most.
    pub async fn purge(&self, queue: &str) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let purge = self.cloud.queues.client.purge_queue().queue_url(&self.queue(queue)?.url);
            match purge.send().await {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error_chain(&error)),
                Err(_) => time::sleep(PAUSE).await,
            }
        }
    }
}
