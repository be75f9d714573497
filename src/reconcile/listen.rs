//! Processes what a provider reports by itself, at once or when no worker has the record any more.

use std::time::Duration;

use tracing::Instrument;

use super::{
    ProviderReport, ReconcileOutcome, Reconciler, Reconciliation, ask::Known, learned::Asks,
    provider_report::Meaning,
};
use crate::{
    engine::{Applied, Effort, Moment, Retries, Start, Step},
    key::RecordKey,
    message::{Contradiction, Message, QueuedReport},
    queue::WorkError,
    record::{Note, Record, State},
    store::StoreErrorKind,
    telemetry::{self, Count},
    time::Timestamp,
    time_budget::{ASK_TIMEOUT, STORE_TIMEOUT, WRITE_BACKOFF},
};

/// How often a report is checked against a record that changes at the same moment.
const LOOKS: usize = 4;

impl Reconciliation {
    /// Settles a record by what a provider reports by itself, for example through its webhook; see [`ProviderReport`].
    ///
    /// The report is processed, and need not be reported again, unless this fails or returns
    /// [`InFlight`](ReconcileOutcome::InFlight), [`Busy`](ReconcileOutcome::Busy) or [`NotDue`](ReconcileOutcome::NotDue).
    pub async fn reported(
        &self,
        key: &RecordKey,
        reported: &ProviderReport,
    ) -> Result<ReconcileOutcome, WorkError> {
        self.process(key, reported).instrument(telemetry::record_span(key)).await
    }

    /// The same, within the record's span.
    pub(crate) async fn process(
        &self,
        key: &RecordKey,
        reported: &ProviderReport,
    ) -> Result<ReconcileOutcome, WorkError> {
        let Ok(known) = self.known(key) else {
            // The metadata that leads to a record can often be set by anybody: a repetition would not help.
            if !reported.queued.effect.is_effect() {
                return Ok(ReconcileOutcome::Settled);
            }
            let reason = "it is about an operation that is not known here";
            return self.contradicted(key, reported.queued.contradiction(key, None, reason)).await;
        };
        for _ in 0..LOOKS {
            let current = match self.current(key).await {
                // No retry helps.
                Err(WorkError::Store(error)) if error.kind() == StoreErrorKind::Unreadable => {
                    let dead_letter = reported.queued.contradiction(key, None, "its record cannot be read");
                    return self.contradicted(key, dead_letter).await;
                }
                current => current?,
            };
            let by = reported.by.as_deref();
            if let Some(outcome) =
                self.apply_report(key, &reported.queued, current.as_ref(), known, by, ASK_TIMEOUT).await?
            {
                return Ok(outcome);
            }
        }
        Ok(ReconcileOutcome::Busy)
    }

    /// Checks a report that came while a worker had the record against what became of the record.
    pub(super) async fn reported_before(
        &self,
        key: &RecordKey,
        queued: &QueuedReport,
        time: Duration,
    ) -> Result<(), WorkError> {
        let known = self.known(key)?;
        let current = self.current(key).await?;
        match self.apply_report(key, queued, current.as_ref(), known, None, time).await? {
            // Nothing was escalated, and nothing is scheduled: the message comes again.
            None
            | Some(ReconcileOutcome::Busy | ReconcileOutcome::NotDue | ReconcileOutcome::InFlight(_)) => {
                Err(WorkError::Busy)
            }
            Some(_) => Ok(()),
        }
    }

    /// Applies a report to the current record. `by` is who reported it, if that can still be asked; else the provider is
    /// asked. `None` if the record has changed since it was read: the caller reads it again.
    async fn apply_report(
        &self,
        key: &RecordKey,
        queued: &QueuedReport,
        current: Option<&Record>,
        known: &Known,
        by: Option<&dyn Reconciler>,
        time: Duration,
    ) -> Result<Option<ReconcileOutcome>, WorkError> {
        let outcome = match queued.meaning_for(current, known.operation.retain, self.now()) {
            Meaning::Nothing => return Ok(Some(ReconcileOutcome::Settled)),
            Meaning::TooLate => return Ok(Some(ReconcileOutcome::Gone)),
            Meaning::Contradicts(reason) => {
                return self.contradicted(key, queued.contradiction(key, current, reason)).await.map(Some);
            }
            Meaning::Later(current, until) => {
                let Some(claimed) = self.claim(queued, current).await? else { return Ok(None) };
                return self.ask_later(queued, &claimed, until).await.map(Some);
            }
            Meaning::Settles(current) => {
                let Some(claimed) = self.claim(queued, current).await? else { return Ok(None) };
                self.settle_by(queued, &claimed, known, by, time).await?
            }
        };
        Ok(match outcome {
            ReconcileOutcome::Settled
            | ReconcileOutcome::Busy
            | ReconcileOutcome::Gone
            | ReconcileOutcome::InFlight(_) => None,
            // Whoever reported it has the answer, which a question may not find.
            ReconcileOutcome::Scheduled(_) if by.is_some() && queued.effect.is_effect() => {
                Some(ReconcileOutcome::NotDue)
            }
            outcome => Some(outcome),
        })
    }

    /// Settles the record by a report. For an effect, `by` has the answer; after a refusal, which may be about another
    /// attempt, the provider is asked.
    async fn settle_by(
        &self,
        queued: &QueuedReport,
        current: &Record,
        known: &Known,
        by: Option<&dyn Reconciler>,
        time: Duration,
    ) -> Result<ReconcileOutcome, WorkError> {
        let provider = &*known.reconciler;
        match queued.effect.is_effect() {
            true => {
                let source = Some((known, by.unwrap_or(provider)));
                self.ask_about(current, source, Asks::ProviderReported, time, Some(queued)).await
            }
            false => self.ask_about(current, Some((known, provider)), Asks::Anew, time, None).await,
        }
    }

    /// Escalates an effect that a provider reports and that leads to no record: the report may be its only sign.
    ///
    /// # Errors
    /// If it could not be escalated: the provider must report it again.
    pub async fn unclaimed(&self, downstream_key: &str, reason: &'static str) -> Result<(), WorkError> {
        let downstream_key = Note::new(downstream_key);
        tracing::error!(%downstream_key, reason, "an effect that leads to no record: it is escalated");
        let dead_letter = Contradiction {
            reason: reason.to_owned(),
            downstream_key: Some(downstream_key.to_string()),
            ..Contradiction::default()
        };
        self.escalate(&Message::Contradiction(Box::new(dead_letter))).await
    }

    async fn current(&self, key: &RecordKey) -> Result<Option<Record>, WorkError> {
        Ok(self.engine.bounded(None, self.engine.store.load(key)).await?)
    }

    /// Postpones the report, because a worker has the record. If the worker ends with something else, that must be escalated.
    async fn ask_later(
        &self,
        queued: &QueuedReport,
        current: &Record,
        until: Timestamp,
    ) -> Result<ReconcileOutcome, WorkError> {
        let Some(queue) = &self.questions else { return Ok(ReconcileOutcome::InFlight(until)) };
        let message = Message::ProviderReport { key: current.key.partition_key(), report: queued.clone() };
        queue.send(&message.to_json(), until.since(self.now())).await?;
        tracing::info!("the provider's report came while a worker has the record: it is processed later");
        Ok(ReconcileOutcome::Scheduled(until))
    }

    /// Claims the record at once if the provider reports an effect, before anything is asked or sent. `None` if the record
    /// has changed by now.
    async fn claim(&self, queued: &QueuedReport, current: &Record) -> Result<Option<Record>, WorkError> {
        if current.claimed || !queued.effect.is_effect() {
            return Ok(Some(current.clone()));
        }
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| {
            let is_open = |current: &&Record| {
                let meaning = queued.meaning_for(Some(*current), Duration::ZERO, now);
                matches!(meaning, Meaning::Settles(_) | Meaning::Later(..))
            };
            let Some(current) = current.filter(is_open) else { return Step::Stop(None) };
            let Some(claimed) = current.claim(revision, now.plus(ASK_TIMEOUT), now) else {
                return Step::Stop(Some(false));
            };
            let found_dead =
                matches!((&current.state, &claimed.state), (State::InProgress { .. }, State::Unknown { .. }));
            Step::Write(claimed.into(), Some(found_dead))
        };
        let until = Some(self.engine.world.instant().plus(STORE_TIMEOUT));
        let effort = Effort { until, backoff: WRITE_BACKOFF, retries: Retries::Unanswered };
        match self.engine.apply(Start::Seen(Box::new(current.clone())), effort, step).await {
            Ok(Applied::Written(found_dead, claimed)) => {
                if found_dead == Some(true) {
                    // Found dead here, before the stale function came.
                    telemetry::lease_expired(&claimed, self.now());
                }
                Ok(Some(*claimed))
            }
            Ok(Applied::Stopped(Some(_), claimed)) => Ok(claimed.map(|claimed| *claimed)),
            Ok(Applied::Stopped(None, _)) => Ok(None),
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }

    pub(super) async fn contradicted(
        &self,
        key: &RecordKey,
        dead_letter: Contradiction,
    ) -> Result<ReconcileOutcome, WorkError> {
        let reason = &dead_letter.reason;
        tracing::error!(reason, "a report is contradicted by its record: it is escalated");
        self.escalate(&Message::Contradiction(Box::new(dead_letter))).await?;
        Count::Contradicted.add(key.operation());
        Ok(ReconcileOutcome::Escalated)
    }
}

impl QueuedReport {
    /// The dead letter about it.
    pub(super) fn contradiction(
        &self,
        key: &RecordKey,
        current: Option<&Record>,
        reason: &'static str,
    ) -> Contradiction {
        // Truncated: it may be anything.
        let downstream_key = self.downstream_key().map(|key| Note::new(key).to_string());
        Contradiction {
            reported: Some(self.effect),
            downstream_key,
            ..Contradiction::about(key, current, reason)
        }
    }
}
