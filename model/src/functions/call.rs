//! The calls that a process makes to the world around it, and how each may end.

use std::time::Duration;

use bytes::Bytes;
use lambda_idempotency::{
    key::RecordKey,
    reconcile::Finding,
    record::{BodyId, Place, Record, Revision},
    store::{Companion, OutboxMessage, Page, StoreErrorKind, WriteOutcome},
    time::Timestamp,
};

use super::{
    ids::{KeyId, MessageId, Receipt},
    scenario::{Fault, Faults},
};

/// A queue, or another source of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The stale function's queue.
    Checks,
    /// The reconcile function's queue.
    Reconcile,
    /// The provider's events, which go to the webhook.
    Events,
    /// The queue of dead letters.
    DeadLetters,
    /// The queue or the shard whose messages are consumed.
    Input,
    /// What was parked of a shard: an operator hands it to the function.
    Parked,
    /// The queue of accepted work.
    Work,
    /// The FIFO queue of wakes, which ask for the delivery of messages.
    Wakes,
    /// The table's stream, which the outbox function reads.
    Stream,
}

/// One call.
#[derive(Clone, Debug)]
pub enum Call {
    /// The process begins: at any time.
    Begin,
    /// The handler begins.
    Handler,
    /// What accepts a request reads a table.
    Check,
    /// The handler asks the provider for the effect.
    Effect(KeyId),
    /// Insert the record, or swap that of this revision.
    Write(Option<Revision>, Box<Record>, Vec<Companion>),
    Load(KeyId),
    KeepBody(KeyId, BodyId, Bytes, Timestamp),
    LoadBody(KeyId, BodyId, Place),
    DeleteBody(KeyId, BodyId),
    /// The messages of this key that are not removed.
    Undelivered(KeyId),
    /// Remove a message that was delivered.
    Remove(Box<OutboxMessage>),
    /// A sweep reads the whole store.
    Scan(Timestamp),
    Due(Timestamp),
    Send(Source, String, Duration),
    /// Send a wake of this id, if none of it was sent just now.
    Wake(String, String),
    /// Hand a message over to its target.
    Deliver(Box<OutboxMessage>),
    /// The provider is asked.
    Ask(KeyId),
    /// A consumer changes for how long messages are hidden.
    Hide(Vec<(Receipt, Duration)>),
    /// A consumer sends a message of this queue to the dead letters.
    Bury(Source, String),
    /// A consumer's batch ends. These messages are done.
    EndBatch(Vec<Receipt>),
    /// A consumer's batch of a shard ends. The first of these records that must come again.
    EndRecords(Vec<Receipt>, Option<MessageId>),
    /// Its message is done.
    Acknowledge(MessageId),
    /// Wait until the process has run for so long.
    Sleep(Duration),
}

/// What a call returns.
#[derive(Debug)]
pub enum Reply {
    Done,
    /// The store fails.
    Failed(StoreErrorKind),
    Written(WriteOutcome),
    Loaded(Option<Box<Record>>),
    Kept(Option<Place>),
    Body(Option<Bytes>),
    Due(Vec<RecordKey>),
    Undelivered(Vec<OutboxMessage>),
    Page(Page),
    Sent(bool),
    Effect(Effect),
    /// `None` if the provider does not answer.
    Found(Option<Finding>),
}

/// What the handler gets from the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    Executed,
    Refused,
    NoAnswer,
    /// The connection was refused: nothing was sent.
    NotSent,
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// It is done and answered.
    Answered,
    /// It is done, and its answer is lost.
    Unanswered,
    /// It is not done: the service fails.
    Failed,
    /// It gets no answer, and is done later.
    Late,
    /// It fails, and so does each call of this process to the store for some time.
    Outage,
    /// The same, but it is done.
    OutageAfter,
    /// It fails, because the store is down for its process.
    DuringOutage,
    /// Not done: a transaction holds the record.
    Contended,
    /// Not done: the store throttles requests.
    Throttled,
    /// The provider refuses the effect.
    Refused,
    /// Nothing is sent.
    NotSent,
    /// The process dies before the call.
    Dies,
    /// The process dies after the call.
    DiesAfter,
    /// The process dies, and the call is done later.
    DiesLate,
    /// The process freezes before the call.
    Freezes,
    /// The process freezes before the call's answer.
    FreezesAfter,
    /// It is done and answered, and reads of several items do not see it before time passes.
    Apart,
    /// The wall clock of the process is set back while it waits for the answer.
    ClockBack,
}

impl How {
    /// Whether the call is done now.
    pub const fn is_done(self) -> bool {
        use How::{Answered, Apart, ClockBack, DiesAfter, FreezesAfter, OutageAfter, Unanswered};
        matches!(self, Answered | Unanswered | OutageAfter | DiesAfter | FreezesAfter | Apart | ClockBack)
    }

    /// Whether it is done later.
    pub const fn is_late(self) -> bool {
        matches!(self, Self::Late | Self::DiesLate)
    }

    pub const fn kills(self) -> bool {
        matches!(self, Self::Dies | Self::DiesAfter | Self::DiesLate)
    }

    /// What it costs of the execution's faults.
    pub const fn cost(self) -> u8 {
        !matches!(self, Self::Answered | Self::DuringOutage) as u8
    }
}

impl Call {
    pub const fn is_of_store(&self) -> bool {
        use Call::{DeleteBody, Due, KeepBody, Load, LoadBody, Remove, Scan, Undelivered, Write};
        matches!(
            self,
            Write(..)
                | Load(_)
                | KeepBody(..)
                | LoadBody(..)
                | DeleteBody(..)
                | Undelivered(_)
                | Remove(_)
                | Scan(_)
                | Due(_)
        )
    }

    /// How it may end, in an environment with these faults. The first is the usual one.
    pub fn ends(&self, faults: Faults) -> Vec<How> {
        use How::{
            Answered, Apart, ClockBack, Contended, Dies, DiesAfter, DiesLate, Failed, Freezes, FreezesAfter,
            Late, NotSent, Outage, OutageAfter, Refused, Throttled, Unanswered,
        };
        let mut ends = vec![Answered];
        let mut also = |is_on: bool, more: &[How]| ends.extend(more.iter().filter(|_| is_on));
        match self {
            Self::Begin | Self::Sleep(_) => {}
            Self::Write(_, _, with) => {
                let publishes = with.iter().any(|companion| matches!(companion, Companion::Message(_)));
                also(faults.may(Fault::Apart) && publishes, &[Apart]);
                also(faults.may(Fault::Store), &[Unanswered, Failed, Late]);
                also(faults.may(Fault::Outages), &[Outage, OutageAfter]);
                also(faults.may(Fault::Conflicts), &[Contended, Throttled]);
                also(faults.may(Fault::Deaths), &[Dies, DiesAfter, DiesLate]);
                also(faults.may(Fault::Freezes), &[Freezes, FreezesAfter]);
                also(faults.may(Fault::Clocks), &[ClockBack]);
            }
            Self::Load(_) | Self::LoadBody(..) | Self::Due(_) | Self::Undelivered(_) | Self::Scan(_) => {
                also(faults.may(Fault::Store), &[Failed]);
                also(faults.may(Fault::Outages), &[Outage]);
                also(faults.may(Fault::Deaths), &[Dies]);
                also(faults.may(Fault::Freezes), &[FreezesAfter]);
                also(faults.may(Fault::Clocks), &[ClockBack]);
            }
            Self::KeepBody(..) | Self::DeleteBody(..) | Self::Remove(_) => {
                also(faults.may(Fault::Store), &[Unanswered, Failed]);
                also(faults.may(Fault::Outages), &[Outage]);
                also(faults.may(Fault::Deaths), &[Dies, DiesAfter]);
                also(faults.may(Fault::Freezes), &[FreezesAfter]);
            }
            Self::Send(..) | Self::Wake(..) | Self::Deliver(_) | Self::Bury(..) | Self::Hide(_) => {
                also(faults.may(Fault::Queues), &[Unanswered, Failed]);
                also(faults.may(Fault::Deaths), &[Dies, DiesAfter]);
                also(faults.may(Fault::Freezes), &[Freezes, FreezesAfter]);
            }
            Self::Acknowledge(_) => also(faults.may(Fault::Queues), &[Failed]),
            // Its answer is lost: all its messages come again.
            Self::EndBatch(_) | Self::EndRecords(..) => {
                also(faults.may(Fault::Queues) || faults.may(Fault::Deaths), &[Failed]);
                also(faults.may(Fault::Freezes), &[Freezes]);
            }
            Self::Check => also(faults.may(Fault::Conflicts), &[Throttled]),
            Self::Handler => {
                also(faults.may(Fault::Freezes), &[Freezes]);
                also(faults.may(Fault::Clocks), &[ClockBack]);
            }
            Self::Effect(_) => {
                also(faults.may(Fault::Unheard), &[Unanswered, Failed, Late, NotSent]);
                also(faults.may(Fault::Refusals), &[Refused]);
                also(faults.may(Fault::Deaths), &[Dies, DiesAfter, DiesLate]);
                also(faults.may(Fault::Freezes), &[FreezesAfter]);
            }
            Self::Ask(_) => {
                also(faults.may(Fault::Unheard), &[Failed]);
                also(faults.may(Fault::Deaths), &[Dies]);
                also(faults.may(Fault::Freezes), &[FreezesAfter]);
            }
        }
        ends
    }
}
