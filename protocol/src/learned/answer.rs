//! What was learned about an operation, and whether its record contradicts that.

use std::time::Duration;

use super::{meaning::Meaning, wrong_kind::WrongKind};
use crate::{
    record::{AlarmKind, KeptAnswer, Phase, Record, State, Verdict},
    time::Timestamp,
};

/// What was learned. An answer's body is already kept.
pub enum Learned {
    /// It was executed, and this is its answer.
    Executed(KeptAnswer),
    /// It was not executed, and will not be.
    NotExecuted,
    /// The provider does not know it.
    NotFound,
    /// This phase was executed.
    Phase(Phase),
    /// No retry has resumed it in time. The provider is not asked.
    NotResumed,
    /// Nothing yet: ask again after this time or the backoff, whichever is longer.
    Later(Duration),
    /// No reconciler knows the operation.
    NoReconciler,
    /// It was executed with this status, and its domain writes were refused.
    Denied(u16),
    /// It was executed with this status, and the store does not take its body or its domain writes now.
    Unwritable(u16),
    /// It was executed, and its callers could not read the answer.
    WrongKind(WrongKind),
}

impl Learned {
    /// What is learned of this record without a question: only a retry knows what follows.
    pub fn without_a_question(record: &Record) -> Option<Self> {
        let is_asked = record.phases().is_none() || matches!(record.state, State::Unknown { .. });
        (!is_asked).then_some(Self::NotResumed)
    }

    /// What it says about the effect, if it says anything.
    fn effect(&self) -> Option<Verdict<u16>> {
        match self {
            Self::Executed(answer) => Some(Verdict::Executed(answer.head.http_status())),
            Self::Denied(status) | Self::Unwritable(status) | Self::WrongKind(WrongKind { status, .. }) => {
                Some(Verdict::Executed(*status))
            }
            Self::NotExecuted => Some(Verdict::NotExecuted),
            Self::Phase(_) | Self::NotResumed | Self::NotFound | Self::Later(_) | Self::NoReconciler => None,
        }
    }

    /// Whether it proves an effect, in whatever state the record is now. A refusal proves none: it says how one execution
    /// ended, and no other.
    pub(super) fn is_proof(&self) -> bool {
        self.effect().is_some_and(Verdict::is_effect)
    }

    /// Whether it says that there was no effect.
    pub(super) fn denies(&self) -> bool {
        let denies =
            matches!(self, Self::Executed(_) | Self::NotExecuted | Self::NotFound | Self::WrongKind(_));
        denies && !self.is_proof()
    }

    /// If the current record contradicts what was learned of the record `seen`: what was learned, the alarm that the record gets, unless it
    /// is another request's, and the reason.
    pub(super) fn contradicted_by(
        &self,
        seen: &Record,
        current: &Record,
        now: Timestamp,
    ) -> Option<(Verdict<u16>, Option<AlarmKind>, &'static str)> {
        let effect = self.effect()?;
        if current.fingerprint != seen.fingerprint {
            let reason = "it reports an effect whose key is another request's now";
            return self.is_proof().then_some((effect, None, reason));
        }
        match effect.meaning_for(current, now) {
            Meaning::Alarms(_, alarm, reason) => Some((effect, Some(alarm), reason)),
            _ => None,
        }
    }
}
