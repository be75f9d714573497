//! Who wins: what a worker's report does to the current record, and what it needs if that does not take it.

use super::{
    Alarm, AlarmKind, Deferred, MAX_ALARMS, Record, Report, Revision, SettledBy, State, Transition,
    UnknownCause,
};
use crate::time::Timestamp;

/// A worker's report, with all that decides what it does to the record.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerReport<'a> {
    /// The record as its worker last saw it.
    pub(super) base: &'a Record,
    /// How the execution ended.
    pub(super) report: &'a Report,
    /// Whether domain writes commit with it.
    pub(super) has_rows: bool,
    /// Whether the operation may run again if its worker is dead.
    pub(super) may_run_again: bool,
    /// Whether the whole report is in a queue.
    pub(super) deferred: Deferred,
}

/// What a report does to the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It becomes this record.
    Written(Transition),
    /// The record is another execution's: it is marked with what this one reports.
    Marked(Transition),
    /// The same, with an alarm, because no queue has the report: it is put beside the record.
    Alarmed(Transition),
    /// Nothing: the record has moved on.
    Fenced,
    /// There is no record for it. It has been gone for so long that it may have been settled and deleted since, or its key has
    /// begun a later generation. Or the report has domain writes, which an operator or a restore may have undone together with
    /// the record.
    Gone,
}

/// What a report needs that its record did not take, and that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overtaken {
    /// Nothing: the record has moved on without it, and does not contradict it.
    Nothing,
    /// It waits, because another execution is not over. It may be the only proof of what was done.
    Waits,
    /// Its record will never have its result: there is none, or it is another request's.
    Gone,
    /// It is put beside the record, which gets this alarm, for this reason.
    Alarms(AlarmKind, &'static str),
    /// The same, if its answer is another one than the record's.
    Compared,
}

/// Why a second execution is an alarm.
const DOUBLE: &str = "another execution certainly or possibly ran the operation too";

impl WorkerReport<'_> {
    /// What this does to the current record.
    ///
    /// The record may be gone, because an operator deleted it or the table was restored to an earlier time. Then it is written anew
    /// from `base`, because what is known is still true. After the retention, counted from the execution's beginning, it is not
    /// written anew: the record may have been settled, and then deleted by time to live.
    pub(super) fn fate(&self, current: Option<&Record>, revision: Revision, now: Timestamp) -> Fate {
        let base = self.base;
        // Another request that did not begin counts as absent: it must not hide a certain or possible effect.
        let current = current
            .filter(|current| !current.is_not_begun() || current.attempt == base.attempt || !self.matters());
        // Of a new generation, so that no report takes it for the record whose rows it has, or whose rows are undone.
        let anew = Record { created_at: now, ..base.clone() };
        let seen = current.unwrap_or(&anew);
        let late = now >= base.began_at.plus(seen.retention);
        // The rows of a transaction may have been undone together with the record.
        let by_transaction = self.has_rows || (base.is_transactional() && !self.report.did_nothing());
        // It takes back what is there, and says nothing that would have to be kept.
        let starts_nothing = matches!(self.report, Report::NotStarted);
        if current.is_none() && (late || by_transaction || starts_nothing) {
            return Fate::Gone;
        }
        if !base.is_same_request(seen) {
            return Fate::Fenced;
        }
        // The record of a later generation never tells what this execution did.
        if self.matters() && !base.shares_generation(seen, now) {
            return Fate::Gone;
        }
        // It was claimed before, so this is the record of a later life, or of an earlier time: nothing says what was done since.
        if self.matters() && seen.is_unclaimed() {
            return Fate::Gone;
        }
        let is_double = self.is_double(seen, now);
        if matches!(seen.state, State::InProgress { .. }) && self.meets_another(seen, now) {
            return self.beside(seen, is_double, revision, now);
        }
        if self.belongs_to_earlier_generation(seen) {
            return Fate::Gone;
        }
        // Its trace would be lost.
        if is_double && seen.alarms.len() >= MAX_ALARMS {
            return Fate::Fenced;
        }
        let next = self.report.of(seen, base, revision, now);
        // What the other execution left is overwritten, and the alarm keeps its trace.
        let because = format!("{DOUBLE}: {}", seen.attempt);
        let alarms = |next: Transition| match is_double {
            true => next.raises(Alarm::new(AlarmKind::SecondExecution, &because, None, now)),
            false => next,
        };
        next.map_or(Fate::Fenced, |next| Fate::Written(alarms(next)))
    }

    /// What this does to the record of another execution that is in progress. It may still do nothing: so there is an alarm only if
    /// nothing else brings this report to what becomes of it.
    fn beside(&self, seen: &Record, is_double: bool, revision: Revision, now: Timestamp) -> Fate {
        let marks = || seen.contest(self.base, self.report.evidence()?, revision);
        match self.deferred {
            // It is late, and may be killed at any moment: nothing is written before that was tried.
            Deferred::NotYet => Fate::Fenced,
            // From there, it is applied once the other execution is over.
            Deferred::Sent => marks().map_or(Fate::Fenced, Fate::Marked),
            // What the record takes may be the only trace.
            Deferred::Perhaps | Deferred::PerhapsAgain | Deferred::NoQueue if is_double => {
                let id = self.base.report_id();
                let alarm = Alarm::new(AlarmKind::SecondExecution, DOUBLE, Some(id), now);
                let next = marks().map(|next| next.raises(alarm.clone()));
                let next = next.or_else(|| seen.alarm(alarm, revision));
                next.map_or(Fate::Fenced, |next| match next.has_report(id) {
                    true => Fate::Alarmed(next),
                    // There are too many.
                    false => Fate::Marked(next),
                })
            }
            Deferred::Perhaps | Deferred::PerhapsAgain | Deferred::NoQueue => {
                marks().map_or(Fate::Fenced, Fate::Marked)
            }
        }
    }

    /// Whether it would be a loss to drop this report: it tells of an effect, or its record knows of phases or of a call.
    pub(super) fn matters(&self) -> bool {
        self.tells_of_an_effect() || self.base.is_resumed() && !matches!(self.report, Report::NotStarted)
    }

    /// Whether it is about an effect, about a call that was perhaps made, or about domain writes.
    fn tells_of_an_effect(&self) -> bool {
        self.has_rows || matches!(self.report, Report::Interrupted(_)) || self.report.evidence().is_some()
    }

    /// Whether this record shows a second execution of an operation that must not run again, while this worker certainly or
    /// possibly did something.
    pub(super) fn is_double(&self, current: &Record, now: Timestamp) -> bool {
        !self.may_run_again && self.meets_another(current, now)
    }

    /// Whether this worker certainly or possibly did something, and this record is another execution's, which did not report that
    /// it did nothing.
    pub(super) fn meets_another(&self, current: &Record, now: Timestamp) -> bool {
        let base = self.base;
        // All effects of a transactional worker were in its transaction, which was not committed. Those of a worker with phases are
        // in the record.
        if base.contains_its_effects() || !self.matters() {
            return false;
        }
        // What perhaps happened does not keep an operation that may run again from doing so.
        if self.may_run_again && !self.report.reports_an_effect() {
            return false;
        }
        let did_nothing = match current.state {
            State::Pending { .. } | State::FailedRetryable { .. } => true,
            State::Unknown { cause, .. } => cause == UnknownCause::Contested,
            State::InProgress { .. } | State::BetweenWorkers { .. } | State::Completed { .. } => false,
        };
        current.attempt != base.attempt
            && base.is_same_request(current)
            && !did_nothing
            && base.shares_generation(current, now)
    }

    /// Whether its domain writes can never commit, because this record is of another generation of the key.
    pub(super) fn belongs_to_earlier_generation(&self, current: &Record) -> bool {
        let commits = self.has_rows && matches!(self.report, Report::Completed(_));
        commits && current.created_at != self.base.created_at
    }

    /// What this needs if the current record did not take it.
    pub(super) fn overtaken_by(&self, current: &Record, now: Timestamp) -> Overtaken {
        let double = self.is_double(current, now);
        if self.matters() && (!self.base.is_same_request(current) || current.is_unclaimed())
            || !double && self.belongs_to_earlier_generation(current)
        {
            return Overtaken::Gone;
        }
        // Its caller may have got the refusal. It must not be forgotten if the other execution turns out to have an effect.
        let refused = self.report.is_refusal() && self.base.is_same_request(current);
        if (self.tells_of_an_effect() || refused) && current.is_held() {
            return Overtaken::Alarms(
                AlarmKind::HeldReport,
                "an operator holds its record: no part of it is written",
            );
        }
        if self.base.phases().is_some() {
            // The table was restored, or a deployment that does not resume has taken the record over.
            return match current.has_forgotten_a_phase_of(self.base) {
                true => Overtaken::Alarms(
                    AlarmKind::ForgottenPhase,
                    "its record has forgotten a phase of it: no part of it is written",
                ),
                false => Overtaken::Nothing,
            };
        }
        match &current.state {
            State::InProgress { .. } if refused || self.has_rows || self.meets_another(current, now) => {
                Overtaken::Waits
            }
            State::Unknown { .. } if refused => Overtaken::Waits,
            _ if double => Overtaken::Alarms(AlarmKind::SecondExecution, DOUBLE),
            // Its effect is known already, and its rows are not there.
            State::Unknown { .. } if matches!(self.report, Report::Uncommitted) => {
                Overtaken::Alarms(AlarmKind::RefusedRows, "the domain writes of its effect are not made")
            }
            State::Completed { answer, by, .. } => {
                let own = current.attempt == self.base.attempt;
                // Its writes were refused, and it has the answer for that.
                let is_its_own = own && *by == SettledBy::Worker;
                let (ours, theirs) = (self.report.reports_an_effect(), answer.head.is_effect());
                let has_rows = self.has_rows || matches!(self.report, Report::Uncommitted);
                if !is_its_own && has_rows && !current.with_writes {
                    Overtaken::Alarms(
                        AlarmKind::RefusedRows,
                        "the domain writes of its worker are not made: it was completed without them",
                    )
                } else if !is_its_own && ours && !theirs {
                    Overtaken::Alarms(
                        AlarmKind::SecondAnswer,
                        "its worker reports an effect that the record says was refused",
                    )
                } else if refused && theirs {
                    Overtaken::Alarms(
                        AlarmKind::SecondAnswer,
                        "its worker was refused, and the record has an effect",
                    )
                } else if own && !is_its_own && matches!(self.report, Report::Completed(_)) {
                    // Its caller may have got the answer before another source knew one.
                    Overtaken::Compared
                } else {
                    Overtaken::Nothing
                }
            }
            State::Pending { .. }
            | State::InProgress { .. }
            | State::BetweenWorkers { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. } => Overtaken::Nothing,
        }
    }
}

impl Record {
    /// Whether both records may be of one request. Fingerprints by different rules cannot be compared.
    pub fn is_same_request(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint || self.fingerprint.rule() != other.fingerprint.rule()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{
        Evidence, Head, KeptAnswer, Phase, ReservationRequest, Verdict,
        tests::{RETAIN, answer, reservation, reservation_for, resuming},
    };
    use crate::time::CLOCK_SKEW;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn fresh() -> Revision {
        Revision::mint()
    }

    fn refusal() -> Report {
        let head = Head::Http { status: 402, headers: [].into() };
        Report::Completed(KeptAnswer { head, ..answer() })
    }

    fn effect() -> Report {
        Report::Completed(answer())
    }

    const PERHAPS: Report = Report::PerhapsExecuted(None);

    impl Overtaken {
        pub(in crate::record) fn alarm(self) -> Option<AlarmKind> {
            if let Self::Alarms(alarm, _) = self { Some(alarm) } else { None }
        }
    }

    impl Record {
        fn lease_end(&self) -> Timestamp {
            let State::InProgress { lease_until } = self.state else { panic!("{self:?}") };
            lease_until
        }
    }

    /// Two executions of one key: the first was released as "not found", and the second is in progress.
    fn two() -> (Record, Record) {
        let first = Record::reserve(&reservation("k"), fresh(), NOW);
        let second = first.again(&reservation("k"), fresh(), NOW);
        (first, second)
    }

    fn fate(base: &Record, ended: &Report, current: &Record, now: Timestamp) -> Fate {
        let report = WorkerReport {
            base,
            report: ended,
            has_rows: false,
            may_run_again: false,
            deferred: Deferred::Sent,
        };
        report.fate(Some(current), fresh(), now)
    }

    fn becomes(base: &Record, ended: &Report, current: &Record) -> Record {
        match fate(base, ended, current, NOW) {
            Fate::Written(next) | Fate::Marked(next) => next.into(),
            other => panic!("{other:?}"),
        }
    }

    // T17
    #[test]
    fn a_take_back_writes_nothing_where_no_record_is() {
        let resumes = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
        let resumed = Record::reserve(&resumes, fresh(), NOW);
        let charge = Phase::new("charge".to_owned(), None, NOW);
        let resumed = Record::from(resumed.note(&charge, fresh(), NOW).unwrap());
        for base in [two().0, resumed] {
            let report = WorkerReport {
                base: &base,
                report: &Report::NotStarted,
                has_rows: false,
                may_run_again: false,
                deferred: Deferred::Sent,
            };
            assert_eq!(report.fate(None, fresh(), NOW), Fate::Gone);
            assert!(!report.matters(), "nobody has to hear of it");
            assert!(matches!(report.fate(Some(&base), fresh(), NOW), Fate::Written(_)));
        }
    }

    // T53
    #[test]
    fn a_refusal_never_ends_a_record_over_reported_evidence() {
        let (first, second) = two();
        for evidence in [effect(), PERHAPS] {
            let contested = becomes(&first, &evidence, &second);
            assert_eq!(contested.state, second.state);
            let ended = becomes(&second, &refusal(), &contested);
            assert_eq!((ended.state.name(), ended.reported), ("unknown", evidence.evidence()));
            // In the other order, the refusal is the answer, and the evidence contradicts it.
            let refused = becomes(&second, &refusal(), &second);
            assert_eq!(refused.state.name(), "completed");
            assert!(matches!(fate(&first, &evidence, &refused, NOW), Fate::Fenced));
        }
    }

    // T53: the table may have forgotten a later execution than this worker's.
    #[test]
    fn no_workers_report_changes_what_an_operator_holds() {
        let (first, second) = two();
        let held: Record = first.hold(fresh(), first.lease_end()).unwrap().into();
        for base in [&first, &second] {
            for (ended, expected) in [
                (effect(), Some(AlarmKind::HeldReport)),
                (PERHAPS, Some(AlarmKind::HeldReport)),
                (Report::Uncommitted, Some(AlarmKind::HeldReport)),
                (refusal(), Some(AlarmKind::HeldReport)),
                (Report::NotExecuted(None), None),
                (Report::NotBegun, None),
                (Report::Interrupted(None), Some(AlarmKind::HeldReport)),
            ] {
                for deferred in [Deferred::NotYet, Deferred::Perhaps, Deferred::Sent] {
                    let report = WorkerReport {
                        base,
                        report: &ended,
                        has_rows: false,
                        may_run_again: false,
                        deferred,
                    };
                    assert_eq!(report.fate(Some(&held), fresh(), NOW), Fate::Fenced, "{ended:?}");
                    assert_eq!(report.overtaken_by(&held, NOW).alarm(), expected, "{ended:?}");
                }
            }
        }
    }

    // T53
    #[test]
    fn a_refusal_does_not_end_what_another_execution_left_unknown() {
        let (first, second) = two();
        let unknown = becomes(&second, &PERHAPS, &second);
        assert!(matches!(fate(&first, &refusal(), &unknown, NOW), Fate::Fenced));
        assert_eq!(becomes(&second, &refusal(), &unknown).state.name(), "completed", "its own");
        assert_eq!(becomes(&first, &effect(), &unknown).state.name(), "completed");
    }

    // T54: it may die at any moment.
    #[test]
    fn a_worker_marks_no_other_execution_before_its_report_is_queued() {
        let (first, second) = two();
        let ended = effect();
        let fate = |deferred| {
            let report = WorkerReport {
                base: &first,
                report: &ended,
                has_rows: false,
                may_run_again: false,
                deferred,
            };
            report.fate(Some(&second), fresh(), NOW)
        };
        assert_eq!(fate(Deferred::NotYet), Fate::Fenced);
        let Fate::Marked(marked) = fate(Deferred::Sent) else { panic!("it is queued") };
        assert_eq!((marked.attempt, marked.reported), (second.attempt, Some(Evidence::Effect)));
        assert_eq!(marked.alarms, [], "the other one may do nothing");
        // Perhaps nothing brings it again.
        let Fate::Alarmed(alarmed) = fate(Deferred::Perhaps) else { panic!("it is not queued") };
        assert_eq!((alarmed.attempt, alarmed.reported), (second.attempt, Some(Evidence::Effect)));
        assert!(alarmed.has_alarm(AlarmKind::SecondExecution) && alarmed.has_report(first.report_id()));
    }

    // T5, T54: what it left is overwritten, and no process can die before that is told.
    #[test]
    fn one_write_overwrites_another_execution_and_raises_the_alarm() {
        let (first, second) = two();
        let unknown = becomes(&second, &PERHAPS, &second);
        for (ended, state) in [(effect(), "completed"), (PERHAPS, "unknown")] {
            let Fate::Written(next) = fate(&first, &ended, &unknown, NOW) else { panic!("{ended:?}") };
            assert_eq!((next.attempt, next.state.name()), (first.attempt, state));
            assert!(next.has_alarm(AlarmKind::SecondExecution));
        }
        // Its own is none.
        assert_eq!(becomes(&second, &effect(), &unknown).alarms, []);
    }

    // T55
    #[test]
    fn an_effect_without_its_domain_writes_is_in_the_record_at_once() {
        let (first, second) = two();
        let own = becomes(&second, &Report::Uncommitted, &second);
        let released = becomes(&second, &Report::NotExecuted(None), &second);
        let late = becomes(&first, &Report::Uncommitted, &released);
        for marked in [own, late] {
            assert_eq!((marked.state.name(), marked.reported), ("unknown", Some(Evidence::Effect)));
        }
        let contested = becomes(&first, &Report::Uncommitted, &second);
        assert_eq!((contested.state, contested.reported), (second.state, Some(Evidence::Effect)));
    }

    #[test]
    fn the_order_of_two_reports_after_a_deletion_decides_nothing() {
        let retention = CLOCK_SKEW + RETAIN;
        let first = Record::reserve(&ReservationRequest { retention, ..reservation("k") }, fresh(), NOW);
        // An operator has deleted its record, and the key begins again.
        let later = NOW.plus(RETAIN / 2);
        let second =
            Record::reserve(&ReservationRequest { lease_until: later, ..reservation("k") }, fresh(), later);
        let released = becomes(&second, &Report::NotExecuted(None), &second);
        assert_eq!(becomes(&first, &effect(), &released).state.name(), "completed");
        let contested = becomes(&first, &effect(), &second);
        let ended = becomes(&second, &Report::NotExecuted(None), &contested);
        assert_eq!(becomes(&first, &effect(), &ended).state.name(), "completed");
        // After its retention, the record may be of a later generation: the effect must not be forgotten.
        assert_eq!(fate(&first, &effect(), &released, NOW.plus(RETAIN)), Fate::Gone);
        assert_eq!(fate(&first, &Report::NotBegun, &released, NOW.plus(RETAIN)), Fate::Fenced);
    }

    #[test]
    fn no_report_changes_the_record_of_another_request() {
        let first = Record::reserve(&reservation("k"), fresh(), NOW);
        let others = Record::reserve(&reservation_for("k", "another body"), fresh(), NOW);
        let released = becomes(&others, &Report::NotExecuted(None), &others);
        let unknown = becomes(&others, &PERHAPS, &others);
        for current in [others, released, unknown] {
            for ended in [effect(), refusal(), PERHAPS, Report::Uncommitted, Report::NotExecuted(None)] {
                assert!(matches!(fate(&first, &ended, &current, NOW), Fate::Fenced), "{ended:?}");
            }
        }
    }

    #[test]
    fn an_operation_that_may_run_again_keeps_its_evidence_too() {
        let (first, second) = two();
        let ended = effect();
        let report = WorkerReport {
            base: &first,
            report: &ended,
            has_rows: false,
            may_run_again: true,
            deferred: Deferred::Sent,
        };
        let Fate::Marked(contested) = report.fate(Some(&second), fresh(), NOW) else { panic!("{second:?}") };
        assert_eq!(contested.reported, Some(Evidence::Effect));
        assert!(report.meets_another(&second, NOW) && !report.is_double(&second, NOW));
    }

    // T12, T55: its rows may be undone together with it; and after its retention it may have been settled, and deleted by time to live.
    #[test]
    fn a_record_that_is_gone_is_written_anew_only_while_safe() {
        let base = Record::reserve(&reservation("k"), fresh(), NOW);
        let refusal = KeptAnswer { head: Head::Http { status: 402, headers: [].into() }, ..answer() };
        let late = NOW.plus(base.retention);
        for (kept, has_rows, now, is_gone) in [
            (answer(), false, NOW, false),
            (answer(), true, NOW, true),
            (answer(), false, late, true),
            (refusal.clone(), false, NOW, false),
            (refusal, false, late, true),
        ] {
            let ended = Report::Completed(kept);
            let report = WorkerReport {
                base: &base,
                report: &ended,
                has_rows,
                may_run_again: false,
                deferred: Deferred::NotYet,
            };
            let fate = report.fate(None, fresh(), now);
            assert_eq!(
                (fate == Fate::Gone, matches!(fate, Fate::Written(_))),
                (is_gone, !is_gone),
                "{fate:?}"
            );
        }
    }

    // T53, T55
    #[test]
    fn what_a_completed_record_lacks_is_an_alarm() {
        let (first, second) = two();
        let Report::Completed(refused) = refusal() else { panic!("it is an answer") };
        let completed = |answer| second.complete(&second, fresh(), answer, NOW).unwrap();
        for (base, kept, has_rows, alarm) in [
            (&first, refused.clone(), false, Some(AlarmKind::SecondAnswer)),
            (&first, answer(), true, Some(AlarmKind::RefusedRows)),
            (&first, answer(), false, None),
            (&second, refused, true, None),
        ] {
            let ended = effect();
            let report = WorkerReport {
                base,
                report: &ended,
                has_rows,
                may_run_again: true,
                deferred: Deferred::NotYet,
            };
            assert_eq!(report.overtaken_by(&completed(kept), NOW).alarm(), alarm);
        }
    }

    // T5
    #[test]
    fn a_request_that_never_began_hides_no_effect() {
        let first = Record::reserve(&reservation("k"), fresh(), NOW);
        let refused = Record::reserve(&reservation_for("k", "another body"), fresh(), NOW);
        let refused = Report::NotBegun.of(&refused, &refused, fresh(), NOW).unwrap();
        let ended = Report::Completed(answer());
        let report = WorkerReport {
            base: &first,
            report: &ended,
            has_rows: false,
            may_run_again: false,
            deferred: Deferred::NotYet,
        };
        let Fate::Written(next) = report.fate(Some(&refused), fresh(), NOW) else { panic!("not written") };
        assert_eq!((next.state.name(), next.attempt), ("completed", first.attempt));
    }

    /// The rows of a table of docs/states.md, without its header.
    pub(in crate::record) fn table(first_column: &str) -> Vec<Vec<String>> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/states.md");
        let text = std::fs::read_to_string(path).expect("the documentation");
        let lines = text.lines().skip_while(|line| !line.starts_with(&format!("| {first_column} |")));
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let rows = lines.skip(2).take_while(|line| line.starts_with('|')).map(cells);
        rows.map(|row| row[1..row.len() - 1].to_vec()).collect()
    }

    pub(in crate::record) fn name(next: Option<&Record>, seen: &Record) -> String {
        let Some(next) = next else { return "–".to_owned() };
        let state = next.state.name().replace("failed_retryable", "released");
        match (next.reported > seen.reported, next.state.name() == seen.state.name()) {
            (true, true) => "marked".to_owned(),
            (true, false) => format!("{state}, marked"),
            (false, _) => state,
        }
    }

    #[test]
    fn the_documents_table_of_reports_is_the_code() {
        let (first, second) = two();
        let released =
            |seen: &Record, by| Record::from(seen.settle(Verdict::NotExecuted, by, fresh(), NOW).unwrap());
        let unknown = |seen: &Record| Record::from(seen.mark_unknown(seen, fresh(), NOW).unwrap());
        let nothing = Report::NotExecuted(None);
        let reports = [
            ("an effect", effect()),
            ("an effect without its domain writes", Report::Uncommitted),
            ("perhaps an effect", PERHAPS),
            ("a refusal", refusal()),
            ("nothing done", nothing.clone()),
        ];
        let records = [
            vec![first.clone()],
            vec![unknown(&first)],
            vec![second.clone()],
            vec![unknown(&second)],
            vec![
                becomes(&second, &nothing, &second),
                released(&unknown(&second), SettledBy::Assumption),
                released(&unknown(&first), SettledBy::Assumption),
            ],
            vec![
                becomes(&first, &nothing, &first),
                released(&unknown(&second), SettledBy::Provider),
                released(&unknown(&first), SettledBy::Operator),
            ],
            vec![becomes(&second, &effect(), &second), becomes(&first, &refusal(), &first)],
        ];
        let rows = table("a worker reports");
        assert_eq!(rows.len(), reports.len());
        for (row, (reported, ended)) in rows.iter().zip(&reports) {
            assert_eq!((row[0].as_str(), row.len()), (*reported, records.len() + 1));
            for (cell, current) in
                row[1..].iter().zip(&records).flat_map(|(cell, all)| all.iter().map(move |one| (cell, one)))
            {
                let report = WorkerReport {
                    base: &first,
                    report: ended,
                    has_rows: false,
                    may_run_again: false,
                    deferred: Deferred::Sent,
                };
                let next = match report.fate(Some(current), fresh(), NOW) {
                    Fate::Written(next) | Fate::Marked(next) => Some(Record::from(next)),
                    _ => None,
                };
                assert_eq!(*cell, name(next.as_ref(), current), "{reported}, {current:?}");
            }
        }
    }

    #[test]
    fn the_documents_table_of_all_others_is_the_code() {
        let open = Record::reserve(&reservation("k"), fresh(), NOW);
        let live = Record { state: State::InProgress { lease_until: NOW.plus(RETAIN) }, ..open.clone() };
        let dead = Record { state: State::InProgress { lease_until: NOW }, ..open.clone() };
        let unknown = becomes(&open, &PERHAPS, &open);
        let released = |by| Record::from(unknown.settle(Verdict::NotExecuted, by, fresh(), NOW).unwrap());
        let records = [
            vec![live],
            vec![dead],
            vec![unknown.clone()],
            vec![released(SettledBy::Assumption), released(SettledBy::Worker), released(SettledBy::Operator)],
            vec![released(SettledBy::Certainty)],
            vec![becomes(&open, &effect(), &open), becomes(&open, &refusal(), &open)],
        ];
        type Makes = fn(&Record) -> Option<Transition>;
        let all: [(&str, Makes); 5] = [
            ("the stale function, or a caller", |seen| seen.expire(fresh(), NOW)),
            ("the provider reports an effect", |seen| seen.claim(fresh(), NOW, NOW)),
            ("the provider or an operator: executed", |seen| {
                seen.settle(Verdict::Executed(answer()), SettledBy::Operator, fresh(), NOW).ok()
            }),
            ("the provider or an operator: not executed", |seen| {
                seen.settle(Verdict::NotExecuted, SettledBy::Operator, fresh(), NOW).ok()
            }),
            ("an operator holds it", |seen| seen.hold(fresh(), NOW).ok()),
        ];
        let rows = table("who");
        assert_eq!(rows.len(), all.len());
        for (row, (who, makes)) in rows.iter().zip(all) {
            assert_eq!((row[0].as_str(), row.len()), (who, records.len() + 1));
            for (cell, current) in
                row[1..].iter().zip(&records).flat_map(|(cell, all)| all.iter().map(move |one| (cell, one)))
            {
                let next = makes(current).map(Record::from);
                assert_eq!(*cell, name(next.as_ref(), current), "{who}, {current:?}");
            }
        }
    }
}
