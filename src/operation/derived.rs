//! Values that follow from several settings, and contradictions between settings.

use std::time::Duration;

use super::{OnLeaseExpiry, Operation};
use crate::{
    key::{FoundKey, OperationName, age::KeyTime, is_hash, refusal::KeyRefusal},
    record::{Admission, Effects, Resumes},
    time::Timestamp,
    time_budget::{MAX_RETRY_AFTER, MAX_SENDING_TIME, MIN_TIME_TO_RUN},
};

impl Operation {
    pub(crate) fn name(&self) -> &OperationName {
        &self.name
    }

    /// Whether this key may begin an execution: not if a part of it is too short, if it is too old, or if its age is unknown. `timestamp` is the
    /// header that dates a key of [`KeyTime::Signed`](crate::key::age::KeyTime::Signed).
    pub(crate) fn admission_of(
        &self,
        found: &FoundKey,
        timestamp: Option<&str>,
        now: Timestamp,
    ) -> Admission {
        if found.shortest < self.min_key_length {
            let is_hash = is_hash(found.key.as_str());
            return KeyRefusal::too_short(self.min_key_length, is_hash).admission(false);
        }
        self.oldest_key.as_ref().map_or(Admission::ALWAYS, |oldest| oldest.admit(&found.key, timestamp, now))
    }

    /// Panics if no key from there has the time by which it would be admitted.
    #[cfg(any(feature = "http", feature = "lambda"))]
    pub(crate) fn assert_dates(&self, from: &crate::key::KeyFrom) {
        assert!(
            self.oldest_key.is_none() || !from.may_be_hash(),
            "operation {:?}: refuse_older_than() needs keys that have a time, and a hash has none: {from:?}",
            self.name.as_str()
        );
    }

    /// Until when an execution that begins now owns its record: its plausible deadline, or the lease, plus the grace. An expired lease
    /// allows others only to *look*.
    pub(crate) fn lease_until(&self, deadline: Option<Timestamp>, now: Timestamp) -> Timestamp {
        deadline.unwrap_or_else(|| now.plus(self.lease)).plus(self.grace)
    }

    /// How much of `whole` must be left for an execution to begin.
    pub(crate) fn min_time_of(&self, whole: Duration) -> Duration {
        self.min_time.unwrap_or_else(|| MIN_TIME_TO_RUN.min(whole / 4))
    }

    /// The `Retry-After` for a sensible wait, within the bounds.
    pub(crate) fn retry_after_of(&self, wait: Duration) -> Duration {
        wait.max(self.retry_after).min(MAX_RETRY_AFTER)
    }

    /// Whether an expired lease permits another run from the beginning.
    pub(crate) fn may_run_again(&self) -> bool {
        self.lease_expired == OnLeaseExpiry::RunAgain
    }

    /// Where all its effects are, and how it resumes if they are in its phases.
    pub(crate) fn effects(&self) -> Effects<Resumes> {
        self.effects.clone().map(|declared| declared.resumes())
    }

    /// The place of the phase of this name in the order that it declares.
    pub(crate) fn place_of(&self, phase: &str) -> Option<usize> {
        self.effects.phases()?.place_of(phase)
    }

    /// Panics if the age of a key comes from a header: a function has none, and each call would be refused. Panics if the operation is
    /// executed later: a function's caller waits for its result.
    pub(crate) fn assert_for_functions(&self) {
        assert!(
            self.asynchronous.is_none(),
            "operation {:?}: asynchronous() is for HTTP: a queue is a function's way to be executed later",
            self.name.as_str()
        );
        assert!(
            self.keeps.body,
            "operation {:?}: keep_body(false) is for HTTP: the result of a function is a body",
            self.name.as_str()
        );
        let signed = self.oldest_key.as_ref().is_some_and(|oldest| matches!(oldest.time, KeyTime::Signed(_)));
        assert!(
            !signed,
            "operation {:?}: KeyTime::Signed needs a header: a function's key is dated by itself, or not at all",
            self.name.as_str()
        );
    }

    /// Panics if a single transaction could be tried for longer than it may be sent.
    pub(crate) fn assert_single_transaction(&self) {
        let (name, timeout) = (self.name.as_str(), self.completion_timeout);
        assert!(
            self.effects.phases().is_none(),
            "operation {name:?}: a single_transaction() has no phases to resume behind: drop resumes()"
        );
        assert!(
            self.asynchronous.is_none(),
            "operation {name:?}: a single_transaction() is not asynchronous(): it is executed at once, or accepted"
        );
        assert!(
            timeout <= MAX_SENDING_TIME,
            "operation {name:?}: completion_timeout({timeout:?}) is longer than a single_transaction() may be sent \
             ({MAX_SENDING_TIME:?})"
        );
    }

    /// Panics if settings contradict each other: an answer could expire while its key is still accepted, a lease could expire
    /// between two heartbeats, or no execution could begin. Called when all settings are made, so that their order does not matter.
    pub(crate) fn assert_consistent(&self) {
        let (name, lease, max) = (self.name.as_str(), self.lease, self.max_lease);
        assert!(
            self.effects.phases().is_none() || !self.may_run_again(),
            "operation {name:?}: on_lease_expiry(RunAgain) would begin anew what resumes() resumes: drop one of them"
        );
        if let Some(min) = self.min_time {
            assert!(
                min <= lease,
                "operation {name:?}: min_time_to_run({min:?}) is longer than lease({lease:?})"
            );
        }
        if let Some(every) = self.heartbeat {
            assert!(
                every < lease,
                "operation {name:?}: heartbeat({every:?}) needs a lease({lease:?}) that is longer"
            );
            assert!(lease <= max, "operation {name:?}: max_lease({max:?}) is shorter than lease({lease:?})");
        }
        assert!(
            self.keeps.body || self.asynchronous.is_none(),
            "operation {name:?}: keep_body(false) would keep the answer of an asynchronous() operation from everybody"
        );
        if let Some(oldest) = &self.oldest_key {
            oldest.assert_answers_kept(&self.name, self.retain);
        }
    }
}
