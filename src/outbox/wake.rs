//! Asks for the delivery of what was published, by the table's stream.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream};
use serde_json::value::RawValue;

use super::Deliverer;
use crate::{
    error_chain::error_chain,
    key::{KeyHash, RecordKey},
    message::Message,
    queue::{FairQueue, FifoQueue, QueueError},
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

/// Queues accepted work for a worker, in the group of its tenant: so that the work of one tenant does not delay that of another.
pub(crate) async fn queue_work(
    queue: &dyn FairQueue,
    key: &str,
    request: &str,
    delay: Duration,
) -> Result<(), QueueError> {
    let message = Message::Work { key: key.to_owned(), request: request.to_owned() };
    queue.send_fairly(&message.to_json(), &group_of(key), delay).await
}

/// The group of a message about this record in a fair queue: its tenant's hash. A key that names no tenant is alone in its group.
pub(crate) fn group_of(key: &str) -> String {
    RecordKey::from_partition_key(key)
        .map_or_else(|| KeyHash::of(key).to_string(), |key| key.tenant().hash().to_string())
}

impl Deliverer {
    /// Asks for a delivery for each record of which a batch of stream records shows a new message, and queues accepted work that waits for a
    /// worker.
    ///
    /// Returns the sequence numbers of stream records whose wake could not be sent: Lambda must deliver the batch again from there. A wake
    /// that is sent twice finds nothing to deliver. Work that is queued twice is executed once. Other
    /// stream records are ignored.
    pub async fn stream(&self, records: &[Box<RawValue>], time: Duration) -> Vec<Option<String>> {
        let (engine, world) = (&self.engine, &self.engine.world);
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
                false => engine.sent(wake(&*self.wakes, key, &id)).await,
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
                    engine.sent(queue_work(&**queue, &work.key, &work.request, delay)).await
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
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::to_raw_value};

    use super::*;
    use crate::{
        outbox::Topics,
        queue::tests::Silent,
        store::memory::MemoryStore,
        time::Timestamp,
        time_budget::SEND_TIMEOUT,
        world::{ManualWorld, World},
    };

    // T63, T68: the batch comes again from there.
    #[tokio::test]
    async fn a_queue_that_never_answers_is_left_in_time() {
        let world = ManualWorld::at(Timestamp::from_secs(1_000));
        let deliverer = Deliverer::new(MemoryStore::new(), Silent, Topics::default());
        let deliverer = deliverer.work_to(Silent).world(world.clone());
        let change = |number: &str, sk: &str, image| {
            let keys = json!({ "pk": { "S": "acme#pay#k" }, "sk": { "S": sk } });
            let change = json!({ "Keys": keys, "NewImage": image, "SequenceNumber": number });
            to_raw_value(&json!({ "eventSource": "aws:dynamodb", "dynamodb": change })).expect("JSON")
        };
        let accepted = json!({
            "state": { "S": "pending" }, "request_id": { "B": "AAAA" }, "tries": { "N": "0" }, "max_attempts": { "N": "3" },
        });
        let batch =
            [change("1", "message#0000000000000#0000000000", json!({})), change("2", "record", accepted)];
        let failed = world.passing(deliverer.stream(&batch, SEND_TIMEOUT * 9)).await;
        assert_eq!(failed, [Some("1".to_owned()), Some("2".to_owned())]);
        assert_eq!(world.running(), 2 * SEND_TIMEOUT);
    }
}
