//! One state of everything: the record, its workers, what is on its way, and what is known outside.

use crate::{
    ending::Replaced,
    protocol::Id,
    report::{Found, Report},
};

/// The most workers.
pub const MAX_WORKERS: usize = 3;

/// A version of the record. Revisions are numbered in the order of their writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    pub id: Id,
    pub revision: u8,
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has not begun.
    Idle,
    /// Its handler runs.
    Running,
    /// Its handler has ended, and this is not reported yet.
    Ended(Report),
    /// Its report is in the queue. It has yet to mark the record with that, or with what replaces it.
    Deferred(Report, Replaced),
    /// It has reported, or tried to. This is what it wanted to report.
    Reported(Report),
    /// It is dead.
    Dead,
}

/// What became of a request to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    None,
    /// Sent at this time, and perhaps never to arrive.
    OnItsWay(u8),
    /// Executed at this time.
    Executed(u8),
}

/// Where a deferred report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    None,
    Queued,
    /// Processed, and perhaps delivered once more.
    Processed,
}

/// One execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub phase: Phase,
    /// The record as it saw it last.
    pub base: Id,
    pub request: Request,
    /// By how many ticks its clock is ahead.
    pub clock: u8,
    pub message: Message,
    /// Whether the provider has yet to report its effect.
    pub webhook: bool,
    /// Whether its report of an effect was accepted, by the record or a queue.
    pub accepted: bool,
    /// Whether its effect was reported to the record: by its worker, or by the provider.
    pub heard: bool,
    /// Whether it reported a possible effect to the record, that nothing has answered since.
    pub perhaps: bool,
    /// Whether it was found out, since it began, that nothing was done.
    pub covered: bool,
    /// Whether its report of an effect waited in a queue while its key began a later generation.
    pub orphan: bool,
    /// How often its domain writes are committed.
    pub commits: u8,
    /// Whether its caller got its answer although it was not written.
    pub published: bool,
}

impl Worker {
    pub const IDLE: Self = Self {
        phase: Phase::Idle,
        base: 0,
        request: Request::None,
        clock: 0,
        message: Message::None,
        webhook: false,
        accepted: false,
        heard: false,
        perhaps: false,
        covered: false,
        orphan: false,
        commits: 0,
        published: false,
    };

    /// Whether it has an effect.
    pub const fn has_effect(&self) -> bool {
        self.commits > 0 || matches!(self.request, Request::Executed(_))
    }
}

/// A write that got no answer, and is applied later if its revision is still current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    /// `None` if it inserts.
    pub over: Option<u8>,
    pub id: Id,
    /// The worker whose domain writes commit with it.
    pub commits: Option<u8>,
}

/// A question whose answer is not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    pub seen: Version,
    pub at: u8,
    pub found: Found,
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: u8,
    pub record: Option<Version>,
    pub snapshot: Option<Option<Version>>,
    pub late: Option<Late>,
    pub question: Option<Question>,
    pub workers: [Worker; MAX_WORKERS],
    /// The number of the answer that every caller gets, once a caller got it; zero before.
    pub answer: u8,
    /// Whether a caller got a refusal.
    pub refused: bool,
    /// Whose report, or whose effect, operators know to be wrong: a bit for each worker.
    pub alarms: u8,
    /// Whether the record was deleted or restored.
    pub meddled: bool,
    /// Whether it was restored to an earlier state: its rows may be there nevertheless.
    pub restored: bool,
    /// Whether the provider has lied.
    pub lied: bool,
    /// Whether an operator has settled the record.
    pub ruled: bool,
    /// Whether an operator holds the record: no execution begins until it is settled.
    pub held: bool,
}

impl World {
    pub const START: Self = Self {
        now: 1,
        record: None,
        snapshot: None,
        late: None,
        question: None,
        workers: [Worker::IDLE; MAX_WORKERS],
        answer: 0,
        refused: false,
        alarms: 0,
        meddled: false,
        restored: false,
        lied: false,
        ruled: false,
        held: false,
    };

    /// The revision after all that are known.
    fn fresh(&self) -> u8 {
        self.revisions().into_iter().flatten().max().map_or(0, |last| last + 1)
    }

    fn revisions(&self) -> [Option<u8>; 4] {
        [
            self.record.map(|version| version.revision),
            self.snapshot.flatten().map(|version| version.revision),
            self.late.and_then(|late| late.over),
            self.question.map(|question| question.seen.revision),
        ]
    }

    /// Writes this record with a fresh revision.
    pub fn write(&mut self, id: Id) {
        self.record = Some(Version { id, revision: self.fresh() });
    }

    /// The same state in its one form: revisions without gaps, and nothing that can have no effect any more.
    pub fn canonical(mut self) -> Self {
        let can_return = |over: Option<u8>| {
            let snapshot = self.snapshot.is_some_and(|saved| saved.map(|version| version.revision) == over);
            self.record.map(|version| version.revision) == over || snapshot
        };
        if self.late.is_some_and(|late| !can_return(late.over)) {
            self.late = None;
        }
        let mut known: Vec<u8> = self.revisions().into_iter().flatten().collect();
        known.sort_unstable();
        known.dedup();
        let rank = |revision: &mut u8| {
            let place = known.iter().position(|known| known == revision).unwrap_or_default();
            *revision = u8::try_from(place).unwrap_or(u8::MAX);
        };
        for version in [&mut self.record].into_iter().flatten() {
            rank(&mut version.revision);
        }
        if let Some(Some(version)) = &mut self.snapshot {
            rank(&mut version.revision);
        }
        if let Some(Late { over: Some(over), .. }) = &mut self.late {
            rank(over);
        }
        if let Some(question) = &mut self.question {
            rank(&mut question.seen.revision);
        }
        self
    }

    /// Operators learn that the report, or the effect, of this worker is wrong.
    pub fn escalate(&mut self, worker: u8) {
        self.alarms |= 1 << worker;
    }

    /// The same, for each worker that has an effect.
    pub fn escalate_effects(&mut self) {
        for worker in 0..MAX_WORKERS {
            self.alarms |= u8::from(self.workers[worker].has_effect()) << worker;
        }
    }

    pub const fn is_escalated(&self, worker: u8) -> bool {
        self.alarms & 1 << worker != 0
    }

    /// Whether an effect was reported, and accepted.
    pub fn effect_was_heard(&self) -> bool {
        self.workers.iter().any(|worker| worker.heard)
    }
}
