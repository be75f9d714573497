//! One state of everything: the record, its request, workers, what waits in queues, and what is known outside.

use super::{messages::Outbox, protocol::Id};

/// The most workers. The last one works only at rest.
pub const MAX_WORKERS: usize = 4;

/// How an execution ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// With an effect, and the answer of this number.
    Effect(u8),
    /// With a refusal, and the answer of this number.
    Refusal(u8),
    /// It did nothing.
    NotExecuted,
    /// The request was refused before anything was done.
    NotBegun,
    /// Something may have been done.
    Perhaps,
    /// In the call of a phase, which was perhaps made.
    Interrupted,
    /// Its handler did not start.
    NotStarted,
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// It has claimed nothing.
    Idle,
    /// Its claim got no answer: it takes it back, and its handler never starts.
    Unstarted,
    /// It has taken its claim back.
    TakenBack,
    /// Its handler runs.
    Running,
    /// The call of its phase has a result, which is to be kept.
    Made,
    /// Its handler has ended, and this is not reported yet.
    Ended(Ending),
    /// It has reported, or is dead.
    Over,
}

/// What became of a request to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    Nothing,
    /// Sent at this time, and perhaps never to arrive.
    OnItsWay(u8),
    Executed,
}

/// A report in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deferred {
    /// How the execution ended.
    Ended(Ending),
    /// The result of its phase.
    Phase,
}

/// One execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub at: At,
    /// The life of the key that it works for.
    pub life: u8,
    /// The record as it saw it last.
    pub base: Id,
    /// By how many ticks its clock is ahead.
    pub clock: u8,
    pub sent: Sent,
    /// What waits in the queue of reports.
    pub deferred: Option<Deferred>,
    /// Whether the provider has yet to report its effect.
    pub webhook: bool,
    /// Whether its report of an effect was accepted, by the record or by the queue.
    pub told: bool,
    /// Whether its effect was reported to the record: by the worker, or by the provider.
    pub heard: bool,
    /// How often its rows are committed.
    pub commits: u8,
}

impl Worker {
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
    /// The request is kept beside the record: a new life begins.
    Request,
    /// The rows of this worker.
    Rows(u8),
    /// Messages of these numbers.
    Messages(u8),
}

/// A write that got no answer: it is applied later, unless the record has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    pub id: Id,
    pub with: With,
}

/// What a reconciler finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// The effect, with the answer of this number.
    Executed(u8),
    /// It was not executed, and will not be.
    NotExecuted,
    /// The provider does not know it.
    NotFound,
    /// The result of the phase.
    Phase,
}

/// A question whose answer is not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    pub seen: Id,
    /// Whether the record is as it was.
    pub is_current: bool,
    pub at: u8,
    pub found: Finding,
}

/// Everything. A set of lives has a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: u8,
    /// The life of the key: how often it was accepted.
    pub life: u8,
    pub record: Option<Id>,
    pub late: Option<Late>,
    pub question: Option<Question>,
    pub workers: [Worker; MAX_WORKERS],
    /// The lives whose request is kept.
    pub requests: u8,
    /// The lives whose message waits in the queue of work. It is delivered at any time, and often.
    pub queued: u8,
    /// The lives whose request somebody is about to delete.
    pub deleting: u8,
    /// Whether operators know of a contradiction.
    pub alarm: bool,
    /// Whether the provider has lied about this life.
    pub lied: bool,
    /// Whether it has denied what it did.
    pub denied: bool,
    /// Whether an operator has settled this life.
    pub ruled: bool,
    /// Whether an operator holds it.
    pub held: bool,
    /// A backup: the record, the life that it is of, and the lives whose request is in it.
    pub saved: Option<(Option<Id>, u8, u8)>,
    /// Whether somebody has deleted the record by hand, or restored an earlier one.
    pub meddled: bool,
    pub outbox: Outbox,
}

impl World {
    pub const START: Self = Self {
        now: 1,
        life: 0,
        record: None,
        late: None,
        question: None,
        workers: [Worker::IDLE; MAX_WORKERS],
        requests: 0,
        queued: 0,
        deleting: 0,
        alarm: false,
        lied: false,
        denied: false,
        ruled: false,
        held: false,
        saved: None,
        meddled: false,
        outbox: Outbox::EMPTY,
    };

    /// Writes the record. No earlier write can be applied any more.
    pub fn write(&mut self, id: Id) {
        (self.record, self.late) = (Some(id), None);
        if let Some(question) = &mut self.question {
            question.is_current = false;
        }
    }

    /// The same, with what commits with it.
    pub fn commit(&mut self, id: Id, with: With) {
        self.write(id);
        match with {
            With::Nothing => {}
            With::Request => {
                self.life += 1;
                self.requests |= 1 << self.life;
                self.queued |= 1 << self.life;
                (self.lied, self.denied, self.ruled, self.held) = (false, false, false, false);
                self.question = None;
                // What still waits must not be forgotten. What was delivered is judged in the life before.
                for worker in &mut self.workers {
                    worker.told &= worker.deferred.is_some() && !worker.heard;
                }
            }
            With::Rows(worker) => self.workers[usize::from(worker)].commits += 1,
            With::Messages(numbers) => self.outbox.publish(numbers),
        }
    }

    /// The record is gone, or as it was earlier, by somebody's hand: what it knew is forgotten. What waits in a queue is reported again.
    pub fn meddle(&mut self, record: Option<Id>) {
        (self.record, self.late, self.meddled, self.held) = (record, None, true, false);
        if let Some(question) = &mut self.question {
            question.is_current = false;
        }
        for worker in &mut self.workers {
            worker.told &= worker.deferred.is_some() && !worker.heard;
            worker.heard = false;
        }
    }

    /// An operator settles it.
    pub const fn rules(&mut self) {
        (self.ruled, self.held) = (true, false);
    }

    /// The executions of the key's present life.
    pub fn present(&self) -> impl Iterator<Item = &Worker> {
        let life = self.life;
        self.workers.iter().filter(move |worker| worker.life == life)
    }

    /// How many effects the present life has. If the provider knows the key, all its requests are one.
    pub fn effects(&self, keyed: bool) -> usize {
        let number = self.present().filter(|worker| worker.has_effect()).count();
        if keyed { number.min(1) } else { number }
    }

    /// The number of an execution that has an effect.
    pub fn executed(&self) -> Option<u8> {
        let life = self.life;
        let has = |worker: &Worker| worker.life == life && worker.has_effect();
        self.workers.iter().position(has).and_then(|worker| u8::try_from(worker).ok())
    }

    /// Whether a request is on its way, or may still be sent.
    pub fn may_arrive(&self) -> bool {
        let may = |worker: &Worker| matches!(worker.sent, Sent::OnItsWay(_)) || worker.at == At::Running;
        self.present().any(may)
    }

    /// Time passes. A request that has not arrived by then never arrives.
    pub fn pass(&mut self, arrives: u8) {
        self.now += 1;
        for worker in &mut self.workers {
            if matches!(worker.sent, Sent::OnItsWay(sent) if self.now >= sent + arrives) {
                worker.sent = Sent::Nothing;
            }
        }
    }

    /// The same state in its one form: without what can have no effect any more.
    pub fn canonical(mut self) -> Self {
        for worker in &mut self.workers {
            if worker.at != At::Over || worker.deferred.is_some() {
                continue;
            }
            (worker.base, worker.clock) = (0, 0);
            if worker.life != self.life && !worker.webhook {
                let told = worker.told && !self.alarm;
                *worker = Worker { at: At::Over, told, ..Worker::IDLE };
            }
        }
        self
    }
}
