//! A circuit breaker: while the store is down, requests are refused at once and do not wait for it.
//!
//! Written by hand: the existing crates read their own clocks. The time is handed in, from a clock that only runs
//! forward, so that one which is set back cannot keep the circuit open.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::time::Instant;

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
    open_until: Option<Instant>,
}

impl Breaker {
    /// Whether to ask the store now. Whoever is let through while the store seems down is the only one for a while.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut counter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counter.failures < FAILURES_TO_OPEN {
            return true;
        }
        let waiting = counter.open_until.is_some_and(|until| now < until);
        if !waiting {
            counter.open_until = Some(now.plus(OPEN_FOR));
        }
        !waiting
    }

    pub(super) fn succeeded(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failures = 0;
    }

    pub(super) fn failed(&self, now: Instant) {
        let mut counter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counter.failures = counter.failures.saturating_add(1);
        counter.open_until = Some(now.plus(OPEN_FOR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_beginning(Duration::from_secs(1_000));

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
}
