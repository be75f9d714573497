//! Deferred reports as earlier versions wrote them. Read for as long as one can wait: 14 days in a queue, and another 14 in the
//! dead-letter queue.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use super::MalformedError;
use crate::{
    fingerprint::Fingerprint,
    key::RecordKey,
    record::{Encoding, Head, KeptAnswer, KeptBody, Place, Record, SettledBy, State, UnknownCause},
    time::Timestamp,
};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Earlier {
    pub(super) key: String,
    revision: String,
    attempt: String,
    attempts: u32,
    fingerprint: String,
    fingerprint_rule: u32,
    created_at: u64,
    lease_until: u64,
    report: Report,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Completed { status: u16, headers: Vec<(String, String)>, body: Body },
    NotExecuted,
    PerhapsExecuted(String),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Here { base64: String, encoding: String, length: u64 },
    Outside { id: String, place: String, encoding: String, length: u64 },
    Omitted { length: u64 },
}

impl Earlier {
    pub(super) fn record(&self) -> Result<Record, MalformedError> {
        let created_at = Timestamp::from_millis(self.created_at);
        let (settled_at, by, expires_at) = (created_at, SettledBy::Worker, created_at);
        let state = match &self.report {
            Report::NotExecuted => State::FailedRetryable { failed_at: settled_at, by, expires_at },
            Report::PerhapsExecuted(cause) => {
                let cause = UnknownCause::parse(cause).ok_or(MalformedError("cause"))?;
                State::Unknown { cause, since: settled_at, reconcile_at: settled_at, asked: 0 }
            }
            Report::Completed { status, headers, body } => {
                let head = Head::Http { status: *status, headers: headers.clone() };
                let answer = KeptAnswer { head, body: body.kept()? };
                State::Completed { answer, completed_at: settled_at, by, expires_at }
            }
        };
        Ok(Record {
            key: RecordKey::from_partition_key(&self.key).ok_or(MalformedError("key"))?,
            revision: bytes::<16>(&self.revision, "revision")?.into(),
            attempt: bytes::<16>(&self.attempt, "attempt")?.into(),
            attempts: self.attempts,
            fingerprint: Fingerprint::new(self.fingerprint_rule, bytes(&self.fingerprint, "fingerprint")?),
            created_at,
            began_at: created_at,
            retention: None,
            contested: false,
            claimed: false,
            transactional: false,
            with_writes: false,
            origin: None,
            last_failure: None,
            settled_note: None,
            state,
        })
    }
}

impl Body {
    fn kept(&self) -> Result<KeptBody, MalformedError> {
        let parse = |name: &str| Encoding::parse(name).ok_or(MalformedError("encoding"));
        Ok(match self {
            Self::Omitted { length } => KeptBody::Omitted { length: *length },
            Self::Here { base64, encoding, length } => KeptBody::Inline {
                bytes: BASE64_STANDARD.decode(base64).map_err(|_| MalformedError("body"))?.into(),
                encoding: parse(encoding)?,
                length: *length,
            },
            Self::Outside { id, place, encoding, length } => KeptBody::Outside {
                id: bytes::<16>(id, "body")?.into(),
                place: Place::parse(place).ok_or(MalformedError("place"))?,
                encoding: parse(encoding)?,
                length: *length,
            },
        })
    }
}

fn bytes<const N: usize>(base64: &str, name: &'static str) -> Result<[u8; N], MalformedError> {
    BASE64_STANDARD.decode(base64).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(MalformedError(name))
}
