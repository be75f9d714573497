//! Bounds how often a process sends writes again to a store that is in trouble.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use super::StoreErrorKind;

/// What a full budget holds: the numbers are those of the AWS SDK's standard retries.
const FULL: u32 = 500;

/// What a write earns that was answered at once.
const EARNED: u32 = 1;

/// How much the writes of a process may be sent again. Clones share it.
///
/// 1. Each retry spends a part of it: after no answer more than after a throttled try. A retry after a conflict or a refusal is free,
///    because the store works.
/// 2. Each write that is answered gives some back: what its last retry spent, or a little if it had none.
/// 3. So a healthy store has all of it. A store that is down gets 50 retries without an answer, or 100 that are throttled, and then
///    only first tries, and what is [tried with a wait](Self).
///
/// Reads do not use it: their client has a budget of its own.
#[derive(Clone, Debug)]
pub struct RetryBudget(Arc<AtomicU32>);

impl Default for RetryBudget {
    /// A full one.
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(FULL)))
    }
}

impl RetryBudget {
    /// Takes what a retry after this error costs. Returns what it took; `None` if there is not enough left.
    pub(crate) fn spend(&self, error: StoreErrorKind) -> Option<u32> {
        let cost = match error {
            StoreErrorKind::Unavailable => 10,
            StoreErrorKind::Throttled | StoreErrorKind::InProgress => 5,
            StoreErrorKind::Contended
            | StoreErrorKind::Unauthenticated
            | StoreErrorKind::Unreadable
            | StoreErrorKind::Refused => 0,
        };
        let spent = |left: u32| left.checked_sub(cost);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).ok().map(|_| cost)
    }

    /// Gives back what an answered write earns, whose last retry spent this.
    pub(crate) fn earn(&self, spent: u32) {
        self.give_back(spent.max(EARNED));
    }

    /// Gives back what was taken for a retry that is not made.
    pub(crate) fn give_back(&self, spent: u32) {
        let earned = |left: u32| (left < FULL).then(|| left.saturating_add(spent).min(FULL));
        // A full budget takes nothing.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many retries after this error it allows.
    fn allowed(budget: &RetryBudget, error: StoreErrorKind) -> usize {
        (0..1_000).take_while(|_| budget.spend(error).is_some()).count()
    }

    #[test]
    fn a_budget_allows_so_many_retries_and_no_more() {
        assert_eq!(allowed(&RetryBudget::default(), StoreErrorKind::Unavailable), 50);
        assert_eq!(allowed(&RetryBudget::default(), StoreErrorKind::Throttled), 100);
        // The store works.
        assert_eq!(allowed(&RetryBudget::default(), StoreErrorKind::Contended), 1_000);
    }

    #[test]
    fn clones_share_one_budget_and_answers_fill_it() {
        let budget = RetryBudget::default();
        assert_eq!(allowed(&budget.clone(), StoreErrorKind::Unavailable), 50);
        assert_eq!(allowed(&budget, StoreErrorKind::Throttled), 0);
        for _ in 0..9 {
            budget.earn(0);
        }
        assert_eq!(allowed(&budget, StoreErrorKind::Unavailable), 0);
        budget.earn(0);
        assert_eq!(allowed(&budget, StoreErrorKind::Unavailable), 1);
        // A retry that is answered costs nothing.
        budget.earn(10);
        assert_eq!(allowed(&budget, StoreErrorKind::Unavailable), 1);
        for _ in 0..1_000 {
            budget.earn(10);
        }
        assert_eq!(allowed(&budget, StoreErrorKind::Unavailable), 50);
    }
}
