//! What the handler does next, and what others do about its calls.

use std::time::Duration;

use protocol::record::State;

use super::{
    names::{names, stock},
    world::{CALLS, Phases},
};
use crate::kernel::{
    ending::{By, Command, Progress},
    protocol::{Event, Next, Todo},
    records::{Id, Name, TICK},
    report::{Found, Report},
    steps::Steps,
};

/// What a handler does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// The phase is kept: it goes on.
    GoesOn,
    /// Others report this result.
    Takes(u8),
    /// It commits the stock.
    Commits,
    /// It makes this call.
    Calls(u8),
    /// It cannot know whether this call was made.
    Asks(u8),
    /// It ends.
    Ends(Report),
}

impl Steps<'_, Phases> {
    fn name(&self, is_new: bool, place: u8) -> Name {
        names(self.setting.change, is_new)[usize::from(place)]
    }

    /// Whether this is the place of the commit.
    pub fn is_commit(&self, is_new: bool, place: u8) -> bool {
        self.name(is_new, place) == Name::Stock
    }

    /// What the handler of a worker that last saw `base` does in this place.
    pub fn does(&self, base: Id, place: u8, now: u8, is_new: bool) -> Does {
        let record = self.protocol.record(base);
        let Some(phases) = record.phases() else { return Does::Ends(Report::NotExecuted) };
        let refused = stock(record) == Some("0");
        let names = names(self.setting.change, is_new);
        let is_reordered = names[0] == Name::Stock;
        // As the engine does: it must have come to all that is kept.
        let is_behind = phases.kept.len() > place.into();
        let ends = |report| Does::Ends(if is_behind { Report::NotExecuted } else { report });
        let name = match (names.get(usize::from(place)).copied(), refused) {
            (Some(Name::Refund), false) | (None, false) => return ends(Report::Effect(1)),
            (Some(Name::Charge), true) if is_reordered => return ends(Report::Refusal(4)),
            (None, true) if names.contains(&Name::Refund) => return ends(Report::Refusal(2)),
            (None, true) => return ends(Report::Refusal(3)),
            (Some(name), _) => name,
        };
        let (call, is_commit) = (u8::from(name == Name::Refund), name == Name::Stock);
        let keys_live = if is_commit { Duration::ZERO } else { TICK * self.setting.keys_live.into() };
        match self.protocol.todo(base, (place, name), keys_live, now) {
            Todo::Kept => Does::GoesOn,
            Todo::Mismatch => Does::Ends(Report::NotExecuted),
            Todo::Noted(result) => Does::Takes(result),
            Todo::Call | Todo::Ask if is_commit => Does::Commits,
            Todo::Call => Does::Calls(call),
            Todo::Ask => Does::Asks(call),
        }
    }

    /// The record takes the result of a phase. That of a commit counts only if its worker still runs the record.
    pub fn kept(
        &mut self,
        (base, is_new): (Id, bool),
        (place, result): (u8, u8),
        (now, by): (u8, By),
    ) -> Next {
        let phase = self.name(is_new, place);
        self.step(now, Event::Keep { base, phase, place, result, by })
    }

    /// What the report of a worker makes of the record.
    pub fn reported(&mut self, base: Id, report: Report, now: u8) -> Option<Id> {
        let event = Event::Report { base, report, rows: false, progress: Progress::START };
        match self.step(now, event) {
            Next::Does(Command::Writes(id)) => Some(id),
            _ => None,
        }
    }

    /// The provider reports a call. As an error: whether the record contradicts it.
    pub fn noted(&mut self, call: u8) -> Result<Id, bool> {
        let event = Event::Note { phase: self.name_of(call), result: self.world.own.effects(call) };
        match self.step(self.world.now, event) {
            Next::Written(id) => Ok(id),
            Next::Stopped(differs) => Err(differs),
            _ => Err(true),
        }
    }

    /// The name under which the provider has executed this call.
    fn name_of(&self, call: u8) -> Name {
        match call {
            0 if self.world.own.calls[0].renamed => Name::ChargeCard,
            0 => Name::Charge,
            _ => Name::Refund,
        }
    }

    /// Reconciliation asks what became of the call that follows, or finds that no retry has resumed the record in time.
    pub fn reconcile(&mut self) -> Option<(Found, Id)> {
        let (seen, now) = (self.world.id()?, self.world.now);
        let found = match (&self.protocol.record(seen).state, self.open_call(seen)) {
            (State::BetweenWorkers { .. }, _) => Found::NotResumed,
            (_, Some(call)) if self.world.own.effects(call) > 0 => {
                Found::Phase(self.name_of(call), self.world.own.effects(call))
            }
            _ => Found::NotFound,
        };
        let event = Event::Learn { seen, is_current: true, found, at: now, reported: false };
        match self.step(now, event) {
            Next::Written(id) => Some((found, id)),
            _ => None,
        }
    }

    /// The call that follows what is kept, by the version that the record is of; `None` if that is the commit.
    pub fn open_call(&self, id: Id) -> Option<u8> {
        let record = self.protocol.record(id);
        let is_new = self.protocol.is_of_new_version(record);
        let name = *names(self.setting.change, is_new).get(record.phases()?.kept.len())?;
        (name != Name::Stock).then(|| u8::from(name == Name::Refund))
    }

    /// An operator lets a retry resume it, after looking up whether the call that follows was made. Of a record that is held, each call
    /// that was made is said to be, and then that nothing follows: that ends the hold.
    pub fn operate(&mut self) -> Option<Id> {
        let id = self.world.id()?;
        if self.protocol.record(id).is_held() {
            let made = (0..CALLS).filter(|call| self.world.own.effects(*call) > 0).collect::<Vec<_>>();
            let noted = made.into_iter().find_map(|call| self.noted(call).ok());
            return noted.or_else(|| self.written(Event::NothingIsOpen));
        }
        match self.open_call(id) {
            Some(call) if self.world.own.effects(call) == 0 => self.written(Event::NothingIsOpen),
            Some(call) => self.noted(call).ok().or_else(|| self.written(Event::Resume)),
            None => self.written(Event::Resume),
        }
    }

    /// What this makes of the record.
    pub fn written(&mut self, event: Event) -> Option<Id> {
        match self.step(self.world.now, event) {
            Next::Written(id) => Some(id),
            _ => None,
        }
    }
}
