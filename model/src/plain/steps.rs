//! All that can happen next to an operation that is executed at once.

use protocol::record::{Deferred, Standing};

use super::world::{Plain, World};
use crate::kernel::{
    action::Action,
    ending::{Command, Progress, Replaced},
    facts::Facts,
    protocol::{Event, Next},
    report::Report,
    setting::Handler,
    steps::Steps,
    violation::Violation,
    world::{At, Letter, With},
};

impl Steps<'_, Plain> {
    pub fn all(&mut self) {
        for worker in 0..self.setting.workers {
            self.worker(worker);
        }
        for clock in 0..=self.setting.skew {
            self.look(clock);
        }
        for clock in 0..=self.setting.skew {
            self.question(clock);
        }
        if self.setting.operator {
            self.operator();
        }
        if self.setting.meddles {
            self.meddle();
        }
        self.stand();
        self.prune();
        self.land();
        self.tick();
    }

    fn worker(&mut self, worker: u8) {
        match self.world.worker(worker).at {
            // Workers are alike: they begin in their order.
            At::Idle if worker == 0 || self.world.worker(worker - 1).at != At::Idle => {
                for clock in 0..=self.setting.skew {
                    for standing in self.world.standings() {
                        self.begin(worker, clock, *standing);
                    }
                }
            }
            At::Reserved(resumes) => {
                self.look_again(worker, resumes, At::Ended(Report::NotStarted));
                self.moves(Action::Crashes(worker), worker, At::Over);
            }
            At::Running(_) => {
                self.run(worker);
                self.moves(Action::Crashes(worker), worker, At::Over);
                self.beat(worker);
            }
            At::Ended(report) => self.report(worker, report),
            At::Marks(report, instead) => self.mark(worker, report, instead),
            _ => {}
        }
        self.arrive(worker);
        match self.world.worker(worker).deferred {
            Some(Letter::Report(report)) => self.deliver_first(worker, report),
            Some(Letter::Again(report)) => {
                let mut after = self.world;
                after.worker_mut(worker).deferred = None;
                self.deliver(Action::Delivers(worker), after, (worker, report), Progress::DELIVERED);
            }
            _ => {}
        }
        self.hear(worker);
    }

    fn begin(&mut self, worker: u8, clock: u8, standing: Standing) {
        let now = self.world.now + clock;
        let reserves = |standing| Event::Reserve { worker, is_new: false, standing };
        match self.step(now, reserves(standing)) {
            Next::Begins(id) => {
                let is_absent =
                    |facts: &Facts| facts.expires_at.is_some_and(|at| at < now) && !facts.not_begun;
                let with = if self.facts().is_some_and(|facts| is_absent(&facts)) {
                    With::Life
                } else {
                    With::Nothing
                };
                self.land_later(Action::BeginsLate(worker), id, with, |late| {
                    late.worker_mut(worker).at = At::Over
                });
                let mut after = self.world;
                after.commit(id, with);
                let heard = after.effect_was_heard() && !after.ruled && !self.setting.may_run_again();
                let violation = heard.then_some(Violation::BeganAfterEffect);
                let violation = violation.or(after.held.then_some(Violation::BeganOverHold));
                let state = after.worker_mut(worker);
                (state.at, state.base, state.clock) = (At::Running(0), id, clock);
                self.push(Action::Begins(worker), after, violation.or(self.begins_stopped(standing)));
                if self.setting.bounds {
                    let resumes = matches!(self.step(now, reserves(Standing::WorkStopped)), Next::Begins(_));
                    after.worker_mut(worker).at = At::Reserved(resumes);
                    self.push(Action::Reserves(worker), after, violation);
                }
            }
            Next::OverBound => self.is_over_bound(now, worker),
            Next::Written(id) => self.write(Action::FindsDead(worker), id, With::Nothing, |_| {}),
            Next::Settled => {
                let mut after = self.world;
                let violation = self.world.id().and_then(|id| after.tell_kept(self.protocol, id));
                self.push(Action::Replays(worker), after, violation);
            }
            _ => {}
        }
    }

    /// It extends its lease.
    fn beat(&mut self, worker: u8) {
        if self.setting.heartbeats
            && let Next::Written(id) = self.step(self.now_of(worker), Event::Extend(worker))
        {
            self.write(Action::Beats(worker), id, With::Nothing, |after| after.worker_mut(worker).base = id);
        }
    }

    fn report(&mut self, worker: u8, report: Report) {
        self.moves(Action::Crashes(worker), worker, At::Over);
        self.reports(Action::Reports(worker), worker, report, Replaced::No);
        if self.has_rows(report) {
            // With an answer: the operation is refused. Without one: what the handler did is not known.
            self.reports(Action::RowsRefused(worker), worker, report, Replaced::Answer(worker + 1));
            self.reports(Action::RowsRefusedUnanswered(worker), worker, report, Replaced::Refused);
        }
        if self.setting.store_faults {
            self.unanswered(worker, report);
        }
    }

    /// The report reaches the store, and its worker gets the store's answer.
    fn reports(&mut self, action: Action, worker: u8, report: Report, instead: Replaced) {
        let report = match instead {
            Replaced::No => report,
            Replaced::Answer(number) => Report::Refusal(number),
            Replaced::Refused if self.setting.handler == Handler::Commits => Report::NotExecuted,
            Replaced::Refused if self.setting.may_run_again() || !report.is_effect() => {
                Report::PerhapsExecuted
            }
            Replaced::Refused => report,
        };
        self.ends(action, worker, report, Progress { instead, ..Progress::START });
    }

    /// Its report is in the queue. Before anything else happens, it marks the record with what it reports.
    fn mark(&mut self, worker: u8, report: Report, instead: Replaced) {
        self.moves(Action::Crashes(worker), worker, At::Over);
        self.ends(
            Action::Marks(worker),
            worker,
            report,
            Progress { instead, deferred: Deferred::Sent, ..Progress::START },
        );
    }

    /// A worker does what is said about its report, until that is in the queue, or its caller is told.
    fn ends(&mut self, action: Action, worker: u8, report: Report, progress: Progress) {
        let mut after = self.world;
        after.worker_mut(worker).at = At::Over;
        let violation =
            self.carry_out_all(&mut after, (worker, report), progress, |steps, after, progress| {
                steps.mark_in_vain(after, worker, report, progress);
            });
        self.push(action, after, violation);
    }

    /// If it marks the record now, the store does not answer: that is lost, or applied.
    fn mark_in_vain(&mut self, before: &World, worker: u8, report: Report, progress: Progress) {
        if !self.setting.store_faults {
            return;
        }
        let (Command::Marks(id) | Command::Alarms(id)) = self.command(before, worker, report, progress)
        else {
            return;
        };
        let mut lost = *before;
        lost.worker_mut(worker).own.reported = Some(report);
        let mut applied = lost;
        self.alarms(&mut applied, id);
        applied.write(id);
        let unanswered = Progress { write: Progress::UNANSWERED.write, ..progress };
        let Command::Tells(says) = self.command(&applied, worker, report, unanswered) else { return };
        applied.hears(worker, report);
        for mut after in [applied, lost] {
            let violation = after.tell(self.protocol, worker, report, says);
            self.push(Action::MarksInVain(worker), after, violation);
        }
    }

    /// A deferred report is delivered for the first time.
    fn deliver_first(&mut self, worker: u8, report: Report) {
        let mut after = self.world;
        after.worker_mut(worker).deferred = Some(Letter::Again(report)).filter(|_| self.setting.duplicates);
        let first = self.command(&after, worker, report, Progress::DELIVERED);
        if self.has_rows(report) && matches!(first, Command::Writes(_)) {
            // Refused, and no answer is set for that.
            let refused = Progress { instead: Replaced::Refused, ..Progress::DELIVERED };
            self.deliver(Action::DeliversRefused(worker), after, (worker, report), refused);
        }
        if let Command::Marks(id) = self.command(&after, worker, report, Progress::HANDED_BACK) {
            // Its body cannot be stored yet: the record shows the effect until then.
            self.write(Action::HandsBack(worker), id, With::Nothing, |back| {
                back.worker_mut(worker).heard = true
            });
        }
        self.deliver(Action::Delivers(worker), after, (worker, report), Progress::DELIVERED);
    }

    /// Operators delete the record, or restore it to an earlier state.
    fn meddle(&mut self) {
        if self.world.snapshot.is_none() {
            self.with(Action::Saves, |saved| saved.snapshot = Some(saved.record));
        }
        if self.world.meddled {
            return;
        }
        if let Some(snapshot) = self.world.snapshot {
            self.with(Action::Restores, |restored| {
                (restored.record, restored.own.restored) = (snapshot, true);
                restored.meddle();
            });
        }
        self.with(Action::Deletes, |deleted| {
            deleted.record = None;
            deleted.meddle();
        });
    }
}
