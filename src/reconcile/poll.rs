//! Asks about everything that is due.

use std::{collections::HashSet, error::Error, time::Duration};

use futures_util::{StreamExt, stream};
use serde::Serialize;
use tracing::Instrument;

use super::{ReconcileOutcome, Reconciliation};
use crate::{
    key::RecordKey,
    store::StoreError,
    telemetry::{self, RECONCILE_POLL},
    time_budget::{ASK_TIMEOUT, MIN_QUESTION_TIME},
};

/// How many questions of each partition of the index are due in one round, and how many are asked at once: a provider that
/// was down must not be brought down again.
const ROUND: usize = 25;
const AT_ONCE: usize = 8;

/// The result of a poll.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Polled {
    /// How many questions were due.
    pub due: usize,
    /// How many outcomes are settled now.
    pub resolved: usize,
    /// How many are asked about again.
    pub scheduled: usize,
    /// How many were escalated to an operator.
    pub escalated: usize,
    /// How many questions failed before they were asked.
    pub failed: usize,
}

impl Reconciliation {
    /// Asks about everything that is due, round after round, until nothing is or the `time` is up. Then counts what is
    /// still unknown, and what an operator has to settle: each poll reports that until it is settled.
    ///
    /// # Errors
    /// If the store cannot say what is due, or what is left. The answers until then are written.
    pub async fn poll(&self, time: Duration) -> Result<Polled, StoreError> {
        let world = &self.engine.world;
        let until = world.instant().plus(time);
        let mut polled = Polled::default();
        // Keys that failed, or that the index still lists. They are left to the next poll, and must not block what comes
        // after them in their partition.
        let mut left: HashSet<RecordKey> = HashSet::new();
        loop {
            let mut due = self.records.due(world.now(), ROUND + left.len()).await?;
            due.retain(|key| !left.contains(key));
            if due.is_empty() || until.since(world.instant()) < MIN_QUESTION_TIME {
                break;
            }
            let time = || until.since(world.instant());
            let mut asked = stream::iter(due.iter().take_while(|_| time() >= MIN_QUESTION_TIME))
                .map(|key| {
                    let question = async move {
                        let answer = self.ask_if_due_within(key, time().min(ASK_TIMEOUT)).await;
                        if let Err(error) = &answer {
                            let error: &dyn Error = error;
                            tracing::error!(error, cause = error.source(), "a question could not be asked");
                        }
                        (key, answer)
                    };
                    question.instrument(telemetry::record_span(key))
                })
                .buffer_unordered(AT_ONCE);
            while let Some((key, answer)) = asked.next().await {
                polled.due += 1;
                match answer {
                    Ok(ReconcileOutcome::Resolved(_)) => polled.resolved += 1,
                    Ok(ReconcileOutcome::Scheduled(_)) => polled.scheduled += 1,
                    Ok(ReconcileOutcome::Escalated) => polled.escalated += 1,
                    Ok(_) => {
                        left.insert(key.clone());
                    }
                    Err(_) => {
                        polled.failed += 1;
                        left.insert(key.clone());
                    }
                }
            }
        }
        if polled != Polled::default() {
            let Polled { due, resolved, scheduled, escalated, failed } = polled;
            tracing::info!(due, resolved, scheduled, escalated, failed, "poll");
        }
        telemetry::surveyed(&self.records.survey().await?, world.now());
        telemetry::count(RECONCILE_POLL);
        Ok(polled)
    }
}
