//! What a load of requests needs: faults on both sides of the functions, and the queues at rest.

use super::{
    client::connect,
    faults::cancelled_by_conflict,
    local_cloud::LocalCloud,
    proxy::{Act, Cut, Proxy, RuleId, Then},
};
use aws_sdk_sqs::{Client, types::QueueAttributeName};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Of the calls that write, one in five is answered by a fault, or its answer is lost.
pub struct Faults<'a>(Vec<(&'a Proxy, RuleId)>);

impl<'a> Faults<'a> {
    /// Begins them, in these proxies before DynamoDB and before the provider.
    pub fn begin(store: &'a Proxy, provider: &'a Proxy) -> Self {
        let lost = Act::Cut(Cut::Answer(0), Then::Closed);
        let failed = Act::Answer(500, json!({ "error": "internal" }));
        let conflict = Act::Answer(400, cancelled_by_conflict());
        let transaction = "DynamoDB_20120810.TransactWriteItems";
        let rules = [
            (store, 10, transaction, conflict),
            (store, 9, transaction, lost.clone()),
            (store, 9, transaction, Act::TwiceUnderAnotherToken),
            (store, 9, "DynamoDB_20120810.PutItem", lost.clone()),
            (provider, 10, "POST /charges ", failed.clone()),
            (provider, 9, "POST /charges ", lost.clone()),
            (provider, 10, "POST /refunds ", failed),
            (provider, 9, "POST /refunds ", lost),
        ];
        let begun = rules.map(|(proxy, nth, text, act)| (proxy, proxy.to_every(nth, &[text], act)));
        Self(begun.into())
    }

    /// Fails unless each of them was used.
    pub fn assert_used(&self) {
        let used: Vec<_> = self.0.iter().map(|(proxy, rule)| proxy.used(*rule)).collect();
        assert!(used.iter().all(|used| *used > 0), "{used:?}");
    }
}

impl LocalCloud {
    /// Waits until no queue has work that is due. Fails if one has dead letters. Checks of accepted work stay: they are delayed until its time
    /// would be over.
    pub async fn queues_at_rest(&self) {
        let client = Client::new(&connect(self.queues()).sdk_config());
        let lengths = async || {
            let listed = client.list_queues().send().await.expect("the queues answer");
            let mut lengths = BTreeMap::new();
            for url in listed.queue_urls.unwrap_or_default() {
                let get =
                    client.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
                let attributes = get.send().await.expect("the queue answers").attributes.unwrap_or_default();
                let length = [
                    QueueAttributeName::ApproximateNumberOfMessages,
                    QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
                ];
                let length =
                    length.iter().filter_map(|name| attributes[name].parse::<usize>().ok()).sum::<usize>();
                lengths.insert(url.rsplit('/').next().unwrap_or_default().to_owned(), length);
            }
            assert!(lengths.len() > 10, "{lengths:?}");
            lengths
        };
        // The next poll does the work of one that was killed.
        let is_left = |name: &str| name.contains("dead-letters") || name.ends_with("failed-runs");
        let is_at_rest = |(name, length): (&String, &usize)| *length == 0 || is_left(name);
        self.until(async || lengths().await.iter().all(is_at_rest), "no queue has work").await;
        let mut dead = lengths().await;
        dead.retain(|name, length| name.contains("dead-letters") && *length > 0);
        assert!(dead.is_empty(), "dead letters: {dead:?}");
    }

    /// How many processes of each function ended, other than at their deadline.
    pub async fn crashes(&self) -> BTreeMap<String, u64> {
        let answer = self.get("/environments").send().await.expect("the front answers");
        let document: Value = answer.json().await.expect("JSON");
        let mut crashes = BTreeMap::new();
        for environment in document["environments"].as_array().expect("a list") {
            let function = environment["function"].as_str().expect("a name").to_owned();
            *crashes.entry(function).or_default() += environment["crashes"].as_u64().expect("a number");
        }
        crashes
    }
}
