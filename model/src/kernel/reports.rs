//! What becomes of a report: production code says what is next, and its worker, or what delivers its message, does that.

use std::ops::ControlFlow::{self, Break, Continue};

use protocol::record::{Alarm, AlarmKind, Deferred, Written};

use super::{
    action::Action,
    ending::{By, Command, Progress},
    facts::{Kept, State},
    protocol::{Event, Next},
    records::{FIRST_WORKER, Id},
    report::Report,
    steps::Steps,
    violation::Violation,
    world::{At, Kind, Letter, With, World},
};

/// After how many commands a report counts as endless.
const MAX_COMMANDS: usize = 20;

impl<K: Kind> Steps<'_, K> {
    /// Whether rows, or messages, commit with this report.
    pub fn has_rows(&self, report: Report) -> bool {
        self.setting.rows && report.is_effect()
    }

    fn event(&self, worker: u8, report: Report, progress: Progress) -> (u8, Event) {
        let state = self.world.worker(worker);
        let clock = if progress.by == By::Worker { state.clock } else { 0 };
        let event = Event::Report { base: state.base, report, rows: self.has_rows(report), progress };
        (self.world.now + clock, event)
    }

    /// What is to be done about this worker's report.
    pub fn command(&mut self, after: &World<K>, worker: u8, report: Report, progress: Progress) -> Command {
        let (now, event) = self.event(worker, report, progress);
        match self.protocol.step(after.id(), now, event) {
            Next::Does(command) => command,
            _ => Command::IsDone,
        }
    }

    /// What commits with this record, which the report made of `before`.
    fn commits(&self, before: Option<Id>, id: Id, worker: u8, report: Report, progress: Progress) -> With {
        let (now, event) = self.event(worker, report, progress);
        let has_rows = self.has_rows(report) && self.protocol.facts(id).with_writes;
        let rows = if has_rows { With::Rows(worker) } else { With::Nothing };
        self.protocol.messages(before, now, event).map_or(rows, With::Messages)
    }

    /// Does what is said next about a report.
    fn carry_out(
        &mut self,
        after: &mut World<K>,
        worker: u8,
        report: Report,
        progress: &mut Progress,
    ) -> ControlFlow<Option<Violation>> {
        let (command, said) = (self.command(after, worker, report, *progress), *progress);
        match command {
            Command::Writes(id) => {
                self.alarms(after, id);
                after.commit(id, self.commits(after.id(), id, worker, report, said));
                after.hears(worker, report);
                progress.write = Some(Written::Applied);
            }
            Command::Marks(id) => {
                after.write(id);
                after.hears(worker, report);
                progress.write = Some(Written::Marked);
            }
            Command::Defers if !self.setting.queue => progress.deferred = Deferred::NoQueue,
            Command::Defers => {
                let state = after.worker_mut(worker);
                // The result of a phase says more.
                if state.deferred.is_none() {
                    state.deferred = Some(Letter::Report(report));
                    state.told |= report.is_effect();
                }
                progress.deferred = Deferred::Sent;
            }
            Command::Alarms(id) => {
                self.alarms(after, id);
                let facts = |id: Id| (self.protocol.record(id).reported, self.protocol.facts(id).state);
                // A mark keeps others from running, and so does a completed record.
                if after.id().is_some_and(|before| facts(before) != facts(id))
                    || facts(id).1 == State::Completed
                {
                    after.hears(worker, report);
                }
                after.write(id);
                progress.write = Some(Written::Beside);
            }
            Command::Escalates => after.escalate(worker),
            Command::Compares => {
                let answer = after.id().and_then(|id| self.protocol.facts(id).answer);
                progress.differs = Some(match report {
                    Report::Effect(number) => answer != Some(Kept::Effect(number)),
                    Report::Refusal(number) => answer != Some(Kept::Refusal(number)),
                    _ => false,
                });
            }
            Command::ComesAgain => after.worker_mut(worker).deferred = self.world.worker(worker).deferred,
            Command::Tells(_) | Command::IsDone => {}
        }
        let violation = K::follows(after, (self.setting, self.protocol), (worker, report, &said), command);
        let is_over =
            matches!(command, Command::Tells(_) | Command::IsDone | Command::Escalates | Command::ComesAgain);
        // Others may come in between before it marks the record.
        let waits = said.by == By::Worker && matches!(after.worker(worker).at, At::Marks(..));
        if is_over || waits { Break(violation) } else { Continue(()) }
    }

    /// The record that is about to be written: operators learn of whose reports lie beside it, and of both of two executions.
    pub fn alarms(&self, after: &mut World<K>, id: Id) {
        let before = after.id();
        let is_known = |alarm: &&Alarm| {
            before.is_some_and(|before| {
                self.protocol.record(before).alarms.iter().any(|one| one.is_same(alarm))
            })
        };
        let new = |alarm: &&Alarm| !is_known(alarm);
        for alarm in self.protocol.record(id).alarms.iter().filter(new) {
            if let Some(report) = alarm.report {
                after.escalate(report.as_bytes()[0].wrapping_sub(FIRST_WORKER));
            }
            if alarm.kind == AlarmKind::ForgottenPhase && alarm.report.is_none() {
                after.escalate(self.protocol.facts(id).worker);
            }
            if alarm.kind == AlarmKind::SecondExecution {
                after.escalate(self.protocol.facts(id).worker);
                after.escalate(self.protocol.facts(before.unwrap_or(id)).worker);
            }
        }
    }

    /// Does all that is said about a report. Before each command, something else may happen.
    pub fn carry_out_all(
        &mut self,
        after: &mut World<K>,
        (worker, report): (u8, Report),
        mut progress: Progress,
        mut meanwhile: impl FnMut(&mut Self, &World<K>, Progress),
    ) -> Option<Violation> {
        for _ in 0..MAX_COMMANDS {
            meanwhile(self, after, progress);
            if let Break(violation) = self.carry_out(after, worker, report, &mut progress) {
                return violation;
            }
        }
        Some(Violation::NoRest)
    }

    /// The store does not answer: the report is deferred. Its write was applied, was lost, or lands later.
    pub fn unanswered(&mut self, worker: u8, report: Report) {
        let before = self.world;
        let tried = match self.command(&before, worker, report, Progress::START) {
            Command::Writes(id) => Some((id, self.commits(before.id(), id, worker, report, Progress::START))),
            Command::Marks(id) | Command::Alarms(id) => Some((id, With::Nothing)),
            _ => None,
        };
        let mut lost = before;
        lost.worker_mut(worker).at = At::Over;
        // It asks with the record that was to be written.
        lost.write(tried.map_or(before.worker(worker).base, |(id, _)| id));
        let progress = Progress { is_lost: !self.is_alive(worker), ..Progress::UNANSWERED };
        let violation = self.carry_out_all(&mut lost, (worker, report), progress, |_, _, _| {});
        lost.record = before.record;
        self.push(Action::ReportsInVain(worker), lost, violation);
        if let Some((id, with)) = tried {
            self.late(Action::ReportsLate(worker), lost, (id, with), violation);
            let mut applied = lost;
            self.alarms(&mut applied, id);
            applied.commit(id, with);
            applied.hears(worker, report);
            self.push(Action::ReportsUnheard(worker), applied, violation);
        }
    }

    /// A deferred report is delivered.
    pub fn deliver(&mut self, action: Action, mut after: World<K>, report: (u8, Report), progress: Progress) {
        let violation = self.carry_out_all(&mut after, report, progress, |_, _, _| {});
        self.push(action, after, violation);
    }
}
