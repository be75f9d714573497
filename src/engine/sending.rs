//! Bounds each call of the store or of a queue in time, and sends a write again that got no answer.
//!
//! The AWS client of the records' writes has neither time-outs nor retries, so that a write has one timer. What it had is here, for a
//! store with a [budget of retries](crate::store::Store::retry_budget):
//!
//! 1. Each try of a write may take [`STORE_TRY`].
//! 2. A write that got no answer, or was throttled, is sent again twice, whatever else its caller retries. It is the same write with the
//!    same revision, so that a try that was applied is recognized. The first time it goes at once: a server closes its connections while
//!    a process is frozen, and the first write after that gets no answer.
//! 3. Not later than [`STORE_TIMEOUT`] after the first try. If the process was frozen between two tries, its caller decides again.
//! 4. A store that is down gets no storm. Without a budget, nothing is sent again at once, and a loop with a backoff waits a second
//!    before each try. It goes on, because it may be all that its process does: then nothing would ever fill the budget.

use std::time::Duration;

use super::Engine;
use crate::{
    backoff::Retry,
    queue::QueueError,
    store::{RetryBudget, StoreError, StoreErrorKind},
    time::Instant,
    time_budget::{RESENDS, SEND_TIMEOUT, STORE_TIMEOUT, STORE_TRY, WRITE_BACKOFF},
};

impl Engine {
    /// Bounds `call` by the store's time-out, or by `until` if that is sooner. Once `until` has passed, no caller waits, and the
    /// whole time-out applies.
    pub(crate) async fn bounded<T>(
        &self,
        until: Option<Instant>,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.within(STORE_TIMEOUT, until, call).await
    }

    /// The same for one try of a write.
    pub(super) async fn tried<T>(
        &self,
        until: Option<Instant>,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let limit = self.store.retry_budget().map_or(STORE_TIMEOUT, |_| STORE_TRY);
        self.within(limit, until, write).await
    }

    /// Sends a write that its caller does not retry, until the store answers, as often as rule 2 says.
    pub(crate) async fn sent_again<T, F>(&self, write: impl Fn() -> F + Send) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let mut resends = self.resends(None);
        loop {
            match self.tried(None, write()).await {
                Ok(answer) => {
                    resends.answered();
                    return Ok(answer);
                }
                Err(error) if !resends.again(error.kind()).await => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// The tries of one write, of which the first begins now. After `until`, its caller does not wait for another one.
    pub(super) fn resends(&self, until: Option<Instant>) -> Resends<'_> {
        let now = self.world.instant();
        // Once it has passed, no caller waits.
        let until = until.filter(|until| now < *until);
        let end = until.map_or(now.plus(STORE_TIMEOUT), |until| until.min(now.plus(STORE_TIMEOUT)));
        let retry = Retry::new(&self.world, WRITE_BACKOFF, Some(end));
        Resends { engine: self, budget: self.store.retry_budget(), retry, until, end, sent: 0, spent: 0 }
    }

    async fn within<T>(
        &self,
        limit: Duration,
        until: Option<Instant>,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let left = until.map(|until| until.since(self.world.instant())).filter(|left| !left.is_zero());
        let bound = left.map_or(limit, |left| left.min(limit));
        let answer = self.world.within(bound, call).await;
        answer.unwrap_or_else(|| Err(StoreError::no_answer_in_time(bound < STORE_TRY)))
    }

    /// Bounds the sending of a message, whatever its queue is.
    pub(crate) async fn sent(
        &self,
        sending: impl Future<Output = Result<(), QueueError>> + Send,
    ) -> Result<(), QueueError> {
        let sent = self.world.within(SEND_TIMEOUT, sending).await;
        sent.unwrap_or_else(|| Err(QueueError::new("no answer in time")))
    }
}

/// The tries of one write.
pub(super) struct Resends<'a> {
    engine: &'a Engine,
    budget: Option<&'a RetryBudget>,
    retry: Retry<'a>,
    until: Option<Instant>,
    end: Instant,
    /// How often it was sent again since the store last answered.
    sent: u32,
    /// What the last retry took from the budget.
    spent: u32,
}

impl Resends<'_> {
    /// Whether the write is sent again after this error, now: it waits before the second time. `false` at once if it is not.
    pub(super) async fn again(&mut self, error: StoreErrorKind) -> bool {
        let (Some(budget), true) = (self.budget, is_sent_again(error)) else { return false };
        if self.sent >= RESENDS || self.engine.world.instant() >= self.end {
            return false;
        }
        let Some(spent) = budget.spend(error) else { return false };
        (self.sent, self.spent) = (self.sent + 1, spent);
        let waits = self.sent > 1 || error != StoreErrorKind::Unavailable;
        // A timer may fire late.
        !waits || self.retry.again().await && self.engine.world.instant() < self.end
    }

    /// Waits before another try of a loop with a backoff. Returns `false` at once if its deadline would come first.
    pub(super) async fn later(&mut self, retry: &mut Retry<'_>, error: StoreErrorKind) -> bool {
        let spent = self.budget.map_or(Some(0), |budget| budget.spend(error));
        // Not the whole of what is left: one more try is worth more than the store's rest.
        let rest = || retry.left().map_or(WRITE_BACKOFF.max, |left| WRITE_BACKOFF.max.min(left / 2));
        let at_least = spent.map_or_else(rest, |_| Duration::ZERO);
        let again = retry.again_after(at_least).await;
        match (again, spent) {
            (false, Some(unused)) => self.budget.into_iter().for_each(|budget| budget.give_back(unused)),
            (false, None) => {}
            // The store has answered: its own time begins again.
            (true, _) if error == StoreErrorKind::Contended => *self = self.engine.resends(self.until),
            (true, spent) => (self.sent, self.spent) = (self.sent + 1, spent.unwrap_or_default()),
        }
        again
    }

    /// The store has answered.
    pub(super) fn answered(&self) {
        if let Some(budget) = self.budget {
            budget.earn(self.spent);
        }
    }
}

/// Whether the store got no request, or may answer the next one.
fn is_sent_again(error: StoreErrorKind) -> bool {
    matches!(error, StoreErrorKind::Unavailable | StoreErrorKind::Throttled | StoreErrorKind::InProgress)
}
