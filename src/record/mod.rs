//! The record of one operation: a compare-and-set register.
//!
//! Everything that happens to a record is a pure function in `transitions` or in [`decide`](decide()): no await, no clock, no
//! randomness. Nothing here knows of DynamoDB, HTTP or Lambda.

mod decide;
mod response;
mod settling;
mod transitions;

use std::fmt;

use uuid::Uuid;

use crate::{
    fingerprint::{Fingerprint, Fingerprints},
    key::RecordKey,
    time::Timestamp,
};

pub use decide::{Decision, decide};
pub use response::{BodyId, Encoding, KeptBody, KeptResponse, Place};
pub use settling::{Unsettled, Verdict};
pub use transitions::{CLOCK_SKEW, Fenced};

macro_rules! nonce {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// A fresh one from the operating system's random source: asked at each call, so that memory cloned by
            /// SnapStart cannot repeat one.
            pub fn mint() -> Self {
                Self(Uuid::new_v4().into_bytes())
            }

            /// One that a store has kept.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:08x}…)"), u128::from_be_bytes(self.0) >> 96)
            }
        }
    };
}
pub(crate) use nonce;

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
    /// How far it is.
    pub state: State,
}

/// How far an operation is. What is past its time is not a state: see [`Record::expired`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Accepted; no worker has it yet.
    Pending,
    /// A worker has it.
    InProgress {
        /// From when on others may doubt that the worker lives.
        lease_until: Timestamp,
    },
    /// The effect and the answer are known.
    Completed {
        /// The answer, for replays.
        response: KeptResponse,
        /// When.
        completed_at: Timestamp,
        /// From when on the record counts as absent.
        expires_at: Timestamp,
    },
    /// Certainly not executed: a retry may run.
    FailedRetryable {
        /// When.
        failed_at: Timestamp,
        /// From when on the record counts as absent.
        expires_at: Timestamp,
    },
    /// Perhaps executed: nobody may run it until reconciliation has found out.
    Unknown {
        /// Why it is not known.
        cause: UnknownCause,
        /// Since when.
        since: Timestamp,
        /// When to ask next; the end of time where nobody asks any more, and it is for people.
        reconcile_at: Timestamp,
        /// How often reconciliation has asked.
        asked: u32,
    },
}

impl State {
    /// The state's one name, in items, logs and answers.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress { .. } => "in_progress",
            Self::Completed { .. } => "completed",
            Self::FailedRetryable { .. } => "failed_retryable",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// When the record may be deleted: only once it is settled.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Completed { expires_at, .. } | Self::FailedRetryable { expires_at, .. } => {
                Some(*expires_at)
            }
            Self::Pending | Self::InProgress { .. } | Self::Unknown { .. } => None,
        }
    }
}

/// Why it is not known whether the effect happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownCause {
    /// The worker's lease was over and nothing had been heard of it.
    LeaseOver,
    /// The handler said so, or gave an answer that says nothing (a 5xx, an error without a class).
    HandlerFailed,
    /// The handler panicked.
    Panicked,
    /// The handler's response could not be read to its end.
    ResponseLost,
}

impl UnknownCause {
    /// The cause's name in items and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeaseOver => "lease_over",
            Self::HandlerFailed => "handler_failed",
            Self::Panicked => "panicked",
            Self::ResponseLost => "response_lost",
        }
    }

    /// Reads a [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        [Self::LeaseOver, Self::HandlerFailed, Self::Panicked, Self::ResponseLost]
            .into_iter()
            .find(|cause| cause.name() == name)
    }
}

/// What a caller brings who wants to execute an operation.
#[derive(Clone, Debug)]
pub struct Bid {
    /// Whose, which operation, which key.
    pub key: RecordKey,
    /// What is asked.
    pub fingerprints: Fingerprints,
    /// The execution that the caller would run.
    pub attempt: AttemptId,
    /// Until when it would own the record.
    pub lease_until: Timestamp,
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        fingerprint::{Content, FingerprintRule},
        key::{IdempotencyKey, OperationName, Tenant},
    };

    pub(crate) fn bid(key: &str) -> Bid {
        bid_for(key, "body")
    }

    pub(crate) fn bid_for(key: &str, body: &str) -> Bid {
        let content = Content { target: "POST /payments", json: false, body: body.as_bytes() };
        Bid {
            key: RecordKey::new(
                Tenant::parse("tenant").unwrap(),
                OperationName::parse("pay").unwrap(),
                IdempotencyKey::parse(key).unwrap(),
            ),
            fingerprints: Fingerprints::of("pay", &content, &FingerprintRule::new(), &[]),
            attempt: AttemptId::mint(),
            lease_until: Timestamp::from_secs(1_030),
        }
    }

    pub(crate) fn response() -> KeptResponse {
        let bytes = Bytes::from_static(b"{}");
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        KeptResponse { status: 201, headers: vec![("location".into(), "/payments/1".into())], body }
    }
}
