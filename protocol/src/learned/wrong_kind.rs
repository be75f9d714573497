//! Decides whether a record can take a finding: a pure function.

use crate::record::{AnswerKind, Head, Record};

/// Why a finding about an operation with phases is escalated that names none.
pub(super) const NAMES_NO_PHASE: &str = "its operation resumes, and the finding names no phase";

/// A finding that its record cannot take. Its reconciler is wrong about the callers, and not about the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKind {
    /// The status of what was found.
    pub status: u16,
    /// What is wrong with the reconciler, and what is right.
    pub reason: &'static str,
}

impl WrongKind {
    /// Why the record `seen` cannot take an answer with this head; `None` if it takes it.
    pub fn of_answer(head: &Head, seen: &Record) -> Option<Self> {
        if seen.answer_kind.takes(head) {
            return None;
        }
        let reason = match seen.answer_kind {
            _ if seen.phases().is_some() => NAMES_NO_PHASE,
            AnswerKind::Http => {
                "the reconciler returned a function's answer to an HTTP operation: it must return Answer::json or Answer::http"
            }
            AnswerKind::Function => {
                "the reconciler returned an HTTP answer to a function: it must return Answer::payload or Answer::refusal"
            }
        };
        Some(Self { status: head.http_status(), reason })
    }

    /// Why the record `seen` cannot take a phase that was executed; `None` if it has phases.
    pub fn of_phase(seen: &Record) -> Option<Self> {
        let reason =
            "the reconciler names a phase, and the operation has none: it must return Finding::Executed";
        seen.phases().is_none().then_some(Self { status: 200, reason })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        record::{
            Effects, ReservationRequest, Revision,
            tests::{reservation, resuming},
        },
        time::Timestamp,
    };

    #[test]
    fn a_record_takes_findings_of_its_own_kind_alone() {
        let http = Head::Http { status: 201, headers: [].into() };
        let resuming = resuming(Duration::from_secs(60));
        for (answer_kind, effects) in [
            (AnswerKind::Http, Effects::Anywhere),
            (AnswerKind::Function, Effects::Anywhere),
            (AnswerKind::Http, resuming),
            (AnswerKind::Function, resuming),
        ] {
            let reservation = ReservationRequest { answer_kind, effects, ..reservation("k") };
            let seen = Record::reserve(&reservation, Revision::mint(), Timestamp::from_secs(1_000));
            let is_http = answer_kind == AnswerKind::Http;
            for (head, fits) in [(&http, is_http), (&Head::Payload, !is_http), (&Head::Refusal, !is_http)] {
                assert_eq!(WrongKind::of_answer(head, &seen).is_none(), fits, "{head:?}");
            }
            assert_eq!(WrongKind::of_phase(&seen).is_some(), effects == Effects::Anywhere);
            let other = if is_http { &Head::Payload } else { &http };
            let reason = WrongKind::of_answer(other, &seen).unwrap().reason;
            assert_eq!(reason == NAMES_NO_PHASE, effects == resuming);
        }
    }
}
