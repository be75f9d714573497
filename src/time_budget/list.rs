//! The list of all durations, and of the few counts that bound time.

use std::time::Duration;

use protocol::time;

use crate::backoff::Backoff;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn minutes(minutes: u64) -> Duration {
    seconds(minutes * 60)
}

const fn hours(hours: u64) -> Duration {
    minutes(hours * 60)
}

/// Declares the constants, each documented by its reason, and for the test the table of them all.
macro_rules! list {
    ($($(#[doc = $why:literal])+ $vis:vis const $name:ident: $kind:ty = $value:expr;)+) => {
        $(
            $(#[doc = $why])+
            // Some are of one feature only.
            #[cfg_attr(
                not(all(feature = "http", feature = "dynamodb", feature = "lambda", feature = "sqs")),
                allow(dead_code)
            )]
            $vis const $name: $kind = $value;
        )+

        #[cfg(test)]
        const ALL: &[(&str, &dyn tests::Value, &str)] =
            &[$((stringify!($name), &$name, concat!($($why),+))),+];
    };
}

list! {
    /// Left of an invocation's time for sending the answer through the runtime.
    pub const ANSWER_TIME: Duration = millis(300);

    /// Left for deferring a report that cannot be written: two tries of 700 ms. At most half of what is left.
    pub const DEFER_TIME: Duration = millis(1600);

    /// Left for writing once a response's body is read or lost. At most half of what is left.
    pub const WRITING_TIME: Duration = seconds(2);

    /// Reading the body of a request, or of a handler's response, may take this long: a body might never end.
    pub const BODY_TIMEOUT: Duration = seconds(30);

    /// The least time for storing a body: several times what a healthy store needs.
    pub const MIN_BODY_TIME: Duration = millis(100);

    /// One step waits this long for the store: a read, or all tries of a write that is not retried further. The write may still
    /// be applied later; its condition and its revision keep that harmless.
    pub const STORE_TIMEOUT: Duration = seconds(5);

    /// A write that no caller waits for is tried for this long. Then its message goes back to its queue.
    pub const OFFLINE_WRITE_TIMEOUT: Duration = seconds(4);

    /// A message waits this long for its queue: a little longer than all tries of SQS together.
    pub const SEND_TIMEOUT: Duration = seconds(2);

    /// A question to a reconciler may take this long.
    pub const ASK_TIMEOUT: Duration = seconds(10);

    /// A question is asked only if this much time is left. Otherwise it waits for the next invocation.
    pub const MIN_QUESTION_TIME: Duration = seconds(1);

    /// The time that one message of the reconcile function may take: a read, a claim, a question, its answer's body, and a write.
    pub const MAX_QUESTION_TIME: Duration =
        ASK_TIMEOUT.saturating_add(OFFLINE_WRITE_TIMEOUT).saturating_add(STORE_TIMEOUT.saturating_mul(3));

    /// The time that one message of the stale function may take: a read, a write, and a message.
    pub const MAX_CHECK_TIME: Duration = STORE_TIMEOUT.saturating_mul(2).saturating_add(SEND_TIMEOUT);

    /// The stale function checks a record once its lease has expired, but never sooner than this.
    pub(crate) const MIN_CHECK_DELAY: Duration = seconds(1);

    /// A sweep that was not continued for this long starts again: what it has checked may have changed.
    pub(crate) const MAX_SWEEP_PAUSE: Duration = hours(1);

    /// The operation's lease if there is no deadline. API Gateway waits for 29 s: no retry finds the lease expired while the
    /// first request is still connected.
    pub const DEFAULT_LEASE: Duration = seconds(60);

    /// A worker counts as alive for this long after its deadline: Lambda may enforce it late, a write may be in flight, clocks
    /// may differ. If they differ by more, the operation becomes `unknown`, or runs again if it may.
    pub const DEFAULT_GRACE: Duration = seconds(10);

    /// Heartbeats keep a record for this long at most, so that a handler that hangs is found.
    pub const DEFAULT_MAX_LEASE: Duration = hours(1);

    /// An execution begins only if this much time is left, or a quarter of what its invocation had when the request reached the
    /// guard, if that is less. Otherwise it would be killed midway.
    pub const MIN_TIME_TO_RUN: Duration = seconds(2);

    /// The time between two checks whether an execution has lost its record.
    pub(crate) const OWNERSHIP_CHECK_INTERVAL: Duration = seconds(1);

    /// A worker tries to write its report for this long. Then its caller gets the answer all the same.
    pub const DEFAULT_COMPLETION_TIMEOUT: Duration = seconds(10);

    /// Domain writes that come from a stale read are computed at most this often.
    pub const MAX_COMPUTATIONS: u32 = 5;

    /// A single transaction is sent for this long after its request began: an answer kept meanwhile has not expired by then,
    /// and DynamoDB remembers the token for twice as long. A reservation is made within this time after its key has become too
    /// old, or not at all.
    pub const MAX_SENDING_TIME: Duration = CLOCK_SKEW;

    /// A process uses the rules that operators have set for tenants for this long. Then it reads them again, beside the next
    /// reservation.
    pub const RULES_FOR: Duration = seconds(5);

    /// After a read of the rules that failed, the next one waits for so long.
    pub(crate) const RULES_AGAIN: Duration = seconds(1);

    /// A count of a new key may take this long. It is made while the handler runs.
    pub(crate) const COUNT_TIME: Duration = seconds(1);

    /// A process looks at the open records of a tenant this often, if they are bounded and it begins new ones.
    pub(crate) const OPEN_LOOK: Duration = seconds(30);

    /// A completed answer is kept for this long: the window that Stripe documents.
    pub const DEFAULT_RETENTION: Duration = hours(24);

    /// A body outside its record is kept for this much longer: DynamoDB deletes in no order, and a replay must not find a
    /// record whose body is gone.
    pub const BODY_OUTLIVES_RECORD: Duration = hours(24);

    /// A report in a queue, or an unknown outcome, waits this long for a store that does not take the answer's body. Then it is
    /// written without the body, before the effect could count as not executed.
    pub(crate) const QUEUED_BODY_TIMEOUT: Duration = minutes(4);

    /// The shortest `Retry-After`: most operations are over by then.
    pub const DEFAULT_RETRY_AFTER: Duration = seconds(1);

    /// The longest `Retry-After`, while an outcome is reconciled: a client that waits longer stops asking.
    pub const MAX_RETRY_AFTER: Duration = minutes(5);

    /// Accepted work whose executions certainly did nothing is executed this often at most. The waits between ten are over
    /// after about 9 minutes.
    pub const DEFAULT_MAX_ATTEMPTS: u32 = 10;

    /// An operation that is not found counts as not executed after this: a request on its way (5 min), by clocks that are 5 min
    /// apart.
    pub const DEFAULT_NOT_FOUND_GRACE: Duration = time::ARRIVAL_TIME;

    /// "Not found" is proof for this long after an execution began. Stripe [removes
    /// keys](https://docs.stripe.com/api/idempotent_requests) after 24 h; clocks differ.
    pub const DEFAULT_NOT_FOUND_WINDOW: Duration = hours(23);

    /// The wait between the first two questions about an unknown outcome. Each later wait is twice as long.
    pub const DEFAULT_FIRST_BACKOFF: Duration = seconds(10);

    /// The longest wait between two questions about an unknown outcome.
    pub const DEFAULT_MAX_BACKOFF: Duration = hours(1);

    /// How many questions there are before an outcome is escalated: they take 13 to 15 hours, so an operator is at work.
    pub const DEFAULT_QUESTIONS: u32 = 24;

    /// An unknown outcome is escalated after this time, even if no question could be asked.
    pub const DEFAULT_MAX_UNKNOWN_AGE: Duration = hours(24);

    /// An older effect without a record raises no alarm: providers retry an event for days.
    pub(crate) const OLD_EFFECT: Duration = time::OLD_EFFECT;

    /// A report that knows only a provider's id may come before its record refers to it: the handler keeps the result of its
    /// call within this time, or another execution makes the call again.
    pub const REFERENCE_WAIT: Duration = minutes(10);

    /// A provider's signature may be this old, or this far ahead: Stripe's own default.
    pub const SIGNATURE_TOLERANCE: Duration = minutes(5);

    /// Stripe delivers an event again for this long ([automatic retries](https://docs.stripe.com/webhooks#automatic-retries)).
    pub const STRIPE_REDELIVERY: Duration = hours(72);

    /// GitHub delivers an event again for this long, only if it is asked to
    /// ([redelivering](https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks)).
    pub const GITHUB_REDELIVERY: Duration = hours(72);

    /// Shopify delivers an event again for this long, eight times
    /// ([changelog](https://shopify.dev/changelog/updates-to-webhook-retry-mechanism)).
    pub const SHOPIFY_REDELIVERY: Duration = hours(4);

    /// A sender by Standard Webhooks delivers an event again for this long: the
    /// [specification](https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md)'s example
    /// ends after 75.6 hours.
    pub const STANDARD_WEBHOOKS_REDELIVERY: Duration = hours(76);

    /// Svix delivers an event again for this long: eight times in 27.6 hours ([retries](https://docs.svix.com/retries)).
    pub const SVIX_REDELIVERY: Duration = hours(28);

    /// GitHub waits for an answer for this long
    /// ([best practices](https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks)).
    pub const GITHUB_PATIENCE: Duration = seconds(10);

    /// Shopify waits for an answer for this long
    /// ([HTTPS webhooks](https://shopify.dev/docs/apps/build/webhooks/subscribe/https)).
    pub const SHOPIFY_PATIENCE: Duration = seconds(5);

    /// A sender by Standard Webhooks waits this long for an answer: the
    /// [specification](https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md) asks for 15
    /// to 30 s.
    pub const STANDARD_WEBHOOKS_PATIENCE: Duration = seconds(30);

    /// Svix waits for an answer for this long ([retries](https://docs.svix.com/retries)).
    pub const SVIX_PATIENCE: Duration = seconds(15);

    /// Clocks may differ by this much. Beyond it, a kept answer may count as expired too early, and the operation runs again.
    pub const CLOCK_SKEW: Duration = time::CLOCK_SKEW;

    /// A deadline further away is ignored: twice the longest time-out that Lambda has (900 s).
    pub const MAX_DEADLINE: Duration = minutes(30);

    /// A function starts no message in this last part of its time, or in the second half if that is shorter.
    pub(crate) const NO_NEW_WORK: Duration = seconds(3);

    /// A function without a known deadline starts messages for this long.
    pub(crate) const DEFAULT_WORKING_TIME: Duration = seconds(10);

    /// The metrics of a running invocation are written this long before its deadline.
    pub(crate) const METRICS_BEFORE_DEADLINE: Duration = millis(200);

    /// While the store seems down, one request in this time asks it, and the others get 503 at once.
    pub(crate) const BREAKER_OPEN_FOR: Duration = seconds(2);

    /// The waits between two tries of one write.
    pub(crate) const WRITE_BACKOFF: Backoff = Backoff { first: millis(25), factor: 2, max: seconds(1) };

    /// The waits between two reads of an operation in flight.
    pub(crate) const POLL_BACKOFF: Backoff = Backoff { first: millis(50), factor: 2, max: seconds(1) };

    /// The waits between two tries to take a reservation back. They grow fast, to spare a store that fails.
    pub(crate) const TAKE_BACK_BACKOFF: Backoff = Backoff { first: millis(50), factor: 4, max: seconds(10) };

    /// The first wait between two tries of an AWS client that retries. The SDK's default (1 s) is most of the time that a caller waits.
    pub(crate) const CLIENT_BACKOFF: Duration = millis(25);

    /// A connection to DynamoDB takes milliseconds within a Region. The SDK's own limit (3.1 s) is most of a request's time.
    pub(crate) const STORE_CONNECT_TIMEOUT: Duration = seconds(1);

    /// One try of a call of DynamoDB; its largest body takes some hundred milliseconds. A caller that waits for less learns
    /// nothing about the store.
    pub const STORE_TRY: Duration = millis(1500);

    /// A write of DynamoDB that gets no answer is sent again so often: at once, and after a wait of `WRITE_BACKOFF`. If none is
    /// answered, all are over within `STORE_TIMEOUT`.
    pub(crate) const RESENDS: u32 = 2;

    /// All tries of a read of DynamoDB together, or of a body that is kept. The SDK has no limit.
    pub(crate) const STORE_CALL_TIMEOUT: Duration = seconds(4);

    /// One try of a call of SQS: a worker sends its report in the last seconds of its time.
    pub(crate) const QUEUE_TRY: Duration = millis(700);

    /// All tries of a call of SQS together.
    pub(crate) const QUEUE_CALL_TIMEOUT: Duration = millis(1500);

    /// The longest delay of a message in SQS
    /// ([quotas](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html)).
    pub const MAX_DELAY: Duration = minutes(15);

    /// A message of the outbox that is older than this should have been delivered: a sweep asks for it again.
    pub const DELIVERY_GRACE: Duration = minutes(15);

    /// An event bus is asked at most this often whether it exists: EventBridge drops the events for a deleted bus.
    pub const BUS_CHECK: Duration = minutes(1);

    /// The waits of a message whose function did nothing, or of a deferred report that was not written.
    pub(crate) const HANDED_BACK: Backoff = Backoff { first: seconds(1), factor: 2, max: minutes(15) };

    /// Loading a message's payload from S3 may take this long. Then the message comes again.
    pub const PAYLOAD_TIMEOUT: Duration = seconds(10);

    /// The waits of a record of a stream that cannot go on, within its invocation.
    pub(crate) const STREAM_PAUSE: Backoff = Backoff { first: seconds(1), factor: 2, max: seconds(30) };

    /// A record of a stream that cannot go on is parked once it is this old: a stream keeps records for a day, unless it is set
    /// otherwise, and none behind it is done before.
    pub const PARK_AFTER: Duration = hours(6);

    /// A message in flight comes again so long after the lease, so that a clock that is slightly behind sees it expired.
    pub(crate) const LEASE_OVER: Duration = seconds(2);

    /// A message with an unknown outcome is hidden until the next question, and for so long at least, by its receives: so it is
    /// received less than 1,000 times, the most that a queue allows, in 14 days, and is done half an hour after its outcome is
    /// settled.
    pub(crate) const HELD: Backoff = Backoff { first: minutes(1), factor: 2, max: minutes(30) };

    /// A message whose tenant is stopped or over a bound goes to the dead letters once it was sent this long ago, and received
    /// ten times. A queue keeps it for four days, unless it is set otherwise.
    pub const MAX_TURNED_AWAY: Duration = hours(3 * 24);

    /// A message is hidden for this long at most. SQS allows 12 hours from its receive, and an invocation takes up to 15
    /// minutes.
    pub(crate) const MAX_VISIBILITY: Duration = minutes(11 * 60 + 30);
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// What the list declares, as its table shows it: no digit is left out.
    pub(super) trait Value: Sync {
        fn shown(&self) -> String;
    }

    impl Value for Duration {
        fn shown(&self) -> String {
            let (seconds, millis) = (self.as_secs(), self.subsec_millis());
            assert_eq!(self.subsec_nanos() % 1_000_000, 0, "{self:?} is no whole number of milliseconds");
            let exact = format!("{seconds}.{millis:03}");
            match seconds {
                0 => format!("{millis} ms"),
                _ if millis > 0 => format!("{} s", exact.trim_end_matches('0')),
                _ if seconds > 172_800 && seconds % 86_400 == 0 => format!("{} days", seconds / 86_400),
                _ if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
                _ if seconds > 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
                _ => format!("{seconds} s"),
            }
        }
    }

    impl Value for Backoff {
        fn shown(&self) -> String {
            let Self { first, factor, max } = self;
            format!("{}, times {factor}, to {}", first.shown(), max.shown())
        }
    }

    impl Value for u32 {
        fn shown(&self) -> String {
            self.to_string()
        }
    }

    #[test]
    fn the_documented_durations_are_those_of_the_list() {
        const HEAD: &str = "| name | value | why |\n| --- | --- | --- |\n";
        let rows = ALL.iter().map(|(name, value, why)| format!("| `{name}` | {} |{why} |\n", value.shown()));
        let table = HEAD.to_owned() + &rows.collect::<String>();
        let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/durations.md");
        let documented = fs::read_to_string(chapter).unwrap();
        assert!(documented.ends_with(&table), "docs/durations.md must end with this table:\n\n{table}");
    }

    #[test]
    fn a_value_is_shown_in_its_largest_whole_unit() {
        let spans = [millis(300), millis(1600), millis(2050), seconds(60), minutes(30), hours(24), hours(96)];
        let shown = spans.map(|span| span.shown());
        assert_eq!(shown, ["300 ms", "1.6 s", "2.05 s", "60 s", "30 min", "24 h", "4 days"]);
        let backoff = Backoff { first: millis(25), factor: 2, max: seconds(1) };
        assert_eq!(backoff.shown(), "25 ms, times 2, to 1 s");
    }
}
