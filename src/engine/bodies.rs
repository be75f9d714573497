//! Stores an answer's body, and loads it again.

use std::{error::Error, time::Duration};

use bytes::Bytes;

use super::{Engine, Replay, codec};
use crate::{
    backoff::Retry,
    key::RecordKey,
    message::{DeferredReport, Message},
    record::{Answer, BodyId, Encoding, Keeps, KeptAnswer, KeptBody, Place, Record, SettledBy, State},
    store::{Store, StoreError, StoreErrorKind},
    time::{Instant, Timestamp},
    time_budget::{
        BODY_OUTLIVES_RECORD, CLOCK_SKEW, OFFLINE_WRITE_TIMEOUT, QUEUED_BODY_TIMEOUT, WRITE_BACKOFF,
        body_share,
    },
};

/// The most bytes of headers that a record keeps. No front of Lambda delivers more (API Gateway 10 KB, a load balancer 64 KB),
/// and a record cannot hold more than 400 KB.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// An answer with a place chosen for its body. A body outside the record is not written yet.
pub(crate) struct Placed {
    /// The answer for the record. Until its body is written, a body outside the record is named as a body item.
    pub(crate) answer: KeptAnswer,
    /// The encoded body that has yet to be written outside the record.
    outside: Option<Bytes>,
}

impl Placed {
    /// Whether the record cannot hold the body.
    pub(crate) const fn is_outside(&self) -> bool {
        self.outside.is_some()
    }
}

impl Engine {
    /// Chooses a place for the body: in the record if that costs nothing, else outside.
    ///
    /// Keeps the safe headers, and what else `keeps` says.
    pub(crate) fn place(&self, record: &Record, answer: &Answer, keeps: &Keeps) -> Placed {
        let body = &answer.body;
        let mut head = keeps.of(&answer.head);
        if head.headers().iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
            > MAX_HEADER_BYTES
        {
            tracing::error!("the headers are too large to store: replays omit them");
            head = head.without_headers();
        }
        let length = body.len() as u64;
        if (!keeps.body && length > 0) || answer.has_no_value() {
            return Placed { answer: KeptAnswer { head, body: KeptBody::Omitted { length } }, outside: None };
        }
        let inline = |bytes, encoding| KeptBody::Inline { bytes, encoding, length };
        let now = self.world.now();
        let empty = KeptAnswer { head: head.clone(), body: inline(Bytes::new(), Encoding::Identity) };
        let (by, expires_at) = (SettledBy::Assumption, now.plus(record.retention));
        let state = State::Completed { answer: empty, completed_at: now, by, expires_at };
        let capacity = self.store.body_capacity(&Record { state, ..record.clone() });
        let (body, outside) = if body.len() <= capacity {
            (inline(body.clone(), Encoding::Identity), None)
        } else {
            let (bytes, encoding) = codec::encode(body);
            if bytes.len() <= capacity {
                (inline(bytes, encoding), None)
            } else {
                let id: BodyId = self.world.nonce().into();
                (KeptBody::Outside { id, place: Place::BodyItem, encoding, length }, Some(bytes))
            }
        };
        Placed { answer: KeptAnswer { head, body }, outside }
    }

    /// Stores a body again if its message has waited so long that the body may be deleted soon. A body that is gone becomes
    /// [`Omitted`](KeptBody::Omitted) (T49).
    ///
    /// # Errors
    /// If the store fails: the body may exist.
    pub(crate) async fn keep_anew(
        &self,
        record: &Record,
        body: KeptBody,
        kept_at: Timestamp,
        time: Duration,
    ) -> Result<KeptBody, StoreError> {
        let KeptBody::Outside { id, place, encoding, length } = body else { return Ok(body) };
        if self.world.now().plus(CLOCK_SKEW) <= kept_at.plus(BODY_OUTLIVES_RECORD) {
            return Ok(body);
        }
        let omitted = KeptBody::Omitted { length };
        let found = match self.bounded(None, self.store.load_body(&record.key, id, place)).await {
            // No retry helps: a replay could not load it either.
            Err(error) if !error.is_passing() => None,
            found => found?,
        };
        let Some(bytes) = found else {
            tracing::error!("the body of a report was deleted while it waited: replays omit it");
            return Ok(omitted);
        };
        let id: BodyId = self.world.nonce().into();
        let kept = self.keep_outside(record, id, bytes, time).await?;
        Ok(kept.map_or(omitted, |place| KeptBody::Outside { id, place, encoding, length }))
    }

    /// As [`try_keep`](Self::try_keep), but the body is also omitted if it cannot be stored in time: the effect is always recorded as
    /// completed (T16). `write` is the time for all writes together.
    pub(crate) async fn keep(
        &self,
        record: &Record,
        answer: &Answer,
        keeps: &Keeps,
        write: Duration,
    ) -> KeptAnswer {
        let kept = self.try_keep(record, answer, keeps, body_share(write)).await;
        kept.unwrap_or_else(|(error, omitted)| {
            let error: &dyn Error = &error;
            tracing::error!(error, "the body cannot be stored in time: replays omit it");
            omitted
        })
    }

    /// As [`try_keep`](Self::try_keep), for an answer that comes again if this returns `None`. But no longer than
    /// [`QUEUED_BODY_TIMEOUT`] since it came first: the record matters more than its body (T16).
    pub(crate) async fn keep_since(
        &self,
        first: Timestamp,
        record: &Record,
        answer: &Answer,
        keeps: &Keeps,
    ) -> Option<KeptAnswer> {
        match self.try_keep(record, answer, keeps, OFFLINE_WRITE_TIMEOUT).await {
            Ok(kept) => Some(kept),
            Err((error, _)) if self.world.now() <= first.plus(QUEUED_BODY_TIMEOUT) => {
                tracing::warn!(cause = error.cause(), "the body of an answer could not be stored yet");
                None
            }
            Err((error, omitted)) => {
                tracing::error!(cause = error.cause(), "the body cannot be stored: replays omit it");
                Some(omitted)
            }
        }
    }

    /// Chooses a place for the body and stores it there. The body is omitted if it is too large for every place, or refused for
    /// good.
    ///
    /// # Errors
    /// If the store fails, and may take the body later. With the answer without its body.
    async fn try_keep(
        &self,
        record: &Record,
        answer: &Answer,
        keeps: &Keeps,
        time: Duration,
    ) -> Result<KeptAnswer, (StoreError, KeptAnswer)> {
        let placed = self.place(record, answer, keeps);
        let (head, length) = (placed.answer.head.clone(), placed.answer.body.length());
        let omitted = KeptAnswer { head, body: KeptBody::Omitted { length } };
        match self.keep_placed(record, placed, time).await {
            Ok(Some(kept)) => return Ok(kept),
            Ok(None) => tracing::warn!(length, "the body is too large to store: replays omit it"),
            Err(error) if error.is_passing() => return Err((error, omitted)),
            Err(error) => {
                let error: &dyn Error = &error;
                tracing::error!(error, "the body cannot be stored: replays omit it");
            }
        }
        Ok(omitted)
    }

    /// Stores a body in the place chosen for it; `None` if it is too large for every place.
    pub(crate) async fn keep_placed(
        &self,
        record: &Record,
        placed: Placed,
        time: Duration,
    ) -> Result<Option<KeptAnswer>, StoreError> {
        let Placed { mut answer, outside } = placed;
        if let (KeptBody::Outside { id, place, .. }, Some(bytes)) = (&mut answer.body, outside) {
            match self.keep_outside(record, *id, bytes, time).await? {
                Some(kept_at) => *place = kept_at,
                None => return Ok(None),
            }
        }
        Ok(Some(answer))
    }

    async fn keep_outside(
        &self,
        record: &Record,
        id: BodyId,
        bytes: Bytes,
        time: Duration,
    ) -> Result<Option<Place>, StoreError> {
        let expires_at = self.world.now().plus(record.retention).plus(BODY_OUTLIVES_RECORD);
        let stop_at = self.world.instant().plus(time);
        let mut retry = Retry::new(&self.world, WRITE_BACKOFF, Some(stop_at));
        loop {
            let keeping = self.store.keep_body(&record.key, id, bytes.clone(), expires_at);
            match self.bounded(Some(stop_at), keeping).await {
                Ok(place) => return Ok(place),
                Err(error) if error.kind() == StoreErrorKind::Refused || !retry.again().await => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
    }

    /// The kept answer with its body; `None` if the record is not completed. Bounded as a [call](Self::bounded).
    pub(crate) async fn replay(
        &self,
        record: &Record,
        until: Option<Instant>,
    ) -> Result<Option<Replay>, StoreError> {
        let State::Completed { answer: kept, completed_at, expires_at, .. } = &record.state else {
            return Ok(None);
        };
        let body = self.body(&record.key, kept, until).await?;
        let body_omitted = body.is_none();
        let answer = Answer { head: kept.head.clone(), body: body.unwrap_or_default() };
        Ok(Some(Replay { answer, body_omitted, first_at: *completed_at, expires_at: *expires_at }))
    }

    /// The report that lies beside a record under this id; `None` if it is gone, or cannot be read.
    pub(crate) async fn report_beside(
        &self,
        key: &RecordKey,
        id: BodyId,
    ) -> Result<Option<Box<DeferredReport>>, StoreError> {
        let body = match self.bounded(None, self.store.load_body(key, id, Place::BodyItem)).await {
            // No retry can read it either.
            Err(error) if !error.is_passing() => None,
            body => body?,
        };
        let message = body.and_then(|body| Message::read(str::from_utf8(&body).ok()?).ok());
        Ok(match message {
            Some(Message::DeferredReport(report)) => Some(report),
            _ => None,
        })
    }

    /// The body of a kept answer; `None` if it is not kept, or is gone.
    pub(crate) async fn body(
        &self,
        key: &RecordKey,
        kept: &KeptAnswer,
        until: Option<Instant>,
    ) -> Result<Option<Bytes>, StoreError> {
        self.bounded(until, body_in(&*self.store, key, kept)).await
    }
}

/// The body of a kept answer; `None` if it is not kept, or is gone.
pub(crate) async fn body_in(
    store: &dyn Store,
    key: &RecordKey,
    kept: &KeptAnswer,
) -> Result<Option<Bytes>, StoreError> {
    let (bytes, encoding, length) = match &kept.body {
        KeptBody::Omitted { .. } => return Ok(None),
        KeptBody::Inline { bytes, encoding, length } => (bytes.clone(), *encoding, *length),
        KeptBody::Outside { id, place, encoding, length } => {
            let Some(bytes) = store.load_body(key, *id, *place).await? else {
                tracing::error!("the kept body is gone: the replay omits it");
                return Ok(None);
            };
            (bytes, *encoding, *length)
        }
    };
    let body = codec::decode(bytes, encoding, length);
    Ok(Some(body.map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))?))
}
