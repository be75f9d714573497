//! Takes up what a provider says by itself, at once or when the record is nobody's any more.

use std::time::Duration;

use super::{
    ReconcileOutcome, Reconciler, Reconciliation, Told,
    learned::Asks,
    message::{Contradiction, Message},
    reconciliation::Known,
    told::{Meaning, Said},
};
use crate::{
    engine::{Applied, Effort, Moment, Retries, Start, Step},
    key::RecordKey,
    queue::WorkError,
    record::{Note, Record, State},
    store::StoreErrorKind,
    telemetry::Count,
    time::Timestamp,
    time_budget::{ASK_TIMEOUT, WRITE_PAUSES},
};

/// How often a word is held against a record that changes at the same moment.
const LOOKS: usize = 4;

impl Reconciliation {
    /// Settles a record by what somebody says who knows, such as a provider's webhook; see [`Told`] for what is not settled so.
    ///
    /// The word is taken up, and need not be told again, unless this fails, or says [`InFlight`](ReconcileOutcome::InFlight) or
    /// [`Busy`](ReconcileOutcome::Busy).
    pub async fn told(&self, key: &RecordKey, told: &Told) -> Result<ReconcileOutcome, WorkError> {
        let Ok(known) = self.known(key) else {
            // What leads to a record is often metadata that anybody can set: to tell it again would not help.
            if !told.said.word.is_effect() {
                return Ok(ReconcileOutcome::Settled);
            }
            let reason = "it is about an operation that is not known here";
            return self.contradicted(key, told.said.contradiction(key, None, reason)).await;
        };
        for _ in 0..LOOKS {
            let there = match self.there(key).await {
                // No retry mends that.
                Err(WorkError::Store(error)) if error.kind() == StoreErrorKind::Unreadable => {
                    let letter = told.said.contradiction(key, None, "its record cannot be read");
                    return self.contradicted(key, letter).await;
                }
                there => there?,
            };
            let outcome = match told.said.beside(there.as_ref(), known.operation.retention(), self.now()) {
                Meaning::Nothing => return Ok(ReconcileOutcome::Settled),
                Meaning::TooLate => return Ok(ReconcileOutcome::Gone),
                Meaning::Contradicts(reason) => {
                    let letter = told.said.contradiction(key, there.as_ref(), reason);
                    return self.contradicted(key, letter).await;
                }
                Meaning::Later(there, until) => self.ask_later(&told.said, there, until).await?,
                Meaning::Settles(there) => {
                    let by = told.by.as_deref().unwrap_or(&*known.reconciler);
                    match self.settle_by(&told.said, there, known, by, ASK_TIMEOUT).await? {
                        ReconcileOutcome::InFlight(_) => ReconcileOutcome::Busy,
                        outcome => outcome,
                    }
                }
            };
            match outcome {
                // It has changed since we looked: what that means is for the next look.
                ReconcileOutcome::Settled | ReconcileOutcome::Busy | ReconcileOutcome::Gone => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(ReconcileOutcome::Busy)
    }

    /// Settles the record by a word: an effect as `by` knows it, and a refusal as the provider says when it is asked.
    async fn settle_by(
        &self,
        said: &Said,
        there: &Record,
        known: &Known,
        by: &dyn Reconciler,
        time: Duration,
    ) -> Result<ReconcileOutcome, WorkError> {
        match said.word.is_effect() {
            true => self.ask_about(there, Some((known, by)), Asks::Claimed, time, Some(said)).await,
            false => self.ask_about(there, Some((known, &*known.reconciler)), Asks::Anew, time, None).await,
        }
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
            Meaning::Later(there, until) => self.ask_later(said, there, until).await?,
            Meaning::Contradicts(reason) => {
                self.contradicted(key, said.contradiction(key, there.as_ref(), reason)).await?
            }
            // The whole answer was not kept: the provider is asked for it.
            Meaning::Settles(there) => self.settle_by(said, there, known, &*known.reconciler, time).await?,
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
        let letter = Contradiction {
            reason: reason.to_owned(),
            downstream_key: Some(downstream_key.to_string()),
            ..Contradiction::default()
        };
        self.escalate(&Message::Contradiction(Box::new(letter))).await
    }

    async fn there(&self, key: &RecordKey) -> Result<Option<Record>, WorkError> {
        Ok(self.engine.bounded(None, self.engine.store.load(key)).await?)
    }

    /// A worker has the record. It knows too; but if what it knows is something else, somebody must hear of it, and no retry may run
    /// before that.
    async fn ask_later(
        &self,
        said: &Said,
        there: &Record,
        until: Timestamp,
    ) -> Result<ReconcileOutcome, WorkError> {
        let (key, operation) = (there.key.hash(), there.key.operation());
        let mut outcome = ReconcileOutcome::InFlight(until);
        if let Some(queue) = &self.questions {
            let message = Message::Told { key: there.key.partition_key(), said: said.clone() };
            queue.send(&message.to_json(), until.since(self.now())).await?;
            tracing::info!(%key, %operation, "the provider's word came while a worker has the record: it is taken up later");
            outcome = ReconcileOutcome::Scheduled(until);
        }
        if !said.word.is_effect() || there.contested || self.claim(there).await? {
            return Ok(outcome);
        }
        Ok(ReconcileOutcome::Busy)
    }

    /// Claims what a worker has. `false` if it has changed meanwhile.
    async fn claim(&self, seen: &Record) -> Result<bool, WorkError> {
        let step = |there: Option<&Record>, Moment { revision, now }: Moment| match there {
            Some(there) if matches!(there.state, State::InProgress { lease_until } if lease_until > now) => {
                match there.claim(revision, 0, now, now) {
                    Some(claimed) => Step::Write(claimed.into(), true),
                    None => Step::Stop(true),
                }
            }
            _ => Step::Stop(false),
        };
        let effort = Effort { until: None, pauses: WRITE_PAUSES, retries: Retries::Unanswered };
        match self.engine.apply(Start::Seen(Box::new(seen.clone())), effort, step).await {
            Ok(Applied::Written(claimed, _) | Applied::Stopped(claimed, _)) => Ok(claimed),
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }

    pub(super) async fn contradicted(
        &self,
        key: &RecordKey,
        letter: Contradiction,
    ) -> Result<ReconcileOutcome, WorkError> {
        let (operation, reason) = (key.operation(), &letter.reason);
        tracing::error!(key = %key.hash(), %operation, reason, "a word is contradicted by its record: it is escalated");
        self.escalate(&Message::Contradiction(Box::new(letter))).await?;
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
    ) -> Contradiction {
        // Cut: it may be anything.
        let downstream_key = self.downstream_key().map(|key| Note::new(key).to_string());
        Contradiction { told: Some(self.word), downstream_key, ..Contradiction::about(key, there, reason) }
    }
}
