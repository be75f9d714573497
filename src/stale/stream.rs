//! Processes a batch of the table's stream: the executions that it leaves open are checked when their leases have expired.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::value::RawValue;

use super::{Stale, unmatched::unmatched_inserts};
use crate::{
    error_chain::error_chain,
    message::{Message, Poison},
    store::stream::Seen,
    telemetry::{self, CONTRADICTION_SENT, Count, STREAM_BATCH, STREAM_BEGAN},
};

/// How many messages are sent at once.
const AT_ONCE: usize = 16;

impl Stale {
    /// Queues a check for each execution that a batch of stream records leaves open, and tells operators of each stream record
    /// that cannot be read.
    ///
    /// Returns the sequence numbers of stream records whose messages could not be sent. Lambda must deliver the batch again
    /// from there, or from its beginning if one has none. A record that is sent twice is checked twice. Nothing is sent
    /// once the `time` is up.
    pub async fn stream(&self, records: &[Box<RawValue>], time: Duration) -> Vec<Option<String>> {
        let until = self.until(time);
        let unmatched = unmatched_inserts(records);
        let (open, poison) = (unmatched.open.len(), unmatched.poison.len());
        let in_time = || self.engine.world.instant() < until;
        let checks = stream::iter(unmatched.open).map(async |open| {
            let sent = in_time() && self.send_check(&open).await;
            (!sent).then_some(Some(open.sequence_number))
        });
        let unreadable = stream::iter(unmatched.poison).map(async |poison| {
            // Without a number there is no place to continue from: the whole batch is delivered again.
            let sequence_number = poison.sequence_number().map(str::to_owned);
            let sent = in_time() && self.send_poison(poison).await;
            (!sent).then_some(sequence_number)
        });
        let sent = checks.buffer_unordered(AT_ONCE).chain(unreadable.buffer_unordered(AT_ONCE));
        let failed: Vec<_> = sent.filter_map(async |failed| failed).collect().await;
        if failed.is_empty() {
            // Otherwise the batch is delivered again, and counted then.
            for (operation, number) in &unmatched.pruned {
                Count::TtlPruned.add_many(operation, *number);
            }
            telemetry::count_many(STREAM_BEGAN, unmatched.began);
            telemetry::count(STREAM_BATCH);
        }
        tracing::info!(records = records.len(), open, poison, failed = failed.len(), "stream");
        failed
    }

    /// Returns whether the check was sent.
    async fn send_check(&self, open: &Seen) -> bool {
        let look_at = open.look_at;
        let delay = look_at.since(self.engine.world.now());
        let sent = self.engine.sent(self.queue_check(&open.key, look_at, delay)).await;
        sent.inspect_err(|error| tracing::error!(error = error_chain(error), "a check could not be sent"))
            .is_ok()
    }

    /// Returns whether operators were told.
    async fn send_poison(&self, poison: Poison) -> bool {
        let (sequence_number, reason) = (poison.sequence_number(), poison.reason.as_str());
        tracing::error!(sequence_number, reason, "a stream record cannot be read: it is escalated");
        let letter = Message::Poison(Box::new(poison)).to_json();
        let sent = self.engine.sent(self.contradictions.send(&letter, Duration::ZERO)).await;
        sent.inspect(|()| telemetry::count(CONTRADICTION_SENT))
            .inspect_err(|error| {
                tracing::error!(error = error_chain(error), "operators could not be told of a stream record");
            })
            .is_ok()
    }
}
