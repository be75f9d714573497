//! What callers get if a call fails, and what the state keeps of an answer.

use lambda_idempotency::store::{OutboxMessage, StoreErrorKind, WriteOutcome};

use super::{
    call::{Call, Effect, How, Reply},
    state::digest,
};

/// The failure that the caller gets.
pub fn failed(call: &Call, how: How) -> Reply {
    let kind = match how {
        How::Contended => StoreErrorKind::Contended,
        How::Throttled => StoreErrorKind::Throttled,
        _ => StoreErrorKind::Unavailable,
    };
    match call {
        Call::Write(..) => Reply::Written(Err(kind)),
        Call::Load(_) => Reply::Loaded(Err(kind)),
        Call::KeepBody(..) => Reply::Kept(Err(kind)),
        Call::LoadBody(..) => Reply::Body(Err(kind)),
        Call::DeleteBody(..) | Call::Remove(_) => Reply::Removed(Err(kind)),
        Call::Undelivered(_) => Reply::Undelivered(Err(kind)),
        Call::Scan(_) => Reply::Page(Err(kind)),
        Call::Due(_) => Reply::Due(Err(kind)),
        Call::Send(..) | Call::Wake(..) | Call::Deliver(_) | Call::Bury(..) | Call::Hide(_) | Call::Check => {
            Reply::Sent(false)
        }
        Call::Ask(_) => Reply::Found(None),
        Call::Effect(_) => Reply::Effect(match how {
            How::Refused => Effect::Refused,
            How::NotSent => Effect::NotSent,
            _ => Effect::NoAnswer,
        }),
        Call::Begin
        | Call::Handler
        | Call::Survey
        | Call::Acknowledge(_)
        | Call::EndBatch(_)
        | Call::Sleep(_) => Reply::Done,
    }
}

/// What the answer says besides the record's version.
pub fn reply_kind(reply: &Reply) -> u64 {
    match reply {
        Reply::Done => 0,
        Reply::Written(Ok(WriteOutcome::Written)) => 1,
        Reply::Written(Ok(WriteOutcome::Refused(_))) => 2,
        Reply::Written(Ok(WriteOutcome::Denied(_))) => 3,
        Reply::Written(Err(kind)) => 10 + *kind as u64,
        Reply::Loaded(Ok(_)) => 4,
        Reply::Loaded(Err(kind)) => 20 + *kind as u64,
        Reply::Kept(Ok(_)) => 5,
        Reply::Kept(Err(kind)) => 30 + *kind as u64,
        Reply::Body(Ok(body)) => 40 + u64::from(body.is_some()),
        Reply::Body(Err(kind)) => 50 + *kind as u64,
        Reply::Due(Ok(due)) => 60 + due.len() as u64,
        Reply::Due(Err(kind)) => 70 + *kind as u64,
        Reply::Removed(Ok(())) => 7,
        Reply::Removed(Err(kind)) => 110 + *kind as u64,
        Reply::Undelivered(Ok(messages)) => {
            1_000 + digest(&messages.iter().map(OutboxMessage::id).collect::<Vec<_>>()) / 2
        }
        Reply::Undelivered(Err(kind)) => 120 + *kind as u64,
        Reply::Page(Ok(page)) => {
            200 + digest(&(page.records.len(), page.undelivered.len(), page.requests.len())) / 2
        }
        Reply::Page(Err(kind)) => 130 + *kind as u64,
        Reply::Survey(_) => 6,
        Reply::Sent(sent) => 80 + u64::from(*sent),
        Reply::Effect(effect) => 90 + *effect as u64,
        Reply::Found(None) => 100,
        Reply::Found(Some(found)) => 101 + digest(&format!("{found:?}")),
    }
}
