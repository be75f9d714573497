//! Asks the questions that are due.

use std::{collections::HashSet, time::Duration};

use futures_util::{StreamExt, stream};
use serde::Serialize;
use tracing::Instrument;

use super::{ReconcileOutcome, Reconciliation, learned::Asks};
use crate::{
    error_chain::error_chain,
    key::RecordKey,
    store::StoreError,
    telemetry::{self, RECONCILE_POLL},
    time_budget::{ASK_TIMEOUT, MIN_QUESTION_TIME},
};

/// How many due questions of each partition of the index are read in one round.
const ROUND: usize = 25;

/// How many questions are asked at once: not enough to overload a provider that was down.
const AT_ONCE: usize = 8;

/// The result of a poll.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Polled {
    /// How many questions were due.
    pub due: usize,
    /// How many outcomes are settled now.
    pub resolved: usize,
    /// How many outcomes are asked about again.
    pub scheduled: usize,
    /// How many outcomes were escalated to an operator.
    pub escalated: usize,
    /// How many questions failed before they were asked.
    pub failed: usize,
}

impl Reconciliation {
    /// Asks the questions that are due, round after round, until there are no more or the `time` is up. Then counts the
    /// outcomes that are still unknown, and those that need an operator: each poll reports them until they are settled.
    ///
    /// # Errors
    /// If the store cannot read what is due, or what is left. The answers until then are written.
    pub async fn poll(&self, time: Duration) -> Result<Polled, StoreError> {
        let world = &self.engine.world;
        let until = world.instant().plus(time);
        let mut polled = Polled::default();
        // Keys that failed, or that the index still lists. They are left to the next poll, and must not block the questions
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
                        let answer = self.ask_within(key, Asks::IfDue, time().min(ASK_TIMEOUT)).await;
                        let answer = answer.inspect_err(|error| {
                            tracing::error!(error = error_chain(error), "a question could not be asked");
                        });
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
                    other => {
                        polled.failed += usize::from(other.is_err());
                        left.insert(key.clone());
                    }
                }
            }
        }
        if polled != Polled::default() {
            let Polled { due, resolved, scheduled, escalated, failed } = polled;
            tracing::info!(due, resolved, scheduled, escalated, failed, "poll");
        }
        telemetry::record_survey(&self.records.survey().await?, world.now());
        telemetry::count(RECONCILE_POLL);
        Ok(polled)
    }
}
