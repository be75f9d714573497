//! Decides whether a record can take a finding: a pure function.

use super::Finding;
use crate::record::{AnswerKind, Record};

/// Why a finding about an operation with phases is escalated that names none.
pub(super) const NAMES_NO_PHASE: &str = "its operation resumes, and the finding names no phase";

/// A finding that its record cannot take. Its reconciler is wrong about the callers, and not about the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKind {
    /// The status of what was found.
    pub(super) status: u16,
    /// What is wrong with the reconciler, and what is right.
    pub(super) reason: &'static str,
}

impl WrongKind {
    /// What the record `seen` cannot take of this finding; `None` if it takes it.
    pub(super) fn of(finding: &Finding, seen: &Record) -> Option<Self> {
        match finding {
            Finding::Executed(answer) | Finding::ExecutedWith(answer, _)
                if !seen.answer_kind.takes(&answer.head) =>
            {
                let reason = match seen.answer_kind {
                    _ if seen.phases().is_some() => NAMES_NO_PHASE,
                    AnswerKind::Http => {
                        "the reconciler returned a function's answer, and the operation's callers read HTTP: it must return \
                         Answer::json or Answer::http"
                    }
                    AnswerKind::Function => {
                        "the reconciler returned an HTTP answer, and the operation's callers are functions: it must return \
                         Answer::payload or Answer::refusal"
                    }
                };
                Some(Self { status: answer.head.http_status(), reason })
            }
            Finding::PhaseExecuted { .. } if seen.phases().is_none() => Some(Self {
                status: 200,
                reason: "the reconciler names a phase, and the operation has none: it must return Finding::Executed",
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        record::{
            Answer, Effects, Revision,
            tests::{Mint, reservation},
        },
        time::Timestamp,
    };

    #[test]
    fn a_record_takes_findings_of_its_own_kind_alone() {
        let (http, payload) = (Answer::json(201, "{}"), Answer::payload(&1).unwrap());
        let refusal = Answer::refusal("no such address");
        let phase = || Finding::PhaseExecuted { phase: "charge".to_owned(), result: "1".to_owned() };
        for (answer_kind, effects) in [
            (AnswerKind::Http, Effects::Anywhere),
            (AnswerKind::Function, Effects::Anywhere),
            (AnswerKind::Http, crate::record::tests::resuming(Duration::from_secs(60))),
            (AnswerKind::Function, crate::record::tests::resuming(Duration::from_secs(60))),
        ] {
            let reservation = crate::record::ReservationRequest { answer_kind, effects, ..reservation("k") };
            let seen = Record::reserve(&reservation, Revision::mint(), Timestamp::from_secs(1_000));
            let is_wrong = |finding: Finding| WrongKind::of(&finding, &seen).is_some();
            let is_http = answer_kind == AnswerKind::Http;
            for (answer, fits) in [(&http, is_http), (&payload, !is_http), (&refusal, !is_http)] {
                assert_eq!(is_wrong(Finding::Executed(answer.clone())), !fits, "{answer:?}");
                assert_eq!(is_wrong(Finding::ExecutedWith(answer.clone(), Vec::new())), !fits, "{answer:?}");
            }
            assert_eq!(is_wrong(phase()), effects.phases().is_none());
            for other in [Finding::NotExecuted, Finding::NotFound, Finding::AskAgain(None)] {
                assert!(!is_wrong(other));
            }
            let other = if is_http { payload.clone() } else { http.clone() };
            let reason = WrongKind::of(&Finding::Executed(other), &seen).unwrap().reason;
            assert_eq!(reason == NAMES_NO_PHASE, effects.phases().is_some());
        }
    }
}
