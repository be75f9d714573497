//! The outbox: what operations have published, and what of it waits.

use crate::{cloud::Cloud, journal::Seen};
use askama::Template;
use std::time::Duration;

/// Functions with this variable publish or deliver.
const TOPICS: &str = "OUTBOX_TOPICS";
/// Messages that are shown.
const SHOWN: usize = 8;

#[derive(Template)]
#[template(path = "outbox.html")]
struct Part {
    topics: Vec<Topic>,
    latest: Vec<Message>,
}

struct Topic {
    name: String,
    published: u64,
    pending: u64,
    delivered: u64,
}

struct Message {
    topic: String,
    /// The key whose operation has published it, while its timeline is kept.
    key: Option<(u64, String)>,
    published: u64,
    /// How long after that it was delivered.
    delivered: Option<String>,
}

/// The part of the page. Nothing, if no function here publishes, or if another DynamoDB has the messages: they are not seen there.
pub fn part(cloud: &Cloud) -> String {
    if !cloud.sees_writes {
        return String::new();
    }
    let outbox = cloud.journal.outbox();
    let publishes = cloud.functions.iter().any(|function| {
        function.definition.variables.get(TOPICS).is_some_and(|topics| !topics.trim().is_empty())
    });
    if !publishes && outbox.topics.is_empty() {
        return String::new();
    }
    Part::of(cloud, &outbox).render().unwrap_or_else(|error| error.to_string())
}

impl Part {
    fn of(cloud: &Cloud, outbox: &Seen) -> Self {
        let topics = outbox.topics.iter().map(|(name, counts)| Topic {
            name: name.clone(),
            published: counts.published,
            pending: counts.published - counts.delivered,
            delivered: counts.delivered,
        });
        let key = |id| Some((id, cloud.journal.timeline(id)?.name()));
        let latest = outbox.latest.iter().take(SHOWN).map(|message| Message {
            topic: message.topic.clone(),
            key: key(message.timeline),
            published: message.published,
            delivered: message.delivered.map(|delivered| {
                let took = Duration::from_millis(delivered.saturating_sub(message.published));
                format!("{:.2} s", took.as_secs_f64())
            }),
        });
        Self { topics: topics.collect(), latest: latest.collect() }
    }
}
