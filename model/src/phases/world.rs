//! One state of everything: the record, its workers, the provider, and what is on its way.

use super::protocol::Id;

/// The most workers.
pub const MAX_WORKERS: usize = 3;

/// The calls of the handler: the charge, and the refund.
pub const CALLS: usize = 2;

/// How an execution ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// With the answer of this number: 1 says that it is ordered, 2 that it is sold out and refunded.
    Completed(u8),
    /// Outside a call.
    Outside,
    /// In a call that was perhaps made.
    InCall,
    /// In a call that was perhaps made, and the provider cannot be asked.
    Unknown,
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// It has not begun.
    Idle,
    /// It comes to the phase in this place.
    Phase(u8),
    /// Its call has this result, which is to be kept.
    Result(u8, u8),
    /// Its handler has ended, and this is not reported yet.
    Ended(Ending),
    /// It has reported, or is dead.
    Over,
}

/// A report in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deferred {
    /// The result of the phase in this place.
    Phase(u8, u8),
    /// How the execution ended.
    Ended(Ending),
}

/// One execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub at: At,
    /// The record as it saw it last.
    pub base: Id,
    /// By how many ticks its clock is ahead.
    pub clock: u8,
    /// Whether it is of the new version.
    pub is_new: bool,
    /// Until when it may call, by true time.
    pub until: u8,
    /// A request to the provider that is on its way: which call, and since when.
    pub sent: Option<(u8, u8)>,
    /// What waits in the queue.
    pub deferred: Option<Deferred>,
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

/// A write that got no answer: it is applied later, unless the record has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    pub id: Id,
    /// Whether rows commit with it.
    pub rows: bool,
}

/// The table as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backup {
    pub id: Id,
    pub rows: u8,
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: u8,
    pub record: Option<Id>,
    pub late: Option<Late>,
    pub workers: [Worker; MAX_WORKERS],
    pub calls: [Call; CALLS],
    /// How often the stock was taken.
    pub rows: u8,
    /// Whether operators know of a contradiction.
    pub alarm: bool,
    /// To what the table can be restored.
    pub backup: Option<Backup>,
    /// Whether it was restored.
    pub restored: bool,
}

impl World {
    const IDLE: Worker =
        Worker { at: At::Idle, base: 0, clock: 0, is_new: false, until: 0, sent: None, deferred: None };

    pub const START: Self = Self {
        now: 1,
        record: None,
        late: None,
        workers: [Self::IDLE; MAX_WORKERS],
        calls: [Call { effects: 0, since: 0, renamed: false, webhook: false }; CALLS],
        rows: 0,
        alarm: false,
        backup: None,
        restored: false,
    };

    /// Writes the record. No earlier write can be applied any more.
    pub fn write(&mut self, id: Id) {
        (self.record, self.late) = (Some(id), None);
    }

    /// The provider executes a call, unless it has done so under the same key, and remembers it.
    pub fn execute(&mut self, call: u8, renamed: bool, keys_live: u8, reports: bool) {
        let now = self.now;
        let call = &mut self.calls[usize::from(call)];
        if call.effects == 0 || call.renamed != renamed || call.since + keys_live <= now {
            *call = Call { effects: call.effects + 1, since: now, renamed, webhook: reports };
        }
    }

    /// This worker is over. What it knew does not matter any more, unless it waits in the queue.
    pub fn over(&mut self, worker: usize) {
        let worker = &mut self.workers[worker];
        (worker.at, worker.clock, worker.until) = (At::Over, 0, 0);
        if worker.deferred.is_none() {
            (worker.base, worker.is_new) = (0, worker.is_new && worker.sent.is_some());
        }
    }
}
