//! Asks for the delivery of what was published, by the table's stream.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream};
use serde_json::value::RawValue;

use super::Deliverer;
use crate::{
    error_chain::error_chain,
    key::{KeyHash, RecordKey},
    message::Message,
    queue::{FifoQueue, Queue, QueueError},
    store::stream::{published, waiting},
    telemetry::{self, OUTBOX_BATCH},
    time_budget::MAX_DELAY,
};

/// How many wakes are sent at once.
const AT_ONCE: usize = 16;

/// Asks for the delivery of a record's messages, behind what was asked for before. A second wake of this `id` within five minutes is
/// dropped.
pub(crate) async fn wake(queue: &dyn FifoQueue, key: &str, id: &str) -> Result<(), QueueError> {
    let message = Message::Deliver { key: key.to_owned() };
    queue.send_in_group(&message.to_json(), &KeyHash::of(key).to_string(), id).await
}

/// Queues accepted work for a worker.
pub(crate) async fn queue_work(
    queue: &dyn Queue,
    key: &str,
    request: &str,
    delay: Duration,
) -> Result<(), QueueError> {
    let message = Message::Work { key: key.to_owned(), request: request.to_owned() };
    queue.send(&message.to_json(), delay).await
}

impl Deliverer {
    /// Asks for a delivery for each record of which a batch of stream records shows a new message, and queues accepted work that waits for a
    /// worker.
    ///
    /// Returns the sequence numbers of stream records whose wake could not be sent: Lambda must deliver the batch again from there. A wake
    /// that is sent twice finds nothing to deliver. Work that is queued twice is executed once. Other
    /// stream records are ignored.
    pub async fn stream(&self, records: &[Box<RawValue>], time: Duration) -> Vec<Option<String>> {
        let world = &self.engine.world;
        let until = world.instant().plus(time);
        // One for each record of the table. If it fails, all of its messages come again, from the first one.
        let mut wakes: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
        for new in records.iter().filter_map(|record| published(record.get())) {
            let wake = wakes.entry(new.key).or_insert_with(|| [new.sequence_number.clone(), None]);
            wake[1] = new.sequence_number;
        }
        let sent = stream::iter(&wakes).map(async |(key, [sequence_number, last])| {
            // By the last one: a batch that comes again with more messages is another wake.
            let id = format!("{}-{}", KeyHash::of(key), last.as_deref().unwrap_or_default());
            let sent = match until.since(world.instant()).is_zero() {
                true => Err(QueueError::new("the time was up")),
                false => wake(&*self.wakes, key, &id).await,
            };
            let error = sent.err()?;
            let error = error_chain(&error);
            tracing::error!(key = %KeyHash::of(key), error, "a delivery could not be asked for");
            Some(sequence_number.clone())
        });
        let mut failed: Vec<_> =
            sent.buffer_unordered(AT_ONCE).filter_map(async |failed| failed).collect().await;
        let waiting = stream::iter(records.iter().filter_map(|record| waiting(record.get())));
        let sent = waiting.map(async |work| {
            let sent = match (&self.work, until.since(world.instant()).is_zero()) {
                (None, _) => Err(QueueError::new("there is no queue for accepted work: set WORK_QUEUE_URL")),
                (_, true) => Err(QueueError::new("the time was up")),
                (Some(queue), false) => {
                    // By then its own message has come again, and this one finds nothing to do.
                    let delay = if work.is_handed_back { MAX_DELAY } else { Duration::ZERO };
                    queue_work(&**queue, &work.key, &work.request, delay).await
                }
            };
            let error = sent.err()?;
            let error = error_chain(&error);
            tracing::error!(key = %KeyHash::of(&work.key), error, "accepted work could not be queued");
            Some(work.sequence_number)
        });
        failed.extend(
            sent.buffer_unordered(AT_ONCE).filter_map(async |failed| failed).collect::<Vec<_>>().await,
        );
        if failed.is_empty() {
            telemetry::count(OUTBOX_BATCH);
        }
        failed
    }

    /// The record whose messages a message of the queue of wakes asks to deliver.
    pub(crate) fn asked_for(body: &str) -> Option<RecordKey> {
        match Message::read(body) {
            Ok(Message::Deliver { key }) => RecordKey::from_partition_key(&key),
            _ => None,
        }
    }
}
