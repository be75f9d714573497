//! A circuit breaker: while the store is down, requests are refused at once and do not wait for it.
//!
//! Three numbers and a clock that tests hold: the crates for it bring clocks of their own.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::time::Timestamp;

/// So many failures in a row are not chance: with three tries each, the store was asked fifteen times.
const FAILURES_TO_OPEN: u32 = 5;

/// How long nobody asks. Short, because a store that is back should not be kept waiting by us.
const OPEN_FOR: Duration = Duration::from_secs(2);

/// Counts the failures in a row; after some, lets one caller through at a time, now and then.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Counter>);

#[derive(Debug, Default)]
struct Counter {
    failures: u32,
    closed_until: Timestamp,
}

impl Breaker {
    /// Whether to ask the store now. Whoever is let through while the store seems down is the only one for a while.
    pub(super) fn admits(&self, now: Timestamp) -> bool {
        let mut counter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counter.failures < FAILURES_TO_OPEN {
            return true;
        }
        // A clock set far back must not keep it shut.
        let waiting = now < counter.closed_until && counter.closed_until <= now.plus(OPEN_FOR);
        if !waiting {
            counter.closed_until = now.plus(OPEN_FOR);
        }
        !waiting
    }

    pub(super) fn succeeded(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failures = 0;
    }

    pub(super) fn failed(&self, now: Timestamp) {
        let mut counter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counter.failures = counter.failures.saturating_add(1);
        counter.closed_until = now.plus(OPEN_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn opened() -> Breaker {
        let breaker = Breaker::default();
        for _ in 0..FAILURES_TO_OPEN {
            assert!(breaker.admits(NOW));
            breaker.failed(NOW);
        }
        breaker
    }

    // R16
    #[test]
    fn after_failures_in_a_row_nobody_asks_for_a_while_and_then_one() {
        let breaker = opened();
        assert!(!breaker.admits(NOW));
        let later = NOW.plus(OPEN_FOR);
        assert!(breaker.admits(later), "one may try");
        assert!(!breaker.admits(later), "and only one");
        breaker.succeeded();
        assert!(breaker.admits(later) && breaker.admits(later));
    }

    // R16
    #[test]
    fn a_success_between_failures_starts_the_count_again() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES_TO_OPEN * 2 {
            breaker.failed(NOW);
            breaker.succeeded();
            assert!(breaker.admits(NOW));
        }
    }

    // T28
    #[test]
    fn a_clock_that_is_set_back_does_not_keep_it_shut() {
        assert!(opened().admits(Timestamp::from_secs(10)));
    }
}
