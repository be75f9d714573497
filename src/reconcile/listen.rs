//! Processes provider reports: at once, or after a worker's lease has expired.

use std::time::Duration;

use protocol::learned::{Asks, Meaning, Reported, SECOND_EFFECT};
use tracing::Instrument;

use super::{ProviderReport, ReconcileOutcome, Reconciler, Reconciliation, ask::Known};
use crate::{
    engine::{Applied, Effort, Moment, Retries, Start, Step},
    error_chain::error_chain,
    key::RecordKey,
    message::{Contradiction, Message, QueuedReport},
    queue::WorkError,
    record::{AlarmKind, Evidence, Note, Record, Reference, State},
    store::{StoreError, StoreErrorKind},
    telemetry,
    time::Timestamp,
    time_budget::{ASK_TIMEOUT, STORE_TIMEOUT, WRITE_BACKOFF},
};

/// How often a report is checked against a record that others are changing.
const LOOKS: usize = 4;

impl Reconciliation {
    /// Settles a record by an unprompted report of its provider, for example through its webhook: see [`ProviderReport`].
    ///
    /// The provider need not send the report again, unless this fails or returns [`InFlight`](ReconcileOutcome::InFlight),
    /// [`Busy`](ReconcileOutcome::Busy) or [`NotDue`](ReconcileOutcome::NotDue).
    pub async fn reported(
        &self,
        key: &RecordKey,
        report: &ProviderReport,
    ) -> Result<ReconcileOutcome, WorkError> {
        self.process(key, report).instrument(telemetry::record_span(key)).await
    }

    /// Does the same, within the record's span.
    pub(crate) async fn process(
        &self,
        key: &RecordKey,
        report: &ProviderReport,
    ) -> Result<ReconcileOutcome, WorkError> {
        let ProviderReport { by, queued } = report;
        let Ok(known) = self.known(key) else {
            // The metadata that leads to a record can often be set by anybody: a repetition would not help.
            if !queued.reported().effect.is_effect() {
                return Ok(ReconcileOutcome::Settled);
            }
            let reason = "it is about an operation that is not known here";
            return self.contradicted(queued.contradiction(key, None, reason)).await;
        };
        for _ in 0..LOOKS {
            let current = match self.load(key).await {
                // No retry helps.
                Err(error) if error.kind() == StoreErrorKind::Unreadable => {
                    let contradiction = queued.contradiction(key, None, "its record cannot be read");
                    return self.contradicted(contradiction).await;
                }
                current => current?,
            };
            let applied = self.apply_report(key, queued, current.as_ref(), known, by.as_deref(), ASK_TIMEOUT);
            if let Some(outcome) = applied.await? {
                return Ok(outcome);
            }
        }
        Ok(ReconcileOutcome::Busy)
    }

    /// Processes a report that came while a worker had the record.
    pub(super) async fn reported_before(
        &self,
        key: &RecordKey,
        queued: &QueuedReport,
        time: Duration,
    ) -> Result<(), WorkError> {
        let known = self.known(key)?;
        let current = self.load(key).await?;
        match self.apply_report(key, queued, current.as_ref(), known, None, time).await? {
            // Neither settled, escalated nor scheduled: the message is delivered again.
            None
            | Some(ReconcileOutcome::Busy | ReconcileOutcome::NotDue | ReconcileOutcome::InFlight(_)) => {
                Err(WorkError::Busy)
            }
            Some(_) => Ok(()),
        }
    }

    /// Applies a report to the current record. `by` returns the answer that belongs to the report. Without it, the provider is
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
        let reported = &queued.reported();
        let outcome = match reported.meaning_for(current, known.operation.retain, self.now()) {
            Meaning::Nothing => return Ok(Some(ReconcileOutcome::Settled)),
            Meaning::TooLate => return Ok(Some(ReconcileOutcome::Gone)),
            Meaning::Contradicts(reason) => {
                return self.contradicted(queued.contradiction(key, current, reason)).await.map(Some);
            }
            Meaning::Alarms(current, kind, reason) => {
                let outcome = self.contradicts(current, kind, queued, reason).await?;
                // A second effect settles what is open all the same.
                let settles =
                    kind == AlarmKind::SecondEffect && !matches!(current.state, State::Completed { .. });
                return Ok((!settles).then_some(outcome));
            }
            Meaning::Names(current, id) => return self.name(current, id).await,
            Meaning::Notes(_) => return self.note(reported, current).await,
            Meaning::Later(current, until) => {
                let Some(claimed) = self.claim(reported, current).await? else { return Ok(None) };
                return self.ask_later(queued, &claimed, until).await.map(Some);
            }
            Meaning::Settles(current) => {
                let Some(claimed) = self.claim(reported, current).await? else { return Ok(None) };
                let provider = &*known.reconciler;
                let (source, queued) = match reported.effect.is_effect() {
                    true => (by.unwrap_or(provider), Some(queued)),
                    // A refusal may be about another execution, so the provider is asked.
                    false => (provider, None),
                };
                let why = Asks::ProviderReported;
                self.ask_about(&claimed, Some((known, source)), why, time, queued).await?
            }
        };
        let second = current.filter(|current| reported.is_second_effect(current));
        Ok(match outcome {
            ReconcileOutcome::Settled
            | ReconcileOutcome::Busy
            | ReconcileOutcome::Gone
            | ReconcileOutcome::InFlight(_) => None,
            // No question follows. Or the reporter has the answer, and a question may not find it.
            ReconcileOutcome::Scheduled(at)
                if reported.effect.is_effect() && (at == Timestamp::MAX || by.is_some()) =>
            {
                Some(ReconcileOutcome::NotDue)
            }
            // There was no room for its alarm, and nobody may say it again.
            _ if let Some(current) = second => {
                Some(self.contradicts(current, AlarmKind::SecondEffect, queued, SECOND_EFFECT).await?)
            }
            // Nothing was learned that an operator could miss.
            ReconcileOutcome::Scheduled(Timestamp::MAX) => Some(ReconcileOutcome::Escalated),
            outcome => Some(outcome),
        })
    }

    /// The record that this reference leads to, if that record names it back. Between the two writes of
    /// [`Execution::refer`](crate::Execution::refer) and of its phase, it does not yet: ask again for some minutes.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn referred(&self, reference: &Reference) -> Result<Option<Record>, StoreError> {
        let engine = &self.engine;
        let Some(key) = engine.bounded(None, engine.store.referred(reference)).await? else {
            return Ok(None);
        };
        let record = self.load(&key).await?;
        Ok(record.filter(|record| record.names(reference)))
    }

    /// Escalates an effect that a provider reports, and that leads to no record. The report may be its only trace.
    ///
    /// # Errors
    /// If it could not be escalated: the provider must send the report again.
    pub async fn unclaimed(&self, downstream_key: &str, reason: &'static str) -> Result<(), WorkError> {
        let downstream_key = Note::new(downstream_key);
        tracing::error!(%downstream_key, reason, "a provider reports an effect that leads to no record: it is escalated");
        let dead_letter = Contradiction {
            reason: reason.to_owned(),
            downstream_key: Some(downstream_key.to_string()),
            ..Contradiction::default()
        };
        self.escalate(&Message::Contradiction(Box::new(dead_letter))).await
    }

    /// Queues the report, because a worker has the record. If the worker then reports something else, that is escalated.
    async fn ask_later(
        &self,
        queued: &QueuedReport,
        current: &Record,
        until: Timestamp,
    ) -> Result<ReconcileOutcome, WorkError> {
        let Some(queue) = &self.questions else { return Ok(ReconcileOutcome::InFlight(until)) };
        let message = Message::ProviderReport { key: current.key.partition_key(), report: queued.clone() };
        self.engine.sent(queue.send(&message.to_json(), until.since(self.now()))).await?;
        tracing::info!("the provider's report came while a worker has the record: it is processed later");
        Ok(ReconcileOutcome::Scheduled(until))
    }

    /// Claims the record if the provider reports an effect, before any question or message is sent. `None` if the record has
    /// changed.
    async fn claim(&self, reported: &Reported<'_>, current: &Record) -> Result<Option<Record>, WorkError> {
        let is_claimed = current.reported == Some(Evidence::Effect) && !current.is_held();
        if is_claimed || !reported.effect.is_effect() {
            return Ok(Some(current.clone()));
        }
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| {
            let is_open = |current: &&Record| {
                let meaning = reported.meaning_for(Some(*current), Duration::ZERO, now);
                matches!(meaning, Meaning::Settles(_) | Meaning::Later(..))
            };
            let Some(current) = current.filter(is_open) else { return Step::Stop(None) };
            let Some(claimed) = current.claim(revision, now.plus(ASK_TIMEOUT), now) else {
                return Step::Stop(Some(false));
            };
            let expired = current.ends_lease(&claimed);
            Step::Write(claimed.into(), Some(expired))
        };
        match self.engine.apply(Start::Seen(Box::new(current.clone())), self.effort(), step).await {
            Ok(Applied::Written(expired, claimed)) => {
                if expired == Some(true) {
                    telemetry::lease_expired(&claimed, self.now());
                }
                Ok(Some(*claimed))
            }
            Ok(Applied::Stopped(Some(_), claimed)) => Ok(claimed.map(|claimed| *claimed)),
            Ok(Applied::Stopped(None, _)) => Ok(None),
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }

    /// Notes the phase that is reported in the current record. `None` if the record has changed, and means something else now.
    async fn note(
        &self,
        reported: &Reported<'_>,
        current: Option<&Record>,
    ) -> Result<Option<ReconcileOutcome>, WorkError> {
        let Some(current) = current else { return Ok(None) };
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| match reported.meaning_for(
            current,
            Duration::ZERO,
            now,
        ) {
            Meaning::Notes(phase) => match current.map(|current| current.note(&phase, revision, now)) {
                Some(Ok(next)) => Step::Write(next.into(), Some(ReconcileOutcome::Noted)),
                _ => Step::Stop(None),
            },
            Meaning::Nothing => Step::Stop(Some(ReconcileOutcome::Settled)),
            _ => Step::Stop(None),
        };
        match self.engine.apply(Start::Seen(Box::new(current.clone())), self.effort(), step).await {
            Ok(Applied::Written(outcome, _)) => {
                tracing::info!("the provider's report of a phase is noted");
                Ok(outcome)
            }
            Ok(Applied::Stopped(outcome, _)) => Ok(outcome),
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }

    /// Names the effect in this record, and claims it by the same write: no denial may come between. Then the report has another meaning.
    async fn name(&self, current: &Record, id: Note) -> Result<Option<ReconcileOutcome>, WorkError> {
        let step = |latest: Option<&Record>, Moment { revision, now }: Moment| match latest {
            Some(latest) if latest.revision == current.revision => {
                let named = latest.name_effect(id.clone(), revision);
                let next = named.claim(revision, now.plus(ASK_TIMEOUT), now).unwrap_or(named);
                let expired = latest.ends_lease(&next);
                Step::Write(next.into(), expired)
            }
            _ => Step::Stop(false),
        };
        match self.engine.apply(Start::Seen(Box::new(current.clone())), self.effort(), step).await {
            Ok(Applied::Written(true, named)) => {
                telemetry::lease_expired(&named, self.now());
                Ok(None)
            }
            Ok(_) => Ok(None),
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }

    /// Escalates what contradicts this record. An alarm of the record says so first: if this process dies, the poll tells operators of it, and
    /// what is said again is not escalated again.
    pub(super) async fn contradicts(
        &self,
        current: &Record,
        kind: AlarmKind,
        queued: &QueuedReport,
        reason: &'static str,
    ) -> Result<ReconcileOutcome, WorkError> {
        let reported = queued.reported();
        if reported.stands_in(current, kind, reason) {
            let because = reported.because(reason);
            tracing::warn!(because, "a report contradicts its record: that is escalated already");
            return Ok(ReconcileOutcome::Escalated);
        }
        let step = |latest: Option<&Record>, Moment { revision, now }: Moment| {
            let same = latest.filter(|latest| latest.is_same_request(current));
            let next = same.and_then(|latest| latest.alarm(reported.alarm(kind, reason, now), revision));
            next.map_or(Step::Stop(()), |next| Step::Write(next.into(), ()))
        };
        let start = Start::Seen(Box::new(current.clone()));
        let about = match self.engine.apply(start, self.effort(), step).await {
            Ok(Applied::Written((), alarmed)) => alarmed,
            // Others have raised it meanwhile, and tell of it.
            Ok(Applied::Stopped((), Some(latest))) if reported.stands_in(&latest, kind, reason) => {
                return Ok(ReconcileOutcome::Escalated);
            }
            // It has no room for it, or it is another request's now.
            Ok(Applied::Stopped(..)) => Box::new(current.clone()),
            Err(unapplied) => return Err(unapplied.error.into()),
        };
        self.tell_of(about, kind, queued, reason).await
    }

    /// Tells operators what contradicts this record. If its alarm says so too, and they cannot be reached now, the poll tells them.
    pub(super) async fn tell_of(
        &self,
        record: Box<Record>,
        kind: AlarmKind,
        queued: &QueuedReport,
        reason: &'static str,
    ) -> Result<ReconcileOutcome, WorkError> {
        let alarm = queued.reported().standing_in(&record, kind, reason).cloned();
        if alarm.as_ref().is_some_and(|alarm| alarm.is_told) {
            return Ok(ReconcileOutcome::Escalated);
        }
        let contradiction = queued.contradiction(&record.key, Some(&record), reason);
        let contradiction = Contradiction { alarm: Some(kind.name().to_owned()), ..contradiction };
        let told = self.contradicted(contradiction).await;
        let Some(alarm) = alarm else { return told };
        let told = match told {
            Ok(_) => self.has_told(record, &alarm).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            let error = error_chain(&error);
            tracing::error!(error, "operators were perhaps not told of a contradiction: the poll tells them");
        }
        Ok(ReconcileOutcome::Escalated)
    }

    /// How long a write of what is reported is tried: what changes meanwhile has another meaning.
    fn effort(&self) -> Effort {
        let until = Some(self.engine.world.instant().plus(STORE_TIMEOUT));
        Effort { until, backoff: WRITE_BACKOFF, retries: Retries::Unanswered }
    }

    /// Escalates a contradiction.
    pub(super) async fn contradicted(
        &self,
        contradiction: Contradiction,
    ) -> Result<ReconcileOutcome, WorkError> {
        tracing::error!(reason = contradiction.reason, "a report contradicts its record: it is escalated");
        self.escalate(&Message::Contradiction(Box::new(contradiction))).await?;
        Ok(ReconcileOutcome::Escalated)
    }
}

impl QueuedReport {
    /// The contradiction between this report and the record; `None` if there is no record.
    pub(super) fn contradiction(
        &self,
        key: &RecordKey,
        current: Option<&Record>,
        reason: &'static str,
    ) -> Contradiction {
        Contradiction {
            reported: Some(self.effect),
            effect_id: self.id.clone(),
            // Truncated, because it may be any text.
            downstream_key: self.under.as_ref().map(|(_, key)| Note::new(key).to_string()),
            ..Contradiction::about(key, current, reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        sync::{Arc, Mutex},
    };

    use async_trait::async_trait;

    use super::*;
    use crate::{
        message::ReportedEffect,
        reconcile::{
            Finding, Question,
            tests::{in_progress, reconciliation, restless, unknown},
        },
        store::{Store, memory::MemoryStore},
    };

    /// Reads the record while it is asked about it.
    struct Looks(MemoryStore, Arc<Mutex<Option<Evidence>>>);

    #[async_trait]
    impl Reconciler for Looks {
        async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>> {
            let record = self.0.load(question.record_key()).await?.ok_or("there is a record")?;
            *self.1.lock().expect("nothing panics") = record.reported;
            Ok(Finding::AskAgain(None))
        }
    }

    // T46, T54: if the process dies then, no retry runs, and no denial releases the record.
    #[tokio::test]
    async fn a_reported_effect_is_in_the_record_before_anything_else_happens() {
        let seen = Arc::new(Mutex::new(None));
        let record = unknown();
        let (store, reconciliation) = reconciliation(&record, |store| Looks(store, seen.clone())).await;
        let report = ProviderReport::executed(201, Looks(store, seen.clone()));
        // The provider has to report it again: a question may not find it.
        assert_eq!(reconciliation.reported(&record.key, &report).await.unwrap(), ReconcileOutcome::NotDue);
        assert_eq!(*seen.lock().unwrap(), Some(Evidence::Effect));
    }

    // T46, T54: its worker may report that it did nothing.
    #[tokio::test]
    async fn an_effect_that_is_reported_during_a_lease_is_in_the_record() {
        let record = in_progress();
        let (store, reconciliation) = reconciliation(&record, |store| Looks(store, Arc::default())).await;
        let report = ProviderReport::executed(201, Looks(store.clone(), Arc::default()));
        let reported = reconciliation.reported(&record.key, &report).await.unwrap();
        assert!(matches!(reported, ReconcileOutcome::InFlight(_)), "{reported:?}");
        let current = store.load(&record.key).await.unwrap().unwrap();
        assert_eq!((current.state, current.reported), (record.state, Some(Evidence::Effect)));
    }

    // T46: what was not processed must come again.
    #[tokio::test]
    async fn a_report_about_a_record_that_others_change_is_not_acknowledged() {
        let (key, reconciliation) = restless().await;
        let queued = QueuedReport::of(ReportedEffect::NotExecuted);
        let processed = reconciliation.reported_before(&key, &queued, ASK_TIMEOUT).await;
        assert!(matches!(processed, Err(WorkError::Busy)), "{processed:?}");
        let message = Message::ProviderReport { key: key.partition_key(), report: queued }.to_json();
        assert!(matches!(reconciliation.receive(&message).await, Err(WorkError::Busy)));
        let question = Message::Ask { key: key.partition_key() }.to_json();
        assert!(matches!(reconciliation.receive(&question).await, Err(WorkError::Busy)));
        let reported = reconciliation.reported(&key, &ProviderReport::not_executed()).await;
        assert!(matches!(reported, Ok(ReconcileOutcome::Busy)), "{reported:?}");
    }
}
