//! Messages of the queue of checks.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use lambda_idempotency::{
    key::RecordKey,
    stale::{Check, Looked, Sweep},
    store::dynamodb::DynamoDbStore,
    time::Timestamp,
};
use lambda_runtime::Error;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{BatchFailures, Function};

/// How many messages are worked on at once.
const AT_ONCE: usize = 10;

/// A message as Lambda hands it over.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    body: String,
}

impl Function<DynamoDbStore> {
    /// Works through a batch of checks. What fails goes back to the queue, and after some deliveries to the dead letters.
    pub async fn check_all(
        &self,
        messages: &[Box<RawValue>],
        sweep: &Sweep,
        until: Timestamp,
    ) -> BatchFailures {
        let checked = stream::iter(messages).map(async |raw| {
            let message: Message = match serde_json::from_str(raw.get()) {
                Ok(message) => message,
                Err(error) => {
                    tracing::error!(%error, "a message without id or body");
                    return Some(String::new());
                }
            };
            let error = self.check_one(&message.body, sweep, until).await.err()?;
            let cause = error.source().map(ToString::to_string);
            tracing::error!(%error, cause, "a check failed: it is delivered again");
            Some(message.message_id)
        });
        let failed: Vec<_> =
            checked.buffer_unordered(AT_ONCE).filter_map(async |failed| failed).collect().await;
        failed.into_iter().collect()
    }

    async fn check_one(&self, body: &str, sweep: &Sweep, until: Timestamp) -> Result<(), Error> {
        // Not the parser's own words: they may repeat what the message says.
        let check: Check = serde_json::from_str(body).map_err(|_| "the message is no check")?;
        match check {
            Check::Sweep { progress } => self.sweep(sweep, progress, until).await,
            Check::Check { key, look_at } => {
                let record = RecordKey::from_partition_key(&key).ok_or("the message names no record")?;
                let look_at = Timestamp::from_millis(look_at);
                if self.stale.now() < look_at {
                    return self.look_later(key, look_at).await;
                }
                match self.stale.check(&record).await? {
                    Looked::Live(until) => self.look_later(key, until).await,
                    Looked::Busy => Err("others change the record at this moment".into()),
                    Looked::Gone | Looked::Settled | Looked::GivenUp | Looked::Abandoned => Ok(()),
                }
            }
        }
    }

    /// A queue keeps a message for 15 minutes at most: a longer lease takes several.
    async fn look_later(&self, key: String, look_at: Timestamp) -> Result<(), Error> {
        let delay = look_at.since(self.stale.now()).max(Duration::from_secs(1));
        let message = serde_json::to_string(&Check::Check { key, look_at: look_at.as_millis() })?;
        Ok(self.checks.send(&message, delay).await?)
    }
}
