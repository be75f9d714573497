//! Messages of the queue of checks.

use std::time::Duration;

use lambda_idempotency::{
    key::RecordKey,
    stale::{Check, Looked, Sweep},
    store::dynamodb::DynamoDbStore,
    time::Timestamp,
};
use lambda_runtime::Error;

use crate::Function;

impl Function<DynamoDbStore> {
    /// Does what one message says.
    pub async fn check_one(&self, body: &str, sweep: &Sweep, until: Timestamp) -> Result<(), Error> {
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
