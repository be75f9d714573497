//! Turns a step into a write: the one loop in which records change.
//!
//! ```text
//!            ┌───────────── current record ◀───────────────┐
//! start ──▶ step ──▶ write: insert, or swap of what was seen ┴─▶ written
//!            ├──▶ stop                     │ no answer
//!            └──▶ wait, load               └──▶ the same write again, or an error
//! ```
//!
//! 1. A step is a function from the current record to the next. It writes nothing. It is called again whenever the
//!    record has changed, so it never decides on outdated data.
//! 2. A write that got no answer is sent again unchanged, with the same revision: at once by [`sending`](super::sending), and then with
//!    waits as its [`Effort`] says. Each try is bounded in time.
//! 3. If the current record has the revision that we were writing, we won: an earlier try was applied, and its answer was lost.
//!    The store's transaction has the same rule for the companions.

use std::{sync::Arc, time::Duration};

use crate::{
    backoff::{Backoff, Retry},
    key::RecordKey,
    record::{Moment, Record, Revision, Transition},
    store::{Companion, Store, StoreError, StoreErrorKind, WriteOutcome},
    telemetry::{self, Count},
    time::{Instant, Timestamp},
    world::World,
};

/// How many races a step may lose before it waits between tries, or fails: see [`Retries`].
const MAX_RACES: usize = 8;

/// Applies steps to the records of a store.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) world: Arc<dyn World>,
}

/// What to do about the current record.
pub(crate) enum Step<T> {
    /// Write this in its place. Once it is written, the outcome is `T`.
    Write(Change, T),
    /// Write nothing.
    Stop(T),
    /// Load the record again, after a wait of at most this duration.
    Wait(Duration),
}

/// A transition to write, with its companions.
pub(crate) struct Change {
    record: Box<Record>,
    with: Vec<Companion>,
}

impl From<Transition> for Change {
    fn from(transition: Transition) -> Self {
        Self::with(transition, Vec::new())
    }
}

impl Change {
    /// The same with one more companion, behind the others.
    pub(crate) fn and(mut self, companion: Companion) -> Self {
        self.with.push(companion);
        self
    }

    /// This transition, written together with these companions.
    pub(crate) fn with(transition: Transition, with: Vec<Companion>) -> Self {
        Self { record: transition.into_record(), with }
    }

    /// Counts what its write in place of `before` means: here alone, so that no way to it is forgotten.
    fn count(&self, before: Option<&Record>, now: Timestamp) {
        self.count_for_operators(before, now);
        let published = self.with.iter().filter(|with| matches!(with, Companion::Message(_))).count();
        if published > 0 {
            Count::Published.add_many(self.record.key.operation(), published.try_into().unwrap_or(u64::MAX));
        }
    }

    /// Counts what an operator must hear of: accepted work that ends with 408, and a record that begins to wait for an operator.
    fn count_for_operators(&self, before: Option<&Record>, now: Timestamp) {
        if self.record.is_abandoned() && !before.is_some_and(Record::is_abandoned) {
            telemetry::abandoned(&self.record, now);
        }
        telemetry::escalated(&self.record, before);
    }
}

/// What the first step is called with.
pub(crate) enum Start<'a> {
    /// No record, as far as we know.
    Absent,
    /// The record as we last saw it.
    Seen(Box<Record>),
    /// The result of a read of this key.
    Unread(&'a RecordKey),
}

/// How long to try, and what to retry.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// When the caller stops waiting. After that, each call may take its full time-out.
    pub(crate) until: Option<Instant>,
    /// The waits between two reads, and between two tries of a failed write.
    pub(crate) backoff: Backoff,
    /// Which failed writes are retried, until the time is up.
    pub(crate) retries: Retries,
}

/// Which failed writes are retried, besides those that [`sending`](super::sending) sends again at once. With the first two, a step also fails after [`MAX_RACES`] lost races.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retries {
    /// None: the caller may ask again.
    None,
    /// Those that conflict with a transaction, until this instant: the caller waits for its end.
    Contended(Instant),
    /// Those whose fault may pass: no answer, throttled, contended.
    Unanswered,
    /// The same, but none is sent after this time by the wall clock, however long the process was frozen between two tries.
    UnansweredUntil(Timestamp),
    /// All. The store may recover, or the missing permission may be granted; there is no later chance.
    All,
    /// Those that got no answer or conflict with a transaction. For optional work: neither logged nor counted.
    Quietly,
}

impl Retries {
    fn again_after(self, error: StoreErrorKind, now: Instant) -> bool {
        match self {
            Self::None => false,
            Self::Contended(until) => error == StoreErrorKind::Contended && now < until,
            Self::Unanswered | Self::UnansweredUntil(_) => {
                !matches!(error, StoreErrorKind::Refused | StoreErrorKind::Unreadable)
            }
            Self::All => true,
            // No more requests to a store that throttles or refuses.
            Self::Quietly => matches!(
                error,
                StoreErrorKind::Unavailable | StoreErrorKind::Contended | StoreErrorKind::InProgress
            ),
        }
    }

    fn are_over(self, now: Timestamp) -> bool {
        matches!(self, Self::UnansweredUntil(end) if end < now)
    }
}

/// What became of a step.
#[derive(Debug)]
pub(crate) enum Applied<T> {
    /// The write was applied; this is the record.
    Written(T, Box<Record>),
    /// There was nothing to write; this is the current record.
    Stopped(T, Option<Box<Record>>),
}

/// A write that failed, or may have been applied.
#[derive(Debug)]
pub(crate) struct Unapplied {
    /// Why.
    pub(crate) error: StoreError,
    /// The write that may have been applied, or may be later.
    pub(crate) tried: Option<Tried>,
    /// The places of the companions whose conditions failed. If there are any, the write was not applied, and the record is as
    /// the step saw it. An earlier try of this write may still be applied.
    pub(crate) denied: Vec<usize>,
    /// Whether the store has refused any try for good.
    pub(crate) refused: bool,
    /// Whether the last try met a transaction that holds the record, or others change it before every try.
    pub(crate) contended: bool,
}

/// A write that may or may not have been applied, or may be later.
#[derive(Debug)]
pub(crate) struct Tried {
    /// The record to write.
    pub(crate) record: Box<Record>,
    /// The revision that it replaces; `None` for an insert. While that is current, the write can still be applied.
    pub(crate) over: Option<Revision>,
}

impl From<StoreError> for Unapplied {
    fn from(error: StoreError) -> Self {
        let [refused, contended] =
            [StoreErrorKind::Refused, StoreErrorKind::Contended].map(|kind| error.kind() == kind);
        Self { error, tried: None, denied: Vec::new(), refused, contended }
    }
}

/// Whether a change was written. If not: the current record.
type Written = Result<(), Option<Box<Record>>>;

impl Engine {
    /// Applies `step` until its write is applied, or it stops.
    ///
    /// # Errors
    /// If the store fails or does not answer in time, and `effort` allows no more tries. It is of kind
    /// [`Contended`](StoreErrorKind::Contended) if others changed the record on every try. The write may be applied, now or later.
    pub(crate) async fn apply<T>(
        &self,
        start: Start<'_>,
        effort: Effort,
        mut step: impl FnMut(Option<&Record>, Moment) -> Step<T>,
    ) -> Result<Applied<T>, Unapplied> {
        let (mut current, mut key) = match start {
            Start::Absent => (None, None),
            Start::Seen(record) => (Some(record), None),
            Start::Unread(key) => (self.load(key, effort).await?, Some(key.clone())),
        };
        let (mut retry, mut races) = (self.retry(effort), 0);
        loop {
            let moment = Moment { revision: self.world.nonce().into(), now: self.world.now() };
            let (change, meaning) = match step(current.as_deref(), moment) {
                Step::Stop(meaning) => return Ok(Applied::Stopped(meaning, current)),
                Step::Write(change, meaning) => (change, meaning),
                Step::Wait(at_most) => {
                    let key = current.as_ref().map(|current| current.key.clone()).or(key.clone());
                    let Some(key) = key else { return Err(contended().into()) };
                    retry.wait(at_most).await;
                    // Reads cost half as much as a refused write, and do not slow the owner down. If one fails, the wait
                    // continues.
                    if let Ok(found) = self.load(&key, effort).await {
                        current = found;
                    }
                    continue;
                }
            };
            match self.write(current.as_deref(), &change, effort).await {
                Ok(Ok(())) => {
                    change.count(current.as_deref(), moment.now);
                    return Ok(Applied::Written(meaning, change.record));
                }
                Ok(Err(other)) => (current, key) = (other, Some(change.record.key)),
                Err(unapplied) => {
                    // If it is applied, nobody else counts it.
                    if unapplied.error.kind().leaves_open() {
                        change.count_for_operators(current.as_deref(), moment.now);
                    }
                    let over = revision(current.as_deref());
                    return Err(Unapplied {
                        tried: Some(Tried { record: change.record, over }),
                        ..unapplied
                    });
                }
            }
            races += 1;
            if races >= MAX_RACES {
                let bounded = matches!(effort.retries, Retries::None | Retries::Contended(_));
                if bounded || !retry.again().await {
                    return Err(contended().into());
                }
            }
        }
    }

    /// Whether a write that got no answer was applied, as far as a read can tell.
    pub(crate) async fn stands(&self, tried: &Record) -> bool {
        let current = self.bounded(None, self.store.load(&tried.key)).await;
        current.is_ok_and(|current| current.is_some_and(|current| current.revision == tried.revision))
    }

    /// Sends one write, with the retries that `effort` allows, until the store answers. If a try got no answer, its error is
    /// returned, even if a later try got another error: the write may have been applied. Of several, that which says least, and the last.
    async fn write(
        &self,
        seen: Option<&Record>,
        change: &Change,
        effort: Effort,
    ) -> Result<Written, Unapplied> {
        let (mut retry, mut most_open, mut refused) = (self.retry(effort), None::<StoreError>, false);
        let mut resends = self.resends(effort.until);
        loop {
            let call = self.store.put(revision(seen), &change.record, &change.with);
            let answer = self.tried(effort.until, call).await;
            if answer.is_ok() {
                resends.answered();
            }
            let error = match answer {
                Ok(WriteOutcome::Written) => return Ok(Ok(())),
                Ok(WriteOutcome::Refused(current)) => return Ok(written(change, current)),
                // That proves nothing about the record: an earlier try may have been applied, and its rows may be what refuses
                // this one. So the record decides.
                Ok(WriteOutcome::Denied(denied)) => match self.load(&change.record.key, effort).await {
                    Ok(current) if revision(current.as_deref()) == revision(seen) => {
                        let cause = "the condition of a domain write failed";
                        let error = StoreError::new(StoreErrorKind::Refused, cause);
                        return Err(Unapplied { denied, refused: false, ..error.into() });
                    }
                    Ok(current) => return Ok(written(change, current)),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let kind = error.kind();
            refused |= kind == StoreErrorKind::Refused;
            if effort.retries == Retries::All {
                tracing::warn!(?kind, cause = error.cause(), "a record could not be written yet");
                telemetry::store_failed(change.record.key.operation(), kind);
            }
            let retries = effort.retries.again_after(kind, self.world.instant());
            let again = retries && resends.later(&mut retry, kind).await || resends.again(kind).await;
            if !again || effort.retries.are_over(self.world.now()) {
                let contended = kind == StoreErrorKind::Contended;
                let error = match most_open {
                    Some(before) if before.kind().openness() > kind.openness() => before,
                    _ => error,
                };
                return Err(Unapplied { refused, contended, ..error.into() });
            }
            if most_open
                .as_ref()
                .is_none_or(|before: &StoreError| before.kind().openness() <= kind.openness())
            {
                most_open = Some(error);
            }
        }
    }

    /// The tries that `effort` allows. Without a deadline there is one try, unless `retries` has an end.
    fn retry(&self, effort: Effort) -> Retry<'_> {
        let until = match effort.retries {
            Retries::Contended(_) => effort.until,
            _ => effort.until.or_else(|| Some(self.world.instant())),
        };
        Retry::new(&self.world, effort.backoff, until)
    }

    async fn load(&self, key: &RecordKey, effort: Effort) -> Result<Option<Box<Record>>, StoreError> {
        Ok(self.bounded(effort.until, self.store.load(key)).await?.map(Box::new))
    }
}

/// Whether a change that was refused because of the current record was applied by an earlier try.
fn written(change: &Change, current: Option<Box<Record>>) -> Written {
    match current {
        Some(current) if current.revision == change.record.revision => Ok(()),
        current => Err(current),
    }
}

fn revision(record: Option<&Record>) -> Option<Revision> {
    record.map(|record| record.revision)
}

fn contended() -> StoreError {
    StoreError::new(StoreErrorKind::Contended, "others changed the record on every try")
}
