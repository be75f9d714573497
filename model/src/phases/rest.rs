//! From each state, nothing goes wrong any more: by retries of a version, the operation must come to its answer, or to operators.

use protocol::record::{Record, Standing};

use super::{
    handler::Does,
    names::combination,
    world::{CALLS, Phases, World},
};
use crate::kernel::{
    action::Action,
    ending::By,
    facts::State,
    protocol::{Event, Next, Protocol},
    records::{ARRIVES, Id, LEASE},
    report::Report,
    rest::Moves,
    setting::{Change, Setting},
    steps::{Steps, Successor},
    violation::Violation,
    world::{Kind, Sent, With},
};

/// The number of the retries' executions.
const RETRY: u8 = 9;

impl Moves for Phases {
    /// How often a client retries until operators must have the operation, and once more to see that they do.
    const MAX_STEPS: usize = 13;

    fn ways(setting: &Setting) -> &'static [(bool, &'static str)] {
        match setting.change {
            // What another version does first is not modelled.
            Change::None | Change::Inserted => &[(false, "")],
            _ => &[(false, ""), (true, ", but for retries of the new version")],
        }
    }

    fn combination(record: &Record) -> String {
        combination(record)
    }

    fn tell(world: &World) -> String {
        let effects = world.own.calls.map(|call| call.effects);
        format!("; effects {effects:?}, rows {}", world.own.rows)
    }

    fn successors(steps: &mut Steps<'_, Self>) {
        steps.all();
    }

    /// What is on its way arrives. Every process dies.
    fn ends(setting: &Setting, protocol: &mut Protocol, world: &mut World) {
        let mut steps = Steps { setting, protocol, world: *world, next: &mut Vec::new() };
        steps.arrives();
        *world = steps.world;
    }

    /// A client retries.
    fn calm(
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World,
        is_new: bool,
    ) -> Option<Successor<Self>> {
        let honest = Setting { webhook: false, ..*setting };
        let mut steps = Steps { setting: &honest, protocol, world: *world, next: &mut Vec::new() };
        if steps.is(&[State::Completed, State::Escalated]) {
            return None;
        }
        // Polls go on beside retries.
        if let Some((found, id)) = steps.reconcile() {
            steps.world.write(id);
            return Some((Action::Asks(found), steps.world.canonical(), None));
        }
        let (mut action, mut violation) = (Action::Tick, None);
        if let Next::Begins(id) =
            steps.step(world.now, Event::Reserve { worker: RETRY, is_new, standing: Standing::Within })
        {
            action = Action::Begins(RETRY);
            violation = steps.writes(id, With::Nothing).or_else(|| steps.retry((id, is_new)));
        } else if let Some(id) = steps.written(Event::Look) {
            action = Action::Looks;
            steps.world.write(id);
        }
        if !steps.is(&[State::Completed, State::Escalated]) {
            steps.world.now += 1;
        }
        Some((action, steps.world.canonical(), violation))
    }

    fn at_rest(_: &Setting, _: &mut Protocol, _: &World, _: bool) -> Option<Violation> {
        // That it comes there is all.
        None
    }
}

impl Steps<'_, Phases> {
    /// What is on its way arrives. Every process dies.
    fn arrives(&mut self) {
        let setting = self.setting;
        for worker in self.world.numbers() {
            let state = *self.world.worker(worker);
            if let Sent::OnItsWay { call, .. } = state.sent {
                self.world.calls(setting, call, state.own.is_new);
            }
            self.world.worker_mut(worker).sent = Sent::Nothing;
            if let Some(letter) = state.deferred {
                let (written, contradicts) = self.delivered(worker, letter);
                written.into_iter().for_each(|id| self.world.write(id));
                if contradicts {
                    self.world.escalate(worker);
                }
                self.world.worker_mut(worker).deferred = None;
            }
            self.world.over(worker);
        }
        for call in 0..CALLS {
            if self.world.own.calls[usize::from(call)].webhook {
                let noted = self.noted(call);
                self.world.hears_of(call, noted);
            }
        }
        self.world.late = None;
        self.world.now += LEASE + ARRIVES + self.setting.skew;
    }

    /// The record becomes this one. The property that this violates.
    fn writes(&mut self, id: Id, with: With) -> Option<Violation> {
        let before = self.world;
        self.world.commit(id, with);
        let worlds = (&before, &self.world);
        Phases::judge(self.setting, self.protocol, Action::Keeps(RETRY), worlds, None)
    }

    /// A retry runs the handler, and nothing fails.
    fn retry(&mut self, (mut base, is_new): (Id, bool)) -> Option<Violation> {
        let now = self.world.now;
        let mut place = 0;
        let report = loop {
            let result = match self.does(base, place, now, is_new) {
                Does::GoesOn => None,
                Does::Takes(noted) => Some(noted),
                Does::Commits => Some(1),
                Does::Ends(report) => break report,
                Does::Asks(_) if !self.setting.asks => break Report::PerhapsExecuted,
                Does::Asks(call) if self.world.own.effects(call) > 0 => Some(self.world.own.effects(call)),
                Does::Calls(call) | Does::Asks(call) => Some(self.world.calls(self.setting, call, is_new)),
            };
            if let Some(result) = result {
                let Next::Begins(id) = self.kept((base, is_new), (place, result), (now, By::Worker)) else {
                    break Report::NotExecuted;
                };
                base = id;
                let with = if self.is_commit(is_new, place) { With::Rows(RETRY) } else { With::Nothing };
                if let Some(violation) = self.writes(id, with) {
                    return Some(violation);
                }
            }
            place += 1;
        };
        match self.reported(base, report, now) {
            Some(id) => self.writes(id, With::Nothing),
            None => None,
        }
    }
}
