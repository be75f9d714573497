//! How an invocation's time is divided, and how long its record is owned.
//!
//! ```text
//!  reserve  handler runs        read    write         hand over  answer  late writes    others may look
//! ├────────────────────────────┼───────┼─────────────┼──────────┼───────┼──────────────┼───────────────▶
//! 0                                     └ half: a body                  deadline       lease_until
//!                                                       answer by ┘
//! ```
//!
//! 1. Every part is taken from what is left when it begins: none is negative, and their sum fits, however little is left.
//! 2. Once the deadline is past, the caller has gone, and each step may take [`STORE_TIMEOUT`].
//! 3. A deadline that is past or too far away is ignored: the operation's own lease counts.
//! 4. An expired lease decides only that others may *look*.
//!
//! | constant | value | why |
//! | --- | --- | --- |
//! | [`ANSWER_TIME`] | 300 ms | the answer's correlation through the runtime |
//! | [`DEFER_TIME`] | 1.6 s | one try at a queue (700 ms) and another; at most half of what is left |
//! | [`MIN_BODY_TIME`] | 100 ms | several times what a healthy store needs to keep a body; else half of the time for writing |
//! | [`WRITING_TIME`] | 2 s | left for writing once a response's body was read; at most half of what is left |
//! | [`BODY_TIMEOUT`] | 30 s | a response's body that never ends |
//! | [`STORE_TIMEOUT`] | 5 s | one call of the store, whatever time-outs its client has |
//! | [`OFFLINE_WRITE_TIMEOUT`] | 4 s | a write that no caller waits for, and that a queue delivers again |
//! | [`ASK_TIMEOUT`] | 10 s | one question of a reconciler |
//! | `OWNERSHIP_CHECK_INTERVAL` | 1 s | between two checks whether an execution has lost its record |
//! | `WRITE_BACKOFF` | 25 ms, doubled, to 1 s | between two tries of one write |
//! | `POLL_BACKOFF` | 50 ms, doubled, to 1 s | between two looks at an operation in flight |
//! | `TAKE_BACK_BACKOFF` | 50 ms, fourfold | a store in trouble must not be asked more often |
//! | [`DEFAULT_LEASE`] | 60 s | longer than API Gateway waits (29 s): no retry finds it over while the first request is connected |
//! | [`DEFAULT_GRACE`] | 10 s | a time-out that Lambda enforces late, a write in flight, clocks that differ |
//! | [`DEFAULT_COMPLETION_TIMEOUT`] | 10 s | how long a worker tries to write what it did |
//! | [`DEFAULT_RETENTION`] | 24 h | the window that Stripe documents |
//! | [`DEFAULT_RETRY_AFTER`] | 1 s | most operations are over by then |
//! | [`MAX_RETRY_AFTER`] | 5 min | while an outcome is reconciled; a client that waits longer gives up |
//! | [`DEFAULT_PENDING_BOUND`] | 4 days | as long as SQS keeps a message by default |
//! | [`DEFAULT_NOT_FOUND_GRACE`] | 10 min | a request on its way (5 min), by clocks that are [`CLOCK_SKEW`] apart |
//! | [`DEFAULT_FIRST_BACKOFF`] | 10 s, doubled, to [`DEFAULT_MAX_BACKOFF`] (1 h) | between two questions of reconciliation |
//! | [`DEFAULT_QUESTIONS`] | 24 | 13 to 15 hours: a night has passed, and somebody is at work |
//! | [`DEFAULT_MAX_UNKNOWN_AGE`] | 24 h | nobody may have asked for a while: escalated after a day all the same |
//! | [`MIN_QUESTION_TIME`] | 1 s | a question with less time than that is left to the next invocation |
//! | [`DEFAULT_NOT_FOUND_WINDOW`] | 23 h | Stripe forgets a key after 24 h; clocks differ |
//! | [`BODY_OUTLIVES_RECORD`] | 24 h | DynamoDB deletes in no order: a replay must not meet a record whose body is gone |
//! | `QUEUED_BODY_TIMEOUT` | 4 min | a report whose body the store does not take; then it is written without |
//! | [`DEFAULT_MAX_LEASE`] | 1 h | heartbeats of a handler that hangs: then others look |
//! | [`MIN_TIME_TO_RUN`] | 2 s, or a quarter of the invocation's time | an execution that begins with less would be killed midway |
//! | [`STORE_TRY`] | 1.5 s | one try of a call of DynamoDB; its largest body takes some hundred milliseconds |
//! | [`CLOCK_SKEW`] | 5 min | how far ahead of another a machine's clock may be |
//! | [`MAX_DEADLINE`] | 30 min | Lambda's longest time-out (900 s) twice: a deadline beyond it is ignored |

use std::time::Duration;

use crate::time::{Instant, Timestamp};

/// Reserved, of an invocation's time, for its answer.
pub const ANSWER_TIME: Duration = Duration::from_millis(300);

/// Reserved, of an invocation's time, for handing over a report that cannot be written.
pub const DEFER_TIME: Duration = Duration::from_millis(1600);

/// Reserved, of an invocation's time, for writing once a response's body was read or lost.
pub const WRITING_TIME: Duration = Duration::from_secs(2);

/// How long a handler's response body may take at most.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The least that a body outside its record gets of the time for writing.
pub const MIN_BODY_TIME: Duration = Duration::from_millis(100);

/// The longest time that one step waits for the store, whatever time-outs its client has. A write that is given up may
/// still be applied; its condition and its revision keep that harmless.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a write that no caller waits for is tried before its message goes back to its queue.
pub const OFFLINE_WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a question to a reconciler may take.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a worker owns a record if there is no deadline.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(60);

/// How long after its deadline a worker still counts as alive. Two clocks further apart than this cost a detour through
/// `unknown` (or, with [`OnLeaseExpiry::RunAgain`](crate::operation::OnLeaseExpiry), a second run).
pub const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// How long a worker keeps trying to write what it did before its caller gets the answer all the same.
pub const DEFAULT_COMPLETION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a completed answer is kept.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest `Retry-After`.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The longest `Retry-After`.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// How long accepted work may wait for a worker before it counts as abandoned.
pub const DEFAULT_PENDING_BOUND: Duration = Duration::from_secs(4 * 24 * 60 * 60);

/// How long to wait before an operation that is not found counts as not executed.
pub const DEFAULT_NOT_FOUND_GRACE: Duration = Duration::from_secs(10 * 60);

/// How long reconciliation waits after its first question about an outcome; each later pause is twice as long.
pub const DEFAULT_FIRST_BACKOFF: Duration = Duration::from_secs(10);

/// How long reconciliation waits between two questions at most.
pub const DEFAULT_MAX_BACKOFF: Duration = Duration::from_secs(60 * 60);

/// How often reconciliation asks before an outcome is escalated: 13 to 15 hours, after which a night has passed and
/// somebody is at work.
pub const DEFAULT_QUESTIONS: u32 = 24;

/// How long an outcome may be in doubt before it is escalated, however few questions there were.
pub const DEFAULT_MAX_UNKNOWN_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The least time with which a function begins a question.
pub const MIN_QUESTION_TIME: Duration = Duration::from_secs(1);

/// How long after an execution began "not found" is still proof that nothing was done. Stripe
/// [removes keys](https://docs.stripe.com/api/idempotent_requests) once they are 24 hours old, and finds nothing then.
pub const DEFAULT_NOT_FOUND_WINDOW: Duration = Duration::from_secs(23 * 60 * 60);

/// How much longer than its record a body outside it stays.
pub const BODY_OUTLIVES_RECORD: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a report in a queue waits for a store that does not take its body: less than the grace after which it could
/// count as not executed.
pub(crate) const QUEUED_BODY_TIMEOUT: Duration = Duration::from_secs(4 * 60);

/// How long heartbeats keep a record, from the beginning of its execution.
pub const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(60 * 60);

/// How much time must be left for an execution to begin, unless a quarter of its invocation's time is less.
pub const MIN_TIME_TO_RUN: Duration = Duration::from_secs(2);

/// One try of one call of the store. Whoever waited less than that has learned nothing about the store.
pub const STORE_TRY: Duration = Duration::from_millis(1500);

/// How far ahead of another a machine's clock may be before it takes a kept answer for expired and runs the operation
/// again.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// The longest time that a Lambda function can have (900 s), and as much again for clocks that differ. A deadline further
/// away is ignored.
pub const MAX_DEADLINE: Duration = Duration::from_secs(2 * 900);

/// How often the domain writes of one operation are computed, if each time they come from a stale read.
pub const MAX_COMMITS: u32 = 5;

/// Between two checks whether an execution has lost its record.
pub(crate) const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Between two tries of one write.
pub(crate) const WRITE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(25), factor: 2, longest: Duration::from_secs(1) };

/// Between two looks at an operation in flight.
pub(crate) const POLL_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(50), factor: 2, longest: Duration::from_secs(1) };

/// Between two tries to take a reservation back.
pub(crate) const TAKE_BACK_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(50), factor: 4, longest: Duration::from_secs(10) };

/// Pauses that grow from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    factor: u32,
    longest: Duration,
}

impl Backoff {
    /// The pause after one of this length.
    pub(crate) fn after(&self, pause: Duration) -> Duration {
        pause.saturating_mul(self.factor).min(self.longest)
    }
}

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

    /// The time until the answer must be on its way.
    pub(crate) fn answer(self) -> Option<Duration> {
        Some(self.left?.saturating_sub(ANSWER_TIME))
    }

    /// For reading a response's body.
    pub(crate) fn read(self) -> Duration {
        let Some(left) = self.left else { return BODY_TIMEOUT };
        left.saturating_sub(WRITING_TIME).max(left / 2).min(BODY_TIMEOUT)
    }

    /// For writing a report, the body beside it included. `defers` says whether there is a queue for one that cannot
    /// be written: it gets half at most, because the store is more likely to answer than not.
    pub(crate) fn write(self, completion_timeout: Duration, defers: bool) -> Duration {
        let Some(answer) = self.answer() else { return completion_timeout };
        let defer = if defers { DEFER_TIME.min(answer / 2) } else { Duration::ZERO };
        completion_timeout.min(answer - defer)
    }

    /// For handing a report over, once the time for writing it is up.
    pub(crate) fn defer(self) -> Duration {
        match self.left {
            None | Some(Duration::ZERO) => STORE_TIMEOUT,
            Some(left) => left.saturating_sub(ANSWER_TIME / 2).min(STORE_TIMEOUT),
        }
    }
}

/// For keeping a body outside its record, of the time for writing: half, because the record itself is more important; but
/// not less than a healthy store needs, even once the time is up.
pub(crate) fn body_share(write: Duration) -> Duration {
    if write.is_zero() { MIN_BODY_TIME } else { (write / 2).max(MIN_BODY_TIME.min(write)) }
}

/// The Lambda deadline, if it is plausible: after now and within [`MAX_DEADLINE`].
///
/// The runtime's emulators send 0 or ten minutes after 1970, and a wrong clock can produce any value. No such deadline ends
/// the lease or makes it endless: the operation's own lease counts instead.
pub fn plausible_deadline(deadline: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (now < deadline && deadline <= now.plus(MAX_DEADLINE)).then_some(deadline)
}

/// Until when an execution that begins now owns its record: its plausible deadline, or the operation's lease, plus the
/// operation's grace. An expired lease decides only that somebody may *look*.
pub(crate) fn lease_until(
    deadline: Option<Timestamp>,
    now: Timestamp,
    lease: Duration,
    grace: Duration,
) -> Timestamp {
    deadline.unwrap_or_else(|| now.plus(lease)).plus(grace)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    // T8
    #[test]
    fn an_implausible_deadline_counts_as_none() {
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

    // R18, T8
    #[test]
    fn there_is_always_a_lease_from_the_deadline_or_from_the_operation() {
        let (lease, grace) = (Duration::from_secs(60), Duration::from_secs(10));
        let deadline = NOW.plus(Duration::from_secs(20));
        assert_eq!(lease_until(Some(deadline), NOW, lease, grace), NOW.plus(Duration::from_secs(30)));
        assert_eq!(lease_until(None, NOW, lease, grace), NOW.plus(Duration::from_secs(70)));
    }

    #[test]
    fn without_a_deadline_the_operations_own_spans_hold() {
        let budget = TimeBudget { left: None };
        let completion_timeout = Duration::from_secs(7);
        assert_eq!((budget.answer(), budget.read(), budget.defer()), (None, BODY_TIMEOUT, STORE_TIMEOUT));
        assert_eq!(
            (budget.write(completion_timeout, true), budget.write(completion_timeout, false)),
            (completion_timeout, completion_timeout)
        );
    }

    #[test]
    fn every_constant_is_what_its_table_says() {
        let millis = [ANSWER_TIME, DEFER_TIME, MIN_BODY_TIME, STORE_TRY].map(|span| span.as_millis());
        assert_eq!(millis, [300, 1_600, 100, 1_500]);
        let seconds = [
            (WRITING_TIME, 2),
            (BODY_TIMEOUT, 30),
            (STORE_TIMEOUT, 5),
            (OFFLINE_WRITE_TIMEOUT, 4),
            (ASK_TIMEOUT, 10),
            (DEFAULT_LEASE, 60),
            (DEFAULT_GRACE, 10),
            (DEFAULT_COMPLETION_TIMEOUT, 10),
            (DEFAULT_RETENTION, 86_400),
            (DEFAULT_RETRY_AFTER, 1),
            (MAX_RETRY_AFTER, 300),
            (DEFAULT_PENDING_BOUND, 345_600),
            (DEFAULT_NOT_FOUND_GRACE, 600),
            (DEFAULT_MAX_UNKNOWN_AGE, 86_400),
            (MIN_QUESTION_TIME, 1),
            (DEFAULT_NOT_FOUND_WINDOW, 82_800),
            (DEFAULT_FIRST_BACKOFF, 10),
            (DEFAULT_MAX_BACKOFF, 3_600),
            (DEFAULT_MAX_LEASE, 3_600),
            (BODY_OUTLIVES_RECORD, 86_400),
            (QUEUED_BODY_TIMEOUT, 240),
            (MIN_TIME_TO_RUN, 2),
            (OWNERSHIP_CHECK_INTERVAL, 1),
            (CLOCK_SKEW, 300),
            (MAX_DEADLINE, 1_800),
        ];
        for (constant, expected) in seconds {
            assert_eq!(constant, Duration::from_secs(expected));
        }
    }

    // R16, T37
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
        assert_eq!(WRITE_BACKOFF.after(millis(25)), millis(50));
        assert_eq!(TAKE_BACK_BACKOFF.after(millis(50)), millis(200));
    }

    fn left() -> impl Strategy<Value = Duration> {
        // Each order of magnitude as often as the others, and nothing at all too.
        prop_oneof![Just(0), 0..10_u64, 0..1_000_u64, 0..10_000_u64, 0..1_800_000_u64]
            .prop_map(Duration::from_millis)
    }

    proptest! {
        // R16, R18, T37
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
            // What is written in time is answered in time.
            prop_assert!(read + write + ANSWER_TIME <= left || write.is_zero());
            // A queue that is there gets a part whenever there is anything to divide.
            let answer = at(read).answer().unwrap_or_default();
            prop_assert!(!defers || write <= answer - DEFER_TIME.min(answer / 2));
        }

        #[test]
        fn pauses_grow_to_the_longest_and_no_further(tries in 0..100_u32) {
            for backoff in [WRITE_BACKOFF, POLL_BACKOFF, TAKE_BACK_BACKOFF] {
                let pause = (0..tries).fold(backoff.first, |pause, _| backoff.after(pause));
                prop_assert!(backoff.first <= pause && pause <= backoff.longest);
            }
        }
    }
}
