//! A circuit breaker: while the store is down, requests are refused at once instead of waiting for it.
//!
//! It is written by hand, because the existing crates read the clock themselves. Here the caller passes the time of a monotonic
//! clock: a clock that is set back cannot keep the circuit open.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{time::Instant, time_budget::BREAKER_OPEN_FOR};

/// Five failures in a row are not chance: with three tries each, the store was asked fifteen times.
const FAILURES_TO_OPEN: u32 = 5;

/// Counts failures in a row. After [`FAILURES_TO_OPEN`], one caller may pass per [`BREAKER_OPEN_FOR`].
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Counter>);

#[derive(Debug, Default)]
struct Counter {
    failures: u32,
    open_until: Option<Instant>,
}

impl Breaker {
    /// Whether this caller may ask the store now.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut counter = self.counter();
        if counter.failures < FAILURES_TO_OPEN {
            return true;
        }
        let waiting = counter.open_until.is_some_and(|until| now < until);
        if !waiting {
            counter.open_until = Some(now.plus(BREAKER_OPEN_FOR));
        }
        !waiting
    }

    pub(super) fn succeeded(&self) {
        self.counter().failures = 0;
    }

    pub(super) fn failed(&self, now: Instant) {
        let mut counter = self.counter();
        counter.failures = counter.failures.saturating_add(1);
        counter.open_until = Some(now.plus(BREAKER_OPEN_FOR));
    }

    fn counter(&self) -> MutexGuard<'_, Counter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn an_open_breaker_rejects_requests_until_one_trial_succeeds() {
        let breaker = opened();
        assert!(!breaker.admits(NOW));
        let later = NOW.plus(BREAKER_OPEN_FOR);
        assert!(breaker.admits(later), "one may try");
        assert!(!breaker.admits(later), "and only one");
        breaker.succeeded();
        assert!(breaker.admits(later) && breaker.admits(later));
    }

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
