//! Asks the questions that are due.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use protocol::learned::Asks;
use serde::Serialize;
use tracing::Instrument;

use super::{
    ReconcileOutcome, Reconciliation,
    turns::{AT_ONCE, Turns},
};
use crate::{
    error_chain::error_chain,
    key::RecordKey,
    queue::WorkError,
    store::StoreError,
    telemetry::{self, RECONCILE_POLL},
    time::Instant,
    time_budget::ASK_TIMEOUT,
};

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
    /// Asks the questions that are due, until there are no more or the `time` is up. Then counts the outcomes that are still unknown,
    /// and those that need an operator: each poll reports them until they are settled.
    ///
    /// The tenants take turns, so that one with many questions does not delay the others. In a turn, up to eight questions of one
    /// tenant are asked, and between two turns of a tenant each other one has one turn at most. The next poll continues behind the last
    /// turn that began. So the n-th oldest question of a tenant waits for at most `n / 8 + 1` (rounded up) turns of each tenant of which
    /// something is due, however many questions the others have. A turn takes no longer than its longest question, which takes
    /// [`ASK_TIMEOUT`] at most.
    ///
    /// # Errors
    /// If the store cannot read what is due, or what is left. The answers until then are written.
    pub async fn poll(&self, time: Duration) -> Result<Polled, StoreError> {
        let world = &self.engine.world;
        let until = world.instant().plus(time);
        let mut turns = Turns::new(self, until).await;
        let polled = self.ask_in_turn(&mut turns, until).await;
        turns.end().await?;
        if polled != Polled::default() {
            let Polled { due, resolved, scheduled, escalated, failed } = polled;
            tracing::info!(due, resolved, scheduled, escalated, failed, "poll");
        }
        let survey = self.engine.bounded(None, self.records.survey()).await?;
        telemetry::record_survey(&survey, world.now());
        telemetry::count(RECONCILE_POLL);
        Ok(polled)
    }

    async fn ask_in_turn(&self, turns: &mut Turns<'_>, until: Instant) -> Polled {
        let mut polled = Polled::default();
        let questions = stream::unfold(turns, |turns| async move { Some((turns.next().await?, turns)) });
        let mut asked = std::pin::pin!(questions.map(|key| self.asked(key, until)).buffer_unordered(AT_ONCE));
        while let Some(answer) = asked.next().await {
            polled.due += 1;
            match answer {
                Ok(ReconcileOutcome::Resolved(_)) => polled.resolved += 1,
                Ok(ReconcileOutcome::Scheduled(_)) => polled.scheduled += 1,
                Ok(ReconcileOutcome::Escalated) => polled.escalated += 1,
                other => polled.failed += usize::from(other.is_err()),
            }
        }
        polled
    }

    async fn asked(&self, key: RecordKey, until: Instant) -> Result<ReconcileOutcome, WorkError> {
        let time = until.since(self.engine.world.instant()).min(ASK_TIMEOUT);
        let question = async {
            let answer = self.ask_within(&key, Asks::IfDue, time).await;
            answer.inspect_err(|error| {
                tracing::error!(error = error_chain(error), "a question could not be asked");
            })
        };
        question.instrument(telemetry::record_span(&key)).await
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, future::pending};

    use async_trait::async_trait;

    use super::*;
    use crate::{
        key::Tenant,
        operation::Operation,
        queue::MemoryQueue,
        reconcile::{
            Finding, Question, Reconciler,
            tests::{NOW, unknown},
        },
        record::{Answer, Record, Revision, tests::Mint},
        store::{Checkpoint, Store, Unsettled, memory::MemoryStore},
        world::{ManualWorld, World},
    };

    const MINUTE: Duration = Duration::from_secs(60);

    /// Answers questions of every tenant but this one.
    struct HangsFor(&'static str);

    #[async_trait]
    impl Reconciler for HangsFor {
        async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>> {
            match question.record_key().tenant().as_str() == self.0 {
                true => pending().await,
                false => Ok(Finding::Executed(Answer::json(201, "{}"))),
            }
        }
    }

    /// A store with an unknown outcome of each of these tenants.
    async fn store_of(tenants: &[&str]) -> MemoryStore {
        let store = MemoryStore::new();
        for tenant in tenants {
            let Record { key, .. } = unknown();
            let tenant = Tenant::parse(tenant).expect("a tenant");
            let key = RecordKey::new(tenant, key.operation().clone(), key.idempotency_key().clone());
            store.put(None, &Record { key, ..unknown() }, &[]).await.expect("there is none");
        }
        store
    }

    fn reconciliation(store: &MemoryStore, reconciler: HangsFor) -> (ManualWorld, Reconciliation) {
        let world = ManualWorld::at(NOW.plus(MINUTE));
        let operation = Operation::new(unknown().key.operation().as_str());
        let reconciliation = Reconciliation::new(store.clone(), MemoryQueue::new());
        (world.clone(), reconciliation.world(world).operation(operation, reconciler))
    }

    // T60: the turn of the next tenant waits for it.
    #[tokio::test]
    async fn a_question_that_is_never_answered_takes_ten_seconds_of_a_poll() {
        let store = store_of(&["a", "b"]).await;
        let (world, reconciliation) = reconciliation(&store, HangsFor("a"));
        let polled = world.passing(reconciliation.poll(MINUTE)).await.expect("the store answers");
        assert_eq!((polled.due, polled.resolved, polled.scheduled), (2, 1, 1));
        assert_eq!(world.running(), ASK_TIMEOUT);
    }

    // T60: what lies before the place where the last poll stopped is asked in this one.
    #[tokio::test]
    async fn a_poll_that_continues_ends_only_after_a_whole_round() {
        let store = store_of(&["a"]).await;
        let (world, reconciliation) = reconciliation(&store, HangsFor("nobody"));
        let due = store.due(world.now(), None, 8, &Default::default()).await.expect("the store answers");
        let place = Checkpoint {
            name: "poll".to_owned(),
            revision: Revision::mint(),
            lease_until: world.now(),
            progress: Some(serde_json::to_string(&due.turns[0].next).expect("JSON")),
        };
        assert!(store.write_checkpoint(None, &place).await.expect("the store answers"));
        let polled = world.passing(reconciliation.poll(MINUTE)).await.expect("the store answers");
        assert_eq!((polled.due, polled.resolved), (1, 1));
    }
}
