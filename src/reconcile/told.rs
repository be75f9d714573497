//! What a provider says by itself, and what that means beside the record that is there (T46): a pure function.
//!
//! | the record | what is done |
//! | --- | --- |
//! | unknown, released, or its lease is over | the word settles it; of a later attempt than the first, a refusal is confirmed first |
//! | in progress | asked about once that is over; if the provider does not confirm an effect then, no retry runs, and it is escalated |
//! | completed, and the word says the same | nothing |
//! | completed, and the word says otherwise | escalated: a completed record never changes |
//! | another request's | escalated if it tells of an effect |
//! | none | likewise, unless that is two weeks ago or more, and the retention over |

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Question, Reconciler};
use crate::{
    record::{Head, Record, State},
    time::Timestamp,
    time_budget::CLOCK_SKEW,
};

/// What a provider says by itself of one operation, by a webhook for example.
pub struct Told {
    pub(super) by: Box<dyn Reconciler>,
    pub(super) said: Said,
}

/// What is said, without who can say more: as it goes through a queue while a worker has the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(super) word: Word,
    /// The phase, and the key that it handed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    under: Option<(String, String)>,
    /// In milliseconds since 1970, by the provider's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_at: Option<u64>,
}

/// How long ago an effect was made whose record may be gone without anybody missing it: providers send what is not acknowledged
/// for days, and what is released may turn out to have been executed for as long.
const OLD: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// What is said of the effect, as short as it goes through a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// It was executed, and this is the status that its client is to get.
    Executed(u16),
    /// It was not executed.
    NotExecuted,
}

/// What a word means beside the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It settles the record, as far as was seen.
    Settles,
    /// The record says the same, or knows better.
    Nothing,
    /// The record is somebody's until then.
    Later(Timestamp),
    /// Nobody can say what it belongs to any more: its record may have expired.
    TooLate,
    /// One of the two is wrong, for this reason.
    Contradicts(&'static str),
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("word", &self.said.word).finish_non_exhaustive()
    }
}

impl Told {
    /// It was executed, and this is the status that its client is to get. `by` gives the whole answer if it is needed.
    pub fn executed(status: u16, by: impl Reconciler) -> Self {
        Self { by: Box::new(by), said: Said::of(Word::Executed(status)) }
    }

    /// It was not executed, and will not be. `by` says so if it is asked.
    pub fn not_executed(by: impl Reconciler) -> Self {
        Self { by: Box::new(by), said: Said::of(Word::NotExecuted) }
    }

    /// It was asked for under this [downstream key](crate::engine::Execution::downstream_key) of this phase. What leads to a
    /// record is often metadata that anybody can set; the key proves that it is about this very request.
    #[must_use]
    pub fn under(mut self, phase: &str, downstream_key: &str) -> Self {
        self.said.under = Some((phase.to_owned(), downstream_key.to_owned()));
        self
    }

    /// When the effect was made, by the provider's clock: one that is older than two weeks, and than its operation's retention, has
    /// perhaps no record any more.
    #[must_use]
    pub fn made_at(mut self, at: Timestamp) -> Self {
        self.said.made_at = Some(at.as_millis());
        self
    }
}

impl Said {
    /// This word, and nothing that proves what it is about.
    pub(super) const fn of(word: Word) -> Self {
        Self { word, under: None, made_at: None }
    }

    /// The downstream key, for people.
    pub(super) fn downstream_key(&self) -> Option<&str> {
        self.under.as_ref().map(|(_, key)| &**key)
    }

    /// What this means beside the record that is there.
    pub(super) fn beside(&self, there: Option<&Record>, retention: Duration, now: Timestamp) -> Meaning {
        let Some(there) = there else {
            let made_at = self.made_at.map(Timestamp::from_millis);
            let kept = retention.max(OLD);
            return match self.word.is_effect() {
                false => Meaning::Nothing,
                // By the provider's clock.
                true if made_at.is_some_and(|at| at.plus(kept).plus(CLOCK_SKEW) < now) => Meaning::TooLate,
                true => Meaning::Contradicts("it tells of an effect that has no record"),
            };
        };
        if let Some((phase, key)) = &self.under
            && *key != (Question { record: there.clone() }).downstream_key(phase)
        {
            return match self.word.is_effect() {
                false => Meaning::Nothing,
                true => Meaning::Contradicts("it tells of an effect under the key of another request"),
            };
        }
        self.word.beside(there, now)
    }
}

impl Word {
    /// Whether it tells of an effect, and not of a refusal.
    pub(super) const fn is_effect(self) -> bool {
        matches!(self, Self::Executed(200..=399))
    }

    /// What this means beside the record of the same request.
    pub(super) fn beside(self, there: &Record, now: Timestamp) -> Meaning {
        match (&there.state, self) {
            (State::InProgress { lease_until }, _) if now < *lease_until => Meaning::Later(*lease_until),
            (State::Pending, Self::Executed(_)) => {
                Meaning::Contradicts("it tells of an effect of work that nobody has begun")
            }
            (State::Pending, Self::NotExecuted) => Meaning::Nothing,
            (State::Completed { answer, .. }, _) => {
                let kept = match &answer.head {
                    Head::Http { status, .. } => Self::Executed(*status).is_effect(),
                    Head::Payload => true,
                    Head::Abandoned => false,
                };
                match (kept, self.is_effect()) {
                    (true, false) => {
                        Meaning::Contradicts("it denies an effect that the record says was made")
                    }
                    (false, true) => {
                        Meaning::Contradicts("it tells of an effect that the record says was refused")
                    }
                    _ => Meaning::Nothing,
                }
            }
            (State::FailedRetryable { .. }, Self::NotExecuted) => Meaning::Nothing,
            (State::FailedRetryable { .. } | State::InProgress { .. } | State::Unknown { .. }, _) => {
                Meaning::Settles
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        KeptAnswer, Revision, SettledBy, Verdict, Worker,
        tests::{answer, bid},
    };

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn begun() -> Record {
        Record::reserve(&bid("k"), Revision::mint(), START)
    }

    fn completed(answer: KeptAnswer) -> Record {
        let begun = begun();
        begun.complete(Worker::of(&begun), Revision::mint(), answer, START).expect("it is its own")
    }

    fn with_status(status: u16) -> Record {
        completed(KeptAnswer { head: Head::Http { status, headers: Vec::new() }, ..answer() })
    }

    /// In short: what a word that tells of an effect means beside the record, and what one that denies it does.
    #[track_caller]
    fn assert_means(there: &Record, at: Timestamp, told: &str, denied: &str) {
        let short = |word: Word| match word.beside(there, at) {
            Meaning::Settles => "settles",
            Meaning::Nothing => "nothing",
            Meaning::Later(_) => "later",
            Meaning::TooLate => "too late",
            Meaning::Contradicts(_) => "contradicts",
        };
        for status in [200, 201, 204, 302, 399] {
            assert_eq!(short(Word::Executed(status)), told, "{status}: {there:?}");
        }
        for status in [100, 199, 400, 402, 500] {
            assert_eq!(short(Word::Executed(status)), denied, "{status}: {there:?}");
        }
    }

    // T46
    #[test]
    fn a_word_means_one_thing_beside_each_state() {
        let lease_until = bid("k").lease_until;
        assert_means(&begun(), lease_until.minus(Duration::from_millis(1)), "later", "later");
        assert_means(&begun(), lease_until, "settles", "settles");
        let doubt = begun().expire(Revision::mint(), lease_until).expect("its lease is over");
        assert_means(&doubt, lease_until, "settles", "settles");
        let released =
            doubt.settle(Verdict::NotExecuted, SettledBy::Assumption, Revision::mint(), lease_until).unwrap();
        assert_eq!(Word::NotExecuted.beside(&released, lease_until), Meaning::Nothing);
        // An answer that tells of no effect is an answer all the same: a retry gets it.
        assert_means(&released, lease_until, "settles", "settles");
        for (word, meaning) in [(Word::Executed(201), false), (Word::NotExecuted, true)] {
            let pending = Record::accept(&bid("k"), Revision::mint(), START);
            assert_eq!(word.beside(&pending, START) == Meaning::Nothing, meaning);
        }
    }

    // T46
    #[test]
    fn a_word_is_held_against_what_a_completed_record_says_of_the_effect() {
        for status in [200, 201, 302, 399] {
            assert_means(&with_status(status), START, "nothing", "contradicts");
        }
        for status in [400, 402, 404, 409] {
            assert_means(&with_status(status), START, "contradicts", "nothing");
        }
        let payload = KeptAnswer { head: Head::Payload, ..answer() };
        assert_means(&completed(payload), START, "nothing", "contradicts");
        assert_means(&completed(KeptAnswer::abandoned()), START, "contradicts", "nothing");
        assert!(matches!(Word::NotExecuted.beside(&with_status(201), START), Meaning::Contradicts(_)));
        assert_eq!(Word::NotExecuted.beside(&with_status(402), START), Meaning::Nothing);
    }
}
