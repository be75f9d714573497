//! What operations have of their own that are executed at once: what callers were told, and what workers reported before a key began
//! anew.

use protocol::record::{Says, Written};

use crate::kernel::{
    action::Action,
    ending::{By, Command, Progress},
    facts::{Facts, State},
    protocol::Protocol,
    records::Id,
    report::{Found, Report},
    setting::Setting,
    violation::Violation,
    world::{self, At, Kind, Letter, With},
};

pub type World = world::World<Plain>;
pub type Worker = world::Worker<Plain>;

/// Operations that are executed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plain;

/// What is known of a worker besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// What it wanted to report, once it has or has tried to.
    pub reported: Option<Report>,
    /// When its request was executed.
    pub executed_at: u8,
    /// Whether it reported a possible effect to the record, that nothing has answered since.
    pub perhaps: bool,
    /// Whether it was found out, since it began, that nothing was done.
    pub covered: bool,
    /// Whether its report of an effect waited in a queue while its key began a later generation.
    pub orphan: bool,
    /// Whether its caller got its answer although it was not written.
    pub published: bool,
}

/// What callers were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replied {
    /// The number of the answer that every caller gets, once a caller got it; zero before.
    pub answer: u8,
    /// Whether a caller got a refusal.
    pub refused: bool,
    /// Whether the record was restored to an earlier state: its rows may be there nevertheless.
    pub restored: bool,
}

impl Kind for Plain {
    type Worker = Own;
    type Workers = [Worker; 3];
    type Own = Replied;

    const NAME: &'static str = "plain";
    const IDLE: Own = Own {
        reported: None,
        executed_at: 0,
        perhaps: false,
        covered: false,
        orphan: false,
        published: false,
    };
    const WORKERS: [Worker; 3] = [Worker::IDLE; 3];
    const START: Replied = Replied { answer: 0, refused: false, restored: false };
    const DENIALS: &'static [Found] = &[Found::NotFound, Found::NotExecuted, Found::Refused];
    const ALARMS_APART: bool = true;

    fn judge(
        setting: &Setting,
        protocol: &Protocol,
        action: Action,
        (before, after): (&World, &World),
        violation: Option<Violation>,
    ) -> Option<Violation> {
        let honest = !after.lied && !after.meddled && !after.ruled && !setting.may_run_again();
        let twice = honest && after.workers.iter().filter(|worker| worker.has_effect()).count() > 1;
        let violation = violation.or(twice.then_some(Violation::TwoEffects));
        // What lands late was written by the rules of its own time.
        let violation = match action {
            Action::Lands => violation,
            _ => violation.or_else(|| refusal(protocol, before, after)),
        };
        // An operation that may run again does so although it perhaps had its effect.
        let may_be = |found: &Violation| *found == Violation::RefusalOverPossibleEffect;
        violation.filter(|found| !setting.may_run_again() || !may_be(found))
    }

    fn commit(world: &mut World, with: With) {
        match with {
            With::Life => world.new_life(),
            With::Rows(worker) => world.worker_mut(worker).commits += 1,
            With::Nothing | With::Messages(_) => {}
        }
    }

    fn pruned(world: &mut World, facts: &Facts) {
        if !facts.not_begun {
            world.new_life();
        }
    }

    fn executed(world: &mut World, worker: u8) {
        world.worker_mut(worker).own.executed_at = world.now;
    }

    fn nothing_was_done(world: &mut World) {
        for worker in world.workers.iter_mut().filter(|worker| worker.at != At::Idle) {
            (worker.own.perhaps, worker.own.covered) = (false, true);
        }
    }

    fn hears(world: &mut World, worker: u8, report: Report) {
        let own = &mut world.worker_mut(worker).own;
        own.perhaps |= report == Report::PerhapsExecuted && !own.covered;
    }

    fn follows(
        world: &mut World,
        (setting, protocol): (&Setting, &Protocol),
        (worker, report, said): (u8, Report, &Progress),
        command: Command,
    ) -> Option<Violation> {
        if said.by == By::Worker {
            world.worker_mut(worker).own.reported = Some(report);
        }
        match command {
            // It marks the record next. If the store does not answer, it can only go on.
            Command::Defers if said.write.is_none() && setting.queue => {
                world.worker_mut(worker).at = At::Marks(report, said.instead);
                None
            }
            Command::IsDone if said.by != By::Worker && said.write != Some(Written::Beside) => {
                world.hears(worker, report);
                None
            }
            Command::Tells(says) => world.tell(protocol, worker, report, says),
            _ => None,
        }
    }
}

/// Whether a refusal becomes the record's answer, although something else was reported by then.
fn refusal(protocol: &Protocol, before: &World, after: &World) -> Option<Violation> {
    let refused = |world: &World| {
        let facts = world.id().map(|id| *protocol.facts(id));
        facts.filter(|facts| facts.state == State::Completed && !facts.is_effect())
    };
    let facts = refused(after).filter(|_| refused(before).is_none())?;
    after.contradicts_refusal(facts.worker)
}

impl World {
    /// The key begins anew: what was done for it before is over.
    pub fn new_life(&mut self) {
        (self.own.answer, self.own.refused, self.ruled, self.held) = (0, false, false, false);
        for worker in &mut self.workers {
            let Worker { at, base, clock, deferred, told, heard, .. } = *worker;
            let orphan = matches!(deferred, Some(Letter::Report(_))) && told && !heard;
            let own = Own { reported: worker.own.reported, orphan, ..Plain::IDLE };
            *worker = Worker { at, base, clock, deferred, own, ..Worker::IDLE };
        }
    }

    /// What the record knew is gone, by an operator's hand.
    pub fn meddle(&mut self) {
        (self.meddled, self.own.answer, self.own.refused, self.held) = (true, 0, false, false);
        for worker in &mut self.workers {
            (worker.heard, worker.own.perhaps, worker.own.published) = (false, false, false);
            // What still waits in a queue is reported again.
            worker.told &= matches!(worker.deferred, Some(Letter::Report(Report::Effect(_))));
            // What was processed is deleted with the record.
            if worker.deferred.is_none() && matches!(worker.at, At::Over | At::Marks(..)) {
                (worker.at, worker.own.reported) = (At::Over, None);
            }
        }
    }

    /// The worker's caller is told this.
    pub fn tell(&mut self, protocol: &Protocol, worker: u8, report: Report, says: Says) -> Option<Violation> {
        match (says, self.id()) {
            (Says::Own { expires_at: Some(_) } | Says::Replay(_) | Says::Refused(_), Some(id)) => {
                self.tell_kept(protocol, id)
            }
            (Says::Own { .. }, _) => self.tell_own(worker, report),
            _ => None,
        }
    }

    /// A caller gets the record's answer.
    pub fn tell_kept(&mut self, protocol: &Protocol, id: Id) -> Option<Violation> {
        let facts = protocol.facts(id);
        // A number, and whether it is a refusal.
        let answer = facts.number() * 2 + u8::from(!facts.is_effect());
        if self.own.answer != 0 && self.own.answer != answer {
            return Some(Violation::TwoAnswers);
        }
        self.own.answer = answer;
        None
    }

    /// A caller gets its handler's answer.
    fn tell_own(&mut self, worker: u8, report: Report) -> Option<Violation> {
        match report {
            // It cannot know what the record that was deleted knew.
            Report::Refusal(_) if !self.meddled => {
                self.own.refused = true;
                self.contradicts_refusal(worker)
            }
            Report::Effect(_) => {
                self.worker_mut(worker).own.published = true;
                None
            }
            _ => None,
        }
    }

    /// The property that a refusal by this worker violates.
    fn contradicts_refusal(&self, worker: u8) -> Option<Violation> {
        if self.effect_was_heard() {
            return Some(Violation::RefusalOverEffect);
        }
        let mut others = (0..).zip(&self.workers).filter(|(other, _)| *other != worker);
        others.any(|(_, other)| other.own.perhaps).then_some(Violation::RefusalOverPossibleEffect)
    }
}
