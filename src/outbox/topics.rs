//! The one list of topics and their targets.

use std::{collections::BTreeMap, fmt};

use crate::domain::Topic;

/// The topics that may be published, each with its target. Publisher and deliverer read the same list.
///
/// Its text has a line, or an entry between spaces, for each topic: `order.placed=bus:shop report.done=https://sqs…/reports`. A
/// target is
///
/// | target | what |
/// | --- | --- |
/// | `https://…` | an SQS queue, by its URL; the operation is the group of a FIFO queue |
/// | `bus:name` | an EventBridge event bus, by its name or ARN; the topic is the `detail-type` (feature `eventbridge`) |
/// | `own` | a [`Target`](super::Target) of yours, which the deliverer [adds](super::Deliverer::target) |
///
/// `none` in place of the list says that there are no topics.
///
/// ```
/// use lambda_idempotency::outbox::Topics;
///
/// let topics = Topics::parse("order.placed=bus:shop").unwrap();
/// assert_eq!(topics.topic("order.placed").unwrap().name(), "order.placed");
/// assert_eq!(
///     topics.topic("order.paid").unwrap_err().to_string(),
///     "the environment variable OUTBOX_TOPICS: the list of topics has no order.paid: it has order.placed"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics(BTreeMap<String, Destination>);

/// Where the messages of a topic go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// To the SQS queue of this URL.
    Queue(String),
    /// To the event bus of this name or ARN.
    EventBus(String),
    /// To a target of the user's.
    Own,
}

/// What is wrong with a list of topics, or that it lacks a topic. `Debug` prints the same text: Rust prints what `main` returns by it.
#[derive(Clone, PartialEq, Eq, derive_more::Debug, thiserror::Error)]
#[debug("{self}")]
#[error("the environment variable {variable}: {0}", variable = Topics::VARIABLE)]
pub struct TopicsError(String);

impl TopicsError {
    /// `what` follows the words "the list of topics".
    pub(super) fn of_list(what: impl fmt::Display) -> Self {
        Self(format!("the list of topics {what}"))
    }

    #[cfg(feature = "eventbridge")]
    pub(super) fn no_bus(name: &str) -> Self {
        Self(format!("there is no event bus {name}"))
    }
}

#[cfg(any(feature = "dynamodb", feature = "sqs"))]
impl From<TopicsError> for crate::config::ConfigError {
    fn from(error: TopicsError) -> Self {
        Self::Topics(error.to_string())
    }
}

/// The list without topics.
const NONE: &str = "none";

impl Topics {
    /// The variable that holds the list, in every function that publishes or delivers.
    pub const VARIABLE: &'static str = "OUTBOX_TOPICS";

    /// Reads the list from the environment variable `OUTBOX_TOPICS`.
    ///
    /// # Errors
    /// If it is missing or empty, or the list is not one.
    #[cfg(any(feature = "dynamodb", feature = "sqs"))]
    pub fn from_env() -> Result<Self, crate::config::ConfigError> {
        let list = crate::config::text(Self::VARIABLE)?;
        Ok(Self::parse(&list)?)
    }

    /// Reads a list.
    ///
    /// # Errors
    /// If an entry is not `topic=target`, a topic comes twice, its name is not one, or its target is unknown. If there is no entry.
    pub fn parse(list: &str) -> Result<Self, TopicsError> {
        if list.trim() == NONE {
            return Ok(Self::default());
        }
        let mut topics = BTreeMap::new();
        for entry in list.split_whitespace() {
            let wrong = |what: &str| TopicsError::of_list(format_args!("has {entry:?}: {what}"));
            let (topic, target) = entry.split_once('=').ok_or_else(|| wrong("an entry is topic=target"))?;
            if !Topic::is_name(topic) {
                return Err(wrong("a topic is 1 to 128 letters, digits, `-`, `_`, `.` or `/`"));
            }
            let destination = match target.split_once(':') {
                Some(("http" | "https", _)) => Destination::Queue(target.to_owned()),
                Some(("bus", name)) if !name.is_empty() => Destination::EventBus(name.to_owned()),
                None if target == "own" => Destination::Own,
                _ => return Err(wrong("a target is the URL of an SQS queue, bus:name, or own")),
            };
            if topics.insert(topic.to_owned(), destination).is_some() {
                return Err(wrong("this topic comes twice"));
            }
        }
        match topics.is_empty() {
            true => Err(TopicsError::of_list("is empty")),
            false => Ok(Self(topics)),
        }
    }

    /// The topic of this name, with which a handler makes messages.
    ///
    /// # Errors
    /// If the list lacks it: its messages could not be delivered. Ask when the function starts.
    pub fn topic(&self, name: &str) -> Result<Topic, TopicsError> {
        match self.0.contains_key(name) {
            true => Ok(Topic::new(name)),
            false => {
                let names: Vec<_> = self.0.keys().map(String::as_str).collect();
                let names = if names.is_empty() { NONE.to_owned() } else { names.join(", ") };
                Err(TopicsError::of_list(format_args!("has no {name}: it has {names}")))
            }
        }
    }

    /// Each topic with its destination.
    pub fn destinations(&self) -> impl Iterator<Item = (&str, &Destination)> {
        self.0.iter().map(|(topic, destination)| (&**topic, destination))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T56
    #[test]
    fn a_list_of_topics_says_what_is_wrong_with_it() {
        let topics = Topics::parse("a=bus:shop\n b.c=https://sqs/q.fifo  d=own").expect("it is a list");
        let destinations: Vec<_> = topics.destinations().collect();
        assert_eq!(
            destinations,
            [
                ("a", &Destination::EventBus("shop".into())),
                ("b.c", &Destination::Queue("https://sqs/q.fifo".into())),
                ("d", &Destination::Own),
            ]
        );
        assert_eq!(Topics::parse(" none "), Ok(Topics::default()));
        for (list, what) in [
            ("", "is empty"),
            ("a", "an entry is topic=target"),
            ("=own", "a topic is"),
            ("ä=own", "a topic is"),
            ("a=", "a target is"),
            ("a=bus:", "a target is"),
            ("a=sns:x", "a target is"),
            ("a=own a=own", "comes twice"),
        ] {
            let error = Topics::parse(list).expect_err(list).to_string();
            assert!(error.contains(what), "{list}: {error}");
        }
    }
}
