//! One state of everything: the record, its workers, what is on its way, and what is known outside.

use std::{fmt::Debug, hash::Hash, ops::Range};

use protocol::record::Standing;

use super::{
    action::Action,
    ending::{Command, Progress, Replaced},
    facts::Facts,
    protocol::Protocol,
    records::{self, Id, Name, STANDINGS},
    report::{Found, Report},
    setting::Setting,
    violation::Violation,
};

/// A world: what it has besides, and what becomes of that.
pub trait Kind: Copy + Eq + Hash + Debug + 'static {
    /// What it knows of each worker besides.
    type Worker: Copy + Eq + Hash + Debug;
    /// As many workers as there can be.
    type Workers: Copy + Eq + Hash + Debug + AsRef<[Worker<Self>]> + AsMut<[Worker<Self>]>;
    /// What there is besides.
    type Own: Copy + Eq + Hash + Debug;

    /// Its name, for what is [known](crate::known::Known).
    const NAME: &'static str;
    const IDLE: Self::Worker;
    const WORKERS: Self::Workers;
    const START: Self::Own;
    /// For how many ticks a request can be on its way.
    const ARRIVES: u8 = records::ARRIVES;
    /// What a provider may say of what it did not do.
    const DENIALS: &'static [Found] = &[Found::NotFound, Found::NotExecuted];
    /// Whether it matters of whom operators know.
    const ALARMS_APART: bool = false;

    /// The phases of a handler of the version before, or of the new one.
    fn phases(_: &Setting, _is_new: bool) -> &'static [Name] {
        &[]
    }

    /// The property that a step violates, besides this one.
    fn judge(
        setting: &Setting,
        protocol: &Protocol,
        action: Action,
        worlds: (&World<Self>, &World<Self>),
        violation: Option<Violation>,
    ) -> Option<Violation>;

    /// Forgets what can have no effect any more.
    fn forget(_: &mut World<Self>) {}

    /// What commits with a write.
    fn commit(world: &mut World<Self>, with: With);

    /// The record is deleted, because its time is over.
    fn pruned(_: &mut World<Self>, _: &Facts) {}

    /// A worker's handler begins, which has looked how its tenant stands.
    fn begins(_: &mut World<Self>, _worker: u8) {}

    /// The provider has executed a worker's request.
    fn executed(_: &mut World<Self>, _worker: u8) {}

    /// The provider denies what it did.
    fn denies(_: &mut World<Self>) {}

    /// It is found out that nothing was done.
    fn nothing_was_done(_: &mut World<Self>) {}

    /// A worker's report reaches the record.
    fn hears(_: &mut World<Self>, _worker: u8, _: Report) {}

    /// What else follows from a command about a worker's report, and the property that is violated.
    fn follows(
        _: &mut World<Self>,
        _: (&Setting, &Protocol),
        _: (u8, Report, &Progress),
        _: Command,
    ) -> Option<Violation> {
        None
    }
}

/// A version of the record. Revisions are numbered in the order of their writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    pub id: Id,
    pub revision: u8,
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// It has not begun.
    Idle,
    /// Its record is reserved, and it looks once more how its tenant stands. Whether it goes on even if that is stopped, because it resumes.
    Reserved(bool),
    /// Its claim got no answer, or a late one, or its tenant is stopped: it runs nothing, and takes that back.
    Untried,
    /// Its handler runs, and comes to the phase in this place.
    Running(u8),
    /// The phase in this place has this result, which is to be kept.
    Made(u8, u8),
    /// Its handler has ended, and this is not reported yet.
    Ended(Report),
    /// Its report is in the queue. It has yet to mark the record with that, or with what replaces it.
    Marks(Report, Replaced),
    /// It has reported, or is dead.
    Over,
}

/// What became of a request to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    Nothing,
    /// That of this call, since this time, and perhaps never to arrive.
    OnItsWay {
        call: u8,
        since: u8,
    },
    Executed,
}

/// What waits in the queue of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Letter {
    /// How the execution ended.
    Report(Report),
    /// The same, which is processed already, and is delivered once more.
    Again(Report),
    /// The result of the phase in this place.
    Phase(u8, u8),
}

/// One execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker<K: Kind> {
    pub at: At,
    /// The life of the key that it works for.
    pub life: u8,
    /// The record as it saw it last.
    pub base: Id,
    /// By how many ticks its clock is ahead.
    pub clock: u8,
    pub sent: Sent,
    pub deferred: Option<Letter>,
    /// Whether the provider has yet to report its effect.
    pub webhook: bool,
    /// Whether its report of an effect was accepted, by the record or by the queue.
    pub told: bool,
    /// Whether its effect was reported to the record: by the worker, or by the provider.
    pub heard: bool,
    /// How often its rows are committed.
    pub commits: u8,
    pub own: K::Worker,
}

impl<K: Kind> Worker<K> {
    pub const IDLE: Self = Self {
        at: At::Idle,
        life: 0,
        base: 0,
        clock: 0,
        sent: Sent::Nothing,
        deferred: None,
        webhook: false,
        told: false,
        heard: false,
        commits: 0,
        own: K::IDLE,
    };

    /// Whether it has an effect.
    pub const fn has_effect(&self) -> bool {
        self.commits > 0 || matches!(self.sent, Sent::Executed)
    }
}

/// What a write does besides, if it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum With {
    Nothing,
    /// A new life of the key begins.
    Life,
    /// The rows of this worker.
    Rows(u8),
    /// Messages of these numbers.
    Messages(u8),
}

/// A write that got no answer, and is applied later if its revision is still current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    /// `None` if it inserts.
    pub over: Option<u8>,
    pub id: Id,
    pub with: With,
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
pub struct World<K: Kind> {
    pub now: u8,
    /// The place among all [`STANDINGS`] of how the tenant stands.
    pub standing: u8,
    /// The life of the key: how often it was accepted.
    pub life: u8,
    pub record: Option<Version>,
    /// The record in a backup that can bring back its revision.
    pub snapshot: Option<Option<Version>>,
    pub late: Option<Late>,
    pub question: Option<Question>,
    pub workers: K::Workers,
    /// What operators know: a bit for each worker whose report or effect is wrong, or one for all.
    pub alarms: u8,
    /// Whether the provider has lied.
    pub lied: bool,
    /// Whether an operator has settled the record.
    pub ruled: bool,
    /// Whether an operator holds it: no execution begins until it is settled.
    pub held: bool,
    /// Whether somebody has deleted the record by hand, or restored an earlier one.
    pub meddled: bool,
    pub own: K::Own,
}

impl<K: Kind> World<K> {
    pub const START: Self = Self {
        now: 1,
        standing: 0,
        life: 0,
        record: None,
        snapshot: None,
        late: None,
        question: None,
        workers: K::WORKERS,
        alarms: 0,
        lied: false,
        ruled: false,
        held: false,
        meddled: false,
        own: K::START,
    };

    pub fn id(&self) -> Option<Id> {
        self.record.map(|version| version.id)
    }

    /// How the tenant may stand as far as a worker knows: as it does, or as it did before.
    pub fn standings(&self) -> &'static [Standing] {
        &STANDINGS[..=usize::from(self.standing)]
    }

    /// How the tenant stands.
    pub const fn standing(&self) -> Standing {
        STANDINGS[self.standing as usize]
    }

    /// The numbers of all workers.
    pub fn numbers(&self) -> Range<u8> {
        0..u8::try_from(self.workers.as_ref().len()).unwrap_or(u8::MAX)
    }

    pub fn worker(&self, number: u8) -> &Worker<K> {
        &self.workers.as_ref()[usize::from(number)]
    }

    pub fn worker_mut(&mut self, number: u8) -> &mut Worker<K> {
        &mut self.workers.as_mut()[usize::from(number)]
    }

    fn revisions(&self) -> [Option<u8>; 4] {
        [
            self.record.map(|version| version.revision),
            self.snapshot.flatten().map(|version| version.revision),
            self.late.and_then(|late| late.over),
            self.question.map(|question| question.seen.revision),
        ]
    }

    /// Writes this record, with a revision after all that are known.
    pub fn write(&mut self, id: Id) {
        let revision = self.revisions().into_iter().flatten().max().map_or(0, |last| last + 1);
        self.record = Some(Version { id, revision });
    }

    /// The same, with what commits with it.
    pub fn commit(&mut self, id: Id, with: With) {
        self.write(id);
        K::commit(self, with);
    }

    /// This write over the record gets no answer.
    pub fn lands_later(&mut self, id: Id, with: With) {
        let over = self.record.map(|version| version.revision);
        self.late = Some(Late { over, id, with });
    }

    /// The same state in its one form: revisions without gaps, and nothing that can have no effect any more.
    pub fn canonical(mut self) -> Self {
        K::forget(&mut self);
        let revision = |version: Option<Version>| version.map(|version| version.revision);
        let can_return = |over| revision(self.record) == over || self.snapshot.map(revision) == Some(over);
        self.late = self.late.filter(|late| can_return(late.over));
        let known = self.revisions();
        let rank = |revision: &mut u8| {
            let is_earlier = |place: &usize| {
                known[*place].is_some_and(|other| other < *revision)
                    && !known[..*place].contains(&known[*place])
            };
            *revision = u8::try_from((0..known.len()).filter(is_earlier).count()).unwrap_or(u8::MAX);
        };
        self.record.iter_mut().for_each(|version| rank(&mut version.revision));
        self.snapshot.iter_mut().flatten().for_each(|version| rank(&mut version.revision));
        self.late.iter_mut().flat_map(|late| &mut late.over).for_each(rank);
        self.question.iter_mut().for_each(|question| rank(&mut question.seen.revision));
        self
    }

    /// Operators learn that the report, or the effect, of this worker is wrong.
    pub fn escalate(&mut self, worker: u8) {
        self.alarms |= if K::ALARMS_APART { 1 << worker } else { 1 };
    }

    /// The same, of each worker that has an effect.
    pub fn escalate_effects(&mut self) {
        for number in self.numbers() {
            if self.worker(number).has_effect() || !K::ALARMS_APART {
                self.escalate(number);
            }
        }
    }

    pub const fn is_escalated(&self, worker: u8) -> bool {
        self.alarms & 1 << worker != 0
    }

    /// The executions of the key's present life.
    pub fn present(&self) -> impl Iterator<Item = &Worker<K>> {
        let life = self.life;
        self.workers.as_ref().iter().filter(move |worker| worker.life == life)
    }

    /// The number of an execution that has an effect.
    pub fn executed(&self) -> Option<u8> {
        let has = |worker: &Worker<K>| worker.life == self.life && worker.has_effect();
        self.workers.as_ref().iter().position(has).and_then(|worker| u8::try_from(worker).ok())
    }

    /// Whether an effect was reported to the record.
    pub fn effect_was_heard(&self) -> bool {
        self.present().any(|worker| worker.heard)
    }

    /// Whether a request is on its way, or may still be sent.
    pub fn may_arrive(&self) -> bool {
        self.present().any(|worker| {
            matches!(worker.sent, Sent::OnItsWay { .. })
                || matches!(worker.at, At::Reserved(_) | At::Running(_))
        })
    }

    /// The provider executes the request of a worker.
    pub fn executes(&mut self, setting: &Setting, worker: u8) {
        let state = self.worker_mut(worker);
        (state.sent, state.webhook) = (Sent::Executed, setting.webhook);
        K::executed(self, worker);
    }

    /// A worker's report reaches the record.
    pub fn hears(&mut self, worker: u8, report: Report) {
        let state = self.worker_mut(worker);
        (state.told, state.heard) = (state.told | report.is_effect(), state.heard | report.is_effect());
        K::hears(self, worker, report);
    }

    /// An operator settles it.
    pub const fn rules(&mut self) {
        (self.ruled, self.held) = (true, false);
    }

    /// Time passes. A request that has not arrived by then never arrives.
    pub fn pass(&mut self) {
        self.now += 1;
        for worker in self.workers.as_mut() {
            if matches!(worker.sent, Sent::OnItsWay { since, .. } if self.now >= since + K::ARRIVES) {
                worker.sent = Sent::Nothing;
            }
        }
    }
}
