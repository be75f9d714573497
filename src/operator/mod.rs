//! Corrections of records by operators, through the command line.
//!
//! 1. A correction applies to the record that the operator has seen. If the record was changed meanwhile, nothing is written.
//! 2. Each correction is written together with its audit line, or not at all.
//! 3. A pending or settled record, or one whose worker may be alive, cannot be settled. But "executed" overrides a release.
//! 4. What was released can be held: no retry runs it any more. Only proof of the effect, or an operator, settles it then.
//! 5. An alarm stands until an operator clears it.
//! 6. Of an operation that resumes, single phases are settled: what is kept cannot be settled as not executed.
//! 7. While a provider has an incident, operators switch off that its "not found" releases.
//!
//! It does not check who the operator is: the audit line has the name that the caller gives.

mod dead_letter;
mod error;
mod phase;
mod report;
mod tenants;

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tracing::Instrument;

use crate::{
    domain::{DomainWrite, DomainWriteError, Topic, Writes},
    engine::{Applied, Change, Effort, Engine, Moment, Placed, Retries, Start, Step, Unapplied, with_writes},
    key::RecordKey,
    record::{
        Answer, BodyId, Keeps, KeptAnswer, KeptBody, Note, Place, Record, Revision, SettledBy, State,
        Transition, Verdict, may_be_kept,
    },
    store::{AuditLine, Companion, NotFoundSwitch, StoreError, Unsettled},
    telemetry,
    time::Timestamp,
    time_budget::{CLOCK_SKEW, OFFLINE_WRITE_TIMEOUT, WRITE_BACKOFF},
    world::{SystemWorld, World},
};

pub use dead_letter::MessageSummary;
pub use error::{CorrectionError, PhaseCorrectionError};
pub use report::{ReportBeside, ReportSummary};
pub use tenants::{TenantChange, TenantChangeError, TenantOperator, in_words, stopped_by};

/// A change to a record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Correction {
    /// It was executed, and every retry gets this answer.
    Executed {
        /// The answer.
        answer: Answer,
        /// How long it is kept, if longer than its record says.
        retain: Option<Duration>,
        /// What it publishes.
        messages: Vec<Message>,
    },
    /// It was not executed, and will not be: the next retry runs it.
    NotExecuted {
        /// How long that is kept, if longer than its record says.
        retain: Option<Duration>,
    },
    /// This phase was executed: the next retry uses the result when it gets there.
    PhaseExecuted {
        /// The phase.
        phase: String,
        /// What the handler's call would have returned, as JSON.
        result: String,
    },
    /// The call that follows what is kept, which is this phase, was not made, and will not be: the next retry makes it.
    PhaseNotExecuted {
        /// The phase.
        phase: String,
    },
    /// It was released, and perhaps had its effect: no retry runs it until it is settled.
    Hold,
    /// A retry may resume it between workers, for as long again as its operation allows, before it is escalated.
    Resume,
    /// Drops the kept headers and body. The operation stays completed, and nothing runs again.
    ForgetAnswer,
    /// Ends an execution whose lease has expired, or accepted work that no worker took in time.
    ExpireLease,
    /// The operator has looked at all alarms of the record: they end, and the reports that lie beside it are deleted. A settled record
    /// expires at its time again, at once if that is past.
    ClearAlarms,
}

/// A message that an operator publishes for an operation.
#[derive(Clone, derive_more::Debug)]
#[debug("Message({})", topic.name())]
pub struct Message {
    /// What it is about.
    pub topic: Topic,
    /// Its body, as JSON.
    pub body: Box<RawValue>,
}

impl Correction {
    /// What it publishes.
    fn messages(&self) -> Result<Vec<DomainWrite>, DomainWriteError> {
        let Self::Executed { messages, .. } = self else { return Ok(Vec::new()) };
        let messages = messages.iter().map(|message| message.topic.message(&message.body));
        Ok(Writes::of(messages.collect(), None)?.into_vec())
    }

    const fn retain(&self) -> Option<Duration> {
        match self {
            Self::Executed { retain, .. } | Self::NotExecuted { retain } => *retain,
            _ => None,
        }
    }

    /// Its name in audit lines.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Executed { .. } => "settle-completed",
            Self::NotExecuted { .. } => "settle-not-executed",
            Self::PhaseExecuted { .. } => "settle-phase",
            Self::PhaseNotExecuted { .. } => "settle-phase-not-executed",
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::ForgetAnswer => "forget-response",
            Self::ExpireLease => "sweep",
            Self::ClearAlarms => "clear-alarms",
        }
    }

    /// The reason in audit lines, with the phase that it is about.
    fn reason<'a>(&self, reason: &'a str) -> Cow<'a, str> {
        match self {
            Self::PhaseExecuted { phase, .. } | Self::PhaseNotExecuted { phase } => {
                Cow::Owned(format!("{phase}: {reason}"))
            }
            _ => Cow::Borrowed(reason),
        }
    }
}

/// Corrects records for an operator.
#[must_use]
pub struct Operator {
    engine: Engine,
    records: Arc<dyn Unsettled>,
    keeps: Keeps,
}

impl Operator {
    /// Corrects records of `store`.
    pub fn new(store: impl Unsettled) -> Self {
        let records: Arc<dyn Unsettled> = Arc::new(store);
        let engine = Engine { store: records.clone(), world: Arc::new(SystemWorld) };
        Self { engine, records, keeps: Keeps::default() }
    }

    /// Keeps one more header of answers, as the operation's guard does: see
    /// [`Operation::keep_header`](crate::operation::Operation::keep_header). A header that may never be kept is left out.
    pub fn keep_header(mut self, name: &str) -> Self {
        self.keeps.headers.extend(Some(name.to_ascii_lowercase()).filter(|name| may_be_kept(name)));
        self
    }

    /// Takes clocks, randomness and tasks from `world`: for tests.
    pub fn world(mut self, world: impl World) -> Self {
        self.engine.world = Arc::new(world);
        self
    }

    /// The answer that a record keeps, with its body; `None` if it keeps none, or its body is missing.
    ///
    /// # Errors
    /// If the store fails, or the body cannot be decoded.
    pub async fn answer(&self, record: &Record) -> Result<Option<Answer>, StoreError> {
        let replay = self.engine.replay(record, None);
        let replay = replay.instrument(telemetry::record_span(&record.key)).await?;
        Ok(replay.filter(|replay| !replay.body_omitted).map(|replay| replay.answer))
    }

    /// The reports that lie beside a record, the last one last: what its alarms are about.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn reports(&self, record: &Record) -> Result<Vec<ReportBeside>, StoreError> {
        let (key, mut reports) = (&record.key, Vec::<ReportBeside>::new());
        for id in record.alarms.iter().filter_map(|alarm| alarm.report) {
            if reports.iter().any(|report| report.id == id) {
                continue;
            }
            let report = self.engine.report_beside(key, id).instrument(telemetry::record_span(key)).await?;
            reports.push(ReportBeside { id, says: report.and_then(|report| ReportSummary::of(&report)) });
        }
        Ok(reports)
    }

    /// Writes an audit line about an action that does not change the record, such as moving a message about it. `what` is one
    /// stable word.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn note(&self, key: &RecordKey, what: &str, who: &str, reason: &str) -> Result<(), StoreError> {
        let record = self.engine.bounded(None, self.engine.store.load(key)).await?;
        let (id, now) = (self.engine.world.nonce().into(), self.engine.world.now());
        let line = AuditLine::new([who, what, reason], now, record.as_ref(), record.as_ref());
        self.engine.sent_again(|| self.engine.store.audit(key, id, &line)).await
    }

    /// How "not found" was switched last, and the audit lines of all that it was switched to, oldest first. It was never switched if it is
    /// `None`: then it is on.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn not_found(&self) -> Result<(Option<NotFoundSwitch>, Vec<AuditLine>), StoreError> {
        let switch = self.engine.bounded(None, self.records.not_found_switch()).await?;
        let lines = self.engine.bounded(None, self.records.not_found_lines()).await?;
        Ok((switch, lines))
    }

    /// Switches whether "not found" releases, if that is still as it was `seen`. `None`: it was changed meanwhile, and nothing was written.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn switch_not_found(
        &self,
        seen: Option<&NotFoundSwitch>,
        releases: bool,
        who: &str,
        reason: &str,
    ) -> Result<Option<NotFoundSwitch>, StoreError> {
        let (revision, at) = (self.engine.world.nonce().into(), self.engine.world.now());
        let switch =
            NotFoundSwitch { revision, releases, who: who.to_owned(), at, reason: reason.to_owned() };
        let seen = seen.map(|seen| seen.revision);
        let written = self.engine.sent_again(|| self.records.switch_not_found(seen, &switch)).await?;
        Ok(written.then_some(switch))
    }

    /// What `seen` would become. Writes nothing.
    ///
    /// # Errors
    /// If the record cannot be corrected so.
    pub fn preview(&self, seen: &Record, correction: &Correction) -> Result<Record, CorrectionError> {
        correction.messages()?;
        let placed = telemetry::record_span(&seen.key).in_scope(|| self.placed(seen, correction));
        let placed = placed.map(|placed| placed.answer);
        let next = corrected(correction, placed.as_ref(), seen, seen.revision, self.engine.world.now())?;
        Ok(next.into())
    }

    /// Writes the correction of `seen` with its audit line, if the record is unchanged. Returns the new record.
    ///
    /// # Errors
    /// If the record cannot be corrected so, was changed meanwhile, or the store fails.
    pub async fn correct(
        &self,
        seen: &Record,
        correction: &Correction,
        who: &str,
        reason: &str,
    ) -> Result<Record, CorrectionError> {
        let written = self.write(seen, correction, who, reason);
        written.instrument(telemetry::record_span(&seen.key)).await
    }

    async fn write(
        &self,
        seen: &Record,
        correction: &Correction,
        who: &str,
        reason: &str,
    ) -> Result<Record, CorrectionError> {
        let messages = correction.messages()?;
        let answer = match self.placed(seen, correction) {
            Some(placed) => {
                // Checked before the body is kept.
                corrected(correction, Some(&placed.answer), seen, seen.revision, self.engine.world.now())?;
                // First, because a record must not name a missing body.
                let kept =
                    self.engine.keep_placed(&kept_for(correction, seen), placed, OFFLINE_WRITE_TIMEOUT).await;
                Some(kept.map_err(CorrectionError::Body)?.ok_or(CorrectionError::BodyTooLarge)?)
            }
            None => None,
        };
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| {
            let Some(current) = current else { return Step::Stop(Some(CorrectionError::Deleted)) };
            if current.revision != seen.revision {
                return Step::Stop(Some(CorrectionError::Changed(current.state.name())));
            }
            match corrected(correction, answer.as_ref(), current, revision, now) {
                Ok(next) => {
                    let next = match correction {
                        Correction::ClearAlarms => next,
                        // It says itself why it is escalated.
                        Correction::ExpireLease if next.is_escalated() => next,
                        // The reason first: commands pick the records of one incident by it, and the line may be cut.
                        Correction::Hold => {
                            next.failed(Some(Note::new(&format!("held: {reason}, by {who}"))))
                        }
                        _ => next.because(Note::new(&format!("{who}: {reason}"))),
                    };
                    let line = [who, correction.name(), &correction.reason(reason)];
                    Step::Write(with_line(current, next, &messages, line, now), None)
                }
                Err(error) => Step::Stop(Some(error)),
            }
        };
        let until = self.engine.world.instant().plus(OFFLINE_WRITE_TIMEOUT);
        let effort = Effort { until: Some(until), backoff: WRITE_BACKOFF, retries: Retries::Unanswered };
        // Read again: what the caller has is compared, and nothing is decided by it.
        match self.engine.apply(Start::Unread(&seen.key), effort, step).await {
            Ok(Applied::Written(_, record)) => Ok(*record),
            Ok(Applied::Stopped(error, _)) => Err(error.unwrap_or(CorrectionError::Deleted)),
            // The write's answer was lost. A read may show that it was applied.
            Err(Unapplied { tried: Some(tried), .. }) if self.engine.stands(&tried.record).await => {
                Ok(*tried.record)
            }
            Err(unapplied) => Err(unapplied.error.into()),
        }
    }

    fn placed(&self, seen: &Record, correction: &Correction) -> Option<Placed> {
        match correction {
            Correction::Executed { answer, .. } => {
                Some(self.engine.place(&kept_for(correction, seen), answer, &self.keeps))
            }
            _ => None,
        }
    }
}

/// The corrected record; `answer` is that of [`Correction::Executed`], with its body placed.
fn corrected(
    correction: &Correction,
    answer: Option<&KeptAnswer>,
    seen: &Record,
    revision: Revision,
    now: Timestamp,
) -> Result<Transition, CorrectionError> {
    let settled = |verdict| {
        // Whether it can be settled at all comes first.
        let settled = kept_for(correction, seen).settle(verdict, SettledBy::Operator, revision, now)?;
        match correction.retain() {
            Some(span) if span < seen.retention.max(CLOCK_SKEW) => Err(CorrectionError::ShortRetention),
            _ => Ok(settled),
        }
    };
    match (correction, answer) {
        (Correction::Executed { .. }, Some(answer)) if !answer.head.is_final() => {
            Err(CorrectionError::NoStatus)
        }
        (Correction::Executed { .. }, Some(answer)) => {
            let settled = settled(Verdict::Executed(answer.clone()))?;
            match seen.answer_kind.takes(&answer.head) {
                true => Ok(settled),
                false => Err(CorrectionError::WrongKind(seen.answer_kind)),
            }
        }
        (Correction::Executed { .. }, None) => Err(CorrectionError::BodyTooLarge),
        (Correction::NotExecuted { .. }, _) => settled(Verdict::NotExecuted),
        (Correction::PhaseExecuted { phase, result }, _) => {
            phase::executed(seen, phase, result, revision, now)
        }
        (Correction::PhaseNotExecuted { phase }, _) => phase::not_executed(seen, phase, revision, now),
        (Correction::Hold, _) => Ok(seen.hold(revision, now)?),
        (Correction::Resume, _) => {
            let refused = PhaseCorrectionError::NotBetweenWorkers(seen.state.name());
            seen.resume(revision, now).ok_or(refused.into())
        }
        (Correction::ForgetAnswer, _) => match &seen.state {
            State::Completed { answer, .. } if is_bare(answer) => Err(CorrectionError::NothingKept),
            state => seen.forget_answer(revision).ok_or(CorrectionError::NoAnswer(state.name())),
        },
        (Correction::ClearAlarms, _) => seen.clear_alarms(revision).ok_or(CorrectionError::NoAlarm),
        (Correction::ExpireLease, _) => seen.expire_or_abandon(revision, now).ok_or(CorrectionError::NotDead),
    }
}

/// The record with the retention that the correction asks for, if it asks for one.
fn kept_for<'a>(correction: &Correction, seen: &'a Record) -> Cow<'a, Record> {
    match correction.retain() {
        Some(retention) => Cow::Owned(Record { retention, ..seen.clone() }),
        None => Cow::Borrowed(seen),
    }
}

fn is_bare(answer: &KeptAnswer) -> bool {
    answer.head.headers().is_empty() && matches!(answer.body, KeptBody::Omitted { .. })
}

/// The change with what it publishes and its audit line. Body items that `next` no longer names are deleted with it.
fn with_line(
    seen: &Record,
    next: Transition,
    messages: &[DomainWrite],
    note: [&str; 3],
    now: Timestamp,
) -> Change {
    let line = Companion::Audit(AuditLine::new(note, now, Some(seen), Some(&next)));
    let left = body_item(seen).filter(|_| body_item(&next) != body_item(seen));
    let mut left: Vec<_> = left.into_iter().collect();
    for id in seen.alarms.iter().filter_map(|alarm| alarm.report).filter(|id| !next.has_report(*id)) {
        // Several alarms may be about one report, and a transaction takes each item once.
        if !left.contains(&id) {
            left.push(id);
        }
    }
    let left: Vec<_> = left.into_iter().map(Companion::DeleteBody).collect();
    // Not as `completing` does: the record must not say that the operation's rows are committed.
    left.into_iter().fold(with_writes(next, messages, now).and(line), Change::and)
}

/// The body item that a record names.
fn body_item(record: &Record) -> Option<BodyId> {
    let State::Completed { answer, .. } = &record.state else { return None };
    match answer.body {
        KeptBody::Outside { id, place: Place::BodyItem, .. } => Some(id),
        _ => None,
    }
}
