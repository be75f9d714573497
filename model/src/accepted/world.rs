//! What accepted work has of its own: requests that are kept beside the record, the queue of work, and messages.

use super::outbox::Outbox;
use crate::kernel::{
    records::Id,
    world::{self, At},
};

pub type World = world::World<Accepted>;
pub type Worker = world::Worker<Accepted>;

/// Work that is accepted, and executed later by a worker that claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accepted;

/// What is known of a worker besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// Whether its handler has begun, or may have begun as far as anybody knows.
    pub tried: bool,
}

/// What there is besides. A set of lives has a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queues {
    /// The lives whose request is kept.
    pub requests: u8,
    /// The lives whose message waits in the queue of work. It is delivered at any time, and often.
    pub queued: u8,
    /// The lives whose request somebody is about to delete.
    pub deleting: u8,
    /// Whether the provider has denied what it did.
    pub denied: bool,
    /// A backup: the record, the life that it is of, and the lives whose request is in it.
    pub saved: Option<(Option<Id>, u8, u8)>,
    pub outbox: Outbox,
}

impl Queues {
    pub const EMPTY: Self =
        Self { requests: 0, queued: 0, deleting: 0, denied: false, saved: None, outbox: Outbox::EMPTY };
}

impl World {
    /// A new life of the key begins: its request is kept beside the record.
    pub fn accept(&mut self) {
        self.life += 1;
        self.own.requests |= 1 << self.life;
        self.own.queued |= 1 << self.life;
        (self.lied, self.own.denied, self.ruled, self.held) = (false, false, false, false);
        self.question = None;
        // What was delivered is judged in the life before.
        self.workers.iter_mut().for_each(Worker::forgets);
    }

    /// The record is gone, or as it was earlier, by somebody's hand: what it knew is forgotten.
    pub fn meddle(&mut self, record: Option<Id>) {
        self.record = None;
        if let Some(id) = record {
            self.write(id);
        }
        (self.late, self.meddled, self.held) = (None, true, false);
        for worker in &mut self.workers {
            worker.forgets();
            worker.heard = false;
        }
    }

    /// How many effects the present life has. If the provider knows the key, all its requests are one.
    pub fn effects(&self, keyed: bool) -> usize {
        let number = self.present().filter(|worker| worker.has_effect()).count();
        if keyed { number.min(1) } else { number }
    }

    /// A process dies. Nobody knows how far it came.
    pub fn dies(&mut self, worker: u8) {
        let worker = self.worker_mut(worker);
        worker.own.tried |= worker.is_untried();
        worker.at = At::Over;
    }
}

impl Worker {
    /// Whether it has claimed, and its handler has not begun: until that is taken back, the record does not know it.
    pub const fn is_untried(&self) -> bool {
        matches!(self.at, At::Reserved(_) | At::Untried)
    }

    /// Of what it reported, only what still waits in a queue must not be lost: it is reported again.
    fn forgets(&mut self) {
        self.told &= self.deferred.is_some() && !self.heard;
    }
}
