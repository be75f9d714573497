//! What callers get if a call fails, and what the state keeps of an answer.

use lambda_idempotency::store::{OutboxMessage, StoreErrorKind, WriteOutcome};

use super::{
    call::{Call, Effect, How, Reply},
    digest::digest,
};

/// The failure that the caller gets.
pub fn failed(call: &Call, how: How) -> Reply {
    match call {
        Call::Send(..) | Call::Wake(..) | Call::Deliver(_) | Call::Bury(..) | Call::Hide(_) | Call::Check => {
            Reply::Sent(false)
        }
        Call::Ask(_) => Reply::Found(None),
        Call::Effect(_) => Reply::Effect(match how {
            How::Refused => Effect::Refused,
            How::NotSent => Effect::NotSent,
            _ => Effect::NoAnswer,
        }),
        call if call.is_of_store() => Reply::Failed(match how {
            How::Contended => StoreErrorKind::Contended,
            How::Throttled => StoreErrorKind::Throttled,
            _ => StoreErrorKind::Unavailable,
        }),
        _ => Reply::Done,
    }
}

/// What the answer says besides the record's version. That of a call is told apart from those of other calls.
pub fn reply_kind(reply: &Reply) -> u64 {
    match reply {
        Reply::Done | Reply::Loaded(_) | Reply::Kept(_) => 0,
        Reply::Written(WriteOutcome::Written) => 1,
        Reply::Written(WriteOutcome::Refused(_)) => 2,
        Reply::Written(WriteOutcome::Denied(_)) => 3,
        Reply::Failed(kind) => 10 + *kind as u64,
        Reply::Body(body) => 40 + u64::from(body.is_some()),
        Reply::Due(due) => 60 + due.len() as u64,
        Reply::Undelivered(messages) => {
            1_000 + digest(&messages.iter().map(OutboxMessage::id).collect::<Vec<_>>()) / 2
        }
        Reply::Page(page) => {
            200 + digest(&(page.records.len(), page.undelivered.len(), page.requests.len())) / 2
        }
        Reply::Sent(sent) => 80 + u64::from(*sent),
        Reply::Effect(effect) => 90 + *effect as u64,
        Reply::Found(None) => 100,
        Reply::Found(Some(found)) => 101 + digest(&format!("{found:?}")),
    }
}
