//! The production steps on records that are known by a number.

use std::{error::Error, time::Duration};

use super::{
    Change, Setting,
    steps::Action,
    world::{CALLS, Ending, World},
};
use crate::{
    ending::{Command, Progress},
    records::{Records, TICK, at, not_found, phase, request, resumes, schedule, too_old},
    report::answer,
};
use protocol::{
    learned::{Asked, Asks, Learned, Schedule},
    record::{
        self, Admission, Effects, Next, NotTaken, PhaseResult, Record, Report, ReservationRequest, Resumes,
        Rows, State, decide,
    },
};

pub use crate::records::{ARRIVES, Id, LEASE, OWN_LEASE};

/// How long the record waits for a retry.
const WITHIN: u8 = 3;
/// How long "not found" is proof.
const WINDOW: u8 = 20;

/// The phases of the handler, in their places.
const NAMES: [&str; 3] = [CHARGE, STOCK, REFUND];
const CHARGE: &str = "charge";
const STOCK: &str = "stock";
const REFUND: &str = "refund";

/// The charge, as the new version calls it.
const RENAMED: &str = "charge-card";

impl Change {
    /// The phases of the handler of a version, in their places.
    const fn names(self, is_new: bool) -> &'static [&'static str] {
        match self {
            _ if !is_new => &NAMES,
            Self::None => &NAMES,
            Self::Inserted => &["fraud", CHARGE, STOCK, REFUND],
            Self::Renamed => &[RENAMED, STOCK, REFUND],
            Self::Removed => &[CHARGE, STOCK],
            Self::Reordered => &[STOCK, CHARGE],
        }
    }

    fn name(self, is_new: bool, place: u8) -> &'static str {
        self.names(is_new)[usize::from(place)]
    }

    /// Whether this version's call has another key than before.
    pub fn renames(self, is_new: bool, call: u8) -> bool {
        self == Self::Renamed && is_new && call == 0
    }
}

/// The number of a call.
fn call_of(name: &str) -> u8 {
    u8::from(name == REFUND)
}

/// The result of the stock, if it is kept.
pub fn stock(record: &Record) -> Option<&str> {
    let stock = record.phases()?.kept.iter().find(|kept| kept.name == STOCK)?;
    stock.result.as_ref().map(PhaseResult::text)
}

/// What a handler does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    /// The phase is kept: it goes on.
    GoOn,
    /// Others report this result.
    Noted(u8),
    /// It commits the stock.
    Commit,
    /// It makes this call.
    Call(u8),
    /// It cannot know whether this call was made.
    Ask(u8),
    /// Another phase is kept in this place.
    Mismatch,
    /// It answers.
    Answer(u8),
}

/// What a record did with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It took it, and whether its worker goes on.
    Taken(Id, bool),
    /// It has it, and whether its worker goes on.
    Known(bool),
    /// It has not taken it.
    Left,
}

pub struct Protocol {
    request: ReservationRequest,
    /// Of the version before, and of the new one.
    versions: [Effects<Resumes>; 2],
    schedule: Schedule,
    keys_live: Duration,
    change: Change,
    records: Records,
}

impl Protocol {
    pub fn new(setting: &Setting) -> Result<Self, Box<dyn Error>> {
        let request = request()?;
        let versions = [false, true].map(|is_new| resumes(setting.change.names(is_new), WITHIN));
        let keys_live = TICK * setting.keys_live.into();
        Ok(Self {
            request,
            versions,
            schedule: schedule(4),
            keys_live,
            change: setting.change,
            records: Records::default(),
        })
    }

    pub fn record(&self, id: Id) -> &Record {
        self.records.get(id)
    }

    pub fn records(&self) -> &[Record] {
        self.records.all()
    }

    fn number(&mut self, next: impl Into<Record>) -> Id {
        let mut record = next.into();
        record.attempts = record.attempts.min(2);
        self.records.number(record)
    }

    fn current(&self, world: &World) -> Option<Record> {
        world.record.map(|id| self.record(id).clone())
    }

    /// The record of the execution that this worker begins, if it may.
    pub fn begins(&mut self, world: &World, (worker, is_new): (u8, bool), now: u8) -> Option<Id> {
        let request = ReservationRequest {
            attempt: [worker + 1; 16].into(),
            lease_until: at(now + LEASE),
            effects: self.versions[usize::from(is_new)],
            ..self.request.clone()
        };
        let current = self.current(world);
        let may_begin = current.as_ref().is_none_or(|current| current.expired(at(now)))
            || matches!(current.as_ref()?.state, State::FailedRetryable { .. });
        // T43: a record that is only resumed is taken over with an old key too.
        let admission = if may_begin { Admission::ALWAYS } else { too_old(false) };
        let request = ReservationRequest { admission, ..request };
        let next = decide(current.as_ref(), &request, [0; 16].into(), at(now));
        next.ok().map(|next| self.number(next))
    }

    /// What the handler of a worker that last saw `base` does in this place.
    pub fn todo(&self, base: Id, place: u8, now: u8, is_new: bool) -> Todo {
        let Some(phases) = self.record(base).phases() else { return Todo::Mismatch };
        let refused = stock(self.record(base)) == Some("0");
        let names = self.change.names(is_new);
        let is_reordered = names[0] == STOCK;
        // As the engine does: it must have come to all that is kept.
        let answer =
            |number| if phases.kept.len() > place.into() { Todo::Mismatch } else { Todo::Answer(number) };
        let name = match (names.get(usize::from(place)), refused) {
            (Some(&REFUND), false) | (None, false) => return answer(1),
            (Some(&CHARGE), true) if is_reordered => return answer(4),
            (None, true) if names.contains(&REFUND) => return answer(2),
            (None, true) => return answer(3),
            (Some(name), _) => *name,
        };
        let (call, is_commit) = (call_of(name), name == STOCK);
        let keys_live = if is_commit { Duration::ZERO } else { self.keys_live };
        match phases.next(place.into(), name, keys_live, at(now)) {
            Next::Kept(_) => Todo::GoOn,
            Next::Mismatch => Todo::Mismatch,
            Next::Noted(result) => Todo::Noted(result.parse().unwrap_or_default()),
            Next::Call | Next::Ask { .. } if is_commit => Todo::Commit,
            Next::Call => Todo::Call(call),
            Next::Ask { .. } => Todo::Ask(call),
        }
    }

    /// The current record takes the result of a phase. That of a commit counts only if its worker still runs the record.
    pub fn keep(
        &mut self,
        world: &World,
        (base, is_new): (Id, bool),
        (place, result): (u8, u8),
        now: u8,
    ) -> Kept {
        let Some(current) = self.current(world) else { return Kept::Left };
        let phase = phase(self.change.name(is_new, place), &result.to_string(), at(now));
        let worker = self.record(base).clone();
        let kept = current.keep(&worker, place.into(), &phase, [0; 16].into(), at(now));
        match (current.is_run_by(&worker), kept) {
            (own, Ok(next)) => Kept::Taken(self.number(next), own),
            (own, Err(NotTaken::Known)) => Kept::Known(own),
            (_, Err(NotTaken::Differs)) => Kept::Left,
        }
    }

    /// What the report of a worker makes of the record.
    pub fn report(&mut self, world: &World, base: Id, ending: Ending, now: u8) -> Option<Id> {
        let base = self.record(base).clone();
        let report = match ending {
            Ending::Completed(1) => Report::Completed(answer(201, 1)),
            Ending::Completed(number) => Report::Completed(answer(409, number)),
            Ending::Outside => Report::NotExecuted(None),
            Ending::InCall => Report::Interrupted(None),
            Ending::Unknown => Report::PerhapsExecuted(None),
        };
        let ending = record::Ending { base, report, rows: Rows::None, may_run_again: false };
        let current = self.current(world);
        match Progress::START.next(&ending, current.as_ref(), at(now), |next, _| self.number(next)) {
            Command::Writes(id) => Some(id),
            _ => None,
        }
    }

    pub fn expire(&mut self, world: &World, now: u8) -> Option<Id> {
        let next = self.current(world)?.expire([0; 16].into(), at(now))?;
        Some(self.number(next))
    }

    /// The provider reports a call. As an error: whether the record contradicts it.
    pub fn note(&mut self, world: &World, call: u8, result: u8, now: u8) -> Result<Id, bool> {
        let current = self.current(world).ok_or(true)?;
        let phase = phase(Self::name_of(world, call), &result.to_string(), at(now));
        match current.note(&phase, [0; 16].into(), at(now)) {
            Ok(next) => Ok(self.number(next)),
            Err(error) => Err(error == NotTaken::Differs),
        }
    }

    /// The name under which the provider has executed this call.
    fn name_of(world: &World, call: u8) -> &'static str {
        match call {
            0 if world.calls[0].renamed => RENAMED,
            0 => CHARGE,
            _ => REFUND,
        }
    }

    /// Reconciliation asks what became of the call that follows, or finds that no retry has resumed the record in time.
    pub fn reconcile(&mut self, world: &World, now: u8) -> Option<Id> {
        let seen = self.current(world)?;
        let learned = match (&seen.state, self.open_call(&seen)) {
            (State::BetweenWorkers { .. }, _) => Learned::NotResumed,
            (_, Some(call)) if world.calls[usize::from(call)].effects > 0 => {
                let effects = world.calls[usize::from(call)].effects.to_string();
                Learned::Phase(phase(Self::name_of(world, call), &effects, at(now)))
            }
            _ => Learned::NotFound,
        };
        let asked = Asked {
            seen: &seen,
            why: Asks::IfDue,
            at: at(now),
            not_found: not_found(WINDOW),
            schedule: &self.schedule,
        };
        let next = asked.next(&seen, &learned, [0; 16].into(), at(now)).ok()?;
        Some(self.number(next))
    }

    /// The call that follows what is kept, by the version that the record is of; `None` if that is the commit.
    pub fn open_call(&self, record: &Record) -> Option<u8> {
        let phases = record.phases()?;
        let is_new =
            phases.declared.is_some() && phases.declared == self.versions[1].phases().map(|new| new.list);
        let name = *self.change.names(is_new).get(phases.kept.len())?;
        (name != STOCK).then(|| call_of(name))
    }

    /// Whether this is the place of the commit.
    pub fn is_commit(&self, is_new: bool, place: u8) -> bool {
        self.change.name(is_new, place) == STOCK
    }

    /// An operator holds the record, if it is open.
    pub fn hold(&mut self, id: Id, now: u8) -> Option<Id> {
        let next = self.record(id).hold([0; 16].into(), at(now)).ok()?;
        Some(self.number(next))
    }

    /// An operator says of each call that was made that it was, and then that nothing follows. That ends the hold.
    fn settle_held(&mut self, world: &World, current: &Record, now: u8) -> Option<Id> {
        for call in 0..CALLS {
            let number = u8::try_from(call).unwrap_or_default();
            if world.calls[call].effects > 0
                && let Ok(id) = self.note(world, number, world.calls[call].effects, now)
            {
                return Some(id);
            }
        }
        let next = current.nothing_is_open([0; 16].into(), at(now))?;
        Some(self.number(next))
    }

    /// An operator lets a retry resume it, after looking up whether the call that follows was made.
    pub fn operate(&mut self, world: &World, now: u8) -> Option<Id> {
        let current = self.current(world)?;
        if current.is_held() {
            return self.settle_held(world, &current, now);
        }
        let next = match self.open_call(&current) {
            Some(call) if world.calls[usize::from(call)].effects == 0 => {
                current.nothing_is_open([0; 16].into(), at(now))
            }
            Some(call) => {
                let effects = world.calls[usize::from(call)].effects;
                return self.note(world, call, effects, now).ok().or_else(|| self.resume(&current, now));
            }
            None => return self.resume(&current, now),
        };
        next.map(|next| self.number(next))
    }

    fn resume(&mut self, current: &Record, now: u8) -> Option<Id> {
        let next = current.resume([0; 16].into(), at(now))?;
        Some(self.number(next))
    }

    /// One line of a story: what happens, and the record after it.
    pub fn tell(&self, action: Action, after: &World) -> String {
        let record = after.record.map_or("no record".to_owned(), |id| combination(self.record(id)));
        let effects = after.calls.map(|call| call.effects);
        let action = format!("{action:?}");
        format!("{:>3}  {action:<28} {record}; effects {effects:?}, rows {}", after.now, after.rows)
    }
}

/// The names of a record's fields that decide, for a count of their combinations.
pub fn combination(record: &Record) -> String {
    let Some(phases) = record.phases() else { return record.state.name().to_owned() };
    let kept: Vec<_> = phases.kept.iter().map(|phase| phase.name.as_str()).collect();
    let noted: Vec<_> = phases.noted.iter().map(|phase| phase.name.as_str()).collect();
    let escalated = if record.is_escalated() { " escalated" } else { "" };
    let begun = if phases.begun.is_some() { ", a call perhaps begun" } else { "" };
    let noted = if noted.is_empty() { String::new() } else { format!(", noted {}", noted.join(" ")) };
    format!("{}{escalated}, kept {}{noted}{begun}", record.state.name(), kept.join(" "))
}
