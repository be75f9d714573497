//! What operations have published, and what of it is delivered.

use super::timeline::now;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The latest messages that are kept.
const MAX_LATEST: usize = 20;
/// The most messages that wait for their delivery, and are known here.
const MAX_PENDING: usize = 10_000;

/// Where a message is: the partition key of its record, and its sort key.
pub type Place = (String, String);

/// The outbox, since the start.
#[derive(Default)]
pub struct Outbox {
    pub seen: Seen,
    /// Their topics.
    pending: HashMap<Place, String>,
}

/// What the page shows of it.
#[derive(Clone, Default)]
pub struct Seen {
    pub topics: BTreeMap<String, Counts>,
    /// The newest first.
    pub latest: VecDeque<Message>,
}

/// The messages of one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub published: u64,
    pub delivered: u64,
}

#[derive(Clone)]
pub struct Message {
    place: Place,
    pub topic: String,
    /// Of the key whose operation has published it.
    pub timeline: u64,
    /// Milliseconds since 1970.
    pub published: u64,
    pub delivered: Option<u64>,
}

impl Outbox {
    /// An operation has published a message.
    pub fn published(&mut self, place: &Place, topic: &str, timeline: u64) {
        // A write that is sent again publishes nothing more.
        if self.pending.contains_key(place) || self.pending.len() >= MAX_PENDING {
            return;
        }
        self.pending.insert(place.clone(), topic.to_owned());
        self.seen.topics.entry(topic.to_owned()).or_default().published += 1;
        let (place, topic) = (place.clone(), topic.to_owned());
        self.seen.latest.push_front(Message { place, topic, timeline, published: now(), delivered: None });
        self.seen.latest.truncate(MAX_LATEST);
    }

    /// A message was removed, because it is delivered. Returns its topic.
    pub fn delivered(&mut self, place: &Place) -> Option<String> {
        let topic = self.pending.remove(place)?;
        self.seen.topics.entry(topic.clone()).or_default().delivered += 1;
        if let Some(message) = self.seen.latest.iter_mut().find(|message| message.place == *place) {
            message.delivered = Some(now());
        }
        Some(topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_pending_until_it_is_removed() {
        let mut outbox = Outbox::default();
        let place = |number: u32| ("acme#pay#k".to_owned(), format!("message#{number}"));
        outbox.published(&place(0), "paid", 1);
        outbox.published(&place(0), "paid", 1);
        outbox.published(&place(1), "paid", 1);
        assert_eq!(outbox.delivered(&place(0)).as_deref(), Some("paid"));
        assert_eq!(outbox.delivered(&place(0)), None, "it is gone");
        assert_eq!(outbox.seen.topics["paid"], Counts { published: 2, delivered: 1 });
        let states: Vec<_> = outbox.seen.latest.iter().map(|message| message.delivered.is_some()).collect();
        assert_eq!(states, [false, true], "the newest first");
        for number in 2..100 {
            outbox.published(&place(number), "paid", 1);
        }
        assert_eq!(outbox.seen.latest.len(), MAX_LATEST);
    }
}
