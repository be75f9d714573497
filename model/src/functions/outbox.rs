//! The messages of one key: which were committed, which were delivered, and what their consumer did.

use std::collections::BTreeMap;

use lambda_idempotency::{
    async_trait,
    domain::DomainWrite,
    outbox::{Deliverer, Target, Topics},
    queue::{FifoQueue, QueueError},
    store::{Companion, OutboxMessage},
};

use super::{
    call::{Call, Source},
    services::{GatedQueue, GatedStore, Machine},
    universe::Universe,
};
use crate::kernel::violation::Violation;

/// The topic of every message.
const TOPIC: &str = "done";

fn topics() -> Topics {
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
    fn takes(&mut self, message: &OutboxMessage) -> Option<Violation> {
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

impl Universe {
    /// A target takes a message.
    pub fn delivers(&mut self, message: &OutboxMessage) {
        let key = self.key_id(&message.key);
        let number = serde_json::from_str::<(u64, u8)>(&message.body).map_or(0, |(number, _)| number);
        let is_kept = self.shelf(key).keeps_answer_of(number);
        let violation = self.shelf_mut(key).outbox.takes(message);
        let violation = violation.or((!is_kept).then_some(Violation::NotCommitted));
        violation.into_iter().for_each(|violation| self.violate(violation));
    }
}

/// The queue of wakes behind gates.
struct GatedWakes(Machine);

#[async_trait]
impl FifoQueue for GatedWakes {
    async fn send_in_group(&self, message: &str, _: &str, id: &str) -> Result<(), QueueError> {
        self.0.sends(Call::Wake(message.to_owned(), id.to_owned())).await
    }
}

/// The target of the messages behind gates.
struct GatedTarget(Machine);

#[async_trait]
impl Target for GatedTarget {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), QueueError> {
        self.0.sends(Call::Deliver(Box::new(message.clone()))).await
    }
}

impl Machine {
    pub fn wakes(&self) -> impl FifoQueue {
        GatedWakes(self.clone())
    }

    pub fn deliverer(&self) -> Deliverer {
        Deliverer::new(GatedStore(self.clone()), self.wakes(), topics())
            .work_to(GatedQueue(self.clone(), Source::Work))
            .target(TOPIC, GatedTarget(self.clone()))
            .world(self.clone())
    }
}

/// The message that an execution of this number publishes at this place.
pub fn message(number: u8, place: u8) -> DomainWrite {
    topics().topic(TOPIC).expect("it is in the list").message(&(number, place))
}
