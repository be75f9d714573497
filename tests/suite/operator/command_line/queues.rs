//! As much of SQS as is needed to look at dead letters and to move them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{Json, Router, body::Bytes, http::HeaderMap, http::StatusCode};
use lambda_idempotency::world::{SystemWorld, World};
use serde_json::{Value, json};

/// Queues of messages, each hidden or visible.
#[derive(Clone, Default)]
pub struct Queues(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Vec<Message>>,
    refuse_sending: bool,
    sent: usize,
}

#[derive(Clone)]
struct Message {
    id: String,
    body: String,
    attributes: Value,
    /// With its deduplication id.
    group: (Value, Value),
    hidden: bool,
    /// In milliseconds since 1970.
    sent_at: u64,
}

pub const DEAD: &str = "http://queues/dead-letters";
pub const CHECKS: &str = "http://queues/checks";
pub const RECONCILE: &str = "http://queues/reconcile";
pub const DEFERRED_REPORTS: &str = "http://queues/deferred-reports";
pub const OUTBOX: &str = "http://queues/outbox.fifo";
pub const WORK: &str = "http://queues/work";

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn now() -> u64 {
    SystemWorld.now().as_millis()
}

impl Queues {
    pub fn with_dead_letters(bodies: &[Value]) -> Self {
        let queues = Self::default();
        for body in bodies {
            // A string stands for a body that is not JSON.
            let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
            queues.0.lock().unwrap().put(DEAD, &json!({ "MessageBody": body }));
        }
        queues
    }

    /// Puts a message with these attributes into the dead letters.
    pub fn bury(&self, body: &Value, attributes: &[(&str, &str)]) {
        let text = |value: &&str| json!({ "DataType": "String", "StringValue": value });
        let attributes: Value = attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), text(value)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let message = json!({ "MessageBody": body.to_string(), "MessageAttributes": attributes });
        self.0.lock().unwrap().put(DEAD, &message);
    }

    /// The groups and deduplication ids of the messages in a queue.
    pub fn groups(&self, queue: &str) -> Vec<(Value, Value)> {
        let state = self.0.lock().unwrap();
        state.queues[queue].iter().map(|message| message.group.clone()).collect()
    }

    pub async fn serve(&self) -> String {
        let queues = self.clone();
        let handle = async move |headers: HeaderMap, body: Bytes| {
            let target = headers["x-amz-target"].to_str().expect("a target").to_owned();
            let request = serde_json::from_slice(&body).expect("a request in JSON");
            queues.0.lock().unwrap().answer(&target, &request)
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("its address"));
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handle)).await });
        address
    }

    /// From now on no queue accepts a message.
    pub fn refuse_sending(&self) {
        self.0.lock().unwrap().refuse_sending = true;
    }

    /// The message bodies in a queue, and whether all of them can be received now.
    pub fn of(&self, queue: &str) -> (Vec<String>, bool) {
        let state = self.0.lock().unwrap();
        let messages = state.queues.get(queue).cloned().unwrap_or_default();
        let visible = messages.iter().all(|message| !message.hidden);
        (messages.into_iter().map(|message| message.body).collect(), visible)
    }
}

impl State {
    fn put(&mut self, queue: &str, sent: &Value) {
        self.sent += 1;
        let message = Message {
            id: format!("message-{}", self.sent),
            body: sent["MessageBody"].as_str().expect("a body").to_owned(),
            attributes: sent["MessageAttributes"].clone(),
            group: (sent["MessageGroupId"].clone(), sent["MessageDeduplicationId"].clone()),
            hidden: false,
            // Each an hour later than the one before, and the first one a day ago.
            sent_at: now() - DAY + HOUR * (self.sent as u64 - 1),
        };
        self.queues.entry(queue.to_owned()).or_default().push(message);
    }

    fn answer(&mut self, target: &str, request: &Value) -> (StatusCode, Json<Value>) {
        let queue = request["QueueUrl"].as_str().expect("a queue").to_owned();
        let messages = self.queues.entry(queue.clone()).or_default();
        let handle = request["ReceiptHandle"].as_str().unwrap_or_default();
        let answer = match target.rsplit('.').next() {
            Some("ReceiveMessage") => {
                let most = request["MaxNumberOfMessages"].as_u64().expect("how many") as usize;
                let visible = messages.iter_mut().filter(|message| !message.hidden).take(most);
                let received: Vec<_> = visible
                    .map(|message| {
                        message.hidden = true;
                        json!({
                            "MessageId": message.id,
                            "ReceiptHandle": message.id,
                            "Body": message.body,
                            "MessageAttributes": message.attributes,
                            "Attributes": { "SentTimestamp": message.sent_at.to_string() },
                        })
                    })
                    .collect();
                json!({ "Messages": received })
            }
            Some("SendMessage") if self.refuse_sending => {
                let error =
                    json!({ "__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no such queue" });
                return (StatusCode::BAD_REQUEST, Json(error));
            }
            Some("SendMessage") => {
                self.put(&queue, request);
                json!({ "MessageId": format!("message-{}", self.sent) })
            }
            Some("DeleteMessage") => {
                messages.retain(|message| message.id != handle);
                json!({})
            }
            Some("ChangeMessageVisibility") => {
                messages.iter_mut().filter(|message| message.id == handle).for_each(|m| m.hidden = false);
                json!({})
            }
            other => panic!("no such call: {other:?}"),
        };
        (StatusCode::OK, Json(answer))
    }
}
