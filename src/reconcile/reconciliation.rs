//! Asks about unknown outcomes, and settles them.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use protocol::learned::{Asked, Asks, Learned, Learning, NotFound, Schedule, WrongKind, questions};
use serde::de::IgnoredAny;
use tracing::Instrument;

use super::{
    Finding, ReconcileOutcome, Reconciler,
    ask::{AskError, Known, ask},
};
use crate::{
    backoff::Backoff,
    domain::{DomainWrite, Writes},
    engine::{Applied, Effort, Engine, Moment, Retries, Start, Step, completing},
    error_chain::error_chain,
    key::{OperationName, RecordKey},
    message::{Message, QueuedReport},
    operation::Operation,
    queue::{Queue, WorkError},
    record::{AlarmKind, KeptAnswer, Record, State, phase_of},
    store::{StoreError, StoreErrorKind, Unsettled},
    telemetry::{self, CONTRADICTION_SENT, Count},
    time::Timestamp,
    time_budget::{
        ASK_TIMEOUT, DEFAULT_FIRST_BACKOFF, DEFAULT_MAX_BACKOFF, DEFAULT_MAX_UNKNOWN_AGE,
        DEFAULT_NOT_FOUND_GRACE, DEFAULT_NOT_FOUND_WINDOW, DEFAULT_QUESTIONS, MIN_QUESTION_TIME,
        WRITE_BACKOFF,
    },
    world::{SystemWorld, World},
};

/// Settles records whose outcome is unknown.
pub struct Reconciliation {
    pub(crate) engine: Engine,
    pub(super) records: Arc<dyn Unsettled>,
    contradictions: Arc<dyn Queue>,
    pub(super) questions: Option<Arc<dyn Queue>>,
    schedule: Schedule,
    not_found_grace: Duration,
    operations: HashMap<OperationName, Known>,
}

impl fmt::Debug for Reconciliation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciliation").field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

/// Whether there was nothing to ask.
const fn is_idle(outcome: &ReconcileOutcome) -> bool {
    matches!(outcome, ReconcileOutcome::Settled | ReconcileOutcome::NotDue | ReconcileOutcome::InFlight(_))
}

impl Reconciliation {
    /// Settles records of `store`. What an escalated record cannot say goes to the queue `contradictions`, for operators: reports that
    /// contradict their record, or have none.
    pub fn new(store: impl Unsettled, contradictions: impl Queue) -> Self {
        let records: Arc<dyn Unsettled> = Arc::new(store);
        Self {
            engine: Engine { store: records.clone(), world: Arc::new(SystemWorld) },
            records,
            contradictions: Arc::new(contradictions),
            questions: None,
            schedule: Schedule {
                backoff: Backoff { first: DEFAULT_FIRST_BACKOFF, factor: 2, max: DEFAULT_MAX_BACKOFF },
                max_questions: DEFAULT_QUESTIONS,
                max_unknown_age: DEFAULT_MAX_UNKNOWN_AGE,
            },
            not_found_grace: DEFAULT_NOT_FOUND_GRACE,
            operations: HashMap::new(),
        }
    }

    /// Takes clocks, randomness and tasks from `world`: for tests.
    #[must_use]
    pub fn world(mut self, world: impl World) -> Self {
        self.engine.world = Arc::new(world);
        self
    }

    /// How questions about one unknown outcome are repeated. The `first` wait is doubled up to `max`, with jitter, so that
    /// outcomes that became unknown at once are not asked about at once. After `max_questions` the outcome is escalated.
    /// Default: [`DEFAULT_FIRST_BACKOFF`], [`DEFAULT_MAX_BACKOFF`] and [`DEFAULT_QUESTIONS`].
    ///
    /// [`DEFAULT_FIRST_BACKOFF`]: crate::time_budget::DEFAULT_FIRST_BACKOFF
    /// [`DEFAULT_MAX_BACKOFF`]: crate::time_budget::DEFAULT_MAX_BACKOFF
    /// [`DEFAULT_QUESTIONS`]: crate::time_budget::DEFAULT_QUESTIONS
    #[must_use]
    pub fn backoff(mut self, first: Duration, max: Duration, max_questions: u32) -> Self {
        let backoff = Backoff { first, factor: 2, max };
        self.schedule = Schedule { backoff, max_questions, ..self.schedule };
        self
    }

    /// For how long an outcome may be unknown before it is escalated, even after few questions: polls may have failed for a
    /// while. It is asked about once more before that. Default:
    /// [`DEFAULT_MAX_UNKNOWN_AGE`](crate::time_budget::DEFAULT_MAX_UNKNOWN_AGE).
    #[must_use]
    pub fn max_unknown_age(mut self, span: Duration) -> Self {
        self.schedule.max_unknown_age = span;
        self
    }

    /// Sends a provider report that comes while a worker has the record to this queue. [`receive`](Self::receive) processes its
    /// messages. Without a queue, the outcome is [`InFlight`](ReconcileOutcome::InFlight), and the provider has to send the
    /// report again.
    #[must_use]
    pub fn questions_to(mut self, queue: impl Queue) -> Self {
        self.questions = Some(Arc::new(queue));
        self
    }

    /// How long after its outcome became unknown an operation that is not found counts as not executed. It is longer than a
    /// request of its handler can take to arrive, plus the difference of clocks. Default: [`DEFAULT_NOT_FOUND_GRACE`].
    ///
    /// While an operator has [switched that off](crate::operator::Operator::switch_not_found), it never counts so: the question is repeated,
    /// and finally escalated.
    #[must_use]
    pub fn not_found_grace(mut self, grace: Duration) -> Self {
        self.not_found_grace = grace;
        self
    }

    /// Asks `reconciler` about this operation. Configure the operation as its guard does. These settings count: which headers
    /// are kept, how long "not found" is proof, and whether it may run again.
    #[must_use]
    pub fn operation(mut self, operation: Operation, reconciler: impl Reconciler) -> Self {
        let name = operation.name().clone();
        self.operations.insert(name, Known { operation, reconciler: Arc::new(reconciler) });
        self
    }

    /// The current time of its clock.
    pub fn now(&self) -> Timestamp {
        self.engine.world.now()
    }

    /// Asks about a record whose question is due.
    ///
    /// If its operation has no reconciler, it is escalated at once.
    pub async fn ask_if_due(&self, key: &RecordKey) -> Result<ReconcileOutcome, WorkError> {
        self.ask_within(key, Asks::IfDue, ASK_TIMEOUT).instrument(telemetry::record_span(key)).await
    }

    /// Asks about a record now, and restarts its count of questions: for an operator who knows that the provider can
    /// answer.
    pub async fn ask(&self, key: &RecordKey) -> Result<ReconcileOutcome, WorkError> {
        self.ask_within(key, Asks::Anew, ASK_TIMEOUT).instrument(telemetry::record_span(key)).await
    }

    /// Asks about a record, with this time for the reconciler's answer.
    pub(super) async fn ask_within(
        &self,
        key: &RecordKey,
        why: Asks,
        time: Duration,
    ) -> Result<ReconcileOutcome, WorkError> {
        let source = match self.known(key) {
            Ok(known) => Some((known, &*known.reconciler)),
            Err(_) if why == Asks::IfDue => None,
            Err(error) => return Err(error),
        };
        let Some(seen) = self.load(key).await? else { return Ok(ReconcileOutcome::Gone) };
        let Some(alarmed) = Some(&seen).filter(|seen| seen.untold().is_some()) else {
            return self.ask_about(&seen, source, why, time, None).await;
        };
        // What is unknown is asked about, also if operators cannot be told of its alarm now.
        let told = self.tell(Box::new(alarmed.clone())).await;
        let seen = told.as_deref().unwrap_or(alarmed);
        let outcome = self.ask_about(seen, source, why, time, None).await?;
        if is_idle(&outcome) {
            return told.map(|_| ReconcileOutcome::Escalated);
        }
        if let Err(error) = &told {
            tracing::error!(error = error_chain(error), "operators were not told of an alarm yet");
        }
        Ok(outcome)
    }

    pub(super) async fn load(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.engine.bounded(None, self.engine.store.load(key)).await
    }

    /// Processes one message of the reconcile function's queue: asks about a record, or writes a deferred report.
    ///
    /// # Errors
    /// If it fails: the message must be delivered again.
    pub async fn receive(&self, body: &str) -> Result<(), WorkError> {
        self.receive_within(body, ASK_TIMEOUT).await
    }

    /// Does the same in a function that has about this much time left. It begins nothing with less than a second.
    ///
    /// # Errors
    /// If it fails: the message must be delivered again.
    pub async fn receive_within(&self, body: &str, time: Duration) -> Result<(), WorkError> {
        if time < MIN_QUESTION_TIME {
            return Err(WorkError::NoTime);
        }
        let time = time.min(ASK_TIMEOUT);
        let message = Message::read(body)?;
        let key = &message.record_key().ok_or(WorkError::Malformed("it names no record"))?;
        let processed = async {
            match &message {
                Message::DeferredReport(report) => self.apply(key, report).await,
                Message::ProviderReport { report, .. } => self.reported_before(key, report, time).await,
                Message::Ask { .. } => match self.ask_within(key, Asks::Anew, time).await? {
                    ReconcileOutcome::Busy => Err(WorkError::Busy),
                    _ => Ok(()),
                },
                Message::Check { .. }
                | Message::Sweep
                | Message::Deliver { .. }
                | Message::Work { .. }
                | Message::Poison(_)
                | Message::Contradiction(_) => {
                    Err(WorkError::Malformed("it asks for nothing that this function does"))
                }
            }
        };
        processed.instrument(telemetry::record_span(key)).await
    }

    pub(super) async fn escalate(&self, message: &Message) -> Result<(), WorkError> {
        self.engine.sent(self.contradictions.send(&message.to_json(), Duration::ZERO)).await?;
        telemetry::count(CONTRADICTION_SENT);
        Ok(())
    }

    pub(super) fn known(&self, key: &RecordKey) -> Result<&Known, WorkError> {
        self.operations
            .get(key.operation())
            .ok_or_else(|| WorkError::UnknownOperation(key.operation().clone()))
    }

    /// Asks about the record as it was `seen`, for at most `time`, and writes what was learned. `queued` is an earlier report of
    /// the provider, for operators.
    pub(super) async fn ask_about(
        &self,
        seen: &Record,
        source: Option<(&Known, &dyn Reconciler)>,
        why: Asks,
        time: Duration,
        queued: Option<&QueuedReport>,
    ) -> Result<ReconcileOutcome, WorkError> {
        let at = self.now();
        if let Err(outcome) = questions(seen, why, at) {
            return Ok(outcome);
        }
        let learned = match (Learned::without_a_question(seen), source) {
            (Some(learned), _) => Err(learned),
            (None, Some((known, reconciler))) => {
                let finding = ask(&*self.engine.world, seen, reconciler, time).await;
                self.learned(seen, known, finding).await
            }
            (None, None) => {
                tracing::error!("no reconciler knows this operation");
                Err(Learned::NoReconciler)
            }
        };
        let (learned, writes) = match learned {
            Ok((answer, writes)) => (Learned::Executed(answer), writes),
            Err(learned) => (learned, Vec::new()),
        };
        let window = source.map_or(DEFAULT_NOT_FOUND_WINDOW, |(known, _)| known.operation.not_found_window);
        // Read after the answer: once an operator has switched it off, no later answer releases.
        let releases = !matches!(learned, Learned::NotFound) || self.not_found_releases().await;
        let not_found = NotFound { window, grace: self.not_found_grace, releases };
        let reported = queued.map(QueuedReport::reported);
        let asked = Asked { seen, why, reported: reported.as_ref(), at, not_found, schedule: &self.schedule };
        let (outcome, escalated) = self.write(&asked, &learned, &writes).await?;
        if let Some((reason, record)) = escalated {
            // The record says so by now, and each poll counts it until it is settled.
            tracing::error!(reason, "an unknown outcome is escalated");
            if let Some(queued) = queued {
                self.tell_of(record, AlarmKind::Contradicted, queued, reason).await?;
            }
        }
        Ok(outcome)
    }

    /// Whether "not found" releases. If that cannot be read, it does not: the outcome stays unknown.
    async fn not_found_releases(&self) -> bool {
        match self.engine.bounded(None, self.records.not_found_switch()).await {
            Ok(Some(switch)) if !switch.releases => {
                let (who, at) = (switch.who, switch.at.as_millis());
                tracing::warn!(who, at, "\"not found\" releases nothing: an operator has switched that off");
                false
            }
            Ok(_) => true,
            Err(error) => {
                let error = error_chain(&error);
                tracing::error!(error, "\"not found\" releases nothing: its switch cannot be read");
                false
            }
        }
    }

    /// Writes what was learned. If that escalates it, returns why, and the record.
    async fn write(
        &self,
        asked: &Asked<'_>,
        learned: &Learned,
        writes: &[DomainWrite],
    ) -> Result<(ReconcileOutcome, Option<(&'static str, Box<Record>)>), WorkError> {
        let step = |current: Option<&Record>, at: Moment| match asked.step(current, learned, at) {
            Learning::Write { next, outcome, ends_lease, escalated } => {
                Step::Write(completing(next, writes, at.now), Ok((outcome, ends_lease, escalated)))
            }
            ends => Step::Stop(Err(ends)),
        };
        let effort = Effort { until: None, backoff: WRITE_BACKOFF, retries: Retries::None };
        match self.engine.apply(Start::Seen(Box::new(asked.seen.clone())), effort, step).await {
            Ok(Applied::Written(Ok((outcome, ends_lease, escalated)), record)) => {
                if ends_lease {
                    telemetry::lease_expired(&record, self.now());
                }
                self.counts(&record, learned, &outcome);
                Ok((outcome, escalated.map(|reason| (reason, record))))
            }
            Ok(Applied::Stopped(Err(Learning::Contradicts { effect, alarm, reason }), Some(current))) => {
                let report = QueuedReport::of(effect.into());
                let outcome = match alarm {
                    Some(alarm) => self.contradicts(&current, alarm, &report, reason).await?,
                    None => {
                        let contradiction = report.contradiction(&current.key, Some(&current), reason);
                        self.contradicted(contradiction).await?
                    }
                };
                Ok((outcome, None))
            }
            Ok(Applied::Stopped(Err(Learning::Ends(outcome)), _)) => Ok((outcome, None)),
            Ok(Applied::Written(..) | Applied::Stopped(..)) => Ok((ReconcileOutcome::Busy, None)),
            Err(unapplied) if unapplied.error.kind() == StoreErrorKind::Contended => {
                Ok((ReconcileOutcome::Busy, None))
            }
            Err(unapplied)
                if !unapplied.denied.is_empty()
                    && let Learned::Executed(answer) = learned =>
            {
                let denied: Vec<_> = unapplied.denied.iter().filter_map(|place| writes.get(*place)).collect();
                tracing::error!(?denied, "the domain writes of a completion were refused: it is escalated");
                Count::Denied.add(asked.seen.key.operation());
                Box::pin(self.write(asked, &Learned::Denied(answer.head.http_status()), &[])).await
            }
            // A missing permission, or a malformed expression. It may be repaired, and the number of questions is bounded.
            Err(unapplied)
                if !writes.is_empty()
                    && unapplied.error.kind() == StoreErrorKind::Refused
                    && let Learned::Executed(answer) = learned =>
            {
                let cause = unapplied.error.cause();
                tracing::error!(cause, "the store does not take the domain writes of a completion");
                Box::pin(self.write(asked, &Learned::Unwritable(answer.head.http_status()), &[])).await
            }
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }

    /// The answer of a finding, and the domain writes that come with it. As an error: what it means if it has none.
    async fn learned(
        &self,
        seen: &Record,
        known: &Known,
        finding: Result<Finding, AskError>,
    ) -> Result<(KeptAnswer, Vec<DomainWrite>), Learned> {
        let wrong = match &finding {
            Ok(Finding::Executed(answer) | Finding::ExecutedWith(answer, _)) => {
                WrongKind::of_answer(&answer.head, seen)
            }
            Ok(Finding::PhaseExecuted { .. }) => WrongKind::of_phase(seen),
            _ => None,
        };
        if let Some(wrong) = wrong {
            tracing::error!(operation = %seen.key.operation(), reason = wrong.reason, "a finding is of the wrong kind: it completes nothing");
            return Err(Learned::WrongKind(wrong));
        }
        let (answer, writes) = match finding {
            Ok(Finding::Executed(answer)) => (answer, Vec::new()),
            Ok(Finding::ExecutedWith(answer, writes)) => (answer, writes),
            Ok(Finding::PhaseExecuted { phase, result }) => {
                let result = serde_json::from_str::<IgnoredAny>(&result).is_ok().then_some(result);
                return Err(Learned::Phase(phase_of(phase, result, self.now())));
            }
            Ok(Finding::NotExecuted) => return Err(Learned::NotExecuted),
            Ok(Finding::NotFound) => return Err(Learned::NotFound),
            Ok(Finding::AskAgain(after)) => return Err(Learned::Later(after.unwrap_or_default())),
            Err(error) => {
                // Without its causes: they are not ours, and may hold a caller's data.
                tracing::warn!(%error, "a question about an unknown outcome was not answered");
                return Err(Learned::Later(Duration::ZERO));
            }
        };
        if !answer.head.is_final() {
            tracing::error!("a reconciler's answer has no valid response status: it is not used");
            return Err(Learned::Later(Duration::ZERO));
        }
        // It was executed nevertheless.
        let unwritable = || Learned::Unwritable(answer.head.http_status());
        // The reconciler may be repaired.
        let writes = Writes::of(writes, self.engine.store.records_table()).map_err(|error| {
            tracing::error!(%error, "the domain writes of a reconciler's finding can never be made");
            unwritable()
        })?;
        let since = match seen.state {
            State::Unknown { since, .. } => since,
            _ => self.now(),
        };
        let kept = self.engine.keep_since(since, seen, &answer, &known.operation.keeps).await;
        Ok((kept.ok_or_else(unwritable)?, writes.into_vec()))
    }

    /// Logs and counts what was written.
    fn counts(&self, record: &Record, learned: &Learned, outcome: &ReconcileOutcome) {
        let (operation, state) = (record.key.operation(), record.state.name());
        match outcome {
            ReconcileOutcome::Escalated => {
                tracing::error!(state, "no question is left, or no retry came in time: it needs an operator");
            }
            ReconcileOutcome::Scheduled(at) => {
                let in_ms = at.since(self.now()).as_millis();
                tracing::info!(in_ms, "the outcome is not known yet: it is asked about again");
                Count::ReconcileScheduled.add(operation);
            }
            ReconcileOutcome::InFlight(_) => {
                tracing::warn!("an effect was proven while another execution has the record");
            }
            ReconcileOutcome::Waits => {
                tracing::info!(state, "a dead worker's operation waits for the next one");
            }
            _ => {
                tracing::info!(state, "an unknown outcome is settled");
                Count::ReconcileResolved.add(operation);
                if matches!(learned, Learned::NotFound) {
                    Count::Assumed.add(operation);
                }
            }
        }
    }
}
