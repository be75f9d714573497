//! What a provider reports unprompted, and what that means for the current record (T46): a pure function.
//!
//! | the record | what is done |
//! | --- | --- |
//! | unknown, or its lease has expired | an effect claims it and settles it; after a refusal, the provider is asked |
//! | released | an effect claims it and settles it; a refusal agrees |
//! | in progress | an effect claims it; the report is processed again once the execution is over |
//! | completed, and the report says the same | nothing |
//! | completed, and the report says the opposite | escalated: a completed record never changes |
//! | younger than the effect, or another request's | an effect is escalated |
//! | of an operation that resumes | the phase that the report names is noted; an effect without a phase is escalated |
//! | none | an effect is escalated, unless it is older than two weeks and than the retention |
//!
//! Only proof of the effect, or an operator, settles a claimed record. No retry runs, even if its worker reports that it did
//! nothing, or if the provider does not find the effect or denies it.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::{Question, Reconciler};
use crate::{
    json,
    message::{QueuedReport, ReportedEffect},
    record::{NotTaken, Phase, Record, State, phase_of},
    time::Timestamp,
    time_budget::{CLOCK_SKEW, OLD_EFFECT},
};

/// What a provider reports unprompted about one operation, by a webhook for example.
pub struct ProviderReport {
    /// Returns the answer, if there is an effect.
    pub(super) by: Option<Box<dyn Reconciler>>,
    pub(super) queued: QueuedReport,
}

/// What a report means for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// It settles this record.
    Settles(&'a Record),
    /// It says what became of this phase.
    Notes(Phase),
    /// The record says the same, or more.
    Nothing,
    /// A worker has this record until then.
    Later(&'a Record, Timestamp),
    /// Its record may have expired.
    TooLate,
    /// Report and record contradict each other, for this reason.
    Contradicts(&'static str),
}

impl fmt::Debug for ProviderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderReport").field("report", &self.queued.effect).finish_non_exhaustive()
    }
}

impl ProviderReport {
    /// It was executed, and its client gets this status. `by` returns the whole answer if it is needed.
    ///
    /// A status outside 200 to 399 is a refusal, like [`not_executed`](Self::not_executed), and `by` is not asked.
    pub fn executed(status: u16, by: impl Reconciler) -> Self {
        Self { by: Some(Box::new(by)), queued: QueuedReport::of(ReportedEffect::Executed(status)) }
    }

    /// This phase of an operation that resumes was executed under this [downstream key](crate::engine::Execution::downstream_key).
    /// `result` is what the handler's call returns: the next execution that gets there uses it without a call.
    ///
    /// It proves that phase, and no more. A second report of it is absorbed, unless its result differs.
    pub fn phase_executed(phase: &str, downstream_key: &str, result: &impl Serialize) -> Self {
        let effect = QueuedReport::of(ReportedEffect::Executed(200));
        // A result that JSON cannot carry is asked about.
        let result = json::to_string(result).ok();
        Self { by: None, queued: QueuedReport { result, ..effect } }.under(phase, downstream_key)
    }

    /// It was not executed, and will not be. The operation's reconciler is asked before that counts, because the report may be
    /// about an earlier execution with the same downstream key.
    pub fn not_executed() -> Self {
        Self { by: None, queued: QueuedReport::of(ReportedEffect::NotExecuted) }
    }

    /// Adds the [downstream key](crate::engine::Execution::downstream_key) of this phase, under which the effect was
    /// requested. The metadata that leads to a record can often be set by anybody. The key proves that the report is about
    /// this request.
    #[must_use]
    pub fn under(mut self, phase: &str, downstream_key: &str) -> Self {
        self.queued.under = Some((phase.to_owned(), downstream_key.to_owned()));
        self
    }

    /// Adds when the effect was made, by the provider's clock. An effect that is older than its record belongs to an earlier
    /// generation of the key. An effect that is older than two weeks, and than its operation's retention, may have no record any
    /// more.
    #[must_use]
    pub fn made_at(mut self, at: Timestamp) -> Self {
        self.queued.made_at = Some(at.as_millis());
        self
    }
}

impl QueuedReport {
    /// This report, without a key or a time that proves what it is about.
    pub(super) const fn of(effect: ReportedEffect) -> Self {
        Self { effect, under: None, result: None, made_at: None }
    }

    /// What this means for the current record.
    pub(super) fn meaning_for<'a>(
        &self,
        current: Option<&'a Record>,
        retention: Duration,
        now: Timestamp,
    ) -> Meaning<'a> {
        let made_at = self.made_at.map(Timestamp::from_millis);
        let mismatch = |reason| match self.effect.is_effect() {
            true => Meaning::Contradicts(reason),
            false => Meaning::Nothing,
        };
        // A record that was refused before the handler began counts as absent.
        let Some(current) = current.filter(|current| !current.is_not_begun()) else {
            let kept = retention.max(OLD_EFFECT);
            // By the provider's clock.
            let is_old = made_at.is_some_and(|at| at.plus(kept).plus(CLOCK_SKEW) < now);
            return match self.effect.is_effect() && is_old {
                true => Meaning::TooLate,
                false => mismatch("it reports an effect that has no record"),
            };
        };
        if let Some((phase, key)) = &self.under
            && *key != (Question { record: current.clone() }).downstream_key(phase)
        {
            return mismatch("it reports an effect under the key of another request");
        }
        let meaning = match current.phases() {
            Some(_) => self.meaning_for_phases(current, now),
            None => self.effect.meaning_for(current, now),
        };
        match meaning {
            Meaning::Settles(_) | Meaning::Later(..) | Meaning::Notes(_)
                if self.effect.is_effect()
                    && made_at.is_some_and(|at| at.plus(CLOCK_SKEW) < current.created_at) =>
            {
                Meaning::Contradicts("it reports an effect that is older than the record")
            }
            meaning => meaning,
        }
    }

    /// What this means for a record with phases. A refusal proves nothing: it is about one call, and only the handler knows what it
    /// asked for.
    fn meaning_for_phases<'a>(&self, current: &'a Record, now: Timestamp) -> Meaning<'a> {
        if !self.effect.is_effect() {
            return Meaning::Nothing;
        }
        let Some((name, _)) = &self.under else {
            if matches!(current.state, State::Completed { .. }) {
                return self.effect.meaning_for(current, now);
            }
            return Meaning::Contradicts(
                "it reports an effect of an operation that resumes, and names no phase",
            );
        };
        let phase = phase_of(name.clone(), self.result.clone(), now);
        match current.note(&phase, current.revision, now) {
            Ok(_) => Meaning::Notes(phase),
            Err(NotTaken::Known) => Meaning::Nothing,
            Err(NotTaken::Differs) => Meaning::Contradicts(
                "it reports a phase that the record does not have, or has with another result",
            ),
        }
    }
}

impl ReportedEffect {
    /// Whether it reports an effect, and not a refusal.
    pub(super) const fn is_effect(self) -> bool {
        matches!(self, Self::Executed(200..=399))
    }

    /// What this means for the record of the same request.
    pub(super) fn meaning_for(self, current: &Record, now: Timestamp) -> Meaning<'_> {
        match (&current.state, self) {
            (State::InProgress { lease_until }, _) if now < *lease_until => {
                Meaning::Later(current, *lease_until)
            }
            (State::Pending { released_by: None }, _) if self.is_effect() => {
                Meaning::Contradicts("it reports an effect of work that no worker has begun")
            }
            // Of an operation with phases: it names none.
            (State::BetweenWorkers { .. }, _) => Meaning::Nothing,
            (State::Completed { answer, .. }, _) => match (answer.head.is_effect(), self.is_effect()) {
                (true, false) => Meaning::Contradicts("it denies an effect that the record says was made"),
                (false, true) => {
                    Meaning::Contradicts("it reports an effect that the record says was refused")
                }
                _ => Meaning::Nothing,
            },
            (_, Self::Executed(200..=399)) if current.certainly_did_nothing() => Meaning::Contradicts(
                "it reports an effect, and the operation says that all its effects are in its transaction",
            ),
            // A retry gets its own answer.
            (State::FailedRetryable { .. } | State::Pending { .. }, _) if !self.is_effect() => {
                Meaning::Nothing
            }
            (
                State::FailedRetryable { .. }
                | State::Pending { .. }
                | State::InProgress { .. }
                | State::Unknown { .. },
                _,
            ) => Meaning::Settles(current),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::SettledBy;
    use crate::record::{
        Effects, Head, KeptAnswer, Report, ReservationRequest, Revision, Verdict, phase_of,
        tests::{Mint, Reports, accepted, answer, reservation, resuming},
    };

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn begun() -> Record {
        Record::reserve(&reservation("k"), Revision::mint(), START)
    }

    fn completed(answer: KeptAnswer) -> Record {
        let begun = begun();
        begun.complete(&begun, Revision::mint(), answer, START).expect("it is its own").into()
    }

    fn with_status(status: u16) -> Record {
        completed(KeptAnswer { head: Head::Http { status, headers: [].into() }, ..answer() })
    }

    /// Asserts, in short, what the report of an effect means for the record, and what the report of a refusal means.
    #[track_caller]
    fn assert_means(current: &Record, at: Timestamp, reported: &str, denied: &str) {
        let short = |effect: ReportedEffect| match effect.meaning_for(current, at) {
            Meaning::Settles(_) => "settles",
            Meaning::Nothing => "nothing",
            Meaning::Later(..) => "later",
            Meaning::TooLate => "too late",
            Meaning::Notes(_) => "notes",
            Meaning::Contradicts(_) => "contradicts",
        };
        for status in [200, 201, 204, 302, 399] {
            assert_eq!(short(ReportedEffect::Executed(status)), reported, "{status}: {current:?}");
        }
        for status in [100, 199, 400, 402, 500] {
            assert_eq!(short(ReportedEffect::Executed(status)), denied, "{status}: {current:?}");
        }
    }

    // T46
    #[test]
    fn a_provider_report_has_one_meaning_for_each_state() {
        let lease_until = reservation("k").lease_until;
        assert_means(&begun(), lease_until.minus(Duration::from_millis(1)), "later", "later");
        assert_means(&begun(), lease_until, "settles", "settles");
        let unknown = begun().expire(Revision::mint(), lease_until).expect("its lease has expired");
        assert_means(&unknown, lease_until, "settles", "settles");
        let released = unknown
            .settle(Verdict::NotExecuted, SettledBy::Assumption, Revision::mint(), lease_until)
            .unwrap();
        assert_eq!(ReportedEffect::NotExecuted.meaning_for(&released, lease_until), Meaning::Nothing);
        assert_means(&released, lease_until, "settles", "nothing");
        for (effect, meaning) in [(ReportedEffect::Executed(201), false), (ReportedEffect::NotExecuted, true)]
        {
            let pending = accepted("k", START);
            assert_eq!(effect.meaning_for(&pending, START) == Meaning::Nothing, meaning);
        }
    }

    // T46, T37: an earlier generation of the key had the same downstream key.
    #[test]
    fn an_effect_older_than_its_record_is_escalated() {
        let lease_until = reservation("k").lease_until;
        let unknown = begun().expire(Revision::mint(), lease_until).expect("its lease has expired");
        let eve = START.minus(CLOCK_SKEW).as_millis();
        for (made_at, effect, contradicts) in [
            (Some(eve - 1), ReportedEffect::Executed(201), true),
            (Some(eve), ReportedEffect::Executed(201), false),
            (None, ReportedEffect::Executed(201), false),
            (Some(eve - 1), ReportedEffect::Executed(402), false),
        ] {
            let queued = QueuedReport { made_at, ..QueuedReport::of(effect) };
            for current in [&unknown, &begun()] {
                let meaning = queued.meaning_for(Some(current), Duration::ZERO, START);
                assert_eq!(
                    matches!(meaning, Meaning::Contradicts(_)),
                    contradicts,
                    "{queued:?}: {meaning:?}"
                );
            }
            // The kept answer says the same.
            assert_eq!(
                queued.meaning_for(
                    Some(&with_status(if effect.is_effect() { 201 } else { 402 })),
                    Duration::ZERO,
                    START
                ),
                Meaning::Nothing
            );
        }
    }

    // T46
    #[test]
    fn the_providers_report_is_checked_against_a_completed_record() {
        for status in [200, 201, 302, 399] {
            assert_means(&with_status(status), START, "nothing", "contradicts");
        }
        for status in [400, 402, 404, 409] {
            assert_means(&with_status(status), START, "contradicts", "nothing");
        }
        let payload = KeptAnswer { head: Head::Payload, ..answer() };
        assert_means(&completed(payload), START, "nothing", "contradicts");
        assert_means(&completed(KeptAnswer::abandoned()), START, "contradicts", "nothing");
        assert!(matches!(
            ReportedEffect::NotExecuted.meaning_for(&with_status(201), START),
            Meaning::Contradicts(_)
        ));
        assert_eq!(ReportedEffect::NotExecuted.meaning_for(&with_status(402), START), Meaning::Nothing);
    }

    // T46
    #[test]
    fn an_effect_without_a_record_of_its_request_is_escalated() {
        let begun = begun();
        let never_began =
            Report::NotBegun.of(&begun, &begun, Revision::mint(), START).expect("it is its own");
        let transactional = Record { effects: Effects::InTransaction, ..begun.clone() };
        let lease_until = reservation("k").lease_until;
        let certain = transactional.expire(Revision::mint(), lease_until).expect("its lease has expired");
        let ours = Question { record: begun.clone() }.downstream_key("charge");
        for (under, current, contradicts) in [
            (None, None, true),
            (None, Some(&*never_began), true),
            (None, Some(&*certain), true),
            (Some("another's"), Some(&begun), true),
            (Some(&*ours), Some(&begun), false),
        ] {
            let under = under.map(|key| ("charge".to_owned(), key.to_owned()));
            let effect = QueuedReport { under, ..QueuedReport::of(ReportedEffect::Executed(201)) };
            let meaning = effect.meaning_for(current, Duration::ZERO, lease_until);
            assert_eq!(matches!(meaning, Meaning::Contradicts(_)), contradicts, "{effect:?}: {meaning:?}");
            if contradicts {
                let denial = QueuedReport { effect: ReportedEffect::NotExecuted, ..effect };
                assert_eq!(denial.meaning_for(current, Duration::ZERO, lease_until), Meaning::Nothing);
            }
        }
        // It may be older than its record was kept.
        let old = QueuedReport { made_at: Some(0), ..QueuedReport::of(ReportedEffect::Executed(201)) };
        let late = START.plus(OLD_EFFECT * 2);
        assert_eq!(old.meaning_for(None, Duration::ZERO, late), Meaning::TooLate);
    }

    // T46
    #[test]
    fn a_report_of_a_phase_proves_that_phase_and_no_more() {
        let within = Duration::from_secs(60);
        let resumes = ReservationRequest { effects: resuming(within), ..reservation("k") };
        let record = Record::reserve(&resumes, Revision::mint(), START);
        let ship = phase_of("ship".to_owned(), Some("7".to_owned()), START);
        let kept: Record = record.keep(&record, 0, &ship, Revision::mint(), START).unwrap().into();
        let key = |phase| Question { record: kept.clone() }.downstream_key(phase);
        let meaning = |queued: &QueuedReport, record: &Record| match queued.meaning_for(
            Some(record),
            Duration::ZERO,
            START,
        ) {
            Meaning::Notes(phase) => {
                format!("notes {} {:?}", phase.name, phase.result.as_ref().map(|result| result.text()))
            }
            Meaning::Nothing => "nothing".to_owned(),
            Meaning::Contradicts(_) => "contradicts".to_owned(),
            other => panic!("{other:?}"),
        };
        let executed =
            |phase, result: u64| ProviderReport::phase_executed(phase, &key(phase), &result).queued;
        assert_eq!(meaning(&executed("ship", 7), &kept), "nothing");
        assert_eq!(meaning(&executed("ship", 8), &kept), "contradicts");
        assert_eq!(meaning(&executed("charge", 9), &kept), r#"notes charge Some("9")"#);
        let old = QueuedReport { made_at: Some(0), ..executed("charge", 9) };
        assert_eq!(meaning(&old, &kept), "contradicts", "it is older than the record");
        let foreign = ProviderReport::phase_executed("charge", "another key", &9).queued;
        assert_eq!(meaning(&foreign, &kept), "contradicts");
        let without_result = ProviderReport::executed(201, Nobody).under("charge", &key("charge")).queued;
        assert_eq!(meaning(&without_result, &kept), "notes charge None");
        assert_eq!(meaning(&QueuedReport::of(ReportedEffect::Executed(201)), &kept), "contradicts");
        for refused in [ReportedEffect::Executed(402), ReportedEffect::NotExecuted] {
            assert_eq!(meaning(&QueuedReport::of(refused), &kept), "nothing");
        }
        // Refunded: its charge is no contradiction.
        let refunded = KeptAnswer { head: Head::Http { status: 409, headers: [].into() }, ..answer() };
        let completed = kept.complete(&kept, Revision::mint(), refunded, START).unwrap();
        assert_eq!(meaning(&executed("ship", 7), &completed), "nothing");
        assert_eq!(meaning(&executed("charge", 9), &completed), "contradicts");
    }

    struct Nobody;

    #[async_trait::async_trait]
    impl Reconciler for Nobody {
        async fn ask(
            &self,
            _: &Question,
        ) -> Result<crate::Finding, Box<dyn std::error::Error + Send + Sync>> {
            Err("nobody".into())
        }
    }
}
