//! What processes an execution has, and what may go wrong in it.

use super::ids::{KeyId, MessageId, THE_KEY};

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store does not answer: the call was done, is done later, or never.
    Store,
    /// The store is down for one process, for longer than its retries.
    Outages,
    /// The store throttles, or a transaction holds the record.
    Conflicts,
    /// A process dies.
    Deaths,
    /// A process freezes, and resumes later. Its monotonic clock stands still.
    Freezes,
    /// A wall clock is set back.
    Clocks,
    /// The provider does not answer.
    Unheard,
    /// The provider refuses the effect.
    Refusals,
    /// What a transaction adds is not in the next reads of several items, although the transaction is answered.
    Apart,
    /// A queue does not answer, or delivers twice. A target of messages does not answer.
    Queues,
    /// A batch of the table's stream is lost.
    Losses,
    /// The oldest record of a shard leaves it before any consumer was done with it: its retention is over.
    Trims,
}

/// All that may go wrong in an environment: a bit for each.
#[derive(Clone, Copy, Debug)]
pub struct Faults(u16);

/// Each of these may go wrong.
pub const fn any(faults: &[Fault]) -> Faults {
    let (mut bits, mut place) = (0, 0);
    while place < faults.len() {
        bits |= 1 << faults[place] as u16;
        place += 1;
    }
    Faults(bits)
}

impl Faults {
    pub const fn may(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u16 != 0
    }
}

/// How the operation is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// It is reserved, and its handler calls a provider.
    Reserved,
    /// The same in a phase, and its rows in another one. The provider remembers keys for so many seconds.
    Resumed(u64),
    /// All its effects are domain writes. It is reserved.
    Transactional,
    /// All its effects are domain writes, in a single transaction.
    SingleTransaction,
}

/// What the messages that are consumed come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A standard queue.
    Standard,
    /// A FIFO queue. All its messages are of one group.
    Fifo,
    /// A shard of a stream.
    Shard(Shard),
}

/// A shard of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub lanes: Lanes,
    pub owners: Owners,
    /// From this record on, all are in a child of the shard. It is read once its parent is at its end.
    pub child_at: Option<MessageId>,
}

impl Shard {
    /// Whether this record is in the child.
    pub fn is_of_child(self, record: MessageId) -> bool {
        self.child_at.is_some_and(|first| record >= first)
    }
}

/// Which partition keys the records of a shard have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Each its key.
    Keys,
    /// All the same one.
    One,
}

/// Which consumers have a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// One, until its time is over.
    One,
    /// Another one gets it too, once. What the first one answers then does not count.
    Two,
    /// The same, but each answer sets the checkpoint, which may move it back.
    TwoThatAnswer,
}

/// A queue or a shard whose messages are consumed.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub kind: InputKind,
    /// The key of each message, in the order in which they were sent.
    pub keys: &'static [KeyId],
    /// How many messages a batch has at most: one or two.
    pub batch: usize,
    /// How many consumers may run at once.
    pub consumers: usize,
    /// After how many executions that certainly did nothing a message is dead.
    pub max_attempts: u32,
}

impl Input {
    /// The shard, if it is one.
    pub const fn shard(&self) -> Option<Shard> {
        match self.kind {
            InputKind::Shard(shard) => Some(shard),
            InputKind::Standard | InputKind::Fifo => None,
        }
    }

    /// Whether no message overtakes another one.
    pub fn is_ordered(&self) -> bool {
        self.kind == InputKind::Fifo || self.shard().is_some_and(|shard| shard.lanes == Lanes::One)
    }
}

/// What the provider does with each effect, if nothing goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Executes,
    Refuses,
    /// It refuses connections.
    IsAway,
}

/// A deadline that Lambda's context may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    None,
    /// So many seconds after the request begins.
    In(u64),
    /// So many milliseconds after 1970.
    At(u64),
    /// None. The request comes so many seconds later, and its key is too old to begin an execution.
    Later(u64),
    /// None. The request comes so many seconds after the first.
    After(u64),
}

/// How many versions of the program there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    One,
    /// Two at once. The first request meets the earlier one, whose operation is not asynchronous and has another rule for fingerprints.
    BecomesAsynchronous,
}

/// An environment, and the processes in it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name, for the command.
    pub name: &'static str,
    pub guarded: Guarded,
    pub provider: Provider,
    pub versions: Versions,
    /// Whether handlers ask whether their lease is over before they send a request. No guide shows one that does.
    pub looks: bool,
    /// Whether each worker dies once its effect is executed, without a fault.
    pub unheard: bool,
    /// Whether requests go through the guard of HTTP. What is accepted always does.
    pub by_http: bool,
    /// For how many seconds after the first request a key may begin an execution, if keys have an age.
    pub key_lives: Option<u64>,
    /// Whether a handler finds the request invalid that the first client sends, who then sends a valid one with the same key.
    pub corrects: bool,
    /// Whether what a request has spawned ends with its answer: Lambda runs nothing after that, if no other request comes.
    pub ends_at_answer: bool,
    /// The deadline of each request. There are as many requests as deadlines.
    pub requests: &'static [Deadline],
    /// Messages that are consumed.
    pub input: Option<Input>,
    /// How many executions there are at most, if requests are accepted, and executed later by a worker.
    pub accepts: Option<u32>,
    /// How many workers and deliverers may run at once.
    pub workers: usize,
    /// How many messages an execution publishes.
    pub messages: u8,
    pub faults: Faults,
    /// The most faults of one execution, if it is run by command.
    pub faults_at_most: u8,
    /// For how many seconds an answer is kept.
    pub retention: u64,
    /// How many seconds a handler works before it asks for its effect.
    pub work: u64,
    /// How often heartbeats extend the lease, in seconds.
    pub heartbeat: Option<u64>,
    /// Whether handlers write a row, and whether that row is refused.
    pub rows: Rows,
    /// Whether bodies are too large for the record.
    pub large_bodies: bool,
    /// Whether the provider reports effects unprompted.
    pub webhook: bool,
    /// Whether it wants to be asked much later what became of any.
    pub puts_off: bool,
    /// Whether its reconciler answers as if its callers were of the other kind.
    pub mistakes_callers: bool,
    /// How many polls may run at once.
    pub polls: u8,
    /// Whether the reconcile function may be down for days.
    pub long_outage: bool,
    /// Whether the order does not matter any more once all requests are over and all faults have happened.
    pub ends_calmly: bool,
}

impl Scenario {
    /// Whether the effect is the provider's.
    pub const fn is_by_provider(&self) -> bool {
        matches!(self.guarded, Guarded::Reserved | Guarded::Resumed(_))
    }

    /// Whether it is promised that an operation has one effect: a handler that runs without a guard looks at its lease.
    pub const fn promises_one_effect(&self) -> bool {
        self.looks || self.by_http || self.input.is_some()
    }

    /// The shard, if records of one are consumed.
    pub fn shard(&self) -> Option<Shard> {
        self.input.and_then(|input| input.shard())
    }

    /// How many keys there are.
    pub fn keys(&self) -> KeyId {
        let keys = self.input.map_or(&[THE_KEY][..], |input| input.keys);
        keys.iter().max().map_or(1, |last| last + 1)
    }

    /// How many consumers, workers and deliverers may run at once.
    pub fn consumers(&self) -> usize {
        self.input.map_or(self.workers, |input| input.consumers)
    }

    /// Whether the outbox function reads the table's stream.
    pub const fn has_stream(&self) -> bool {
        self.accepts.is_some() || self.messages > 0
    }

    /// Whether the answer may expire. A request that came after that would be a new operation: so requests come at once, and the
    /// last client's key is too old to begin an execution.
    pub fn answer_may_expire(&self) -> bool {
        self.key_lives.is_some()
            || self.long_outage
            || self.requests.iter().any(|deadline| matches!(deadline, Deadline::Later(_)))
    }
}

/// The rows of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    None,
    /// One row without a condition.
    One,
    /// One row whose condition does not hold, and an answer for that.
    RefusedWithAnswer,
    /// One row whose condition does not hold, and no answer for that.
    Refused,
    /// So many that their places need room in the record, behind the long result of a phase.
    ManyRefused,
}
