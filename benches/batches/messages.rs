//! Batches of messages, as Lambda hands them over.

/// One message. Each `KEY` in it is replaced.
const MESSAGE: &str = include_str!("message.json");

/// The queue that the messages are from.
pub const QUEUE: &str = "orders";

/// How many batches are one sample: two, so that even of batches of a single message half can be duplicates.
const BATCHES: u64 = 2;

/// The messages of a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many messages a batch has.
    pub size: u64,
    /// How many of 100 messages are duplicates: their keys are completed.
    pub duplicates: u64,
}

impl Load {
    /// How many messages a sample has.
    pub fn messages(self) -> u64 {
        self.size * BATCHES
    }

    /// How many messages of a sample are no duplicates.
    pub fn fresh(self) -> u64 {
        (0..self.messages()).filter(|&place| !self.is_duplicate(place)).count() as u64
    }

    /// A batch of all keys whose messages come again.
    pub fn completed(self) -> String {
        event(0..self.messages())
    }

    /// The batches of a sample. Each number is another sample.
    pub fn batches(self, number: u64) -> Vec<String> {
        let key =
            |place| if self.is_duplicate(place) { place } else { (number + 1) * self.messages() + place };
        let batch = |batch| event((batch * self.size..(batch + 1) * self.size).map(key));
        (0..BATCHES).map(batch).collect()
    }

    /// Duplicates are spread evenly.
    fn is_duplicate(self, place: u64) -> bool {
        (place + 1) * self.duplicates / 100 > place * self.duplicates / 100
    }
}

/// A batch of one message for each key.
pub fn event(keys: impl Iterator<Item = u64>) -> String {
    // As many characters as a UUID has.
    let messages: Vec<_> = keys.map(|key| MESSAGE.trim_end().replace("KEY", &format!("{key:036}"))).collect();
    format!("{{\"Records\":[{}]}}", messages.join(","))
}
