//! Asks, decides and settles.

use std::{collections::HashMap, error::Error, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;

use super::{
    Answer, Ask, AskError, Asking, BackOff, Finding, Message, Question, ReconcileError, Reconciled,
    Reconciler,
};
use crate::{
    executor::{Ended, Executor, LostEnding},
    key::{OperationName, RecordKey},
    lease::tell_given_up,
    metrics::Count,
    policy::Operation,
    queue::Queue,
    record::{KeptResponse, Record, Revision, State, Unsettled, Verdict},
    store::{Register, Store, Turn},
    time::{Clock, SystemClock, Timestamp},
};

/// How long an operation that is nowhere to be found is still waited for: five minutes by clocks that are up to
/// [`CLOCK_SKEW`](crate::record::CLOCK_SKEW) apart, for one machine says since when, and another one how long ago that is.
pub const DEFAULT_NOT_FOUND_GRACE: Duration = Duration::from_secs(10 * 60);

/// How long a question may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the body of an answer is tried to be kept.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often a record that others change at the same moment is looked at again.
const TURNS: usize = 8;

struct Known<S> {
    executor: Executor<Arc<S>>,
    reconciler: Box<dyn Ask>,
}

/// Settles records whose outcome is unknown.
pub struct Reconciliation<S> {
    store: Arc<S>,
    clock: Arc<dyn Clock>,
    dead_letters: Arc<dyn Queue>,
    back_off: BackOff,
    not_found_grace: Duration,
    operations: HashMap<OperationName, Known<S>>,
}

impl<S> fmt::Debug for Reconciliation<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciliation").field("back_off", &self.back_off).finish_non_exhaustive()
    }
}

impl<S: Store> Reconciliation<S> {
    /// Settles records of `store`; what nobody can settle goes to `dead_letters`.
    pub fn new(store: Arc<S>, dead_letters: impl Queue) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock),
            dead_letters: Arc::new(dead_letters),
            back_off: BackOff::default(),
            not_found_grace: DEFAULT_NOT_FOUND_GRACE,
            operations: HashMap::new(),
        }
    }

    /// Goes by another clock: for tests. Before [`operation`](Self::operation).
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How questions are repeated.
    #[must_use]
    pub fn back_off(mut self, back_off: BackOff) -> Self {
        self.back_off = back_off;
        self
    }

    /// How long after its outcome became unknown an operation that is nowhere to be found counts as not executed: longer
    /// than any request of its handler can be on its way, and by as much as clocks may be apart. Default:
    /// [`DEFAULT_NOT_FOUND_GRACE`].
    #[must_use]
    pub fn not_found_grace(mut self, grace: Duration) -> Self {
        self.not_found_grace = grace;
        self
    }

    /// Has `reconciler` asked about this operation, which is configured as its guard is: the retention counts.
    #[must_use]
    pub fn operation(mut self, operation: Operation, reconciler: impl Reconciler + 'static) -> Self {
        let name = operation.name().clone();
        let executor = Executor::with_clock(self.store.clone(), operation, self.clock.clone());
        self.operations.insert(name, Known { executor, reconciler: Box::new(reconciler) });
        self
    }

    /// The time by which it goes.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Asks about a record whose question is due.
    ///
    /// Where no reconciler knows its operation, it is for people at once.
    pub async fn ask_if_due(&self, key: &RecordKey) -> Result<Reconciled, ReconcileError> {
        match self.known(key) {
            Ok(known) => self.reconcile(key, known, &*known.reconciler, Asks::IfDue).await,
            Err(_) => self.escalate(key).await,
        }
    }

    /// Asks about a record now, and counts its questions anew: what a person does who knows that the answer is there.
    pub async fn ask(&self, key: &RecordKey) -> Result<Reconciled, ReconcileError> {
        let known = self.known(key)?;
        self.reconcile(key, known, &*known.reconciler, Asks::Anew).await
    }

    /// Settles a record by what somebody says who knows, such as a provider's webhook.
    ///
    /// Where a live worker has the record, nothing is done: the worker knows it too, and if it dies the record becomes
    /// unknown and is asked about.
    pub async fn told(&self, key: &RecordKey, by: &impl Reconciler) -> Result<Reconciled, ReconcileError> {
        self.reconcile(key, self.known(key)?, by, Asks::Told).await
    }

    /// Applies an ending that its worker could not write, under the fence that the worker was under. One that says that
    /// something was executed, and finds that the record went on without an answer, is for people.
    pub async fn apply(&self, lost: &LostEnding) -> Result<(), ReconcileError> {
        let key = lost.record_key().ok_or(ReconcileError::Malformed("key"))?;
        let ended = self.known(&key)?.executor.apply(lost).await;
        match ended.map_err(|error| ReconcileError::Malformed(error.part()))? {
            Ended::Written { .. } | Ended::Superseded(_) => Ok(()),
            Ended::Fenced if lost.is_executed() => {
                let (key, operation) = (key.hash(), key.operation());
                tracing::error!(%key, %operation, "a worker executed what its record says it did not: it is for people");
                Count::ReconcileFailed.add(operation);
                self.for_people(&Message::Ending(Box::new(lost.clone()))).await
            }
            Ended::Fenced => Ok(()),
            Ended::HandedOver | Ended::Unwritten => Err(ReconcileError::Unwritten),
        }
    }

    async fn for_people(&self, message: &Message) -> Result<(), ReconcileError> {
        self.dead_letters.send(&message.to_json(), Duration::ZERO).await.map_err(ReconcileError::DeadLetters)
    }

    async fn escalate(&self, key: &RecordKey) -> Result<Reconciled, ReconcileError> {
        let register = Register { store: self.store.clone() };
        let Some(seen) = register.load(key).await? else { return Ok(Reconciled::Gone) };
        let State::Unknown { reconcile_at, asked, .. } = seen.state else { return Ok(Reconciled::Settled) };
        if reconcile_at > self.clock.now() {
            return Ok(Reconciled::NotDue);
        }
        tracing::error!(key = %key.hash(), operation = %key.operation(), "no reconciler knows this operation");
        let Some(next) = seen.ask_again(Revision::mint(), asked, Timestamp::MAX) else {
            return Ok(Reconciled::Settled);
        };
        self.for_people(&Message::Ask { key: key.partition_key() }).await?;
        match register.swap(seen.revision, &next).await? {
            Turn::Ours => Ok(self.tell(&next)),
            Turn::Theirs(_) => Ok(Reconciled::Busy),
        }
    }

    fn known(&self, key: &RecordKey) -> Result<&Known<S>, ReconcileError> {
        self.operations.get(key.operation()).ok_or_else(|| ReconcileError::Unknown(key.operation().clone()))
    }

    async fn reconcile(
        &self,
        key: &RecordKey,
        known: &Known<S>,
        source: &(impl Ask + ?Sized),
        asks: Asks,
    ) -> Result<Reconciled, ReconcileError> {
        let register = known.executor.register();
        let Some(mut seen) = register.load(key).await? else { return Ok(Reconciled::Gone) };
        for _ in 0..TURNS {
            let now = self.clock.now();
            let asked = match &seen.state {
                State::Unknown { reconcile_at, .. } if asks == Asks::IfDue && *reconcile_at > now => {
                    return Ok(Reconciled::NotDue);
                }
                State::Unknown { .. } if asks == Asks::Anew => 0,
                State::Unknown { asked, .. } => *asked,
                State::InProgress { lease_until } if *lease_until > now => {
                    return Ok(Reconciled::InFlight(*lease_until));
                }
                // Found dead by us before the stale function came.
                State::InProgress { .. } => 0,
                // A release may be contradicted by who knows, and is not asked about.
                State::FailedRetryable { .. } if asks == Asks::Told => 0,
                State::Pending | State::Completed { .. } | State::FailedRetryable { .. } => {
                    return Ok(Reconciled::Settled);
                }
            };
            let question = Question { record: seen.clone() };
            let finding = match self.bounded(source.ask_boxed(&question)).await {
                // To be told again: nobody asks by himself.
                Err(error) if asks == Asks::Told => return Err(ReconcileError::Source(error)),
                finding => finding,
            };
            let next = match self.verdict(known, &seen, finding, now).await {
                Ok(verdict) => {
                    let retain = known.executor.operation().retention();
                    match seen.settle(verdict, Revision::mint(), self.clock.now(), retain) {
                        Ok(next) => next,
                        Err(Unsettled::InFlight) => return Ok(Reconciled::InFlight(now)),
                        Err(Unsettled::NotBegun | Unsettled::Settled(_)) => return Ok(Reconciled::Settled),
                    }
                }
                Err(_) if asks == Asks::Told => return Ok(Reconciled::NotDue),
                Err(after) => self.put_off(&seen, asked + 1, after, now),
            };
            if matches!(next.state, State::Unknown { reconcile_at: Timestamp::MAX, .. }) {
                // First, so that a person hears of it twice rather than never.
                self.for_people(&Message::Ask { key: key.partition_key() }).await?;
            }
            match register.swap(seen.revision, &next).await? {
                Turn::Ours => {
                    if let State::InProgress { .. } = seen.state {
                        // Found dead here, before the stale function came.
                        tell_given_up(&seen, self.clock.now());
                    }
                    return Ok(self.tell(&next));
                }
                Turn::Theirs(Some(there)) => {
                    // Released meanwhile, by somebody who asked before the effect was to be seen: proof of it is stronger.
                    if let (State::Completed { response, .. }, State::FailedRetryable { .. }) =
                        (next.state, &there.state)
                        && there.attempt == seen.attempt
                    {
                        return self.contradict(known, &there, response).await;
                    }
                    seen = *there;
                }
                Turn::Theirs(None) => return Ok(Reconciled::Gone),
            }
        }
        Ok(Reconciled::Busy)
    }

    /// Settles by proof what was released a moment ago; where the next execution has begun already, it meets the same
    /// effect by its downstream key.
    async fn contradict(
        &self,
        known: &Known<S>,
        released: &Record,
        response: KeptResponse,
    ) -> Result<Reconciled, ReconcileError> {
        let (now, retain) = (self.clock.now(), known.executor.operation().retention());
        let Ok(next) = released.settle(Verdict::Executed(response), Revision::mint(), now, retain) else {
            return Ok(Reconciled::Settled);
        };
        match known.executor.register().swap(released.revision, &next).await? {
            Turn::Ours => Ok(self.tell(&next)),
            Turn::Theirs(_) => Ok(Reconciled::Busy),
        }
    }

    async fn bounded(&self, asking: Asking<'_>) -> Result<Finding, AskError> {
        tokio::select! {
            biased;
            // One that panics must not take those with it that are asked at the same time, nor come first at each poll.
            finding = AssertUnwindSafe(asking).catch_unwind() => {
                finding.unwrap_or_else(|_| Err("the reconciler panicked".into()))
            }
            () = self.clock.sleep(ASK_TIMEOUT) => Err("no answer in time".into()),
        }
    }

    /// What a finding proves; or, where it proves nothing, after which time to ask again.
    async fn verdict(
        &self,
        known: &Known<S>,
        seen: &Record,
        finding: Result<Finding, AskError>,
        asked_at: Timestamp,
    ) -> Result<Verdict, Option<Duration>> {
        let (key, operation) = (seen.key.hash(), seen.key.operation());
        let doubted_since = match seen.state {
            State::Unknown { since, .. } => since,
            State::InProgress { lease_until } => lease_until,
            _ => asked_at,
        };
        match finding {
            Ok(Finding::Executed(Answer { status, headers, body })) => {
                let until = self.clock.now().plus(PATIENCE);
                let kept = known.executor.keep(seen, status, headers, &body, until).await;
                Ok(Verdict::Executed(kept))
            }
            Ok(Finding::NotExecuted) => Ok(Verdict::NotExecuted),
            Ok(Finding::NotFound) => {
                // From when the question was asked: what lands while it is answered is not seen by it.
                let waited = asked_at.since(doubted_since);
                if waited >= self.not_found_grace {
                    return Ok(Verdict::NotExecuted);
                }
                Err(Some(self.not_found_grace - waited))
            }
            Ok(Finding::AskAgain(after)) => Err(after),
            Err(error) => {
                let error: &dyn Error = &*error;
                tracing::warn!(%key, %operation, error, "a question about an unknown outcome was not answered");
                Err(None)
            }
        }
    }

    /// The record with its next question.
    fn put_off(&self, seen: &Record, asked: u32, after: Option<Duration>, now: Timestamp) -> Record {
        let revision = Revision::mint();
        let open = seen.expire(revision, now).unwrap_or_else(|| seen.clone());
        let at = match self.back_off.after(asked, revision) {
            Some(pause) => now.plus(after.unwrap_or_default().max(pause)),
            None => Timestamp::MAX,
        };
        open.ask_again(revision, asked, at).unwrap_or(open)
    }

    fn tell(&self, record: &Record) -> Reconciled {
        let (key, operation) = (record.key.hash(), record.key.operation());
        match &record.state {
            State::Unknown { reconcile_at: Timestamp::MAX, asked, .. } => {
                tracing::error!(%key, %operation, asked, "nobody knows the outcome: it is for people");
                Count::ReconcileFailed.add(operation);
                Reconciled::Escalated
            }
            State::Unknown { reconcile_at, asked, .. } => {
                let in_ms = reconcile_at.since(self.clock.now()).as_millis();
                tracing::info!(%key, %operation, asked, in_ms, "the outcome is not known yet: it is asked about again");
                Count::ReconcileScheduled.add(operation);
                Reconciled::Scheduled(*reconcile_at)
            }
            state => {
                tracing::info!(%key, %operation, state = state.name(), "an unknown outcome is settled");
                Count::ReconcileResolved.add(operation);
                Reconciled::Resolved(state.name())
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    IfDue,
    Anew,
    Told,
}
