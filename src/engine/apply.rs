//! Turns a step into a write: the one loop in which records change.
//!
//! ```text
//!            ┌──────────── what stands there ◀─────────────┐
//! start ──▶ step ──▶ write: insert, or swap of what was seen ┴─▶ written
//!            ├──▶ stop                     │ no answer
//!            └──▶ wait, load               └──▶ the same write again, or an error
//! ```
//!
//! 1. A step is a function from the current record to the next; it writes nothing itself. It is called again whenever the
//!    record has changed, so it never decides by what is no longer true.
//! 2. A write that got no answer is sent again as it is, with the same revision. Each is bounded in time.
//! 3. If the current record has the revision that we were writing, we won: an earlier try was applied, and its answer was
//!    lost. This rule stands here; what a transaction adds to it, about the parts beside the record, stands with the
//!    transaction.

use std::{sync::Arc, time::Duration};

use crate::{
    key::RecordKey,
    record::{Record, Revision},
    store::{Companion, Store, StoreError, StoreErrorKind, WriteOutcome},
    telemetry::Count,
    time::{Instant, Timestamp},
    time_budget::{Pauses, STORE_TIMEOUT, STORE_TRY},
    world::World,
};

/// How many lost races a step takes without a pause, and all in all if its writes are not retried.
const TURNS: usize = 8;

/// Changes records.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) world: Arc<dyn World>,
}

/// What to do about what stands there.
pub(crate) enum Step<T> {
    /// Write this in its place; that would mean `T`.
    Write(Change, T),
    /// Nothing is to be written.
    Stop(T),
    /// Look again, after a pause of at most this span.
    Wait(Duration),
}

/// A record to write, with its companions.
pub(crate) struct Change {
    record: Box<Record>,
    with: Vec<Companion>,
}

impl From<Record> for Change {
    fn from(record: Record) -> Self {
        Self { record: Box::new(record), with: Vec::new() }
    }
}

impl Change {
    /// This record, and what is written together with it.
    pub(crate) fn with(record: Record, with: Vec<Companion>) -> Self {
        Self { record: Box::new(record), with }
    }
}

/// What a step may go by beside the record.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// The mark of the write that the step may ask for.
    pub(crate) revision: Revision,
    /// The wall clock's time.
    pub(crate) now: Timestamp,
}

/// What the first step is told.
pub(crate) enum Start<'a> {
    /// Nothing stands there, as far as we know.
    Absent,
    /// This stood there when we last looked.
    Seen(Box<Record>),
    /// What a read of this key finds.
    Unread(&'a RecordKey),
}

/// How hard to try.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Until when somebody waits for us. After that each call may take its time.
    pub(crate) until: Option<Instant>,
    /// The pauses between two looks, and between two tries of a write that got no answer.
    pub(crate) pauses: Pauses,
    /// Which writes are tried again, until the time is up.
    pub(crate) retries: Retries,
}

/// Which writes are tried again that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retries {
    /// None: the caller may ask again.
    None,
    /// Those that met a transaction, until this instant: its end is what the caller waits for.
    Contended(Instant),
    /// Those that got no answer, and those that met a transaction.
    Unanswered,
    /// All: the store may come back, and rights too, and there is no other time.
    All,
    /// Those that got no answer, for something that nobody misses: it is neither logged nor counted.
    Quietly,
}

impl Retries {
    fn again_after(self, error: StoreErrorKind, now: Instant) -> bool {
        match self {
            Self::None => false,
            Self::Contended(until) => error == StoreErrorKind::Contended && now < until,
            Self::Unanswered => !matches!(error, StoreErrorKind::Refused | StoreErrorKind::Unreadable),
            Self::All => true,
            // A store that throttles or refuses is not to be asked again for that.
            Self::Quietly => matches!(error, StoreErrorKind::Unavailable | StoreErrorKind::Contended),
        }
    }
}

/// What became of a step.
#[derive(Debug)]
pub(crate) enum Applied<T> {
    /// The write was applied; this is the record.
    Written(T, Box<Record>),
    /// It had nothing to write; this is there.
    Stopped(T, Option<Box<Record>>),
}

/// A write that failed, or may have been applied.
#[derive(Debug)]
pub(crate) struct Unapplied {
    /// Why.
    pub(crate) error: StoreError,
    /// What was perhaps written, or will be.
    pub(crate) tried: Option<Tried>,
}

/// A write of which it is not known whether it was, or will be, applied.
#[derive(Debug)]
pub(crate) struct Tried {
    /// What was to be written.
    pub(crate) record: Box<Record>,
    /// In place of what; nothing, if it was an insert. While that stands, the write can still land.
    pub(crate) over: Option<Revision>,
}

impl From<StoreError> for Unapplied {
    fn from(error: StoreError) -> Self {
        Self { error, tried: None }
    }
}

/// Who holds the record after a write.
enum Standing {
    Ours,
    Theirs(Option<Box<Record>>),
}

impl Engine {
    /// Applies `step` until its write stands, or it stops.
    ///
    /// # Errors
    /// If the store fails, or does not answer in time, and `effort` says to try no longer; of kind
    /// [`Contended`](StoreErrorKind::Contended) if others changed the record each time. The write may be applied, now or
    /// later.
    pub(crate) async fn apply<T>(
        &self,
        start: Start<'_>,
        effort: Effort,
        mut step: impl FnMut(Option<&Record>, Moment) -> Step<T>,
    ) -> Result<Applied<T>, Unapplied> {
        let (mut there, mut key) = match start {
            Start::Absent => (None, None),
            Start::Seen(record) => (Some(record), None),
            Start::Unread(key) => (self.load(key, effort).await?, Some(key.clone())),
        };
        let (mut wait, mut turns) = (effort.pauses.first, 0);
        loop {
            let moment = Moment { revision: self.world.nonce().into(), now: self.world.now() };
            let (change, meaning) = match step(there.as_deref(), moment) {
                Step::Stop(meaning) => return Ok(Applied::Stopped(meaning, there)),
                Step::Write(change, meaning) => (change, meaning),
                Step::Wait(at_most) => {
                    let key = there.as_ref().map(|there| there.key.clone()).or(key.clone());
                    let Some(key) = key else { return Err(contended().into()) };
                    self.world.sleep(wait.min(at_most)).await;
                    wait = effort.pauses.after(wait);
                    // A read while it lasts: half the price of a refused write, and it does not slow the owner down. One
                    // that fails changes nothing about what is waited for.
                    if let Ok(found) = self.load(&key, effort).await {
                        there = found;
                    }
                    continue;
                }
            };
            match self.write(there.as_deref(), &change, effort).await {
                Ok(Standing::Ours) => return Ok(Applied::Written(meaning, change.record)),
                Ok(Standing::Theirs(Some(other))) => there = Some(other),
                Ok(Standing::Theirs(None)) => (there, key) = (None, Some(change.record.key)),
                Err(error) => {
                    let over = there.map(|there| there.revision);
                    return Err(Unapplied { error, tried: Some(Tried { record: change.record, over }) });
                }
            }
            turns += 1;
            if turns >= TURNS {
                let lasting = matches!(effort.retries, Retries::Unanswered | Retries::All | Retries::Quietly);
                if !lasting || self.is_late(effort, wait) {
                    return Err(contended().into());
                }
                self.world.sleep(wait).await;
                wait = effort.pauses.after(wait);
            }
        }
    }

    /// Whether a write that got no answer stands, as far as a read can tell.
    pub(crate) async fn stands(&self, tried: &Record) -> bool {
        let there = self.bounded(None, self.store.load(&tried.key)).await;
        there.is_ok_and(|there| there.is_some_and(|there| there.revision == tried.revision))
    }

    /// Sends one write, again and again if it is worth it, until there is an answer. Once a try got none, the error says so,
    /// whatever became of later tries.
    async fn write(
        &self,
        seen: Option<&Record>,
        change: &Change,
        effort: Effort,
    ) -> Result<Standing, StoreError> {
        let (mut pause, mut unanswered) = (effort.pauses.first, None);
        loop {
            let call = match seen {
                None => self.store.insert(&change.record, &change.with),
                Some(seen) => self.store.swap(seen.revision, &change.record, &change.with),
            };
            let error = match self.bounded(effort.until, call).await {
                Ok(outcome) => return Ok(standing(change.record.revision, outcome)),
                Err(error) => error,
            };
            let kind = error.kind();
            if effort.retries == Retries::All {
                let (key, operation) = (change.record.key.hash(), change.record.key.operation());
                tracing::warn!(%key, %operation, ?kind, cause = error.cause(), "a record could not be written yet");
                Count::StoreError.add(operation);
            }
            let again = effort.retries.again_after(kind, self.world.instant());
            if !again || self.is_late(effort, pause) {
                return Err(unanswered.unwrap_or(error));
            }
            if matches!(kind, StoreErrorKind::Unavailable | StoreErrorKind::Throttled) {
                unanswered.get_or_insert(error);
            }
            self.world.sleep(pause).await;
            pause = effort.pauses.after(pause);
        }
    }

    /// Whether a pause of this length would last longer than anybody waits.
    fn is_late(&self, effort: Effort, pause: Duration) -> bool {
        match (effort.until, effort.retries) {
            (Some(until), _) => self.world.instant().plus(pause) >= until,
            (None, Retries::Contended(_)) => false,
            (None, _) => true,
        }
    }

    async fn load(&self, key: &RecordKey, effort: Effort) -> Result<Option<Box<Record>>, StoreError> {
        Ok(self.bounded(effort.until, self.store.load(key)).await?.map(Box::new))
    }

    /// Gives `call` a bounded time, and no longer than `until`. If that is past, whoever waited has gone, and what is left
    /// to do may take its time.
    pub(crate) async fn bounded<T>(
        &self,
        until: Option<Instant>,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let left = until.map(|until| until.since(self.world.instant())).filter(|left| !left.is_zero());
        let bound = left.map_or(STORE_TIMEOUT, |left| left.min(STORE_TIMEOUT));
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.world.sleep(bound) => Err(StoreError::no_answer_in_time(bound < STORE_TRY)),
        }
    }
}

fn standing(ours: Revision, outcome: WriteOutcome) -> Standing {
    match outcome {
        WriteOutcome::Written => Standing::Ours,
        WriteOutcome::Refused(Some(there)) if there.revision == ours => Standing::Ours,
        WriteOutcome::Refused(there) => Standing::Theirs(there),
    }
}

fn contended() -> StoreError {
    StoreError::new(StoreErrorKind::Contended, "others changed the record each time")
}
