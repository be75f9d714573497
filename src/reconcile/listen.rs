//! Takes up what a provider says by itself, at once or when the record is nobody's any more.

use std::time::Duration;

use super::{
    ReconcileOutcome, Reconciliation, Told,
    learned::Asks,
    message::{Contradiction, Message},
    told::{Meaning, Said},
};
use crate::{
    key::RecordKey,
    queue::WorkError,
    record::{Note, Record},
    store::StoreErrorKind,
    telemetry::Count,
    time::Timestamp,
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
        let Ok(known) = self.known(key) else {
            // What leads to a record is often metadata that anybody can set: to tell it again would not help.
            let reason = "it is about an operation that is not known here";
            return self.contradicted(key, &told.said, None, reason).await;
        };
        for _ in 0..LOOKS {
            let there = match self.there(key).await {
                // No retry mends that.
                Err(WorkError::Store(error)) if error.kind() == StoreErrorKind::Unreadable => {
                    return self.contradicted(key, &told.said, None, "its record cannot be read").await;
                }
                there => there?,
            };
            let now = self.now();
            match told.said.beside(there.as_ref(), known.operation.retention(), now) {
                Meaning::Nothing => return Ok(ReconcileOutcome::Settled),
                Meaning::TooLate => return Ok(ReconcileOutcome::Gone),
                Meaning::Later(until) => return self.ask_later(key, &told.said, until).await,
                Meaning::Contradicts(reason) => {
                    return self.contradicted(key, &told.said, there.as_ref(), reason).await;
                }
                // It may be late, and about an earlier attempt: they share a downstream key. The provider is asked.
                Meaning::Settles
                    if !told.said.word.is_effect() && there.is_some_and(|there| there.attempts > 1) =>
                {
                    let source = Some((known, &*known.reconciler));
                    return self.reconcile(key, source, Asks::Anew, ASK_TIMEOUT, None).await;
                }
                Meaning::Settles => {
                    let source = Some((known, &*told.by));
                    match self.reconcile(key, source, Asks::Told, ASK_TIMEOUT, None).await? {
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
        said: &Said,
        time: Duration,
    ) -> Result<(), WorkError> {
        let known = self.known(key)?;
        let there = self.there(key).await?;
        let outcome = match said.beside(there.as_ref(), known.operation.retention(), self.now()) {
            Meaning::Nothing | Meaning::TooLate => return Ok(()),
            Meaning::Later(until) => self.ask_later(key, said, until).await?,
            Meaning::Contradicts(reason) => self.contradicted(key, said, there.as_ref(), reason).await?,
            // The whole answer was not kept: the provider is asked for it. That it does not confirm now what it said is for
            // people, and no leave to run it again.
            Meaning::Settles if said.word.is_effect() => {
                let source = Some((known, &*known.reconciler));
                self.reconcile(key, source, Asks::Claimed, time, Some(said)).await?
            }
            Meaning::Settles => {
                let source = Some((known, &*known.reconciler));
                match self.reconcile(key, source, Asks::Anew, time, None).await? {
                    // Of what was refused nothing is missed.
                    ReconcileOutcome::Settled | ReconcileOutcome::Gone => return Ok(()),
                    outcome => outcome,
                }
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
        let downstream_key = Note::new(downstream_key);
        tracing::error!(%downstream_key, reason, "an effect that leads to no record: it is escalated");
        let contradiction = Contradiction {
            key: None,
            reason: reason.to_owned(),
            told: None,
            downstream_key: Some(downstream_key.to_string()),
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
        said: &Said,
        until: Timestamp,
    ) -> Result<ReconcileOutcome, WorkError> {
        let Some(queue) = &self.questions else { return Ok(ReconcileOutcome::InFlight(until)) };
        let message = Message::Told { key: key.partition_key(), said: said.clone() };
        queue.send(&message.to_json(), until.since(self.now())).await?;
        let (key, operation) = (key.hash(), key.operation());
        tracing::info!(%key, %operation, "the provider's word came while a worker has the record: it is taken up later");
        Ok(ReconcileOutcome::Scheduled(until))
    }

    pub(super) async fn contradicted(
        &self,
        key: &RecordKey,
        said: &Said,
        there: Option<&Record>,
        reason: &'static str,
    ) -> Result<ReconcileOutcome, WorkError> {
        let (operation, told) = (key.operation(), said.word);
        tracing::error!(key = %key.hash(), %operation, ?told, reason, "the record contradicts the provider: it is escalated");
        self.escalate(&said.contradiction(key, there, reason)).await?;
        Count::Contradicted.add(operation);
        Ok(ReconcileOutcome::Escalated)
    }
}

impl Said {
    /// The letter that tells people of it.
    pub(super) fn contradiction(
        &self,
        key: &RecordKey,
        there: Option<&Record>,
        reason: &'static str,
    ) -> Message {
        Message::Contradiction(Box::new(Contradiction {
            key: Some(key.partition_key()),
            reason: reason.to_owned(),
            told: Some(self.word),
            // Cut: it may be anything.
            downstream_key: self.downstream_key().map(|key| Note::new(key).to_string()),
            state: there.map(|there| there.state.name().to_owned()),
        }))
    }
}
