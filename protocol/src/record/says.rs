//! What the caller of a request is told: one answer of the protocol, which each front says in its own words.

use std::time::Duration;

use super::{Record, State, StateName};
use crate::time::Timestamp;

/// What the caller of a request is told. An `A` is the operation's answer: until when it is kept, where it is only decided that the
/// caller gets it, and the answer itself once it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Says<A = Timestamp> {
    /// What its handler answered.
    Own {
        /// Until when the record keeps it, if it does.
        expires_at: Option<Timestamp>,
    },
    /// What its handler answered, about this execution alone: certainly nothing was done, and a retry runs.
    Released,
    /// The operation's answer: it was executed before, or by another execution meanwhile.
    Replay(A),
    /// The answer that is set for the refusal of its domain writes. It is the operation's.
    Refused(A),
    /// Nothing is committed, and certainly nothing was done: the same request may come again.
    NotCommitted,
    /// Parts of it may be done: the same request resumes it.
    Interrupted,
    /// Nobody knows whether it was executed: reconciliation finds out.
    Unknown {
        /// How long until it next asks, as far as is known.
        wait: Duration,
    },
    /// Another execution has it, or its answer cannot be read now: a retry gets it. What its handler answered would be a second answer.
    AnsweredElsewhere,
    /// Its transaction is not committed, as far as is known, but a try of it may be on its way: the same request finds out.
    Unconfirmed,
    /// Another execution is in flight, or it is accepted and waits for a worker.
    InFlight {
        /// How long to wait before a retry, as far as the record shows.
        wait: Duration,
        /// How long its lease still lasts, as far as is known: then others may look at it.
        lease_left: Duration,
        /// The state of its record, as far as is known.
        state: StateName,
    },
    /// The key was used for another request.
    Mismatch,
    /// There is no answer, and this key may not begin an execution: it is too old, or has no readable age.
    MayNotBegin,
    /// Likewise, but not for long: an earlier request of this key may be about to begin one.
    PerhapsInFlight,
    /// Too little time was left to run the handler, or the request was admitted too long ago. The key is free, or will be.
    TooLate,
    /// There is no record, and none is made: its tenant has too many new keys, or open records.
    OverBound {
        /// For how long, as far as is known.
        wait: Duration,
    },
    /// Operators have stopped its tenant: nothing begins.
    Stopped,
    /// The store did not answer. A record may have been written.
    Unavailable,
    /// The store takes no more requests of this key, or in all, for the moment: a retry finds out. A record may have been written.
    Throttled,
    /// There is a record that this version cannot read.
    Unreadable,
    /// What its worker would run is settled, and deleted since.
    Gone,
    /// It was interrupted, and this version declares other phases than the one that began it: that version can resume it, or an operator
    /// decides.
    OtherPhases,
}

impl<A> Says<A> {
    /// Unknown, and asked about as soon as can be.
    pub const UNKNOWN: Self = Self::Unknown { wait: Duration::ZERO };
    /// In flight: another execution is changing the record just now.
    pub const BRIEFLY_IN_FLIGHT: Self =
        Self::InFlight { wait: Duration::ZERO, lease_left: Duration::ZERO, state: StateName::InProgress };

    /// The same, for answers of another form; `None` if it is an answer.
    pub fn without_answer<B>(self) -> Option<Says<B>> {
        Some(match self {
            Self::Replay(_) | Self::Refused(_) => return None,
            Self::Own { expires_at } => Says::Own { expires_at },
            Self::Released => Says::Released,
            Self::NotCommitted => Says::NotCommitted,
            Self::Interrupted => Says::Interrupted,
            Self::Unknown { wait } => Says::Unknown { wait },
            Self::AnsweredElsewhere => Says::AnsweredElsewhere,
            Self::Unconfirmed => Says::Unconfirmed,
            Self::InFlight { wait, lease_left, state } => Says::InFlight { wait, lease_left, state },
            Self::Mismatch => Says::Mismatch,
            Self::MayNotBegin => Says::MayNotBegin,
            Self::PerhapsInFlight => Says::PerhapsInFlight,
            Self::TooLate => Says::TooLate,
            Self::OverBound { wait } => Says::OverBound { wait },
            Self::Stopped => Says::Stopped,
            Self::Unavailable => Says::Unavailable,
            Self::Throttled => Says::Throttled,
            Self::Unreadable => Says::Unreadable,
            Self::Gone => Says::Gone,
            Self::OtherPhases => Says::OtherPhases,
        })
    }

    /// Its one name, in logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Own { .. } => "own",
            Self::Released => "released",
            Self::Replay(_) => "replay",
            Self::Refused(_) => "refused",
            Self::NotCommitted => "not_committed",
            Self::Interrupted => "interrupted",
            Self::Unknown { .. } => "unknown",
            Self::AnsweredElsewhere => "answered_elsewhere",
            Self::Unconfirmed => "unconfirmed",
            Self::InFlight { .. } | Self::PerhapsInFlight => "in_flight",
            Self::Mismatch => "mismatch",
            Self::MayNotBegin => "too_old",
            Self::TooLate => "too_late",
            Self::OverBound { .. } => "over_bound",
            Self::Stopped => "stopped",
            Self::Unavailable => "unavailable",
            Self::Throttled => "throttled",
            Self::Unreadable => "unreadable",
            Self::Gone => "gone",
            Self::OtherPhases => "other_phases",
        }
    }
}

impl Says {
    /// What a request is told that finds this record, which another execution has, or has left.
    pub(super) fn of(record: &Record, now: Timestamp) -> Self {
        match record.state {
            State::Completed { expires_at, .. } => Self::Replay(expires_at),
            State::Unknown { .. } => Self::Unknown { wait: record.wait(now) },
            State::Pending { .. }
            | State::InProgress { .. }
            | State::BetweenWorkers { .. }
            | State::FailedRetryable { .. } => Self::InFlight {
                wait: record.wait(now),
                lease_left: record.lease_left(now),
                state: record.state.which(),
            },
        }
    }
}
