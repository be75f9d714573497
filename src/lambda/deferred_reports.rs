//! The queue of deferred reports. A report may be the only trace of an effect, so it is tried for days.
//!
//! 1. A report that fails is handed back, each time for longer. The queue allows hundreds of receives.
//! 2. A message that cannot be read goes to the dead letters at once: no delivery helps.
//! 3. The age of each report is recorded when it is received. SQS's own metric leaves out messages that were received three times.

use std::time::Duration;

use aws_config::SdkConfig;
use lambda_runtime::Error;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::trigger::{BatchFailures, each_message};
use crate::{
    config::ConfigError,
    error_chain::error_chain,
    queue::{Queue, SqsQueue, WorkError},
    reconcile::Reconciliation,
    store::stream::text_member,
    telemetry,
    time::Timestamp,
    time_budget::{HANDED_BACK, MAX_QUESTION_TIME},
    world::World,
};

/// The queue of deferred reports, and its dead letters.
#[derive(Debug)]
pub struct DeferredReports {
    queue: SqsQueue,
    dead_letters: SqsQueue,
}

/// A message of the queue, as Lambda delivers it
/// ([AWS](https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html)).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    message_id: String,
    receipt_handle: String,
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attributes {
    approximate_receive_count: String,
    /// When it was sent, in milliseconds since 1970.
    sent_timestamp: String,
}

impl DeferredReports {
    /// The queues whose URLs the environment holds.
    ///
    /// # Errors
    /// If a variable is missing, or not a URL.
    pub(super) fn from_env(config: &SdkConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            queue: SqsQueue::from_env(config, "DEFERRED_REPORTS_QUEUE_URL")?,
            dead_letters: SqsQueue::from_env(config, "DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL")?,
        })
    }

    /// The queues of these URLs.
    pub fn new(config: &SdkConfig, queue: &str, dead_letters: &str) -> Self {
        Self { queue: SqsQueue::new(config, queue), dead_letters: SqsQueue::new(config, dead_letters) }
    }

    /// Whether a batch is from this queue. A batch is from one queue, and the first message that names it decides.
    pub(super) fn has_sent(&self, batch: &[Box<RawValue>]) -> bool {
        let queue = batch.iter().find_map(|message| text_member(message.get(), "eventSourceARN"));
        queue.is_some_and(|arn| arn.rsplit(':').next() == Some(self.queue.name()))
    }

    /// Processes a batch of the queue.
    pub(super) async fn receive(
        &self,
        world: &dyn World,
        reconciliation: &Reconciliation,
        batch: &[Box<RawValue>],
        time: Duration,
    ) -> Result<BatchFailures, Error> {
        let received: Vec<Received> =
            batch.iter().filter_map(|message| serde_json::from_str(message.get()).ok()).collect();
        for Received { attributes, .. } in &received {
            // Before anything is done, so that it is recorded even if this ends the function.
            if let Ok(sent) = attributes.sent_timestamp.parse() {
                telemetry::record_deferred_age(world.now().since(Timestamp::from_millis(sent)));
            }
        }
        let work = async |body: &str, left| match reconciliation.receive_within(body, left).await {
            Err(WorkError::Malformed(reason)) => {
                tracing::error!(reason, "a deferred report cannot be read: it goes to the dead letters");
                Ok(self.dead_letters.send(body, Duration::ZERO).await?)
            }
            processed => processed,
        };
        let failures = each_message(world, batch, time, MAX_QUESTION_TIME, work).await?;
        self.hand_back(world, &received, &failures).await;
        Ok(failures)
    }

    /// Hides the messages that failed, each time for longer.
    async fn hand_back(&self, world: &dyn World, received: &[Received], failures: &BatchFailures) {
        let failed = failures.identifiers();
        let failed = received.iter().filter(|message| failed.contains(&message.message_id));
        let hidden: Vec<_> = failed
            .map(|Received { receipt_handle, attributes, .. }| {
                let receives = attributes.approximate_receive_count.parse().unwrap_or(1);
                (receipt_handle.clone(), HANDED_BACK.after(receives, world.nonce()))
            })
            .collect();
        if !hidden.is_empty()
            && let Err(error) = self.queue.hide(&hidden).await
        {
            let error = error_chain(&error);
            tracing::error!(
                error,
                "deferred reports could not be hidden: they come again when the queue's own time-out is over"
            );
        }
    }
}
