//! What operations have of their own that resume: calls that the provider may remember, and rows.

use crate::kernel::{
    records::Id,
    setting::{Change, Setting},
    world::{self, At, Sent},
};

pub type World = world::World<Phases>;

/// Operations that resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Phases;

/// The calls of the handler: the charge, and the refund.
pub const CALLS: u8 = 2;

/// What is known of a worker besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// Whether it is of the new version.
    pub is_new: bool,
    /// Until when it may call, by true time.
    pub until: u8,
}

/// What the provider knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// How often it was executed.
    pub effects: u8,
    /// When it was executed last, under its key.
    pub since: u8,
    /// Whether that was the key of the new version, which has another name for it.
    pub renamed: bool,
    /// Whether that is still to be reported.
    pub webhook: bool,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    pub calls: [Call; CALLS as usize],
    /// How often the stock was taken.
    pub rows: u8,
    /// To what the table can be restored: the record, and the rows.
    pub backup: Option<(Id, u8)>,
}

impl Done {
    pub const NOTHING: Self = Self {
        calls: [Call { effects: 0, since: 0, renamed: false, webhook: false }; CALLS as usize],
        rows: 0,
        backup: None,
    };

    pub fn effects(&self, call: u8) -> u8 {
        self.calls[usize::from(call)].effects
    }
}

/// Whether this version's call has another key than before.
pub fn renames(change: Change, is_new: bool, call: u8) -> bool {
    change == Change::Renamed && is_new && call == 0
}

impl World {
    /// The provider executes a call of this version, unless it has done so under the same key, and remembers it. How often it has.
    pub fn calls(&mut self, setting: &Setting, call: u8, is_new: bool) -> u8 {
        let (now, renamed) = (self.now, renames(setting.change, is_new, call));
        let call = &mut self.own.calls[usize::from(call)];
        if call.effects == 0 || call.renamed != renamed || call.since + setting.keys_live <= now {
            *call = Call { effects: call.effects + 1, since: now, renamed, webhook: setting.webhook };
        }
        call.effects
    }

    /// The provider has reported a call unprompted. The record becomes this one, or perhaps contradicts it.
    pub fn hears_of(&mut self, call: u8, noted: Result<Id, bool>) {
        self.own.calls[usize::from(call)].webhook = false;
        match noted {
            Ok(id) => self.write(id),
            Err(true) => self.escalate(0),
            Err(false) => {}
        }
    }

    /// This worker is over. What it knew does not matter any more, unless it waits in the queue.
    pub fn over(&mut self, worker: u8) {
        let worker = self.worker_mut(worker);
        (worker.at, worker.clock, worker.own.until) = (At::Over, 0, 0);
        if worker.deferred.is_none() {
            (worker.base, worker.own.is_new) = (0, worker.own.is_new && worker.sent != Sent::Nothing);
        }
    }
}
