//! What a provider reports unprompted, and what that means for the current record (T46): a pure function.
//!
//! | the record | what is done |
//! | --- | --- |
//! | unknown, or its lease has expired | an effect claims it and settles it; after a refusal, the provider is asked |
//! | released | an effect claims it and settles it; a refusal agrees |
//! | in progress | an effect claims it; the report is processed again once the execution is over |
//! | completed, and the report says the same | nothing |
//! | completed, and the report says the opposite | an alarm, and escalated: what is completed never changes |
//! | knows its effect by another id of the provider | the same |
//! | younger than the effect, or another request's | an effect is escalated |
//! | of an operation that resumes | the phase that the report names is noted; an effect without a phase is escalated |
//! | none | an effect is escalated, unless it is older than two weeks and than the retention |
//!
//! Only proof of the effect, or an operator, settles a claimed record. No retry runs, even if its worker reports that it did
//! nothing, or if the provider does not find the effect or denies it.

use std::time::Duration;

use crate::{
    record::{
        Alarm, AlarmKind, MAX_ALARMS, NotTaken, Note, Phase, PhaseResult, Record, State, Verdict, is_effect,
    },
    time::{CLOCK_SKEW, OLD_EFFECT, Timestamp},
};

/// Why another effect than the one that the record knows is an alarm.
pub const SECOND_EFFECT: &str = "it reports a second effect under its key";

/// What a provider reports unprompted about one operation, and what proves which request it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported<'a> {
    /// What became of the effect. If it was executed: the status that its client gets.
    pub effect: Verdict<u16>,
    /// The phase, and the downstream key that it sent to the provider.
    pub under: Option<(&'a str, &'a str)>,
    /// What the phase's call returned.
    pub result: Option<PhaseResult>,
    /// When the effect was made, by the provider's clock.
    pub made_at: Option<Timestamp>,
    /// The provider's own id of the effect. It counts only if a key proves what the report is about.
    pub id: Option<&'a str>,
}

/// What a report means for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning<'a> {
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
    /// This record does not know yet which effect it has: it is named after this id of the provider.
    Names(&'a Record, Note),
    /// This record and the report contradict each other, for this reason.
    Alarms(&'a Record, AlarmKind, &'static str),
    /// The same, and there is no record of this request that could say so.
    Contradicts(&'static str),
}

impl Reported<'_> {
    /// What this means for the current record. `retention` is that of its operation.
    pub fn meaning_for<'a>(
        &self,
        current: Option<&'a Record>,
        retention: Duration,
        now: Timestamp,
    ) -> Meaning<'a> {
        let mismatch = |reason| match self.effect.is_effect() {
            true => Meaning::Contradicts(reason),
            false => Meaning::Nothing,
        };
        // A record that was refused before the handler began counts as absent.
        let Some(current) = current.filter(|current| !current.is_not_begun()) else {
            let kept = retention.max(OLD_EFFECT);
            // By the provider's clock.
            let is_old = self.made_at.is_some_and(|at| at.plus(kept).plus(CLOCK_SKEW) < now);
            return match self.effect.is_effect() && is_old {
                true => Meaning::TooLate,
                false => mismatch("it reports an effect that has no record"),
            };
        };
        if let Some((phase, key)) = self.under
            && key != current.key.downstream_key(&current.fingerprint, phase)
        {
            return mismatch("it reports an effect under the key of another request");
        }
        let meaning = match current.phases() {
            Some(_) => self.meaning_for_phases(current, now),
            None => self.effect.meaning_for(current, now),
        };
        let is_older = self.made_at.is_some_and(|at| at.plus(CLOCK_SKEW) < current.created_at);
        match meaning {
            Meaning::Settles(_) | Meaning::Later(..) | Meaning::Notes(_)
                if self.effect.is_effect() && is_older =>
            {
                Meaning::Contradicts("it reports an effect that is older than the record")
            }
            Meaning::Settles(_) | Meaning::Later(..) | Meaning::Nothing if !is_older => {
                // If there are too many alarms, it is first claimed and settled, and then escalated.
                let is_open = !current.state.is_completed();
                let has_room = current.alarms.len() < MAX_ALARMS || !is_open;
                match self.names(current) {
                    Some(id) if current.effect_id.is_none() => Meaning::Names(current, id),
                    // Then it claims and settles the record as any effect does.
                    _ if has_room && self.is_second_effect(current) => {
                        Meaning::Alarms(current, AlarmKind::SecondEffect, SECOND_EFFECT)
                    }
                    _ => meaning,
                }
            }
            meaning => meaning,
        }
    }

    /// Which effect it names. Only a report whose key proves what it is about does. Of phases, the results tell two effects apart.
    fn names(&self, current: &Record) -> Option<Note> {
        let names = self.effect.is_effect() && self.under.is_some() && current.phases().is_none();
        self.id.filter(|_| names).map(Note::new)
    }

    /// Whether it names another effect than this record, and no alarm says so.
    pub fn is_second_effect(&self, current: &Record) -> bool {
        let both = current.effect_id.as_ref().zip(self.names(current));
        let is_another = both.is_some_and(|(known, id)| *known != id);
        is_another && !self.stands_in(current, AlarmKind::SecondEffect, SECOND_EFFECT)
    }

    /// Why an alarm is raised, with the effect that it is about, so that each is told of once: the provider's own id of it, or a phase and
    /// the digest of its result.
    pub fn because(&self, reason: &str) -> String {
        let of_phase = |(phase, _): (&str, &str)| {
            format!("{phase} {}", self.result.as_ref().map_or("", PhaseResult::digest))
        };
        let about = self.id.map(str::to_owned).or_else(|| self.under.map(of_phase));
        about.map_or_else(|| reason.to_owned(), |about| format!("{}: {reason}", about.trim_end()))
    }

    /// The alarm of a record that it contradicts.
    pub fn alarm(&self, kind: AlarmKind, reason: &str, now: Timestamp) -> Alarm {
        Alarm::new(kind, &self.because(reason), None, now)
    }

    /// The alarm that the record has of it.
    pub fn standing_in<'a>(&self, record: &'a Record, kind: AlarmKind, reason: &str) -> Option<&'a Alarm> {
        let because = Note::new(&self.because(reason));
        record.alarms.iter().find(|alarm| alarm.kind == kind && alarm.because == because)
    }

    /// Whether the record has this alarm of it.
    pub fn stands_in(&self, record: &Record, kind: AlarmKind, reason: &str) -> bool {
        self.standing_in(record, kind, reason).is_some()
    }

    /// What this means for a record with phases. A refusal proves nothing: it is about one call, and only the handler knows what it
    /// asked for.
    fn meaning_for_phases<'a>(&self, current: &'a Record, now: Timestamp) -> Meaning<'a> {
        if !self.effect.is_effect() {
            return Meaning::Nothing;
        }
        let contradicts = |reason| Meaning::Alarms(current, AlarmKind::Contradicted, reason);
        let Some((name, _)) = self.under else {
            if current.state.is_completed() {
                return self.effect.meaning_for(current, now);
            }
            return contradicts("it reports an effect of an operation that resumes, and names no phase");
        };
        let phase = Phase::new(name.to_owned(), self.result.clone(), now);
        match current.note(&phase, current.revision, now) {
            Ok(_) => Meaning::Notes(phase),
            Err(NotTaken::Known) => Meaning::Nothing,
            Err(NotTaken::Differs) => {
                contradicts("it reports a phase that the record does not have, or has with another result")
            }
        }
    }
}

impl Verdict<u16> {
    /// Whether it reports an effect, and not a refusal.
    pub const fn is_effect(self) -> bool {
        matches!(self, Self::Executed(status) if is_effect(status))
    }

    /// What this means for the record of the same request.
    pub fn meaning_for(self, current: &Record, now: Timestamp) -> Meaning<'_> {
        let contradicts = |reason| Meaning::Alarms(current, AlarmKind::Contradicted, reason);
        match (&current.state, self) {
            (State::InProgress { lease_until }, _) if now < *lease_until => {
                Meaning::Later(current, *lease_until)
            }
            (State::Pending { released_by: None }, _) if self.is_effect() => {
                contradicts("it reports an effect of work that no worker has begun")
            }
            // Of an operation with phases: it names none.
            (State::BetweenWorkers { .. }, _) => Meaning::Nothing,
            (State::Completed { answer, .. }, _) => match (answer.head.is_effect(), self.is_effect()) {
                (true, false) => contradicts("it denies an effect that the record says was made"),
                (false, true) => contradicts("it reports an effect that the record says was refused"),
                _ => Meaning::Nothing,
            },
            _ if self.is_effect() && current.certainly_did_nothing() => contradicts(
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
    use crate::{
        learned::tests::phase,
        record::{
            Alarm, Effects, Head, KeptAnswer, Report, ReservationRequest, Revision, SettledBy,
            tests::{accepted, answer, reservation, resuming},
        },
    };

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn begun() -> Record {
        Record::reserve(&reservation("k"), Revision::mint(), START)
    }

    fn completed(answer: KeptAnswer) -> Record {
        let begun = begun();
        begun.complete(&begun, Revision::mint(), answer, START).expect("it is its own").into()
    }

    /// A report of this effect, without a key or a time that proves what it is about.
    fn report(effect: Verdict<u16>) -> Reported<'static> {
        Reported { effect, under: None, result: None, made_at: None, id: None }
    }

    fn with_status(status: u16) -> Record {
        completed(KeptAnswer { head: Head::Http { status, headers: [].into() }, ..answer() })
    }

    /// Asserts, in short, what the report of an effect means for the record, and what the report of a refusal means.
    #[track_caller]
    fn assert_means(current: &Record, at: Timestamp, reported: &str, denied: &str) {
        let short = |effect: Verdict<u16>| match effect.meaning_for(current, at) {
            Meaning::Settles(_) => "settles",
            Meaning::Nothing => "nothing",
            Meaning::Later(..) => "later",
            Meaning::TooLate => "too late",
            Meaning::Names(..) => "names",
            Meaning::Notes(_) => "notes",
            Meaning::Alarms(..) => "contradicts",
            Meaning::Contradicts(_) => "has no record",
        };
        for status in [200, 201, 204, 302, 399] {
            assert_eq!(short(Verdict::Executed(status)), reported, "{status}: {current:?}");
        }
        for status in [100, 199, 400, 402, 500] {
            assert_eq!(short(Verdict::Executed(status)), denied, "{status}: {current:?}");
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
        assert_eq!(Verdict::NotExecuted.meaning_for(&released, lease_until), Meaning::Nothing);
        assert_means(&released, lease_until, "settles", "nothing");
        for (effect, meaning) in [(Verdict::Executed(201), false), (Verdict::NotExecuted, true)] {
            let pending = accepted("k", START);
            assert_eq!(effect.meaning_for(&pending, START) == Meaning::Nothing, meaning);
        }
    }

    // T46, T37: an earlier generation of the key had the same downstream key.
    #[test]
    fn an_effect_older_than_its_record_is_escalated() {
        let lease_until = reservation("k").lease_until;
        let unknown = begun().expire(Revision::mint(), lease_until).expect("its lease has expired");
        let eve = START.minus(CLOCK_SKEW);
        let before = eve.minus(Duration::from_millis(1));
        for (made_at, effect, contradicts) in [
            (Some(before), Verdict::Executed(201), true),
            (Some(eve), Verdict::Executed(201), false),
            (None, Verdict::Executed(201), false),
            (Some(before), Verdict::Executed(402), false),
        ] {
            let report = Reported { made_at, ..report(effect) };
            for current in [&unknown, &begun()] {
                let meaning = report.meaning_for(Some(current), Duration::ZERO, START);
                assert_eq!(
                    matches!(meaning, Meaning::Contradicts(_)),
                    contradicts,
                    "{report:?}: {meaning:?}"
                );
            }
            // The kept answer says the same.
            assert_eq!(
                report.meaning_for(
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
            Verdict::NotExecuted.meaning_for(&with_status(201), START),
            Meaning::Alarms(_, AlarmKind::Contradicted, _)
        ));
        assert_eq!(Verdict::NotExecuted.meaning_for(&with_status(402), START), Meaning::Nothing);
    }

    // T83
    #[test]
    fn a_second_effect_under_one_key_is_an_alarm_in_every_state() {
        let begun = begun();
        let ours = begun.key.downstream_key(&begun.fingerprint, "charge");
        let reported =
            |id| Reported { id: Some(id), under: Some(("charge", &ours)), ..report(Verdict::Executed(201)) };
        let late = reservation("k").lease_until;
        let means = |report: &Reported<'_>, record: &Record| {
            let meaning = report.meaning_for(Some(record), Duration::ZERO, late);
            match meaning {
                Meaning::Names(_, id) => format!("names {id}"),
                Meaning::Alarms(_, kind, _) => kind.name().to_owned(),
                Meaning::Settles(_) => "settles".to_owned(),
                Meaning::Nothing => "nothing".to_owned(),
                Meaning::Contradicts(_) => "has no record".to_owned(),
                other => panic!("{other:?}"),
            }
        };
        for (record, otherwise) in [
            (begun.expire(Revision::mint(), late).unwrap().into(), "settles"),
            (begun.settled(Verdict::NotExecuted, SettledBy::Assumption, Revision::mint(), START), "settles"),
            (with_status(201), "nothing"),
        ] {
            assert_eq!(means(&reported("ch_1"), &record), "names ch_1");
            let named: Record = record.name_effect(Note::new("ch_1"), Revision::mint()).into();
            assert_eq!((&named.state, means(&reported("ch_1"), &named)), (&record.state, otherwise.into()));
            assert_eq!(means(&reported("ch_2"), &named), "second_effect");
            // Operators know of it: it claims and settles the record as any other.
            let because = reported("ch_2").because(SECOND_EFFECT);
            let alarmed =
                named.alarm(Alarm::new(AlarmKind::SecondEffect, &because, None, START), Revision::mint());
            let alarmed: Record = alarmed.unwrap().into();
            assert_eq!(means(&reported("ch_2"), &alarmed), otherwise);
            assert_eq!(means(&reported("ch_3"), &alarmed), "second_effect");
            // A refusal is no effect, and one of an earlier life of the key is not of this record.
            let refused = Reported { effect: Verdict::Executed(402), ..reported("ch_2") };
            assert_ne!(means(&refused, &named), "second_effect");
            let older = Reported { made_at: Some(Timestamp::default()), ..reported("ch_0") };
            let means_older = if otherwise == "settles" { "has no record" } else { "nothing" };
            assert_eq!(means(&older, &record), means_older);
            // Anybody may have set the metadata that led here.
            let unproven = Reported { under: None, ..reported("ch_2") };
            assert_eq!(means(&unproven, &named), otherwise);
            assert_eq!(means(&unproven, &record), otherwise);
        }
    }

    // T83: what was done before was undone, or was not done.
    #[test]
    fn a_release_forgets_which_effect_its_record_had() {
        let named: Record = begun().name_effect(Note::new("ch_1"), Revision::mint()).into();
        let settled = |verdict| named.settled(verdict, SettledBy::Operator, Revision::mint(), START);
        assert_eq!(settled(Verdict::NotExecuted).effect_id, None);
        assert_eq!(settled(Verdict::Executed(answer())).effect_id, named.effect_id);
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
        let ours = begun.key.downstream_key(&begun.fingerprint, "charge");
        for (under, current, contradicts) in [
            (None, None, "has no record"),
            (None, Some(&*never_began), "has no record"),
            (None, Some(&*certain), "an alarm"),
            (Some("another's"), Some(&begun), "has no record"),
            (Some(&*ours), Some(&begun), "none"),
        ] {
            let under = under.map(|key| ("charge", key));
            let effect = Reported { under, ..report(Verdict::Executed(201)) };
            let meaning = effect.meaning_for(current, Duration::ZERO, lease_until);
            let means = match meaning {
                Meaning::Contradicts(_) => "has no record",
                Meaning::Alarms(_, AlarmKind::Contradicted, _) => "an alarm",
                _ => "none",
            };
            assert_eq!(means, contradicts, "{effect:?}");
            if contradicts != "none" {
                let denial = Reported { effect: Verdict::NotExecuted, ..effect };
                assert_eq!(denial.meaning_for(current, Duration::ZERO, lease_until), Meaning::Nothing);
            }
        }
        // It may be older than its record was kept.
        let old = Reported { made_at: Some(Timestamp::default()), ..report(Verdict::Executed(201)) };
        let late = START.plus(OLD_EFFECT * 2);
        assert_eq!(old.meaning_for(None, Duration::ZERO, late), Meaning::TooLate);
    }

    // T46
    #[test]
    fn a_report_of_a_phase_proves_that_phase_and_no_more() {
        let within = Duration::from_secs(60);
        let resumes = ReservationRequest { effects: resuming(within), ..reservation("k") };
        let record = Record::reserve(&resumes, Revision::mint(), START);
        let kept: Record =
            record.keep(&record, 0, &phase("ship", "7", START), Revision::mint(), START).unwrap().into();
        let key = |phase| kept.key.downstream_key(&kept.fingerprint, phase);
        let (charge, ship) = (key("charge"), key("ship"));
        let meaning = |report: &Reported<'_>, record: &Record| match report.meaning_for(
            Some(record),
            Duration::ZERO,
            START,
        ) {
            Meaning::Notes(phase) => {
                format!("notes {} {:?}", phase.name, phase.result.as_ref().map(PhaseResult::text))
            }
            Meaning::Nothing => "nothing".to_owned(),
            Meaning::Alarms(_, AlarmKind::Contradicted, _) | Meaning::Contradicts(_) => {
                "contradicts".to_owned()
            }
            other => panic!("{other:?}"),
        };
        let without_result =
            |name, key| Reported { under: Some((name, key)), ..report(Verdict::Executed(200)) };
        let executed = |name, key, result| Reported {
            result: phase(name, result, START).result,
            ..without_result(name, key)
        };
        assert_eq!(meaning(&executed("ship", &ship, "7"), &kept), "nothing");
        assert_eq!(meaning(&executed("ship", &ship, "8"), &kept), "contradicts");
        assert_eq!(meaning(&executed("charge", &charge, "9"), &kept), r#"notes charge Some("9")"#);
        let old = Reported { made_at: Some(Timestamp::default()), ..executed("charge", &charge, "9") };
        assert_eq!(meaning(&old, &kept), "contradicts", "it is older than the record");
        assert_eq!(meaning(&executed("charge", "another key", "9"), &kept), "contradicts");
        assert_eq!(meaning(&without_result("charge", &charge), &kept), "notes charge None");
        assert_eq!(meaning(&report(Verdict::Executed(201)), &kept), "contradicts");
        for refused in [Verdict::Executed(402), Verdict::NotExecuted] {
            assert_eq!(meaning(&report(refused), &kept), "nothing");
        }
        // Refunded: its charge is no contradiction.
        let refunded = KeptAnswer { head: Head::Http { status: 409, headers: [].into() }, ..answer() };
        let completed = kept.complete(&kept, Revision::mint(), refunded, START).unwrap();
        assert_eq!(meaning(&executed("ship", &ship, "7"), &completed), "nothing");
        assert_eq!(meaning(&executed("charge", &charge, "9"), &completed), "contradicts");
    }
}
