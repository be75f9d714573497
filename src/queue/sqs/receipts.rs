//! What the consumer of a queue does with messages that it received.

use std::time::Duration;

use aws_sdk_sqs::{Client, error::BuildError, types::ChangeMessageVisibilityBatchRequestEntry};
use futures_util::{StreamExt, stream};

use super::SqsQueue;
use crate::queue::QueueError;

/// How many entries a batch has at most
/// ([AWS](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html)).
const BATCH: usize = 10;

/// How many such batches are sent at once.
const AT_ONCE: usize = 10;

impl SqsQueue {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Its name: the last part of its URL, and of its ARN.
    pub(crate) fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    /// Makes received messages visible again after these times, counted from now, by their receipts. Needs
    /// `sqs:ChangeMessageVisibility`.
    ///
    /// # Errors
    /// If it fails for any of them: these come again when the queue's own visibility time-out is over.
    pub(crate) async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        let hide = |batch: Vec<(String, Duration)>| async move {
            let entries: Result<Vec<_>, BuildError> = batch
                .iter()
                .enumerate()
                .map(|(place, (receipt, time))| {
                    let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(place.to_string());
                    // Up: a wait of less than a second would be none.
                    let seconds = i32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
                    entry.receipt_handle(receipt).visibility_timeout(seconds).build()
                })
                .collect();
            let request = self.client.change_message_visibility_batch().queue_url(&*self.url);
            let request = request.set_entries(Some(entries.map_err(QueueError::new)?));
            let answer = request.send().await.map_err(QueueError::new)?;
            if answer.failed.is_empty() {
                return Ok(());
            }
            let codes: Vec<_> = answer.failed.iter().map(|failed| failed.code()).collect();
            Err(QueueError::new(codes.join(", ")))
        };
        let batches: Vec<_> = receipts.chunks(BATCH).map(<[_]>::to_vec).collect();
        let hidden = stream::iter(batches).map(hide).buffer_unordered(AT_ONCE);
        let hidden: Vec<Result<(), QueueError>> = hidden.collect().await;
        hidden.into_iter().collect()
    }
}
