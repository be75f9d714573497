//! The routes for queues with dead letters: send a message, look at the queue, send its dead letters back. A queue to which
//! an event bus or the nested stack sends takes no message here.
//!
//! Dead letters of a FIFO queue are taken out of their queue when they are looked at, and kept here until they are sent back: the queue would
//! show only the first one of each group.

use crate::{
    gateway,
    queues::{FIFO, Queues},
    template::{Queue, Stack},
};
use aws_sdk_sqs::{
    error::{ProvideErrorMetadata, SdkError},
    types::{Message, MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use lambda_idempotency::telemetry::error_chain;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::{BTreeMap, VecDeque},
    error::Error,
    sync::Arc,
};
use tokio::sync::Mutex;
use uuid::Uuid;

/// The attributes of a dead letter that say why it is dead, and which message it was.
const REASON: &str = "idempotency-reason";
const MESSAGE_ID: &str = "idempotency-message-id";
/// The group of messages that name none: they keep their order.
const GROUP: &str = "default";

/// For how long dead letters are hidden while they are looked at.
const HIDDEN_SECS: i32 = 30;

/// A queue with these routes.
struct Open {
    queue: Queue,
    /// The URL of its dead letters.
    dead_letters: String,
    /// Whether anybody may send to it.
    is_public: bool,
    /// Dead letters that were taken out of their queue.
    taken: Mutex<VecDeque<Message>>,
}

struct Routes {
    queues: Arc<Queues>,
    open: Vec<Open>,
}

pub fn router<S>(queues: Arc<Queues>, stack: &Stack) -> Router<S> {
    let is_public = |queue: &Queue| {
        let of_a_rule = stack.rules.iter().any(|rule| rule.queue_arns.contains(&queue.arn));
        !of_a_rule && !stack.outputs.values().any(|output| *output == queue.url)
    };
    let open = queues.all.iter().filter_map(|queue| {
        let (dead_letters, _) = queue.dead_letters.as_ref()?;
        Some(Open {
            queue: queue.clone(),
            dead_letters: queues.with_arn(dead_letters)?.url.clone(),
            is_public: is_public(queue),
            taken: Mutex::default(),
        })
    });
    let open = open.collect();
    Router::new()
        .route("/queues/{name}", get(look).post(send))
        .route("/queues/{name}/redrive", post(redrive))
        .with_state(Arc::new(Routes { queues, open }))
}

/// A message as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewMessage {
    /// A string, whose text is sent, or other JSON, which is sent as it is written: no number or repeated name changes its meaning.
    body: Box<RawValue>,
    group_id: Option<String>,
    /// Each message is sent, if this is missing.
    deduplication_id: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

async fn send(State(routes): State<Arc<Routes>>, Path(name): Path<String>, message: Bytes) -> Response {
    let answer = async {
        let open = routes.open(&name).ok_or_else(unknown)?;
        if !open.is_public {
            return Err(gateway::message(StatusCode::FORBIDDEN, "only the stack itself sends to this queue"));
        }
        let unreadable = |error: serde_json::Error| {
            gateway::message(StatusCode::BAD_REQUEST, &format!("the message: {error}"))
        };
        let message: NewMessage = serde_json::from_slice(&message).map_err(unreadable)?;
        let NewMessage { body, group_id, deduplication_id, attributes } = message;
        let body = match body.get() {
            string if string.starts_with('"') => serde_json::from_str(string).map_err(unreadable)?,
            json => json.to_owned(),
        };
        let send = routes.queues.client.send_message().queue_url(&open.queue.url).message_body(body);
        let send = match open.queue.is_fifo {
            true => send
                .message_group_id(group_id.unwrap_or_else(|| GROUP.to_owned()))
                .message_deduplication_id(deduplication_id.unwrap_or_else(fresh)),
            false => send,
        };
        let attributes = attributes.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        let sent = send.set_message_attributes(Some(attributes)).send().await.map_err(failed)?;
        Ok((StatusCode::ACCEPTED, Json(json!({ "id": sent.message_id }))).into_response())
    };
    answer.await.unwrap_or_else(|refused: Response| refused)
}

async fn look(State(routes): State<Arc<Routes>>, Path(name): Path<String>) -> Response {
    let answer = async {
        let open = routes.open(&name).ok_or_else(unknown)?;
        let [ready, in_flight] = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let get = routes.queues.client.get_queue_attributes().queue_url(&open.queue.url);
        let get = get.attribute_names(ready.clone()).attribute_names(in_flight.clone());
        let numbers = get.send().await.map_err(failed)?.attributes.unwrap_or_default();
        let number = |name| numbers.get(name).and_then(|number| number.parse::<u64>().ok());
        let mut taken = open.taken.lock().await;
        let seen = match open.queue.is_fifo {
            true => routes.take(open, &mut taken).await.map(|()| Vec::new())?,
            false => routes.seen(open).await?,
        };
        let dead_letters: Vec<_> = taken.iter().chain(&seen).map(shown).collect();
        let shown =
            json!({ "ready": number(&ready), "inFlight": number(&in_flight), "deadLetters": dead_letters });
        Ok(Json(shown).into_response())
    };
    answer.await.unwrap_or_else(|refused: Response| refused)
}

/// Sends all dead letters back, in their order. They are new messages: SQS would drop one that it has deduplicated already.
async fn redrive(State(routes): State<Arc<Routes>>, Path(name): Path<String>) -> Response {
    let answer = async {
        let open = routes.open(&name).ok_or_else(unknown)?;
        let mut taken = open.taken.lock().await;
        routes.take(open, &mut taken).await?;
        let mut redriven = 0;
        while let Some(letter) = taken.front() {
            let send = routes.queues.client.send_message().queue_url(&open.queue.url);
            let send = send.message_body(letter.body().unwrap_or_default());
            let group = group(letter).map(str::to_owned);
            let send = send.set_message_deduplication_id(group.as_ref().map(|_| fresh()));
            let send = send.set_message_group_id(group);
            let mut attributes = letter.message_attributes().cloned().unwrap_or_default();
            attributes.remove(REASON);
            let send = send.set_message_attributes(Some(attributes));
            send.send().await.map_err(failed)?;
            taken.pop_front();
            redriven += 1;
        }
        Ok(Json(json!({ "redriven": redriven })).into_response())
    };
    answer.await.unwrap_or_else(|refused: Response| refused)
}

impl Routes {
    /// The queue of this name, with or without the end that FIFO queues have.
    fn open(&self, name: &str) -> Option<&Open> {
        let name = name.strip_suffix(FIFO).unwrap_or(name);
        self.open.iter().find(|open| open.queue.name == name)
    }

    /// Some dead letters, which are hidden now.
    async fn receive(&self, open: &Open) -> Result<Vec<Message>, Response> {
        let receive = self.queues.client.receive_message().queue_url(&open.dead_letters);
        let receive = receive.max_number_of_messages(10).visibility_timeout(HIDDEN_SECS);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let received = receive.message_attribute_names("All").send().await.map_err(failed)?;
        Ok(received.messages.unwrap_or_default())
    }

    /// All dead letters, which others see afterwards as before.
    async fn seen(&self, open: &Open) -> Result<Vec<Message>, Response> {
        let mut seen = Vec::new();
        let ended = loop {
            match self.receive(open).await {
                Ok(letters) if letters.is_empty() => break Ok(()),
                Ok(letters) => seen.extend(letters),
                Err(error) => break Err(error),
            }
        };
        for letter in &seen {
            let release = self.queues.client.change_message_visibility().queue_url(&open.dead_letters);
            let release = release.visibility_timeout(0).set_receipt_handle(letter.receipt_handle.clone());
            // Otherwise it is visible when its time is over.
            drop(release.send().await);
        }
        ended.map(|()| seen)
    }

    /// Takes all dead letters out of their queue.
    async fn take(&self, open: &Open, taken: &mut VecDeque<Message>) -> Result<(), Response> {
        let (client, url) = (&self.queues.client, &open.dead_letters);
        loop {
            let letters = self.receive(open).await?;
            if letters.is_empty() {
                return Ok(());
            }
            for letter in letters {
                let receipt = letter.receipt_handle().unwrap_or_default();
                client
                    .delete_message()
                    .queue_url(url)
                    .receipt_handle(receipt)
                    .send()
                    .await
                    .map_err(failed)?;
                taken.push_back(letter);
            }
        }
    }
}

/// A dead letter, as it is shown.
fn shown(letter: &Message) -> Value {
    let attributes = letter.message_attributes().into_iter().flatten();
    let mut attributes: BTreeMap<_, _> =
        attributes.filter_map(|(name, value)| Some((&**name, value.string_value()?))).collect();
    let id = attributes.remove(MESSAGE_ID).or(letter.message_id());
    let reason = attributes.remove(REASON).unwrap_or("it was received too often");
    let (body, group) = (letter.body(), group(letter));
    json!({ "id": id, "body": body, "reason": reason, "groupId": group, "attributes": attributes })
}

fn unknown() -> Response {
    gateway::message(StatusCode::NOT_FOUND, "there is no such queue")
}

/// Its group, in a FIFO queue.
fn group(letter: &Message) -> Option<&str> {
    let group = letter.attributes()?.get(&MessageSystemAttributeName::MessageGroupId);
    group.map(String::as_str)
}

fn text(value: &str) -> MessageAttributeValue {
    let value = MessageAttributeValue::builder().data_type("String").string_value(value);
    value.build().expect("it has a type")
}

fn fresh() -> String {
    Uuid::new_v4().to_string()
}

/// SQS refuses the request, or does not answer.
fn failed<E: ProvideErrorMetadata + Error + 'static>(error: SdkError<E>) -> Response {
    match &error {
        SdkError::ServiceError(refused) => {
            gateway::message(StatusCode::BAD_REQUEST, refused.err().message().unwrap_or("SQS refuses it"))
        }
        error => gateway::message(StatusCode::BAD_GATEWAY, &format!("SQS: {}", error_chain(error))),
    }
}
