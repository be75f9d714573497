//! A worker's report on its way into the record: carries out what the protocol says, and notes what became of it.

use super::{
    Applied, Change, Effort, Executor, Moment, Retries, Start, Step, Unapplied,
    commit::{completing, refusal},
};
use crate::{
    domain::{DomainWrite, IfRefused},
    record::{self, Answer, Counts, Ending, Instead, Note, Record, Rows, SoFar, Transition, Written},
    telemetry::Count,
    time::Instant,
    time_budget::WRITE_BACKOFF,
};

/// How an execution ended, as its front reports it.
pub type Report = record::Report<Answer>;

/// A report on its way into the record. Its body is stored, unless it is handed back.
pub(super) struct Reporting {
    pub(super) ending: Ending,
    pub(super) so_far: SoFar,
    /// The domain writes that commit with it, if it completes its operation.
    pub(super) writes: Vec<DomainWrite>,
    /// The answer that its caller gets, if it waits.
    pub(super) answer: Option<Answer>,
    pub(super) stop_at: Instant,
}

/// What the protocol says next: [`Ending::step`] for a worker, [`Ending::deliver`] for a message.
pub(super) type Asks<N> = fn(&Ending, Option<&Record>, &SoFar, Moment) -> record::Step<N>;

impl Reporting {
    pub(super) fn new(executor: &Executor, base: Record, report: record::Report, stop_at: Instant) -> Self {
        let may_run_again = executor.operation().may_run_again();
        let ending = Ending { base, report, rows: Rows::None, may_run_again };
        Self { ending, so_far: SoFar::default(), writes: Vec::new(), answer: None, stop_at }
    }

    /// These domain writes commit with it.
    pub(super) fn commits(&mut self, writes: Vec<DomainWrite>) {
        self.ending.rows = match &*writes {
            [] => Rows::None,
            writes if writes.iter().any(DomainWrite::can_be_refused) => Rows::Conditional,
            _ => Rows::Certain,
        };
        self.writes = writes;
    }

    /// What it means that the writes at these places were denied.
    pub(super) fn refusal(&self, denied: &[usize]) -> &IfRefused {
        refusal(&self.writes, denied)
    }

    /// The answer that they have for that, if it counts.
    pub(super) fn refused_with(&self, denied: &[usize]) -> Option<&Answer> {
        match self.refusal(denied) {
            IfRefused::Answer(answer) if self.ending.takes_another_answer() => Some(answer),
            _ => None,
        }
    }

    /// Something else is reported from now on.
    pub(super) fn reports(&mut self, instead: Instead) {
        (self.so_far.instead, self.so_far.write) = (instead, None);
    }
}

impl<N> Step<Result<Written, N>> {
    /// What the protocol says, as a step: by the change that `commits` domain writes with a record, or that `alarms` operators with the report
    /// beside it.
    pub(super) fn of(
        said: record::Step<N>,
        commits: impl FnOnce(Transition) -> Change,
        alarms: impl FnOnce(Transition) -> Change,
    ) -> Self {
        match said {
            record::Step::Write { next, commits: true } => Self::Write(commits(next), Ok(Written::Applied)),
            record::Step::Write { next, commits: false } => Self::Write(next.into(), Ok(Written::Applied)),
            record::Step::Mark(next) => Self::Write(next.into(), Ok(Written::Marked)),
            record::Step::Alarm(next) => Self::Write(alarms(next), Ok(Written::Beside)),
            record::Step::Next(next) => Self::Stop(Err(next)),
        }
    }
}

impl Executor {
    /// Writes what the protocol says, until it says something else: that, and the current record.
    ///
    /// # Errors
    /// If the conditions of domain writes failed: their places. The record is as it was.
    pub(super) async fn write<N>(
        &self,
        mut start: Start<'_>,
        reporting: &mut Reporting,
        asks: Asks<N>,
    ) -> Result<(N, Option<Box<Record>>), Vec<usize>> {
        loop {
            let Reporting { ending, so_far, writes, stop_at, .. } = &*reporting;
            let effort = Effort { until: Some(*stop_at), backoff: WRITE_BACKOFF, retries: Retries::All };
            let step = |current: Option<&Record>, at: Moment| {
                let commits = |next| completing(next, writes, at.now);
                let alarms = |next| self.with_report(next, reporting, at.now);
                Step::of(asks(ending, current, so_far, at), commits, alarms)
            };
            let (now, current) = match self.engine.apply(start, effort, step).await {
                Ok(Applied::Written(now, record)) => (now, Some(record)),
                Ok(Applied::Stopped(now, current)) => (now, current),
                Err(Unapplied { denied, .. }) if !denied.is_empty() => return Err(denied),
                // Other tries may have got no answer. One refused for good shows that none is accepted.
                Err(Unapplied { error, refused, tried, .. }) => {
                    let passing = !refused && error.is_passing();
                    (Ok(Written::Perhaps { passing }), tried.map(|tried| tried.record))
                }
            };
            match now {
                Ok(written) => reporting.so_far.write = Some(written),
                Err(next) => return Ok((next, current)),
            }
            let current = current.unwrap_or_else(|| Box::new(reporting.ending.base.clone()));
            let Reporting { ending, so_far, .. } = &*reporting;
            let at = Moment { revision: current.revision, now: self.engine.world.now() };
            match asks(ending, Some(&current), so_far, at) {
                record::Step::Next(next) => return Ok((next, Some(current))),
                _ => start = Start::Seen(current),
            }
        }
    }

    /// Logs and counts what an alarm stands on.
    pub(super) fn counts(&self, counts: Counts) {
        let count = match counts {
            Counts::Unwritten => {
                tracing::error!("a report is neither written nor deferred: its lease ends the record");
                Count::Unwritten
            }
            Counts::ContradictionUnsent => {
                tracing::error!(
                    "a report that its record does not take, or whose domain writes are refused, is not deferred: only this line names it"
                );
                Count::ContradictionUnsent
            }
        };
        count.add(self.operation().name());
    }
}

/// Why an execution failed, with the status of the handler's answer, if there is one.
pub(super) fn because(why: &str, status: Option<u16>) -> Note {
    status.map_or_else(|| Note::new(why), |status| Note::new(&format!("{why}, status {status}")))
}
