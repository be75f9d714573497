//! A batch of the table's stream: what it leaves open is to be looked at when its lease is over.

use futures_util::{StreamExt, stream};
use lambda_idempotency::{
    stale::{Check, Open, Poison, net},
    store::Store,
};
use serde_json::{json, value::RawValue};
use shell::BatchFailures;

use crate::Function;

/// How many messages are sent at once.
const AT_ONCE: usize = 16;

impl<S: Store> Function<S> {
    /// Sends what a batch leaves open to the queue of checks, and what cannot be read to the dead letters.
    ///
    /// A stream record whose message could not be sent is reported: Lambda delivers the batch again from there. One that
    /// is sent twice so is looked at twice.
    pub async fn stream(&self, records: &[Box<RawValue>]) -> BatchFailures {
        let netted = net(records);
        let checks = stream::iter(&netted.open).map(|open| self.send_check(open)).buffer_unordered(AT_ONCE);
        let poison = stream::iter(&netted.poison)
            .map(|poison| self.send_poison(poison, &records[poison.index]))
            .buffer_unordered(AT_ONCE);
        let failed: BatchFailures = checks
            .chain(poison)
            .filter_map(async |failed| failed)
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .collect();
        if failed == BatchFailures::default() {
            // Otherwise the batch comes again.
            netted.count_pruned();
        }
        tracing::info!(
            records = records.len(),
            open = netted.open.len(),
            poison = netted.poison.len(),
            failed = failed.identifiers().len(),
            "stream"
        );
        failed
    }

    async fn send_check(&self, open: &Open) -> Option<String> {
        let look_at = self.stale.look_at(open);
        let check = Check::Check { key: open.key.clone(), look_at: look_at.as_millis() };
        let sent = match serde_json::to_string(&check) {
            Ok(check) => self.checks.send(&check, look_at.since(self.stale.now())).await,
            Err(error) => Err(lambda_idempotency::queue::QueueError::new(error)),
        };
        let error: &dyn std::error::Error = &sent.err()?;
        tracing::error!(error, cause = error.source(), "a check could not be sent");
        Some(open.sequence_number.clone())
    }

    async fn send_poison(&self, poison: &Poison, record: &RawValue) -> Option<String> {
        let sequence_number = poison.sequence_number.as_deref();
        tracing::error!(
            sequence_number,
            reason = poison.reason,
            "a stream record cannot be read: it is for people"
        );
        let letter = json!({ "kind": "poison", "reason": poison.reason, "record": record }).to_string();
        let error: &dyn std::error::Error =
            &self.dead_letters.send(&letter, std::time::Duration::ZERO).await.err()?;
        tracing::error!(error, cause = error.source(), "a dead letter could not be sent");
        // Without a number there is no place to go on from: the whole batch is delivered again, from its beginning.
        Some(poison.sequence_number.clone().unwrap_or_default())
    }
}
