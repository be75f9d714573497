//! The messages of one key: which were committed, which were delivered, and what their consumer did.

use std::collections::BTreeMap;

use lambda_idempotency::{
    domain::DomainWrite,
    outbox::Topics,
    record::Record,
    store::{Companion, Item, OutboxMessage},
};
use serde_json::{Value, json};

use crate::kernel::violation::Violation;

/// The topic of every message.
pub const TOPIC: &str = "done";

pub fn topics() -> Topics {
    Topics::parse(&format!("{TOPIC}=own")).expect("a list of topics")
}

/// What was published under one key, and what became of it.
#[derive(Debug, Default, Hash)]
pub struct Outbox {
    /// The ids and the bodies of all messages that were committed, in that order.
    pub published: Vec<(String, String)>,
    /// The ids of those that reads of several items do not see yet.
    pub unseen: Vec<String>,
    /// The bodies that were handed over, each at its first time.
    pub delivered: Vec<String>,
    /// What the consumer acted on, by the id that is its idempotency key.
    acted: BTreeMap<String, String>,
}

impl Outbox {
    /// A transaction with these companions is committed.
    pub fn commits(&mut self, with: &[Companion]) {
        let messages = with.iter().filter_map(|companion| match companion {
            Companion::Message(message) => Some((message.id(), message.body.clone())),
            _ => None,
        });
        self.published.extend(messages);
    }

    /// These messages are not seen yet.
    pub fn hides(&mut self, with: &[Companion]) {
        let ids = with.iter().filter_map(|companion| match companion {
            Companion::Message(message) => Some(message.id()),
            _ => None,
        });
        self.unseen.extend(ids);
    }

    /// A message is handed over. Returns what that violates.
    pub fn takes(&mut self, message: &OutboxMessage) -> Option<Violation> {
        let known = (message.id(), message.body.clone());
        let Some(place) = self.published.iter().position(|published| *published == known) else {
            return Some(Violation::NotCommitted);
        };
        let (id, body) = known;
        let acts = !self.acted.contains_key(&id);
        let acted_before = self.acted.values().any(|acted| *acted == body);
        // Another message has its id, or it has another id than before.
        let is_its = if acts { !acted_before } else { self.acted[&id] == body };
        self.acted.entry(id).or_insert_with(|| body.clone());
        if !is_its {
            return Some(Violation::ActedTwice);
        }
        if self.delivered.contains(&body) {
            return None;
        }
        let earlier = &self.published[..place];
        let is_early = earlier.iter().any(|(_, earlier)| !self.delivered.contains(earlier));
        self.delivered.push(body);
        is_early.then_some(Violation::DeliveredOutOfOrder)
    }
}

/// The message that an execution of this number publishes at this place.
pub fn message(number: u8, place: u8) -> DomainWrite {
    topics().topic(TOPIC).expect("it is in the list").message(&(number, place))
}

/// What the table's stream shows of a write: the record, and each message.
pub fn batch(number: u64, before: Option<&Record>, after: &Record, with: &[Companion]) -> String {
    let image = |record: &Record| -> serde_dynamo::Item {
        serde_dynamo::to_item(Item::from(record)).expect("an item")
    };
    let change = |sk: Value, image: Value| {
        json!({
            "Keys": { "pk": { "S": after.key.partition_key() }, "sk": sk },
            "NewImage": image,
            "SequenceNumber": number.to_string(),
        })
    };
    let mut record = change(json!({ "S": "record" }), json!(image(after)));
    if let Some(before) = before {
        record["OldImage"] = json!(image(before));
    }
    let messages = with.iter().filter_map(|companion| match companion {
        Companion::Message(message) => {
            let sk = format!("message#{:013}#{:010}", message.created_at.as_millis(), message.sequence);
            Some(change(json!({ "S": sk }), json!({})))
        }
        _ => None,
    });
    let changes: Vec<_> =
        [record].into_iter().chain(messages).map(|change| json!({ "dynamodb": change })).collect();
    json!(changes).to_string()
}
