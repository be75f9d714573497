//! When to ask again.

use std::time::Duration;

use crate::{backoff::Backoff, record::Revision};

/// How often questions about one unknown outcome are asked, and how far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The waits between questions.
    pub backoff: Backoff,
    /// After how many questions the outcome is escalated.
    pub max_questions: u32,
    /// For how long an outcome may be unknown before it is escalated, even after few questions.
    pub max_unknown_age: Duration,
}

impl Schedule {
    /// The wait after the question of this number; `None` if it was the last. `nonce` is the source of its jitter.
    pub(super) fn after(&self, asked: u32, nonce: Revision) -> Option<Duration> {
        (asked < self.max_questions).then(|| self.backoff.after(asked, *nonce.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_repeated_with_jitter_and_then_end() {
        let backoff = Backoff { first: Duration::from_secs(10), factor: 2, max: Duration::from_secs(100) };
        let schedule = Schedule { backoff, max_questions: 6, max_unknown_age: Duration::MAX };
        for (asked, full) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 100)] {
            let waits: Vec<_> = (0..100).map(|_| schedule.after(asked, Revision::mint()).unwrap()).collect();
            let full = Duration::from_secs(full);
            assert!(waits.iter().all(|wait| *wait <= full && *wait >= full * 3 / 4), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "no jitter after question {asked}");
        }
        assert_eq!(schedule.after(6, Revision::mint()), None);
        assert_eq!(schedule.after(u32::MAX, Revision::mint()), None);
    }
}
