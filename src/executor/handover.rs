//! Endings that cannot be written go to a queue, from which the reconcile function applies them under the same fence.

use std::{error::Error, fmt, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    ANSWER_TIME, Ended, Ending, Execution, Executor, STORE_TIMEOUT, body,
    end::{Outcome, PATIENCE_OF_APPLYING},
};
use crate::{
    fingerprint::Fingerprint,
    key::RecordKey,
    metrics::Count,
    record::{
        AttemptId, BodyId, Encoding, KeptBody, KeptResponse, Place, Record, Revision, State, UnknownCause,
    },
    store::Store,
    time::Timestamp,
};

/// SQS takes 1 MiB, and took 256 KiB until 2025; what other queues take is less. A body that does not fit is left out.
const LONGEST_MESSAGE: usize = 240 * 1024;

/// An ending on its way through a queue, with the record that its worker saw last.
///
/// On its way it is a [`Message`](crate::reconcile::Message), whose `kind` it does not carry itself: a message that
/// names its kind twice cannot be read.
#[derive(Clone, Serialize, Deserialize)]
pub struct LostEnding {
    key: String,
    revision: String,
    attempt: String,
    attempts: u32,
    fingerprint: String,
    fingerprint_rule: u32,
    created_at: u64,
    lease_until: u64,
    ending: LostOutcome,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LostOutcome {
    Completed { status: u16, headers: Vec<(String, String)>, body: LostBody },
    NotExecuted,
    PerhapsExecuted(String),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LostBody {
    /// In the message.
    Here { base64: String, encoding: String, length: u64 },
    /// In a place that was still to be reached.
    Outside { id: String, place: String, encoding: String, length: u64 },
    /// Nowhere.
    Omitted { length: u64 },
}

/// A message that is no ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is no ending of an execution: `{0}` is malformed")]
pub struct NoEnding(&'static str);

impl NoEnding {
    /// Which part is malformed.
    pub const fn part(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for LostEnding {
    /// Without key and body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostEnding").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

impl LostEnding {
    /// The record that it ends; `None` where the message is none of ours.
    pub fn record_key(&self) -> Option<RecordKey> {
        RecordKey::from_partition_key(&self.key)
    }

    /// Whether it says that something was executed, and what its answer is.
    pub fn is_executed(&self) -> bool {
        matches!(self.ending, LostOutcome::Completed { .. })
    }

    fn new(seen: &Record, ending: &Ending, outcome: &Outcome) -> Self {
        let lease_until = match seen.state {
            State::InProgress { lease_until } => lease_until,
            _ => Timestamp::default(),
        };
        Self {
            key: seen.key.partition_key(),
            revision: BASE64_STANDARD.encode(seen.revision.as_bytes()),
            attempt: BASE64_STANDARD.encode(seen.attempt.as_bytes()),
            attempts: seen.attempts,
            fingerprint: BASE64_STANDARD.encode(seen.fingerprint.digest()),
            fingerprint_rule: seen.fingerprint.rule(),
            created_at: seen.created_at.as_millis(),
            lease_until: lease_until.as_millis(),
            ending: LostOutcome::new(ending, outcome),
        }
    }

    /// The message; without the body where it would be too long with it.
    fn message(mut self) -> Result<String, serde_json::Error> {
        let message = self.to_json()?;
        match &mut self.ending {
            LostOutcome::Completed { body, .. } if message.len() > LONGEST_MESSAGE => {
                *body = LostBody::Omitted { length: body.length() };
                self.to_json()
            }
            _ => Ok(message),
        }
    }

    fn to_json(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        #[serde(tag = "kind", rename = "ending")]
        struct Message<'a> {
            #[serde(flatten)]
            ending: &'a LostEnding,
        }
        serde_json::to_string(&Message { ending: self })
    }

    fn seen(&self) -> Result<Record, NoEnding> {
        Ok(Record {
            key: self.record_key().ok_or(NoEnding("key"))?,
            revision: Revision::from_bytes(bytes(&self.revision, "revision")?),
            attempt: AttemptId::from_bytes(bytes(&self.attempt, "attempt")?),
            attempts: self.attempts,
            fingerprint: Fingerprint::new(self.fingerprint_rule, bytes(&self.fingerprint, "fingerprint")?),
            created_at: Timestamp::from_millis(self.created_at),
            state: State::InProgress { lease_until: Timestamp::from_millis(self.lease_until) },
        })
    }
}

impl LostOutcome {
    fn new(ending: &Ending, outcome: &Outcome) -> Self {
        match ending {
            Ending::NotExecuted => Self::NotExecuted,
            Ending::PerhapsExecuted(cause) => Self::PerhapsExecuted(cause.name().to_owned()),
            Ending::Completed { status, headers, body } => {
                let body = match outcome {
                    Outcome::Completed(KeptResponse {
                        body: KeptBody::Outside { id, place, encoding, length },
                        ..
                    }) => LostBody::Outside {
                        id: BASE64_STANDARD.encode(id.as_bytes()),
                        place: place.name().to_owned(),
                        encoding: encoding.name().to_owned(),
                        length: *length,
                    },
                    _ => {
                        let length = body.len() as u64;
                        let (packed, encoding) = body::encode(body);
                        let encoding = encoding.name().to_owned();
                        LostBody::Here { base64: BASE64_STANDARD.encode(packed), encoding, length }
                    }
                };
                Self::Completed { status: *status, headers: headers.clone(), body }
            }
        }
    }
}

impl LostBody {
    fn length(&self) -> u64 {
        match self {
            Self::Here { length, .. } | Self::Outside { length, .. } | Self::Omitted { length } => *length,
        }
    }
}

fn bytes<const N: usize>(base64: &str, name: &'static str) -> Result<[u8; N], NoEnding> {
    BASE64_STANDARD.decode(base64).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(NoEnding(name))
}

impl<S: Store> Executor<S> {
    /// Hands an ending over that could not be written; without a queue there is nobody to take it.
    pub(super) async fn hand_over(
        &self,
        execution: &Execution,
        seen: &Record,
        ending: &Ending,
        outcome: &Outcome,
    ) -> Ended {
        let (key, operation) = (execution.record_key().hash(), self.operation().name());
        let Some(queue) = &self.lost_endings else {
            tracing::error!(%key, %operation, "an ending could not be written in time: the outcome will be unknown");
            Count::Unwritten.add(operation);
            return Ended::Unwritten;
        };
        let sent = match LostEnding::new(seen, ending, outcome).message() {
            Ok(message) => {
                let left = execution.deadline().map(|deadline| deadline.minus(ANSWER_TIME / 2));
                let time = left.map_or(STORE_TIMEOUT, |left| left.since(self.clock.now()));
                tokio::select! {
                    biased;
                    sent = queue.send(&message, Duration::ZERO) => sent.map_err(|error| {
                        error.source().map(ToString::to_string).unwrap_or_default()
                    }),
                    () = self.clock.sleep(time.min(STORE_TIMEOUT)) => Err("no answer in time".to_owned()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        match sent {
            Ok(()) => {
                tracing::warn!(%key, %operation, "an ending could not be written in time: it was handed over");
                Count::HandedOver.add(operation);
                Ended::HandedOver
            }
            Err(cause) => {
                tracing::error!(
                    %key, %operation, cause,
                    "an ending could neither be written nor handed over: the outcome will be unknown"
                );
                Count::Unwritten.add(operation);
                Ended::Unwritten
            }
        }
    }

    /// Applies an ending that was handed over, under the fence that its worker was under: where the record went on
    /// without that worker, nothing is changed. Applying it twice is harmless.
    ///
    /// # Errors
    /// Where the message is malformed: no retry helps.
    pub async fn apply(&self, lost: &LostEnding) -> Result<Ended, NoEnding> {
        let seen = lost.seen()?;
        let give_up_at = self.clock().now().plus(PATIENCE_OF_APPLYING);
        let outcome = match &lost.ending {
            LostOutcome::NotExecuted => Outcome::NotExecuted,
            LostOutcome::PerhapsExecuted(cause) => {
                Outcome::PerhapsExecuted(UnknownCause::parse(cause).ok_or(NoEnding("cause"))?)
            }
            LostOutcome::Completed { status, headers, body } => {
                let (status, headers) = (*status, headers.clone());
                match body {
                    LostBody::Here { base64, encoding, length } => {
                        let packed = BASE64_STANDARD.decode(base64).map_err(|_| NoEnding("body"))?;
                        let encoding = Encoding::parse(encoding).ok_or(NoEnding("encoding"))?;
                        let body = body::decode(Bytes::from(packed), encoding, *length);
                        let body = body.map_err(|_| NoEnding("body"))?;
                        Outcome::Completed(self.keep(&seen, status, headers, &body, give_up_at).await)
                    }
                    LostBody::Outside { id, place, encoding, length } => {
                        let body = KeptBody::Outside {
                            id: BodyId::from_bytes(bytes(id, "body")?),
                            place: Place::parse(place).ok_or(NoEnding("place"))?,
                            encoding: Encoding::parse(encoding).ok_or(NoEnding("encoding"))?,
                            length: *length,
                        };
                        Outcome::Completed(KeptResponse { status, headers, body })
                    }
                    LostBody::Omitted { length } => {
                        let body = KeptBody::Omitted { length: *length };
                        Outcome::Completed(KeptResponse { status, headers, body })
                    }
                }
            }
        };
        let execution = Execution::new(&seen, None);
        Ok(match self.write(&execution, seen, &outcome, give_up_at).await {
            Ok(ended) => ended,
            Err((there, fenced)) => self.fenced(&execution, *there, fenced, give_up_at).await,
        })
    }
}
