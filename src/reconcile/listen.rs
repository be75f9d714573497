//! Takes up what a provider says by itself, at once or when the record is nobody's any more.

use std::time::Duration;

use super::{
    ReconcileOutcome, Reconciliation, Told,
    learned::Asks,
    message::{Contradiction, Message},
    told::{Meaning, Word},
};
use crate::{
    key::RecordKey, queue::WorkError, record::Record, telemetry::Count, time::Timestamp,
    time_budget::ASK_TIMEOUT,
};

/// How often a word is held against a record that changes at the same moment.
const LOOKS: usize = 4;

impl Reconciliation {
    /// Settles a record by what somebody says who knows, such as a provider's webhook; see [`Told`] for what is not settled so.
    ///
    /// The word is taken up, and need not be told again, unless this fails, or says [`InFlight`](ReconcileOutcome::InFlight),
    /// [`Busy`](ReconcileOutcome::Busy) or [`NotDue`](ReconcileOutcome::NotDue).
    pub async fn told(&self, key: &RecordKey, told: &Told) -> Result<ReconcileOutcome, WorkError> {
        let known = self.known(key)?;
        for _ in 0..LOOKS {
            let there = self.there(key).await?;
            let now = self.now();
            match told.beside(there.as_ref(), known.operation.retention(), now) {
                Meaning::Nothing => return Ok(ReconcileOutcome::Settled),
                Meaning::TooLate => return Ok(ReconcileOutcome::Gone),
                Meaning::Later(until) => return self.ask_later(key, told.word, until).await,
                Meaning::Contradicts(reason) => {
                    let downstream_key = told.downstream_key();
                    return self.contradicted(key, told.word, downstream_key, there.as_ref(), reason).await;
                }
                Meaning::Settles => {
                    match self.reconcile(key, Some((known, &*told.by)), Asks::Told, ASK_TIMEOUT).await? {
                        // It has changed since we looked: what that means is for the next look.
                        ReconcileOutcome::Settled
                        | ReconcileOutcome::InFlight(_)
                        | ReconcileOutcome::Gone => {}
                        outcome => return Ok(outcome),
                    }
                }
            }
        }
        Ok(ReconcileOutcome::Busy)
    }

    /// A word that came while a worker had the record is held against what became of that.
    pub(super) async fn told_before(
        &self,
        key: &RecordKey,
        word: Word,
        time: Duration,
    ) -> Result<(), WorkError> {
        let known = self.known(key)?;
        let there = self.there(key).await?;
        let lost = Meaning::Contradicts("it tells of an effect that has no record");
        let outcome = match there.as_ref().map_or(lost, |there| word.beside(there, self.now())) {
            Meaning::Nothing | Meaning::TooLate => return Ok(()),
            Meaning::Later(until) => self.ask_later(key, word, until).await?,
            Meaning::Contradicts(reason) => {
                self.contradicted(key, word, None, there.as_ref(), reason).await?
            }
            // The whole answer was not kept: the provider is asked for it.
            Meaning::Settles => {
                let unknown = there.is_some_and(|there| there.state.settled_by().is_none());
                let why = if unknown { Asks::Anew } else { Asks::Told };
                self.reconcile(key, Some((known, &*known.reconciler)), why, time).await?
            }
        };
        match outcome {
            // Nobody was told, and nothing is planned: the message comes again.
            ReconcileOutcome::Busy
            | ReconcileOutcome::NotDue
            | ReconcileOutcome::Settled
            | ReconcileOutcome::Gone
            | ReconcileOutcome::InFlight(_) => Err(WorkError::Busy),
            ReconcileOutcome::Resolved(_) | ReconcileOutcome::Scheduled(_) | ReconcileOutcome::Escalated => {
                Ok(())
            }
        }
    }

    /// Hands an effect to people that a provider tells of, and that leads to no record: it may be the only sign of it.
    ///
    /// # Errors
    /// If nobody could be told: it is to be told again.
    pub async fn unclaimed(&self, downstream_key: &str, reason: &'static str) -> Result<(), WorkError> {
        tracing::error!(downstream_key, reason, "an effect that leads to no record: it is escalated");
        let contradiction = Contradiction {
            key: None,
            reason: reason.to_owned(),
            told: None,
            downstream_key: Some(downstream_key.to_owned()),
            state: None,
        };
        self.escalate(&Message::Contradiction(Box::new(contradiction))).await
    }

    async fn there(&self, key: &RecordKey) -> Result<Option<Record>, WorkError> {
        Ok(self.engine.bounded(None, self.engine.store.load(key)).await?)
    }

    /// A worker has the record. It knows too; but if what it knows is something else, somebody must hear of it.
    async fn ask_later(
        &self,
        key: &RecordKey,
        word: Word,
        until: Timestamp,
    ) -> Result<ReconcileOutcome, WorkError> {
        let Some(queue) = &self.questions else { return Ok(ReconcileOutcome::InFlight(until)) };
        let message = Message::Ask { key: key.partition_key(), reason: None, told: Some(word) };
        queue.send(&message.to_json(), until.since(self.now())).await?;
        let (key, operation) = (key.hash(), key.operation());
        tracing::info!(%key, %operation, "the provider's word came while a worker has the record: it is taken up later");
        Ok(ReconcileOutcome::Scheduled(until))
    }

    pub(super) async fn contradicted(
        &self,
        key: &RecordKey,
        told: Word,
        downstream_key: Option<&str>,
        there: Option<&Record>,
        reason: &'static str,
    ) -> Result<ReconcileOutcome, WorkError> {
        let contradiction = Contradiction {
            key: Some(key.partition_key()),
            reason: reason.to_owned(),
            told: Some(told),
            downstream_key: downstream_key.map(str::to_owned),
            state: there.map(|there| there.state.name().to_owned()),
        };
        let operation = key.operation();
        tracing::error!(key = %key.hash(), %operation, ?told, reason, "the record contradicts the provider: it is escalated");
        self.escalate(&Message::Contradiction(Box::new(contradiction))).await?;
        Count::Contradicted.add(operation);
        Ok(ReconcileOutcome::Escalated)
    }
}
