//! When to ask again.

use std::time::Duration;

use crate::{
    record::Revision,
    time_budget::{DEFAULT_FIRST_BACKOFF, DEFAULT_MAX_BACKOFF, DEFAULT_MAX_UNKNOWN_AGE, DEFAULT_QUESTIONS},
};

/// How questions about one unknown outcome are repeated: ever further apart, with jitter so that what became unknown
/// together is not asked about together, and a bounded number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    /// The pause after the first question; each later one is twice as long.
    pub(super) first: Duration,
    /// The longest pause.
    pub(super) longest: Duration,
    /// How many questions there are before the outcome is escalated.
    pub(super) most: u32,
    /// How long an outcome may be in doubt before it is escalated, however few questions there were.
    pub(super) max_unknown_age: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: DEFAULT_FIRST_BACKOFF,
            longest: DEFAULT_MAX_BACKOFF,
            most: DEFAULT_QUESTIONS,
            max_unknown_age: DEFAULT_MAX_UNKNOWN_AGE,
        }
    }
}

impl Backoff {
    /// The pause after the question of this number; `None` if it was the last. `nonce` is the source of its jitter: up to a
    /// quarter less.
    pub(super) fn after(&self, asked: u32, nonce: Revision) -> Option<Duration> {
        if asked >= self.most {
            return None;
        }
        let doubled = 2_u32.saturating_pow(asked.saturating_sub(1).min(31));
        let pause = self.first.saturating_mul(doubled).min(self.longest);
        // The first byte of a random UUID is random.
        let less = pause / 4 * u32::from(nonce.as_bytes()[0]) / 255;
        Some(pause - less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R29
    #[test]
    fn pauses_double_with_jitter_up_to_a_maximum_and_then_end() {
        let (first, longest) = (Duration::from_secs(10), Duration::from_secs(100));
        let backoff = Backoff { first, longest, most: 6, ..Backoff::default() };
        for (asked, full) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 100)] {
            let backoff: Vec<_> = (0..100).map(|_| backoff.after(asked, Revision::mint()).unwrap()).collect();
            let full = Duration::from_secs(full);
            assert!(backoff.iter().all(|pause| *pause <= full && *pause >= full * 3 / 4), "{backoff:?}");
            assert!(backoff.iter().any(|pause| *pause != backoff[0]), "no jitter after question {asked}");
        }
        assert_eq!(backoff.after(6, Revision::mint()), None);
        assert_eq!(backoff.after(u32::MAX, Revision::mint()), None);
    }
}
