//! Computes the next record from what was learned about its operation: a pure function.

use std::time::Duration;

use super::{
    answer::Learned, meaning::Reported, outcome::ReconcileOutcome, schedule::Schedule,
    wrong_kind::NAMES_NO_PHASE,
};
use crate::{
    record::{
        self, AlarmKind, Evidence, MAX_ALARMS, NOT_CONFIRMED, NOT_RESUMED, NotTaken, Note, Record, Revision,
        SettleError, SettledBy, State, Transition, Verdict,
    },
    time::Timestamp,
};

/// Why a question is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Its question may be due.
    IfDue,
    /// An operator asks for it: the count of questions restarts.
    Anew,
    /// The provider has reported an effect, or a refusal, unprompted.
    ProviderReported,
}

/// A question, with all that decides what its answer changes.
pub struct Asked<'a> {
    /// The record that it was about.
    pub seen: &'a Record,
    /// Why it was asked.
    pub why: Asks,
    /// The effect that the provider has reported, if that is why. If no proof of it follows, an alarm of the record says so.
    pub reported: Option<&'a Reported<'a>>,
    /// When it was asked. An effect between question and answer may be missing in the answer.
    pub at: Timestamp,
    /// What "not found" means.
    pub not_found: NotFound,
    /// When to ask again.
    pub schedule: &'a Schedule,
}

/// What to do about an operation that is not found.
#[derive(Clone, Copy, Debug)]
pub struct NotFound {
    /// How long to wait until a late request must have arrived.
    pub grace: Duration,
    /// For how long after an execution began its provider remembers the key. After that, it says nothing.
    pub window: Duration,
    /// Whether it is released once the grace is over. It is not while its provider has an incident.
    pub releases: bool,
}

/// The number of earlier questions, or why the record is not asked about now.
pub fn questions(record: &Record, why: Asks, now: Timestamp) -> Result<u32, ReconcileOutcome> {
    match &record.state {
        State::Unknown { reconcile_at, .. } if why == Asks::IfDue && *reconcile_at > now => {
            Err(ReconcileOutcome::NotDue)
        }
        State::Unknown { .. } if why == Asks::Anew => Ok(0),
        State::Unknown { asked, .. } => Ok(*asked),
        State::BetweenWorkers { reconcile_at, .. } if why == Asks::IfDue && *reconcile_at > now => {
            Err(ReconcileOutcome::NotDue)
        }
        State::BetweenWorkers { .. } => Ok(0),
        State::InProgress { lease_until } if *lease_until > now => {
            Err(ReconcileOutcome::InFlight(*lease_until))
        }
        // Its lease has expired, and the stale function has not seen it yet.
        State::InProgress { .. } => Ok(0),
        State::Pending { .. } | State::Completed { .. } | State::FailedRetryable { .. } => {
            Err(ReconcileOutcome::Settled)
        }
    }
}

impl Asked<'_> {
    /// The record that replaces `current`, or why nothing is written.
    ///
    /// `current` may have changed since the question was asked. Proof of an effect holds for every execution of the same
    /// request. A refusal, "not executed" and "not found" hold only for the record that was asked about, because its worker may
    /// have resumed since. They do not count at all if the provider has reported an effect.
    pub(super) fn next(
        &self,
        current: &Record,
        learned: &Learned,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Transition, ReconcileOutcome> {
        // An effect that names no phase does not prove what became of an operation with phases.
        let proof = learned.is_proof() && current.phases().is_none();
        if proof && current.fingerprint != self.seen.fingerprint {
            // The record has expired, and the key belongs to another request now.
            return Err(ReconcileOutcome::Busy);
        }
        // It was released after a question that came before the effect was visible. Proof of the effect is stronger.
        let one_generation = current.created_at == self.seen.created_at;
        let contradicted = proof && one_generation && current.state.released_by().is_some();
        let asked = match questions(current, self.why, now) {
            Ok(asked) => asked,
            Err(ReconcileOutcome::Settled) if contradicted => 0,
            // Another poll has postponed the next question meanwhile.
            Err(ReconcileOutcome::NotDue) if proof => 0,
            // Its worker has resumed, or another execution has begun. The claim prevents both from releasing it.
            Err(ReconcileOutcome::InFlight(until)) if proof && one_generation => {
                return current.claim(revision, until, now).ok_or(ReconcileOutcome::InFlight(until));
            }
            Err(outcome) => return Err(outcome),
        };
        if (learned.denies() && current.revision != self.seen.revision)
            || (current.attempt != self.seen.attempt && !proof)
        {
            return Err(ReconcileOutcome::Busy);
        }
        if current.phases().is_some() {
            let phased = match (learned, &current.state) {
                (Learned::NotResumed, State::BetweenWorkers { .. }) if self.why == Asks::Anew => {
                    current.resume(revision, now)
                }
                (Learned::NotResumed, State::BetweenWorkers { .. }) => current.not_resumed(revision),
                // Only its worker, or the next one, knows what follows.
                (_, State::InProgress { .. } | State::BetweenWorkers { .. }) => current.expire(revision, now),
                (Learned::Phase(phase), _) => current.note(phase, revision, now).ok(),
                // Not over an effect that was reported, or that an operator holds it for.
                (Learned::NotExecuted, _) if current.may_end_without_effect() => {
                    current.nothing_follows(revision, now)
                }
                (Learned::NotFound, _)
                    if current.may_end_without_effect()
                        && self.is_remembered(current)
                        && self.not_found.releases
                        && self.waited(current) >= self.not_found.grace =>
                {
                    current.nothing_follows(revision, now)
                }
                _ => None,
            };
            if let Some(next) = phased {
                return Ok(next);
            }
        }
        // A proven effect is claimed if its domain writes cannot be made, or its callers could not read its answer: only proof of it, or an
        // operator, then settles the record.
        let at = match learned {
            Learned::Denied(_) | Learned::WrongKind(_) if proof => Some(Timestamp::MAX),
            Learned::Unwritable(_) if proof => {
                let wait = self.schedule.after(asked.saturating_add(1), revision);
                Some(wait.map_or(Timestamp::MAX, |wait| now.plus(wait)))
            }
            // This write would prove that the worker's transaction did not commit, which contradicts the proof of its effect.
            _ if proof && current.is_undone_by_the_next_write() => Some(now),
            _ => None,
        };
        if let Some(claimed) = at.and_then(|at| current.claim(revision, at, now)) {
            return Ok(claimed);
        }
        let settled = |verdict, by| match current.settle(verdict, by, revision, now) {
            Ok(settled) => Ok(settled.because(self.note(learned))),
            Err(SettleError::Pending | SettleError::Settled(_)) => Err(ReconcileOutcome::Settled),
            Err(_) => Err(ReconcileOutcome::InFlight(now)),
        };
        // Ask again, after this time at least. `None`: stop asking, because it needs an operator.
        let later = match learned {
            Learned::Executed(_) | Learned::NotExecuted if current.phases().is_some() => None,
            Learned::Phase(_) | Learned::NotResumed => None,
            Learned::Executed(answer) if proof || current.may_end_without_effect() => {
                return settled(Verdict::Executed(answer.clone()), SettledBy::Provider);
            }
            Learned::NotExecuted if current.may_end_without_effect() => {
                return settled(Verdict::NotExecuted, SettledBy::Provider);
            }
            // The answer contradicts what was reported.
            Learned::Executed(_) | Learned::NotExecuted => None,
            // The provider may have forgotten the key by now (T40).
            Learned::NotFound if !self.is_remembered(current) => None,
            Learned::NotFound => match self.waited(current) {
                waited if waited < self.not_found.grace => Some(self.not_found.grace - waited),
                _ if !self.not_found.releases => Some(Duration::ZERO),
                // The provider, or an execution, has reported an effect.
                _ if !current.may_end_without_effect() => None,
                _ => return settled(Verdict::NotExecuted, SettledBy::Assumption),
            },
            Learned::Later(after) => Some(*after),
            Learned::Unwritable(_) => Some(Duration::ZERO),
            Learned::NoReconciler | Learned::Denied(_) | Learned::WrongKind(_) => None,
        };
        let is_final = later.is_none();
        if self.why == Asks::ProviderReported
            && current.is_escalated()
            && !self.says_more(current, learned, is_final)
        {
            // It is escalated already. Each poll reports it until an operator settles it.
            return Err(match later {
                // The provider says it again, also if it was asked because of a refusal.
                Some(_) if learned.is_proof() => ReconcileOutcome::NotDue,
                Some(_) => ReconcileOutcome::Scheduled(Timestamp::MAX),
                None => ReconcileOutcome::Escalated,
            });
        }
        let asked = asked.saturating_add(u32::from(later.is_some()));
        let wait = later.and_then(|later| Some(later.max(self.schedule.after(asked, revision)?)));
        // What is held stays with operators: the record says what each question found, and they ask again.
        let at = match wait.filter(|_| !self.is_old(current) && !current.is_held()) {
            Some(wait) => now.plus(wait).min(self.escalate_at(current).max(now)).min(self.old_from(now)),
            None => Timestamp::MAX,
        };
        let anew = (self.why == Asks::Anew).then_some(now);
        current.postpone(revision, asked, anew, at, now).ok_or(ReconcileOutcome::Settled)
    }

    /// Whether an escalated record does not have yet what the provider says at last: about what is held, or of an effect that it has
    /// reported.
    fn says_more(&self, current: &Record, learned: &Learned, is_final: bool) -> bool {
        is_final
            && match self.reported {
                Some(reported) => !self.stands(reported, current, learned),
                None => current.is_held(),
            }
    }

    /// Whether the record says that this report is denied: by an alarm; or by its note, if it has too many alarms, or is not held. The note of
    /// what is held allows its release.
    fn stands(&self, reported: &Reported<'_>, current: &Record, learned: &Learned) -> bool {
        let reason = self.reason(current, learned);
        let has_room = current.alarms.len() < MAX_ALARMS;
        let is_noted = current.note.as_ref().is_some_and(|note| *note == Note::new(reason));
        reported.stands_in(current, AlarmKind::Contradicted, reason)
            || is_noted && !(has_room && current.is_held())
    }

    /// Why the record is escalated.
    pub(super) fn reason(&self, current: &Record, learned: &Learned) -> &'static str {
        match learned {
            Learned::NotResumed => NOT_RESUMED,
            Learned::Phase(phase)
                if !current.may_end_without_effect()
                    && current.note(phase, current.revision, self.at) != Err(NotTaken::Differs) =>
            {
                "a phase was executed, and is noted: the record stays unknown until an operator says what was not"
            }
            Learned::Phase(phase)
                if current.note(phase, current.revision, self.at) == Err(NotTaken::Known) =>
            {
                "that phase is known, and says nothing of the call that follows"
            }
            Learned::Phase(_) => "a phase was executed that its record does not take",
            Learned::Executed(_) if current.phases().is_some() => NAMES_NO_PHASE,
            Learned::WrongKind(wrong) => wrong.reason,
            Learned::NoReconciler => "no reconciler knows the operation",
            Learned::Denied(_) => "it was executed, and the domain writes of its completion were refused",
            Learned::Unwritable(_) => {
                "it was executed, and the store does not take its answer's body, or the domain writes of its completion"
            }
            Learned::NotFound if !self.is_remembered(current) => {
                "it is not found, and too late for that to be proof"
            }
            Learned::NotFound if !self.not_found.releases || self.waited(current) < self.not_found.grace => {
                "it is not found, and that is no proof yet"
            }
            Learned::Later(_) if current.is_held() => {
                "an operator holds it, and the provider has not answered"
            }
            Learned::NotExecuted if current.reported == Some(Evidence::Effect) => NOT_CONFIRMED,
            Learned::NotFound if current.reported == Some(Evidence::Effect) => record::NOT_FOUND,
            // Of one execution: another one may have had the effect.
            _ if current.reported == Some(Evidence::Effect) && learned.denies() => {
                "an effect was reported, and the provider has a refusal"
            }
            _ if current.reported.is_some() && learned.denies() => {
                "the provider denies it, and another execution reports that it perhaps executed it"
            }
            Learned::NotFound | Learned::NotExecuted if current.accepted.is_some() => {
                "it is executed no more, and an earlier execution perhaps did something"
            }
            _ if self.is_old(current) => "it has been unknown for too long",
            _ => "all questions were asked, and it is still unknown",
        }
    }

    /// Whether it has been unknown for so long that it is escalated even after few questions, because polls may have failed
    /// for a while (T50). An operator who asks anew knows that.
    fn is_old(&self, current: &Record) -> bool {
        self.escalate_at(current) <= self.at
    }

    /// The record's note: who settled it, and why.
    fn note(&self, learned: &Learned) -> Note {
        let asked = match self.why {
            Asks::IfDue => "reconcile: the provider was asked",
            Asks::Anew => "reconcile: the provider was asked anew",
            Asks::ProviderReported => "reported by the provider",
        };
        let answered = match learned {
            Learned::Executed(_) => "executed",
            Learned::NotExecuted => "not executed",
            Learned::NotFound => "not found, and waited for long enough",
            Learned::Denied(_) | Learned::Unwritable(_) => "executed, without its domain writes",
            Learned::Phase(_) => "a phase was executed",
            Learned::WrongKind(_) => "an answer of the wrong kind",
            Learned::Later(_) | Learned::NotResumed | Learned::NoReconciler => "nothing",
        };
        Note::new(&format!("{asked}: {answered}"))
    }

    /// Whether "not found" is proof: the provider still remembered the key when it was asked.
    fn is_remembered(&self, current: &Record) -> bool {
        let begun = current.phases().and_then(|phases| phases.begun);
        self.at.since(begun.unwrap_or(current.began_at)) <= self.not_found.window
    }

    /// For how long the outcome had been unknown when the question was asked.
    fn waited(&self, current: &Record) -> Duration {
        self.at.since(self.unknown_since(current))
    }

    /// When it will have been unknown for too long, counted since it was last asked anew. Never for a question that is asked anew
    /// now.
    fn escalate_at(&self, current: &Record) -> Timestamp {
        let anew_at = match current.state {
            State::Unknown { anew_at, .. } => anew_at,
            _ => None,
        };
        let counted_from = self.unknown_since(current).max(anew_at.unwrap_or_default());
        match self.why {
            Asks::IfDue => self.old_from(counted_from),
            _ => Timestamp::MAX,
        }
    }

    /// When an outcome that is unknown since then will have been for too long.
    fn old_from(&self, since: Timestamp) -> Timestamp {
        since.plus(self.schedule.max_unknown_age).plus(Duration::from_millis(1))
    }

    fn unknown_since(&self, current: &Record) -> Timestamp {
        match current.state {
            State::Unknown { since, .. } => since,
            State::InProgress { lease_until } => lease_until,
            _ => self.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backoff::Backoff,
        learned::{WrongKind, tests::phase},
        record::{
            AlarmKind, Effects, Head, KeptAnswer, ReservationRequest,
            tests::{answer, reservation, reservation_for, resuming},
        },
        time::CLOCK_SKEW,
    };

    const START: Timestamp = Timestamp::from_secs(10_000);
    const GRACE: Duration = Duration::from_secs(600);
    const NOW: Timestamp = Timestamp::from_secs(20_000);
    const WINDOW: Duration = Duration::from_secs(23 * 3_600);
    const NOT_FOUND: NotFound = NotFound { grace: GRACE, window: WINDOW, releases: true };
    const SCHEDULE: Schedule = Schedule {
        backoff: Backoff { first: Duration::from_secs(10), factor: 2, max: Duration::from_secs(100) },
        max_questions: 3,
        max_unknown_age: Duration::from_secs(86_400),
    };

    fn unknown() -> Record {
        let reservation = ReservationRequest { lease_until: START, ..reservation("k") };
        Record::reserve(&reservation, Revision::mint(), START).expire(Revision::mint(), START).unwrap().into()
    }

    fn refusal() -> KeptAnswer {
        KeptAnswer { head: Head::Http { status: 402, headers: [].into() }, ..answer() }
    }

    fn released(record: &Record) -> Record {
        record.settle(Verdict::NotExecuted, SettledBy::Assumption, Revision::mint(), NOW).unwrap().into()
    }

    /// The next execution of the same operation, with an unknown outcome as well.
    fn unknown_again(record: &Record) -> Record {
        let again = released(record).again(&reservation("k"), Revision::mint(), START);
        again.mark_unknown(&again, Revision::mint(), START).unwrap().into()
    }

    fn next(
        seen: &Record,
        current: &Record,
        why: Asks,
        learned: &Learned,
    ) -> Result<Record, ReconcileOutcome> {
        let asked = Asked { seen, reported: None, why, at: NOW, not_found: NOT_FOUND, schedule: &SCHEDULE };
        asked.next(current, learned, Revision::mint(), NOW).map(Record::from)
    }

    fn becomes(seen: &Record, current: &Record, why: Asks, learned: &Learned) -> &'static str {
        match next(seen, current, why, learned) {
            Ok(record) => record.state.name(),
            Err(ReconcileOutcome::Busy) => "busy",
            Err(ReconcileOutcome::Settled) => "settled",
            Err(ReconcileOutcome::NotDue) => "not due",
            Err(ReconcileOutcome::InFlight(_)) => "in flight",
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_learned_settles_the_record_that_was_asked_about() {
        let seen = unknown();
        for (learned, state) in [
            (Learned::Executed(answer()), "completed"),
            (Learned::NotExecuted, "failed_retryable"),
            (Learned::NotFound, "failed_retryable"),
            (Learned::Later(Duration::ZERO), "unknown"),
            (Learned::NoReconciler, "unknown"),
        ] {
            assert_eq!(becomes(&seen, &seen, Asks::IfDue, &learned), state);
        }
    }

    // T5, T41: its worker resumed while the question was answered.
    #[test]
    fn a_denial_holds_for_the_record_that_was_asked_about_alone() {
        let seen = unknown();
        let alive = seen.mark_unknown(&seen, Revision::mint(), NOW).unwrap();
        for learned in [Learned::NotExecuted, Learned::NotFound] {
            assert_eq!(becomes(&seen, &alive, Asks::IfDue, &learned), "busy");
            assert_eq!(becomes(&seen, &unknown_again(&seen), Asks::IfDue, &learned), "busy");
        }
        assert_eq!(becomes(&seen, &alive, Asks::IfDue, &Learned::Executed(answer())), "completed");
    }

    #[test]
    fn proof_holds_for_every_execution_of_the_same_request() {
        let (seen, proof) = (unknown(), Learned::Executed(answer()));
        assert_eq!(becomes(&seen, &released(&seen), Asks::IfDue, &proof), "completed");
        assert_eq!(becomes(&seen, &unknown_again(&seen), Asks::IfDue, &proof), "completed");
        // The release of another execution does not count for this one.
        let another = released(&unknown_again(&seen));
        assert_eq!(becomes(&seen, &another, Asks::IfDue, &proof), "completed");
        let mut anew = another.clone();
        anew.created_at = NOW;
        assert_eq!(becomes(&seen, &anew, Asks::IfDue, &proof), "settled", "another generation of the key");
        assert_eq!(becomes(&seen, &another, Asks::ProviderReported, &proof), "completed");
    }

    // T5: the record's present worker may report that it did nothing.
    #[test]
    fn proof_keeps_a_live_execution_from_releasing_the_record() {
        let (seen, proof) = (unknown(), Learned::Executed(answer()));
        let lease_until = NOW.plus(GRACE);
        let another = released(&seen).again(
            &ReservationRequest { lease_until, ..reservation("k") },
            Revision::mint(),
            NOW,
        );
        let revived = seen.extend(seen.attempt, Revision::mint(), lease_until).unwrap();
        for why in [Asks::IfDue, Asks::Anew, Asks::ProviderReported] {
            for current in [&another, &revived] {
                let claimed = next(&seen, current, why, &proof).unwrap();
                assert_eq!(claimed.state, current.state);
                let ended = claimed.release(current.attempt, Revision::mint(), NOW).unwrap();
                assert_eq!(ended.state.name(), "unknown");
                assert_eq!(becomes(&seen, &claimed, why, &proof), "in flight", "once is enough");
                for learned in [Learned::NotExecuted, Learned::NotFound, Learned::Executed(refusal())] {
                    assert_eq!(becomes(&seen, current, why, &learned), "in flight");
                }
            }
            let mut anew = another.clone();
            anew.created_at = NOW;
            assert_eq!(becomes(&seen, &anew, why, &proof), "in flight", "another generation of the key");
        }
    }

    // T46, T5
    #[test]
    fn a_claimed_effect_is_settled_only_by_proof() {
        let seen = unknown();
        let claimed = seen.claim(Revision::mint(), START, START).unwrap();
        let just_now = seen.claim(Revision::mint(), NOW, NOW).unwrap();
        for why in [Asks::IfDue, Asks::Anew, Asks::ProviderReported] {
            for learned in [Learned::NotExecuted, Learned::NotFound, Learned::Executed(refusal())] {
                let next = next(&claimed, &claimed, why, &learned).unwrap();
                assert!(next.is_escalated() && next.reported.is_some(), "{next:?}");
            }
            let later = next(&claimed, &claimed, why, &Learned::Later(Duration::ZERO)).unwrap();
            assert!(!later.is_escalated() && later.reported.is_some(), "{later:?}");
            assert_eq!(becomes(&claimed, &claimed, why, &Learned::Executed(answer())), "completed");
            // The provider has an incident.
            let not_found = NotFound { releases: false, ..NOT_FOUND };
            let asked =
                Asked { seen: &claimed, reported: None, why, at: NOW, not_found, schedule: &SCHEDULE };
            let later = asked.next(&claimed, &Learned::NotFound, Revision::mint(), NOW).unwrap();
            assert!(!later.is_escalated() && later.reported.is_some(), "{later:?}");
            // It may be too early to be found.
            let early = next(&just_now, &just_now, why, &Learned::NotFound).unwrap();
            let State::Unknown { reconcile_at, .. } = early.state else { panic!("{early:?}") };
            assert_eq!((reconcile_at, early.reported), (NOW.plus(GRACE), Some(Evidence::Effect)));
        }
    }

    // T5, T46: a refusal is what one execution ended with.
    #[test]
    fn a_refusal_ends_the_record_that_was_asked_about_alone() {
        let (seen, refused) = (unknown(), Learned::Executed(refusal()));
        assert_eq!(becomes(&seen, &seen, Asks::IfDue, &refused), "completed");
        assert_eq!(becomes(&seen, &unknown_again(&seen), Asks::IfDue, &refused), "busy");
        assert_eq!(becomes(&seen, &released(&seen), Asks::IfDue, &refused), "settled");
    }

    // T14
    #[test]
    fn proof_is_no_proof_about_another_request_under_the_key() {
        let seen = unknown();
        let other = Record::reserve(&reservation_for("k", "other"), Revision::mint(), START);
        let other = other.mark_unknown(&other, Revision::mint(), START).unwrap();
        let proof = Learned::Executed(answer());
        for why in [Asks::IfDue, Asks::Anew, Asks::ProviderReported] {
            assert_eq!(becomes(&seen, &other, why, &proof), "busy");
        }
        // No record will ever report the effect.
        assert!(proof.contradicted_by(&seen, &other, NOW).is_some());
        assert!(Learned::Executed(refusal()).contradicted_by(&seen, &other, NOW).is_none());
    }

    // T32
    #[test]
    fn only_proof_settles_a_question_postponed_meanwhile() {
        let seen = unknown();
        let later = seen.postpone(Revision::mint(), 1, None, NOW.plus(GRACE), NOW).unwrap();
        assert_eq!(becomes(&seen, &later, Asks::IfDue, &Learned::Executed(answer())), "completed");
        for learned in [Learned::NotExecuted, Learned::NotFound, Learned::Later(Duration::ZERO)] {
            assert_eq!(becomes(&seen, &later, Asks::IfDue, &learned), "not due");
        }
    }

    // T40
    #[test]
    fn what_is_not_found_too_late_is_escalated_whoever_asks() {
        for (ago, state, escalated) in
            [(WINDOW, "failed_retryable", false), (WINDOW + Duration::from_millis(1), "unknown", true)]
        {
            let now = START.plus(ago);
            let seen = unknown();
            for why in [Asks::IfDue, Asks::Anew] {
                let asked = Asked {
                    seen: &seen,
                    reported: None,
                    why,
                    at: now,
                    not_found: NOT_FOUND,
                    schedule: &SCHEDULE,
                };
                let next = asked.next(&seen, &Learned::NotFound, Revision::mint(), now).unwrap();
                assert_eq!((next.state.name(), next.is_escalated()), (state, escalated));
            }
        }
    }

    // T5, T54
    #[test]
    fn no_denial_is_proof_over_the_report_of_an_execution() {
        let first = unknown();
        let again = released(&first).again(&reservation("k"), Revision::mint(), START);
        let contested = again.contest(&first, Evidence::Perhaps, Revision::mint()).unwrap();
        let contested = contested.release(again.attempt, Revision::mint(), START).unwrap();
        assert!(next(&contested, &contested, Asks::IfDue, &Learned::NotFound).unwrap().is_escalated());
        assert!(next(&contested, &contested, Asks::IfDue, &Learned::NotExecuted).unwrap().is_escalated());
        assert_eq!(becomes(&contested, &contested, Asks::IfDue, &Learned::Executed(answer())), "completed");
    }

    // T5
    #[test]
    fn a_settled_record_says_who_settled_it() {
        let seen = unknown();
        let by = |learned| next(&seen, &seen, Asks::IfDue, &learned).unwrap().state.settled_by();
        assert_eq!(by(Learned::Executed(answer())), Some(SettledBy::Provider));
        assert_eq!(by(Learned::NotExecuted), Some(SettledBy::Provider));
        assert_eq!(by(Learned::NotFound), Some(SettledBy::Assumption));
    }

    // T41: a worker whose lease has expired may have sent something just before.
    #[test]
    fn the_not_found_grace_starts_no_earlier_than_the_lease_ends() {
        let lease_until = NOW.minus(Duration::from_secs(1));
        let dead =
            Record::reserve(&ReservationRequest { lease_until, ..reservation("k") }, Revision::mint(), START);
        assert_eq!(becomes(&dead, &dead, Asks::IfDue, &Learned::NotFound), "unknown");
        let lease_until = NOW.minus(GRACE);
        let dead =
            Record::reserve(&ReservationRequest { lease_until, ..reservation("k") }, Revision::mint(), START);
        assert_eq!(becomes(&dead, &dead, Asks::IfDue, &Learned::NotFound), "failed_retryable");
    }

    // T32
    #[test]
    fn an_answer_about_one_execution_postpones_no_question_about_another() {
        let seen = unknown();
        assert_eq!(
            becomes(&seen, &unknown_again(&seen), Asks::IfDue, &Learned::Later(Duration::ZERO)),
            "busy"
        );
        let alive = seen.mark_unknown(&seen, Revision::mint(), NOW).unwrap();
        assert_eq!(becomes(&seen, &alive, Asks::Anew, &Learned::Later(Duration::ZERO)), "unknown");
    }

    // T41
    #[test]
    fn the_not_found_grace_starts_when_the_outcome_became_unknown() {
        let seen = unknown();
        let record = Record::reserve(&reservation("k"), Revision::mint(), START);
        let just_unknown = record.mark_unknown(&record, Revision::mint(), NOW).unwrap();
        assert_eq!(becomes(&seen, &seen, Asks::IfDue, &Learned::NotFound), "failed_retryable");
        let waits = next(&just_unknown, &just_unknown, Asks::IfDue, &Learned::NotFound).unwrap();
        let State::Unknown { reconcile_at, asked, .. } = waits.state else { panic!("{waits:?}") };
        assert_eq!((reconcile_at, asked), (NOW.plus(GRACE), 1));
        // Later, it is waited for no longer than what is left.
        let second = Duration::from_secs(100);
        let unknown = record.mark_unknown(&record, Revision::mint(), NOW.minus(second)).unwrap();
        let waits = next(&unknown, &unknown, Asks::IfDue, &Learned::NotFound).unwrap();
        let State::Unknown { reconcile_at, .. } = waits.state else { panic!("{waits:?}") };
        assert_eq!(reconcile_at, NOW.plus(GRACE - second));
    }

    #[test]
    fn the_last_question_escalates_and_an_operators_question_counts_anew() {
        let seen = unknown().postpone(Revision::mint(), 2, None, START, NOW).unwrap();
        assert!(next(&seen, &seen, Asks::IfDue, &Learned::Later(Duration::ZERO)).unwrap().is_escalated());
        assert!(!next(&seen, &seen, Asks::Anew, &Learned::Later(Duration::ZERO)).unwrap().is_escalated());
        assert!(next(&seen, &seen, Asks::IfDue, &Learned::NoReconciler).unwrap().is_escalated());
    }

    // T50
    #[test]
    fn an_operators_question_gives_an_old_outcome_its_time_again() {
        let schedule = Schedule { max_unknown_age: GRACE, ..SCHEDULE };
        let is_escalated = |seen: &Record, why| {
            let asked =
                Asked { seen, reported: None, why, at: NOW, not_found: NOT_FOUND, schedule: &schedule };
            let next = asked.next(seen, &Learned::Later(Duration::ZERO), Revision::mint(), NOW);
            let next = Record::from(next.unwrap());
            (next.is_escalated(), next)
        };
        let old = unknown();
        assert!(is_escalated(&old, Asks::IfDue).0);
        let (escalated, anew) = is_escalated(&old, Asks::Anew);
        // The polls that follow ask as at first.
        let due = |asked| anew.postpone(Revision::mint(), asked, None, NOW, NOW).unwrap();
        assert!(!escalated && !is_escalated(&due(1), Asks::IfDue).0);
        assert!(is_escalated(&due(2), Asks::IfDue).0, "the last question");
        let State::Unknown { since, .. } = anew.state else { panic!("{anew:?}") };
        assert_eq!(since, START, "it is as old as before");
    }

    // T55: only proof of the effect, or an operator, settles the record then.
    #[test]
    fn an_effect_whose_rows_are_not_made_is_claimed() {
        let seen = unknown();
        for (learned, reported, escalated) in [
            (Learned::Denied(201), Some(Evidence::Effect), true),
            (Learned::Unwritable(201), Some(Evidence::Effect), false),
            (Learned::Denied(402), None, true),
            (Learned::Unwritable(402), None, false),
        ] {
            let next = next(&seen, &seen, Asks::IfDue, &learned).unwrap();
            assert_eq!(
                (next.state.name(), next.reported, next.is_escalated()),
                ("unknown", reported, escalated)
            );
        }
    }

    fn of_the_wrong_kind(status: u16) -> Learned {
        Learned::WrongKind(WrongKind { status, reason: "it is of the wrong kind" })
    }

    // T54: nothing releases it, and an operator has it at once. A refusal proves nothing.
    #[test]
    fn an_effect_of_the_wrong_kind_is_claimed_and_escalated() {
        let seen = unknown();
        for (status, reported) in [(201, Some(Evidence::Effect)), (402, None)] {
            let wrong = of_the_wrong_kind(status);
            for open in [&seen, &released(&seen)] {
                let next = next(&seen, open, Asks::Anew, &wrong);
                if reported.is_none() && open.state != seen.state {
                    assert_eq!(next, Err(ReconcileOutcome::Settled));
                    continue;
                }
                let next = next.unwrap();
                assert_eq!(
                    (next.state.name(), next.reported, next.is_escalated()),
                    ("unknown", reported, true)
                );
            }
            let claimed = next(&seen, &seen, Asks::IfDue, &wrong).unwrap();
            let denied = next(&claimed, &claimed, Asks::Anew, &Learned::NotExecuted).unwrap();
            assert_eq!(denied.state.name() == "unknown", reported.is_some());
            // The next finding is of the right kind.
            let completed = next(&claimed, &claimed, Asks::Anew, &Learned::Executed(answer())).unwrap();
            assert_eq!(completed.state.name(), "completed");
        }
        // Also beside another execution, which then releases nothing.
        let again = unknown_again(&seen);
        assert_eq!(next(&seen, &again, Asks::IfDue, &of_the_wrong_kind(402)), Err(ReconcileOutcome::Busy));
        let claimed = next(&seen, &again, Asks::IfDue, &of_the_wrong_kind(201)).unwrap();
        assert_eq!((claimed.reported, claimed.is_escalated()), (Some(Evidence::Effect), true));
    }

    // T32
    #[test]
    fn an_answer_of_the_wrong_kind_contradicts_only_another_effect() {
        let seen = unknown();
        let completed = next(&seen, &seen, Asks::IfDue, &Learned::Executed(answer())).unwrap();
        let refused = next(&seen, &seen, Asks::IfDue, &Learned::Executed(refusal())).unwrap();
        for (record, status, contradicts) in
            [(&completed, 201, false), (&completed, 402, true), (&refused, 402, false), (&refused, 201, true)]
        {
            let contradicted = of_the_wrong_kind(status).contradicted_by(&seen, record, NOW);
            assert_eq!(contradicted.is_some(), contradicts, "{status}");
        }
    }

    // T46: a refusal too, even if its body or its rows cannot be written.
    #[test]
    fn a_refusal_that_cannot_be_written_contradicts_an_effect() {
        let seen = unknown();
        let completed = next(&seen, &seen, Asks::IfDue, &Learned::Executed(answer())).unwrap();
        for learned in [Learned::Unwritable(402), Learned::Denied(402), Learned::Executed(refusal())] {
            let (effect, alarm, _) = learned.contradicted_by(&seen, &completed, NOW).unwrap();
            assert_eq!(alarm, Some(AlarmKind::Contradicted));
            assert_eq!(effect, Verdict::Executed(402));
        }
        assert_eq!(Learned::Unwritable(202).contradicted_by(&seen, &completed, NOW), None);
    }

    // T54: to settle it would prove that its transaction did not commit. If the proof is dropped, a retry runs.
    #[test]
    fn proof_about_a_dead_transactional_worker_is_claimed() {
        let reservation = ReservationRequest {
            lease_until: NOW.minus(GRACE),
            effects: Effects::InTransaction,
            ..reservation("k")
        };
        let dead = Record::reserve(&reservation, Revision::mint(), START);
        for why in [Asks::IfDue, Asks::Anew, Asks::ProviderReported] {
            let claimed = next(&dead, &dead, why, &Learned::Executed(answer())).unwrap();
            assert_eq!((claimed.state.name(), claimed.reported), ("unknown", Some(Evidence::Effect)));
        }
    }

    // T50: a question that is never due is never asked, and nothing escalates.
    #[test]
    fn neither_a_report_nor_an_operator_postpones_a_question_for_ever() {
        let (seen, later) = (unknown(), Learned::Later(SCHEDULE.max_unknown_age * 30));
        for why in [Asks::Anew, Asks::ProviderReported] {
            let next = next(&seen, &seen, why, &later).unwrap();
            assert_asked_last_at(NOW, &next, &later);
        }
    }

    // T50: polls may fail for a while, and a reconciler may ask for any wait.
    #[test]
    fn no_question_comes_later_than_the_longest_unknown_age() {
        let (seen, later) = (unknown(), Learned::Later(SCHEDULE.max_unknown_age * 2));
        let next = next(&seen, &seen, Asks::IfDue, &later).unwrap();
        assert_asked_last_at(START, &next, &later);
    }

    /// Its next question is due once it has been unknown for too long since then, and is the last.
    fn assert_asked_last_at(since: Timestamp, next: &Record, later: &Learned) {
        let State::Unknown { reconcile_at, .. } = next.state else { panic!("{next:?}") };
        assert_eq!(reconcile_at, since.plus(SCHEDULE.max_unknown_age).plus(Duration::from_millis(1)));
        let why = Asks::IfDue;
        let asked = Asked {
            seen: next,
            reported: None,
            why,
            at: reconcile_at,
            not_found: NOT_FOUND,
            schedule: &SCHEDULE,
        };
        let last = asked.next(next, later, Revision::mint(), reconcile_at).unwrap();
        assert!(last.is_escalated(), "{last:?}");
    }

    // T40: "not found" says nothing then, whatever was reported.
    #[test]
    fn a_late_not_found_is_no_denial_of_a_reported_effect() {
        let claimed: Record = unknown().claim(Revision::mint(), START, START).unwrap().into();
        let not_found = NotFound { window: NOW.since(START), ..NOT_FOUND };
        for (at, expected) in [(NOW, "does not find it"), (NOW.plus(CLOCK_SKEW), "too late")] {
            let asked =
                Asked { seen: &claimed, reported: None, why: Asks::Anew, at, not_found, schedule: &SCHEDULE };
            let reason = asked.reason(&claimed, &Learned::NotFound);
            assert!(reason.contains(expected), "{reason}");
        }
    }

    // T46
    #[test]
    fn a_report_that_comes_again_leaves_the_record_escalated() {
        let claimed = unknown().claim(Revision::mint(), START, START).unwrap();
        let escalated = claimed.postpone(Revision::mint(), 1, None, Timestamp::MAX, NOW).unwrap();
        for learned in [Learned::Later(Duration::ZERO), Learned::NotFound, Learned::NoReconciler] {
            assert!(next(&escalated, &escalated, Asks::ProviderReported, &learned).is_err());
        }
    }

    /// The charge is kept, and the call that follows was perhaps made, by an execution that began at `START`.
    fn with_phases() -> [Record; 3] {
        let resumes = ReservationRequest { effects: resuming(GRACE), lease_until: START, ..reservation("k") };
        let reserved = Record::reserve(&resumes, Revision::mint(), START);
        let charge = phase("charge", "7", START);
        let kept: Record = reserved.keep(&reserved, 0, &charge, Revision::mint(), START).unwrap().into();
        let unknown = kept.mark_unknown(&kept, Revision::mint(), START).unwrap().into();
        let between = kept.expire(Revision::mint(), START).unwrap().into();
        [kept, between, unknown]
    }

    // T50
    #[test]
    fn an_operation_that_nobody_resumes_in_time_is_escalated() {
        let [dead, between, _] = with_phases();
        let found_dead = next(&dead, &dead, Asks::IfDue, &Learned::NotResumed).unwrap();
        assert_eq!((found_dead.state.name(), found_dead.is_escalated()), ("between_workers", false));
        let escalated = next(&between, &between, Asks::IfDue, &Learned::NotResumed).unwrap();
        assert!(escalated.is_escalated(), "{escalated:?}");
        assert_eq!(becomes(&escalated, &escalated, Asks::IfDue, &Learned::NotResumed), "not due");
        // An operator, or a dead letter that is sent again, grants the time once more.
        let again = next(&escalated, &escalated, Asks::Anew, &Learned::NotResumed).unwrap();
        let State::BetweenWorkers { reconcile_at, .. } = again.state else { panic!("{again:?}") };
        assert_eq!(reconcile_at, NOW.plus(GRACE));
        assert_eq!(questions(&again, Asks::IfDue, NOW), Err(ReconcileOutcome::NotDue));
    }

    #[test]
    fn a_finding_about_a_phase_says_what_the_next_retry_does() {
        let [_, _, unknown] = with_phases();
        let ship = Learned::Phase(phase("ship", "8", NOW));
        let noted = next(&unknown, &unknown, Asks::IfDue, &ship).unwrap();
        assert_eq!(noted.state.name(), "between_workers");
        assert_eq!(noted.phases().unwrap().noted.len(), 1);
        for denied in [Learned::NotExecuted, Learned::NotFound] {
            let open = next(&unknown, &unknown, Asks::IfDue, &denied).unwrap();
            assert_eq!((open.state.name(), open.phases().unwrap().begun), ("between_workers", None));
        }
        // It proves no other call, and no end.
        let refusal = Learned::Executed(refusal());
        for other in [Learned::Executed(answer()), refusal, Learned::Denied(201), Learned::NoReconciler] {
            let escalated = next(&unknown, &unknown, Asks::IfDue, &other).unwrap();
            assert!(escalated.is_escalated(), "{escalated:?}");
        }
        let later = next(&unknown, &unknown, Asks::IfDue, &Learned::Later(Duration::ZERO)).unwrap();
        assert!(!later.is_escalated() && later.state.name() == "unknown");
    }

    // T53: another execution, or what the table has forgotten, perhaps made the calls that follow.
    #[test]
    fn neither_a_denial_nor_a_phase_resumes_over_a_reported_effect() {
        let [_, between, unknown] = with_phases();
        let held: Record = between.hold(Revision::mint(), START).unwrap().into();
        let contested = Record { reported: Some(Evidence::Effect), ..unknown };
        for open in [&held, &contested] {
            for denied in [Learned::NotExecuted, Learned::NotFound] {
                let anew = next(open, open, Asks::Anew, &denied).unwrap();
                assert_eq!((anew.state.name(), anew.is_escalated()), ("unknown", true));
            }
            let ship = Learned::Phase(phase("ship", "8", NOW));
            let noted = next(open, open, Asks::Anew, &ship).unwrap();
            assert_eq!((noted.state.name(), noted.phases().unwrap().noted.len()), ("unknown", 1));
            // Also if it is noted already.
            let again = next(&noted, &noted, Asks::Anew, &ship).unwrap();
            assert!(again.is_escalated(), "{again:?}");
            for current in [open, &noted] {
                let (seen, why, schedule) = (current, Asks::Anew, &SCHEDULE);
                let asked = Asked { seen, reported: None, why, at: NOW, not_found: NOT_FOUND, schedule };
                assert!(asked.reason(current, &ship).contains("stays unknown"));
            }
        }
    }

    // T53, T57
    #[test]
    fn what_is_held_stays_with_operators_and_each_answer_has_its_reason() {
        let held: Record = unknown().hold(Revision::mint(), START).unwrap().into();
        let (early, late) = (START.plus(GRACE / 2), START.plus(GRACE));
        let off = NotFound { releases: false, ..NOT_FOUND };
        for (learned, at, not_found, reason) in [
            (
                Learned::Later(Duration::ZERO),
                late,
                NOT_FOUND,
                "an operator holds it, and the provider has not answered",
            ),
            (Learned::NotFound, early, NOT_FOUND, "it is not found, and that is no proof yet"),
            (Learned::NotFound, late, off, "it is not found, and that is no proof yet"),
            (Learned::NotFound, late, NOT_FOUND, "an effect was reported, and the provider does not find it"),
            (Learned::NotExecuted, early, off, "an effect was reported, and the provider denies it"),
            (
                Learned::Executed(refusal()),
                late,
                NOT_FOUND,
                "an effect was reported, and the provider has a refusal",
            ),
        ] {
            for why in [Asks::Anew, Asks::ProviderReported] {
                let asked = Asked { seen: &held, reported: None, why, at, not_found, schedule: &SCHEDULE };
                assert_eq!(asked.reason(&held, &learned), reason);
                let next = asked.next(&held, &learned, Revision::mint(), at).map(Record::from);
                // What the provider says unprompted has a dead letter too, or it must say it again.
                if why == Asks::ProviderReported && !reason.starts_with("an effect was reported") {
                    assert_eq!(next, Err(ReconcileOutcome::Scheduled(Timestamp::MAX)));
                } else {
                    let next = next.unwrap();
                    assert!(next.is_escalated() && next.is_held(), "{next:?}");
                }
            }
        }
    }

    // T40: a later execution makes the question no younger.
    #[test]
    fn a_call_is_remembered_from_the_earliest_execution_on() {
        let [kept, ..] = with_phases();
        let resumes = ReservationRequest { effects: resuming(GRACE), lease_until: NOW, ..reservation("k") };
        let not_found = NotFound { window: NOW.since(START), ..NOT_FOUND };
        let late = NOW.plus(Duration::from_millis(1));
        let again = kept.again(&resumes, Revision::mint(), NOW.minus(GRACE));
        let unknown: Record = again.mark_unknown(&again, Revision::mint(), NOW.minus(GRACE)).unwrap().into();
        for (at, state) in [(NOW, "between_workers"), (late, "unknown")] {
            let asked = Asked {
                seen: &unknown,
                reported: None,
                why: Asks::IfDue,
                at,
                not_found,
                schedule: &SCHEDULE,
            };
            let next = asked.next(&unknown, &Learned::NotFound, Revision::mint(), at).unwrap();
            assert_eq!((next.state.name(), next.is_escalated()), (state, state == "unknown"));
        }
    }
}
