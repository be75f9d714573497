//! Runs the messages of a lane one after another, each to its end: it is done, buried, or handed back.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use lambda_runtime::Context;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::{
    Consumer, Message,
    consumer::{Done, Job, Work},
    disposition::{Again, Disposition},
    feed::Received,
    plan::{Plan, Planned},
};
use crate::{
    error_chain::error_chain,
    key::FoundKey,
    lambda::trigger::ItemId,
    queue::QueueError,
    telemetry::{MESSAGE_DEAD, MESSAGE_HANDED_BACK, MESSAGE_HELD, MESSAGE_NOT_BURIED, count_message},
    time::Instant,
    time_budget::SEND_TIMEOUT,
};

/// What all lanes of an invocation share.
pub(super) struct Shared<'a> {
    /// No message begins after this.
    pub(super) begin: Instant,
    /// No call of the source takes longer than until this.
    pub(super) call: Instant,
    /// One for each message that runs at once. One that waits has none.
    pub(super) permits: Semaphore,
    pub(super) context: Arc<Context>,
    pub(super) work: &'a Work,
    /// Whether what was parked comes again.
    pub(super) brings_parked: bool,
}

/// What becomes of a message that is handed back.
pub(super) struct Back {
    pub(super) item: Option<ItemId>,
    pub(super) receipt: Option<String>,
    /// When it comes again; `None`: when its source likes.
    pub(super) after: Option<Duration>,
}

impl Consumer {
    /// Runs messages one after another. Returns those that are handed back.
    pub(super) async fn lane(&self, lane: Vec<Planned>, shared: &Shared<'_>) -> Vec<Back> {
        let mut back: Vec<Back> = Vec::new();
        for Planned { received, plan } in lane {
            // The rest of a lane waits behind the one that was handed back, which blocks it for as long as it is not done (T66).
            let behind = received.lane.is_some() && !back.is_empty();
            let was_parked = shared.brings_parked && self.parked.has(received.message.record_id.as_ref());
            let after = match plan {
                Plan::Foreign => {
                    count_message(MESSAGE_HANDED_BACK, &self.name);
                    None
                }
                _ if was_parked => continue,
                _ if behind => {
                    tracing::debug!(
                        message_id = received.message.id,
                        "a message is handed back: it waits behind another one of its lane"
                    );
                    count_message(MESSAGE_HANDED_BACK, &self.name);
                    Some(Duration::ZERO)
                }
                plan => match self.end(plan, &received, shared).await {
                    None => continue,
                    Some(after) => Some(after),
                },
            };
            back.push(Back { item: received.item, receipt: received.receipt, after });
        }
        back
    }

    /// Runs a message, again and again if its source lets it wait, and buries it if need be. Returns after which time it comes again, if it does.
    async fn end(&self, plan: Plan, received: &Received, shared: &Shared<'_>) -> Option<Duration> {
        let mut seen = received.message.receives;
        loop {
            let nonce = self.world.nonce();
            let disposition = match &plan {
                Plan::Foreign => return None,
                Plan::See(disposition) => disposition.clone(),
                Plan::Run { key, message, .. } => self.run((key, message), received, shared).await,
            };
            let again = match disposition {
                Disposition::Done => return None,
                Disposition::Dead(reason) => return self.bury(received, reason, shared, nonce).await,
                Disposition::Again(again) => again,
            };
            let age = received.sent_at.map_or(Duration::ZERO, |at| self.world.now().since(at));
            let after = self.feed.after(again, seen, nonce);
            let left = shared.begin.since(self.world.instant());
            let waits = self.feed.waits() && after < left;
            let is_run_again = waits && matches!(plan, Plan::Run { .. });
            if let Some(reason) = self.feed.gives_up(again, age, seen, !is_run_again) {
                return self.bury(received, reason, shared, nonce).await;
            }
            if waits {
                tracing::debug!(message_id = received.message.id, why = again.why(), "a message waits");
                self.world.sleep(after).await;
            }
            if !is_run_again {
                self.handed_back(received, again, after);
                return Some(after);
            }
            seen = seen.saturating_add(1);
        }
    }

    /// Runs a message once.
    async fn run(
        &self,
        (key, message): (&FoundKey, &Arc<Message>),
        received: &Received,
        shared: &Shared<'_>,
    ) -> Disposition {
        // It is never closed.
        let _permit = shared.permits.acquire().await.ok();
        if shared.begin.since(self.world.instant()).is_zero() {
            return Disposition::Again(Again::NoTime);
        }
        let origin = key.origin(&format!("{} {}", self.feed.noun(), self.name));
        let (context, message) = (shared.context.clone(), message.clone());
        let at_most = shared.brings_parked.then_some(self.max_attempts);
        let job = Job { key: key.clone(), message, context, origin, at_most };
        // One that panics outside of its function must not end the batch, which would freeze the others midway.
        let done = AssertUnwindSafe(async { (shared.work)(job).await }).catch_unwind();
        let done = done.instrument(self.span(&received.message)).await;
        let Done { ended, attempts } = done.unwrap_or_else(|_| Done::panicked());
        Disposition::of(&ended, self.tries(&received.message, attempts))
    }

    fn handed_back(&self, received: &Received, again: Again, after: Duration) {
        let (id, after_s, why) = (received.message.id.as_deref(), after.as_secs(), again.why());
        match again {
            Again::Unknown { .. } => {
                tracing::warn!(message_id = id, after_s, "a message is held: its outcome is unknown");
                count_message(MESSAGE_HELD, &self.name);
            }
            _ => {
                tracing::warn!(message_id = id, after_s, why, "a message is handed back");
                count_message(MESSAGE_HANDED_BACK, &self.name);
            }
        }
    }

    /// Buries a message before it counts as done (T84). Returns after which time it comes again, if that fails.
    async fn bury(
        &self,
        received: &Received,
        reason: String,
        shared: &Shared<'_>,
        nonce: [u8; 16],
    ) -> Option<Duration> {
        let id = received.message.id.as_deref();
        let mut dead = self.feed.letter(received);
        dead.deduplication_id = dead.deduplication_id.filter(|_| self.key.has_deduplication_id());
        dead.reason = reason;
        // So that a batch of dead messages sends a few at once.
        let left = || shared.call.since(self.world.instant());
        let _permit = self.world.within(left(), shared.permits.acquire()).await;
        let left = left().min(SEND_TIMEOUT);
        let buried = self.world.within(left, self.source.bury(dead)).await;
        match buried.unwrap_or_else(|| Err(QueueError::new("no answer in time"))) {
            Ok(()) => {
                tracing::error!(message_id = id, "a message is dead: it went to the dead letters");
                count_message(MESSAGE_DEAD, &self.name);
                self.parked.add(received.message.record_id.as_ref());
                None
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::error!(
                    message_id = id,
                    error,
                    "a dead message could not be sent to the dead letters: it is handed back"
                );
                count_message(MESSAGE_NOT_BURIED, &self.name);
                Some(self.feed.after(Again::Failed, received.message.receives, nonce))
            }
        }
    }
}
