//! How an invocation's time is divided, and how long its record is owned.
//!
//! ```text
//!  reserve  handler runs        read    write         defer      answer  late writes    others may look
//! ├────────────────────────────┼───────┼─────────────┼──────────┼───────┼──────────────┼───────────────▶
//! 0                                     └ half: a body                  deadline       lease_until
//!                                                       answer by ┘
//! ```
//!
//! 1. Every part is taken from what is left when it begins. None is negative, and their sum always fits.
//! 2. Once the deadline has passed, no caller waits, and each step may take [`STORE_TIMEOUT`].
//! 3. A deadline that is past or too far away is ignored: the operation's lease counts.
//! 4. An expired lease allows others only to *look*.
//!
//! `time_budget/list.rs` has each duration once, with its reason. A test compares `docs/durations.md` with it.

mod list;

use std::time::Duration;

use crate::time::{Instant, Timestamp};

pub use list::*;

/// The time left in an invocation; unknown without a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeBudget {
    left: Option<Duration>,
}

impl TimeBudget {
    /// What is left now until `deadline`.
    pub(crate) fn at(now: Instant, deadline: Option<Instant>) -> Self {
        Self { left: deadline.map(|deadline| deadline.since(now)) }
    }

    /// The time until the answer must be sent.
    pub(crate) fn answer(self) -> Option<Duration> {
        Some(self.left?.saturating_sub(ANSWER_TIME))
    }

    /// For reading a response's body.
    #[cfg(feature = "http")]
    pub(crate) fn read(self) -> Duration {
        let Some(left) = self.left else { return BODY_TIMEOUT };
        left.saturating_sub(WRITING_TIME).max(left / 2).min(BODY_TIMEOUT)
    }

    /// For writing a report and its body item. `defers` says whether there is a queue for a report that cannot be written. The queue
    /// gets half of the time at most, because the store probably answers.
    pub(crate) fn write(self, completion_timeout: Duration, defers: bool) -> Duration {
        let Some(answer) = self.answer() else { return completion_timeout };
        let defer = if defers { DEFER_TIME.min(answer / 2) } else { Duration::ZERO };
        completion_timeout.min(answer - defer)
    }

    /// For deferring a report, once the time for writing it is up.
    pub(crate) fn defer(self) -> Duration {
        match self.left {
            None | Some(Duration::ZERO) => STORE_TIMEOUT,
            Some(left) => left.saturating_sub(ANSWER_TIME / 2).min(STORE_TIMEOUT),
        }
    }
}

/// For keeping a body outside its record: half of the time for writing, because the record is more important. It is never less
/// than a healthy store needs, even once the time is up.
pub(crate) fn body_share(write: Duration) -> Duration {
    if write.is_zero() { MIN_BODY_TIME } else { (write / 2).max(MIN_BODY_TIME.min(write)) }
}

/// The Lambda deadline, if it is plausible: after now and within [`MAX_DEADLINE`].
///
/// The runtime's emulators send 0 or ten minutes after 1970, and a wrong clock can produce any value. No such deadline ends
/// the lease or makes it endless: the operation's lease counts instead.
pub fn plausible_deadline(deadline: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (now < deadline && deadline <= now.plus(MAX_DEADLINE)).then_some(deadline)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    // T8
    #[test]
    fn an_implausible_deadline_is_ignored() {
        let none = [
            Timestamp::from_millis(0),
            Timestamp::from_millis(600_000),
            NOW,
            Timestamp::from_millis(NOW.as_millis() - 1),
            NOW.plus(MAX_DEADLINE + Duration::from_millis(1)),
            Timestamp::from_secs(3_218_000_000),
            Timestamp::from_millis(u64::MAX),
        ];
        for deadline in none {
            assert_eq!(plausible_deadline(deadline, NOW), None, "{deadline:?}");
        }
        for plausible in [NOW.plus(Duration::from_millis(1)), NOW.plus(MAX_DEADLINE)] {
            assert_eq!(plausible_deadline(plausible, NOW), Some(plausible));
        }
    }

    // T8
    #[test]
    fn without_a_deadline_the_operations_settings_apply() {
        let budget = TimeBudget { left: None };
        let completion_timeout = Duration::from_secs(7);
        assert_eq!((budget.answer(), budget.read(), budget.defer()), (None, BODY_TIMEOUT, STORE_TIMEOUT));
        assert_eq!(
            (budget.write(completion_timeout, true), budget.write(completion_timeout, false)),
            (completion_timeout, completion_timeout)
        );
    }

    // T37
    #[test]
    fn each_part_is_as_long_as_the_drawing_says() {
        let millis = Duration::from_millis;
        let budget = |left| TimeBudget { left: Some(millis(left)) };
        assert_eq!(budget(10_000).answer(), Some(millis(9_700)));
        assert_eq!(
            [10_000, 2_000, 100_000].map(|left| budget(left).read()),
            [8_000, 1_000, 30_000].map(millis)
        );
        let write = |left, defers| budget(left).write(millis(7_000), defers);
        assert_eq!([write(10_000, false), write(10_000, true)], [7_000, 7_000].map(millis));
        assert_eq!([write(5_300, false), write(5_300, true)], [5_000, 3_400].map(millis));
        assert_eq!([write(1_300, true), write(200, true)], [500, 0].map(millis));
        assert_eq!(
            [1_000, 0, 100, 60_000].map(|left| budget(left).defer()),
            [850, 5_000, 0, 5_000].map(millis)
        );
        assert_eq!(
            [2_000, 150, 50, 0].map(|write| body_share(millis(write))),
            [1_000, 100, 50, 100].map(millis)
        );
    }

    #[test]
    fn a_write_and_its_two_re_sends_fit_into_one_step() {
        let waits: Duration = (1..=RESENDS).map(|tries| WRITE_BACKOFF.after(tries, [0; 16])).sum();
        assert!(waits < STORE_TRY && STORE_TRY * (RESENDS + 1) + waits <= STORE_TIMEOUT);
        // The engine waits for as long as the client of its reads.
        assert!(STORE_CONNECT_TIMEOUT < STORE_TRY && STORE_TRY < STORE_CALL_TIMEOUT);
        assert!(STORE_CALL_TIMEOUT < STORE_TIMEOUT);
        // A write that a message's caller retries has two tries at least.
        assert!(STORE_TRY * 2 <= OFFLINE_WRITE_TIMEOUT);
    }

    fn left() -> impl Strategy<Value = Duration> {
        // Each order of magnitude with the same probability, and zero.
        prop_oneof![Just(0), 0..10_u64, 0..1_000_u64, 0..10_000_u64, 0..1_800_000_u64]
            .prop_map(Duration::from_millis)
    }

    proptest! {
        // T37
        #[test]
        fn the_parts_of_an_invocation_fit_into_what_is_left(
            left in left(), completion_timeout in left(), defers: bool,
        ) {
            let now = Instant::from_beginning(Duration::from_secs(1));
            let at = |spent: Duration| TimeBudget::at(now.plus(spent), Some(now.plus(left)));
            let read = at(Duration::ZERO).read();
            let write = at(read).write(completion_timeout, defers);
            let body = body_share(write);
            let defer = at(read + write).defer();
            prop_assert!(read <= left && (body <= write || write.is_zero()) && write <= completion_timeout);
            let late = read + write >= left;
            prop_assert!(late || read + write + defer <= left, "{read:?} {write:?} {defer:?}");
            prop_assert!(at(read).answer() <= Some(left - read));
            // A report that is written in time is answered in time.
            prop_assert!(read + write + ANSWER_TIME <= left || write.is_zero());
            // A queue always gets a part of the time, if any is left.
            let answer = at(read).answer().unwrap_or_default();
            prop_assert!(!defers || write <= answer - DEFER_TIME.min(answer / 2));
        }
    }
}
