//! Processes a batch of the table's stream: what it leaves open is checked when its lease has expired.

use std::{error::Error, time::Duration};

use futures_util::{StreamExt, stream};
use serde_json::value::RawValue;

use super::{
    Stale, due,
    unmatched::{Open, Poison, unmatched_inserts},
};
use crate::{
    message::{self, Message},
    telemetry::{self, DEAD_LETTER, STREAM_BATCH},
};

/// How many messages are sent at once.
const AT_ONCE: usize = 16;

impl Stale {
    /// Sends what a batch of stream records leaves open to the queue of checks, and what cannot be read to the dead letters.
    ///
    /// Returns the sequence numbers of stream records whose messages could not be sent: Lambda must deliver the batch again
    /// from there, or from its beginning if one is empty. A record that is sent twice is checked twice. Nothing is sent
    /// once the `time` is up.
    pub async fn stream(&self, records: &[Box<RawValue>], time: Duration) -> Vec<String> {
        let until = self.until(time);
        let unmatched = unmatched_inserts(records);
        let late = |sequence_number: Option<&String>| {
            let late = self.engine.world.instant() >= until;
            late.then(|| sequence_number.cloned().unwrap_or_default())
        };
        let checks = stream::iter(&unmatched.open)
            .map(async |open| match late(Some(&open.sequence_number)) {
                None => self.send_check(open).await,
                late => late,
            })
            .buffer_unordered(AT_ONCE);
        let poison = stream::iter(&unmatched.poison)
            .map(async |poison| match late(poison.sequence_number.as_ref()) {
                None => self.send_poison(poison, &records[poison.index]).await,
                late => late,
            })
            .buffer_unordered(AT_ONCE);
        let failed: Vec<_> = checks.chain(poison).filter_map(async |failed| failed).collect().await;
        if failed.is_empty() {
            // Otherwise the batch comes again, and is counted then.
            unmatched.count_pruned();
            telemetry::count(STREAM_BATCH);
        }
        let (open, poison, failures) = (unmatched.open.len(), unmatched.poison.len(), failed.len());
        tracing::info!(records = records.len(), open, poison, failed = failures, "stream");
        failed
    }

    async fn send_check(&self, open: &Open) -> Option<String> {
        let look_at = due::look_at(open.lease_until, open.created_at, self.pending_bound);
        let check = Message::Check { key: open.key.clone(), look_at: look_at.as_millis() };
        let delay = look_at.since(self.engine.world.now());
        let error: &dyn Error = &self.checks.send(&check.to_json(), delay).await.err()?;
        tracing::error!(error, cause = error.source(), "a check could not be sent");
        Some(open.sequence_number.clone())
    }

    async fn send_poison(&self, poison: &Poison, record: &RawValue) -> Option<String> {
        let (sequence_number, reason) = (poison.sequence_number.as_deref(), poison.reason);
        tracing::error!(sequence_number, reason, "a stream record cannot be read: it is escalated");
        let dead_letter = Message::Poison(Box::new(message::Poison::of(record, reason)));
        let Err(error) = self.dead_letters.send(&dead_letter.to_json(), Duration::ZERO).await else {
            telemetry::count(DEAD_LETTER);
            return None;
        };
        let error: &dyn Error = &error;
        tracing::error!(error, cause = error.source(), "a dead letter could not be sent");
        // Without a number there is no place to continue from: the whole batch is delivered again, from its beginning.
        Some(poison.sequence_number.clone().unwrap_or_default())
    }
}
