//! Messages of a queue of SQS.

use std::{collections::HashMap, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_runtime::Error;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    data::Room,
    received::{Answers, Feed, Has, Received},
};
use crate::{
    event::{
        DeadMessage, Message,
        dead::{DEDUPLICATION_ID, FIFO},
        disposition::{Again, Disposition},
    },
    lambda::trigger::{Event, ItemId},
    store::stream::text_member,
    time::Timestamp,
    time_budget::{HANDED_BACK, HELD, LEASE_OVER, MAX_TURNED_AWAY, MAX_VISIBILITY},
};

/// Lambda's name for SQS.
const SQS: &str = "aws:sqs";

/// A message that is turned away this often has waited for about three hours.
const TURNED_AWAY: u32 = 10;

pub(super) struct Sqs {
    is_fifo: bool,
}

impl Sqs {
    pub(super) fn named(name: &str) -> Self {
        Self { is_fifo: name.ends_with(FIFO) }
    }
}

/// A message as Lambda hands it over. Any member may be missing or null, and there may be others.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SqsMessage {
    message_id: Option<String>,
    receipt_handle: Option<String>,
    body: Option<String>,
    attributes: Option<HashMap<String, Option<String>>>,
    message_attributes: Option<HashMap<String, Option<MessageAttribute>>>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    event_source: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageAttribute {
    string_value: Option<String>,
    binary_value: Option<String>,
}

const NOT_OF_SQS: &str = "the message is not as SQS writes it";

fn never(reason: &str) -> Disposition {
    Disposition::Dead(reason.to_owned())
}

impl Feed for Sqs {
    fn system(&self) -> &'static str {
        "aws_sqs"
    }

    fn noun(&self) -> &'static str {
        "queue"
    }

    fn has(&self) -> Has {
        Has { deduplication_id: self.is_fifo, attributes: true, record_id: false }
    }

    fn brings_parked(&self, _: &Event) -> bool {
        false
    }

    fn counts_receives(&self) -> bool {
        true
    }

    fn answers(&self) -> Answers {
        Answers::Partial
    }

    fn records(&self, event: &Event) -> Result<Vec<Box<RawValue>>, Error> {
        event.records()
    }

    fn read(&self, raw: Box<RawValue>, name: &str, _: &mut Room) -> Received {
        match serde_json::from_str::<SqsMessage>(raw.get()) {
            Ok(message) => of(message, name),
            Err(_) => unreadable(&raw, name),
        }
    }

    fn after(&self, again: Again, seen: u32, nonce: [u8; 16]) -> Duration {
        match again {
            // One receive more, not one each second (T67).
            Again::InFlight { lease_left } if !lease_left.is_zero() => {
                lease_left.saturating_add(LEASE_OVER).min(MAX_VISIBILITY)
            }
            Again::InFlight { .. }
            | Again::Failed
            | Again::FailedUncounted
            | Again::Unavailable
            | Again::NoTime
            | Again::NoRoom => HANDED_BACK.after(seen, nonce),
            // Rarely, so that the queue gives up after weeks, and not in days.
            Again::Unknown { wait } | Again::OverBound { wait } => {
                HELD.after(seen, nonce).max(wait.min(HELD.max))
            }
            Again::Stopped => HELD.after(seen, nonce),
        }
    }

    fn waits(&self) -> bool {
        false
    }

    /// A queue deletes what it has kept for too long, without a word. One that is old for another reason is turned away for some hours first.
    fn gives_up(&self, again: Again, age: Duration, seen: u32, _: bool) -> Option<String> {
        let is_turned_away = matches!(again, Again::OverBound { .. } | Again::Stopped);
        let days = MAX_TURNED_AWAY.as_secs() / (24 * 3600);
        (is_turned_away && age >= MAX_TURNED_AWAY && seen >= TURNED_AWAY)
            .then(|| format!("{}, and it was sent {days} days ago or earlier", again.why()))
    }

    fn letter(&self, received: &Received) -> DeadMessage {
        DeadMessage::of(&received.message)
    }
}

/// Where it is from, if that is not this queue.
fn foreign(arn: Option<&str>, kind: Option<&str>, name: &str) -> Option<String> {
    let named = arn.and_then(|arn| arn.rsplit(':').next());
    let is_ours = kind == Some(SQS) && named == Some(name);
    (!is_ours).then(|| arn.or(kind).unwrap_or("an unknown source").to_owned())
}

fn unreadable(raw: &RawValue, name: &str) -> Received {
    let [id, receipt, queue, kind, body] =
        ["messageId", "receiptHandle", "eventSourceARN", "eventSource", "body"]
            .map(|name| text_member(raw.get(), name));
    // Its group waits behind it, if its burial fails.
    let record: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let group = record["attributes"]["MessageGroupId"].as_str().map(str::to_owned);
    let group = group.filter(|_| queue.as_deref().is_some_and(|arn| arn.ends_with(FIFO)));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let body = body.unwrap_or_else(|| match &record["body"] {
        // The whole record, if it is nothing that can be read.
        Value::Null if record.is_null() => raw.get().to_owned(),
        Value::Null => String::new(),
        body => body.to_string(),
    });
    let attributes = record["messageAttributes"].as_object().into_iter().flatten();
    let mut attributes: HashMap<_, _> =
        attributes.filter_map(|(name, value)| Some((name.clone(), text(&value["stringValue"])?))).collect();
    let deduplication_id = attributes.remove(DEDUPLICATION_ID);
    let deduplication_id = deduplication_id.or_else(|| text(&record["attributes"]["MessageDeduplicationId"]));
    let receives = record["attributes"]["ApproximateReceiveCount"].as_str();
    let receives = receives.and_then(|receives| receives.parse().ok()).unwrap_or(1);
    Received {
        foreign: foreign(queue.as_deref(), kind.as_deref(), name),
        lane: group.as_ref().map(|group| format!("group {group}")),
        item: id.clone().map(ItemId::Id),
        message: Message { id, body, attributes, group, deduplication_id, receives, ..Message::default() },
        receipt,
        unusable: Some(never(NOT_OF_SQS)),
        sent_at: None,
        raw: None,
    }
}

fn of(message: SqsMessage, name: &str) -> Received {
    let (mut text, mut binary) = (HashMap::new(), HashMap::new());
    let mut unusable = message.body.is_none().then_some("the message has no body");
    for (name, value) in message.message_attributes.unwrap_or_default() {
        match value.map(|value| (value.string_value, value.binary_value)) {
            Some((Some(value), _)) => drop(text.insert(name, value)),
            Some((None, Some(bytes))) => match BASE64_STANDARD.decode(bytes) {
                Ok(bytes) => drop(binary.insert(name, bytes)),
                Err(_) => unusable = Some(NOT_OF_SQS),
            },
            Some((None, None)) | None => {}
        }
    }
    let mut attributes = message.attributes.unwrap_or_default();
    // If it comes back from the dead letters, it has another one of the queue's.
    let deduplication_id = text.remove(DEDUPLICATION_ID);
    let mut system = |name: &str| attributes.remove(name).flatten();
    let is_fifo = message.event_source_arn.as_ref().is_some_and(|arn| arn.ends_with(FIFO));
    // A standard queue may have groups too, for fairness: they have no order.
    let group = system("MessageGroupId").filter(|_| is_fifo);
    let id = message.message_id.filter(|id| !id.is_empty());
    Received {
        foreign: foreign(message.event_source_arn.as_deref(), message.event_source.as_deref(), name),
        lane: group.as_ref().map(|group| format!("group {group}")),
        item: id.clone().map(ItemId::Id),
        message: Message {
            id,
            body: message.body.unwrap_or_default(),
            attributes: text,
            binary_attributes: binary,
            envelope_id: None,
            record_id: None,
            group,
            deduplication_id: deduplication_id.or_else(|| system("MessageDeduplicationId")),
            receives: system("ApproximateReceiveCount").and_then(|count| count.parse().ok()).unwrap_or(1),
        },
        receipt: message.receipt_handle,
        unusable: unusable.map(never),
        sent_at: system("SentTimestamp").and_then(|at| at.parse().ok()).map(Timestamp::from_millis),
        raw: None,
    }
}
