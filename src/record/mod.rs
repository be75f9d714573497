//! The record of one operation: a compare-and-set register.
//!
//! 1. Everything that happens to a record is a pure function from record to record: no await, no clock, no randomness.
//! 2. `own` has what the execution that owns a record may do, `settle` what everybody else may, and `decide` what a caller
//!    may do whose key has a record already.
//! 3. Nothing here knows of DynamoDB, Lambda or a web framework. What an operation answers is a head and a body; of an HTTP
//!    response the head is a number and pairs of strings.

mod answer;
mod decide;
mod headers;
mod note;
mod own;
mod settle;
mod state;

use std::{borrow::Cow, time::Duration};

use crate::{
    fingerprint::{Fingerprint, Fingerprints},
    key::RecordKey,
    time::Timestamp,
    time_budget::DEFAULT_RETENTION,
};

pub use answer::{Answer, BodyId, Head, KeptAnswer, Place};
pub(crate) use answer::{Encoding, KeptBody};
pub(crate) use decide::{Decision, decide};
#[cfg(feature = "http")]
pub(crate) use headers::is_kept;
pub use headers::{SAFE_HEADERS, may_be_kept};
pub use note::Note;
pub(crate) use own::{FencedError, NOT_EXECUTED, Worker};
pub(crate) use settle::{SettleError, Verdict};
pub use state::{SettledBy, State, UnknownCause};

macro_rules! nonce {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Its bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl From<[u8; 16]> for $name {
            /// A fresh one of a [`nonce`](crate::world::World::nonce), or one that a store has kept.
            fn from(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:08x}…)"), u128::from_be_bytes(self.0) >> 96)
            }
        }
    };
}
use nonce;

nonce! {
    /// The mark of one write. It is the fence, the optimistic lock, and the proof that a write whose answer was lost
    /// is one's own.
    Revision
}

nonce! {
    /// The mark of one execution of a handler, from reservation to its last write. Never Lambda's request id, which
    /// Lambda uses again when it retries.
    AttemptId
}

/// What is known of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Whose, which operation, which key.
    pub key: RecordKey,
    /// The mark of the write that made this record what it is.
    pub revision: Revision,
    /// The execution that owns it, or owned it last.
    pub attempt: AttemptId,
    /// How many executions there were, this one included.
    pub attempts: u32,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// When the key was first seen.
    pub created_at: Timestamp,
    /// When the execution that owns it, or owned it last, began.
    pub began_at: Timestamp,
    /// How long it is kept once it is settled, as its guard has it, so that whoever settles it keeps it as long. `None` if
    /// it was written before records said so.
    pub retention: Option<Duration>,
    /// Whether another execution has said, while this one is in progress, that it did, or perhaps did, the operation: that
    /// this one did nothing is no leave to run it again.
    pub contested: bool,
    /// Whether the provider has told of an effect: nothing but proof of it, or a person, ends the record. A worker's refusal, and an
    /// effect that is denied or not found, do not.
    pub claimed: bool,
    /// By which method and route it came, as the front says; for people.
    pub origin: Option<Note>,
    /// Why an execution last failed: this one, or the one before it; for people.
    pub last_failure: Option<Note>,
    /// What whoever settled it, other than its worker, says of that: who, and why; for people.
    pub settled_note: Option<Note>,
    /// How far it is.
    pub state: State,
}

/// What a caller brings who wants to execute an operation.
#[derive(Clone, Debug)]
pub(crate) struct Bid {
    /// Whose, which operation, which key.
    pub key: RecordKey,
    /// What is asked.
    pub fingerprints: Fingerprints,
    /// The execution that the caller would run.
    pub attempt: AttemptId,
    /// Until when it would own the record.
    pub lease_until: Timestamp,
    /// How long the record is to be kept once it is settled.
    pub retention: Duration,
    /// Whether an execution may begin; an old key gets what there is, and begins nothing.
    pub may_begin: bool,
    /// By which method and route it came.
    pub origin: Option<Note>,
}

impl Record {
    /// How long it is kept once it is settled.
    pub(crate) fn retained_for(&self) -> Duration {
        self.retention.unwrap_or(DEFAULT_RETENTION)
    }

    /// How long a client should wait before it retries: as long as the present attempt has run, and no longer than its lease;
    /// until somebody asks what became of it. Zero if it is settled.
    pub(crate) fn wait(&self, now: Timestamp) -> Duration {
        match &self.state {
            State::Pending => now.since(self.created_at),
            State::InProgress { lease_until } => now.since(self.began_at).min(lease_until.since(now)),
            State::Unknown { reconcile_at, .. } => reconcile_at.since(now),
            State::Completed { .. } | State::FailedRetryable { .. } => Duration::ZERO,
        }
    }

    /// The same record, with what an execution that failed says of it in more words than its cause.
    pub(crate) fn failed(self, because: Option<Note>) -> Self {
        match self.state {
            State::Unknown { .. } | State::FailedRetryable { .. } if because.is_some() => {
                Self { last_failure: because, ..self }
            }
            _ => self,
        }
    }

    /// The same record, with who settled it, and why.
    pub(crate) fn settled_because(self, note: Note) -> Self {
        match self.state.settled_by() {
            Some(_) => Self { settled_note: Some(note), ..self },
            None => self,
        }
    }

    /// The same record; with this retention if it says none.
    pub(crate) fn retained_or(&self, retention: Duration) -> Cow<'_, Self> {
        match self.retention {
            Some(_) => Cow::Borrowed(self),
            None => Cow::Owned(Self { retention: Some(retention), ..self.clone() }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        fingerprint::{Content, FingerprintRule},
        key::{IdempotencyKey, OperationName, Tenant},
        world::{SystemWorld, World},
    };

    pub(crate) const RETAIN: Duration = Duration::from_secs(60);

    impl Revision {
        pub(crate) fn mint() -> Self {
            SystemWorld.nonce().into()
        }
    }

    impl AttemptId {
        pub(crate) fn mint() -> Self {
            SystemWorld.nonce().into()
        }
    }

    pub(crate) fn bid(key: &str) -> Bid {
        bid_for(key, "body")
    }

    pub(crate) fn bid_for(key: &str, body: &str) -> Bid {
        let content = Content::new("POST", "/payments", body.as_bytes());
        Bid {
            key: RecordKey::new(
                Tenant::parse("tenant").unwrap(),
                OperationName::parse("pay").unwrap(),
                IdempotencyKey::parse(key).unwrap(),
            ),
            fingerprints: Fingerprints::of("pay", &content, &FingerprintRule::new(), &[]),
            attempt: AttemptId::mint(),
            lease_until: Timestamp::from_secs(1_030),
            retention: RETAIN,
            may_begin: true,
            origin: Some(Note::new("POST /payments")),
        }
    }

    pub(crate) fn answer() -> KeptAnswer {
        let bytes = Bytes::from_static(b"{}");
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let headers = vec![("location".into(), "/payments/1".into())];
        KeptAnswer { head: Head::Http { status: 201, headers }, body }
    }
}
