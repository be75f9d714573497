//! What is done about a worker's report until it is safe, and what the worker's caller is told: pure, one command at a time.
//!
//! A driver asks for a [`Step`], carries it out, notes in [`SoFar`] what happened, and asks again until it is the end. It may die between
//! any two commands. So their order is decided here:
//!
//! 1. Who finds another execution in progress sends its whole report to the queue before it marks that record.
//! 2. An effect whose domain writes were refused is in the queue, with them, before the record says that it lacks them; or that one write
//!    puts it beside the record.
//! 3. What operators must look at is an [alarm](Alarm) of the record, raised by one swap: the one that writes the report, or one that
//!    puts it beside the record. What has no record to stand in is escalated at once.

use super::{
    Alarm, AlarmKind, Deferred, Ending, Instead, Moment, Record, Report, Revision, Rows, Says, SoFar, State,
    Transition, Written,
    fate::{Fate, Overtaken, WorkerReport},
    told::Stands,
};
use crate::time::Timestamp;

/// Why a report is escalated whose record cannot take it any more.
const GONE: &str =
    "its record is gone, and may have been settled, or its key has begun again: no part of it is written";
/// Why domain writes that cannot be computed are an alarm.
const UNCOMPUTED: &str = "the domain writes of its effect could not be computed: they must be made by hand";
/// Why domain writes that are refused are an alarm.
const REFUSED: &str = "the domain writes of its report are refused: no part of it is written";
/// Why another answer is an alarm.
const TWO_ANSWERS: &str = "its client may have got another answer than the record has";

/// The next command of a report. The driver carries it out, and notes its result in [`SoFar`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<N> {
    /// Write this record, and with it the domain writes if it `commits`.
    Write {
        /// The record.
        next: Transition,
        /// Whether the domain writes of the report commit with it, if it is completed.
        commits: bool,
    },
    /// Write this mark: the record takes no more of the report.
    Mark(Transition),
    /// Raise this alarm of the record, and put the report beside it, if the alarm names one.
    Alarm(Transition),
    /// Nothing is to be written now.
    Next(N),
}

/// What a worker does next, if not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerNext {
    /// Send the report to the queue of deferred reports.
    Defer,
    /// Nothing is left to do.
    Tell {
        /// What its caller is told.
        says: Says,
        /// What is counted, for an alarm.
        counts: Option<Counts>,
    },
}

/// What is counted, for an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counts {
    /// A report is neither written nor deferred: its lease ends the record.
    Unwritten,
    /// A report that contradicts its record is not deferred: only a log line has it.
    ContradictionUnsent,
}

/// What becomes of the message of a deferred report, if nothing is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageNext {
    /// The report's answer is to be compared with the record's.
    Compare,
    /// It is done with.
    Done,
    /// It comes again: the store has not answered.
    ComesAgain,
    /// It comes again once the other execution of its record is over.
    Waits,
    /// It is done with: the record has moved on without it.
    TooLate,
    /// Operators must be told of it, for this reason: no record takes it.
    Escalate(&'static str),
}

/// Whether a report can lie beside a record.
enum Beside {
    /// By this write.
    Alarm(Transition),
    /// It lies there.
    Already,
    /// There is no record, or it has too many alarms.
    Full,
}

impl Ending {
    /// The next command of the worker itself. Its caller is waiting.
    pub fn step(
        &self,
        current: Option<&Record>,
        so_far: &SoFar,
        Moment { revision, now }: Moment,
    ) -> Step<WorkerNext> {
        let instead = self.instead(&so_far.instead);
        let report = instead.as_ref().unwrap_or(&self.report);
        let says = |stands| self.says(report, so_far, &stands);
        let end = |stands| Step::Next(WorkerNext::Tell { says: says(stands), counts: None });
        // What is in no queue is counted, if no record has it either.
        let lost = |says, counts| {
            let counts = Some(counts).filter(|_| so_far.deferred != Deferred::Sent);
            Step::Next(WorkerNext::Tell { says, counts })
        };
        let defer_or = |counts, stands| match so_far.deferred {
            Deferred::NotYet => Step::Next(WorkerNext::Defer),
            _ => lost(says(stands), counts),
        };
        // From the queue, its domain writes are tried once more.
        let is_whole = so_far.instead == Instead::Refused && *report == Report::Uncommitted;
        if is_whole && so_far.deferred == Deferred::NotYet {
            return Step::Next(WorkerNext::Defer);
        }
        let seen = current.unwrap_or(&self.base);
        match so_far.write {
            Some(Written::Applied) => return end(Stands::Written(seen)),
            // Once the lease is over, it is known whether the transaction has committed. No message knows more.
            Some(Written::Perhaps { passing }) if self.base.is_transactional() => {
                let says = says(Stands::Unwritten { passing });
                let counts = (!report.did_nothing()).then_some(Counts::Unwritten);
                return Step::Next(WorkerNext::Tell {
                    says: if counts.is_some() { Says::UNKNOWN } else { says },
                    counts,
                });
            }
            Some(Written::Perhaps { passing }) => {
                // If the queue did not have it before the write, it is tried once more.
                let defers =
                    so_far.deferred == Deferred::NotYet || so_far.deferred == Deferred::Perhaps && is_whole;
                if defers {
                    return Step::Next(WorkerNext::Defer);
                }
                // Raised by this write, or by others since: then it is as unknown.
                let doubles = |record: &Record| {
                    let is_double = |alarm: &&Alarm| alarm.kind == AlarmKind::SecondExecution;
                    record.alarms.iter().filter(is_double).count()
                };
                let is_double = doubles(seen) > doubles(&self.base);
                let says = match () {
                    // The record that was to be written has moved on without it, or is another execution's: what that one answers counts,
                    // written or not.
                    () if seen.attempt != self.base.attempt || seen.has_report(self.base.report_id()) => {
                        says(Stands::Lost(seen))
                    }
                    // Or it was another's: one of the two answers counts.
                    () if is_double => Says::UNKNOWN,
                    () => says(Stands::Unwritten { passing }),
                };
                return lost(says, Counts::Unwritten);
            }
            Some(Written::Beside) => return end(Stands::Lost(seen)),
            Some(Written::Marked) | None => {}
        }
        let told = self.told(instead.as_ref(), so_far.deferred);
        match told.fate(current, revision, now) {
            Fate::Written(next) if is_whole && so_far.deferred != Deferred::Sent => {
                self.rows_beside(next, now)
            }
            Fate::Written(next) if is_whole => Step::Write { next, commits: false },
            Fate::Written(next) => told.write(next, now),
            Fate::Marked(next) => Step::Mark(next),
            Fate::Alarmed(next) => Step::Alarm(next),
            // An earlier try may have committed, and the record been deleted since.
            Fate::Gone if self.base.is_transactional() => {
                Step::Next(WorkerNext::Tell { says: Says::UNKNOWN, counts: None })
            }
            Fate::Gone => defer_or(Counts::ContradictionUnsent, Stands::Nowhere),
            // Its transaction can no longer commit: nothing was done, and there is nothing to report.
            Fate::Fenced if self.base.is_transactional() && !report.did_nothing() => {
                let says = match seen.state {
                    State::Completed { expires_at, .. } if self.base.is_same_request(seen) => {
                        Says::Replay(expires_at)
                    }
                    _ => Says::NotCommitted,
                };
                Step::Next(WorkerNext::Tell { says, counts: None })
            }
            Fate::Fenced if !told.matters() && !self.base.is_same_request(seen) => end(Stands::Nowhere),
            Fate::Fenced => match told.overtaken_by(seen, now) {
                // The key is another request's, or of a later generation, now. That answer is not for this caller.
                Overtaken::Gone => defer_or(Counts::ContradictionUnsent, Stands::Nowhere),
                // Its caller gets the record's answer, and no other.
                Overtaken::Alarms(AlarmKind::SecondAnswer, _) if !report.reports_an_effect() => {
                    end(Stands::Lost(seen))
                }
                // The queue has them, and they are tried once more.
                Overtaken::Alarms(AlarmKind::RefusedRows, _)
                    if is_whole && so_far.deferred == Deferred::Sent =>
                {
                    end(Stands::Lost(seen))
                }
                Overtaken::Alarms(kind, because) => {
                    match self.alarm(current, (kind, because), Moment { revision, now }) {
                        Beside::Alarm(next) => Step::Alarm(next),
                        Beside::Already => end(Stands::Lost(seen)),
                        Beside::Full => defer_or(Counts::ContradictionUnsent, Stands::Lost(seen)),
                    }
                }
                // Once the other execution is over, it is applied from the queue.
                Overtaken::Waits if told.meets_another(seen, now) => {
                    defer_or(Counts::ContradictionUnsent, Stands::Lost(seen))
                }
                _ => end(Stands::Lost(seen)),
            },
        }
    }

    /// The next command for its message, which comes from the queue. No caller waits.
    pub fn deliver(
        &self,
        current: Option<&Record>,
        so_far: &SoFar,
        Moment { revision, now }: Moment,
    ) -> Step<MessageNext> {
        let escalate = |reason| Step::Next(MessageNext::Escalate(reason));
        let alarm = |kind, because| match self.alarm(current, (kind, because), Moment { revision, now }) {
            Beside::Alarm(next) => Step::Alarm(next),
            Beside::Already => Step::Next(MessageNext::Done),
            Beside::Full => escalate(because),
        };
        match so_far.write {
            Some(Written::Applied | Written::Beside) => return Step::Next(MessageNext::Done),
            Some(Written::Perhaps { .. }) => return Step::Next(MessageNext::ComesAgain),
            Some(Written::Marked) | None => {}
        }
        if so_far.instead == Instead::Refused && self.base.phases().is_none() {
            return match self.mark(current, revision, now) {
                Some(mark) => self.rows_beside(mark, now),
                None if current.is_some_and(|current| self.base.is_same_request(current)) => {
                    alarm(AlarmKind::RefusedRows, REFUSED)
                }
                None => escalate(REFUSED),
            };
        }
        let instead = self.instead(&so_far.instead);
        let told = self.told(instead.as_ref(), Deferred::Sent);
        match told.fate(current, revision, now) {
            Fate::Written(next) => return told.write(next, now),
            Fate::Marked(next) => return Step::Mark(next),
            Fate::Alarmed(next) => return Step::Alarm(next),
            // Nothing was done: a retry may run.
            Fate::Gone if !told.matters() => return Step::Next(MessageNext::Done),
            Fate::Gone => {
                // Its rows are lost with its generation, but the effect is not.
                let mark = if told.has_rows { self.mark(current, revision, now) } else { None };
                return mark.map_or_else(|| escalate(GONE), Step::Mark);
            }
            Fate::Fenced => {}
        }
        match told.overtaken_by(current.unwrap_or(&self.base), now) {
            Overtaken::Waits => Step::Next(MessageNext::Waits),
            Overtaken::Gone => escalate(GONE),
            Overtaken::Alarms(kind, because) => alarm(kind, because),
            // If its domain writes could be refused, its caller got no answer.
            Overtaken::Compared if self.rows != Rows::Conditional => match so_far.differs {
                None => Step::Next(MessageNext::Compare),
                Some(true) => alarm(AlarmKind::SecondAnswer, TWO_ANSWERS),
                Some(false) => Step::Next(MessageNext::TooLate),
            },
            Overtaken::Nothing | Overtaken::Compared => Step::Next(MessageNext::TooLate),
        }
    }

    /// The next command for a message that comes again, because the body of its answer cannot be stored yet.
    pub fn hand_back(
        &self,
        current: Option<&Record>,
        so_far: &SoFar,
        Moment { revision, now }: Moment,
    ) -> Step<MessageNext> {
        let mark = if so_far.write.is_none() { self.mark(current, revision, now) } else { None };
        mark.map_or(Step::Next(MessageNext::ComesAgain), Step::Mark)
    }

    /// The record that lacks the domain writes of its effect, with the report that has them beside it.
    fn rows_beside<N>(&self, next: Transition, now: Timestamp) -> Step<N> {
        let id = self.base.report_id();
        let next = next.raises(Alarm::new(AlarmKind::RefusedRows, REFUSED, Some(id), now));
        // If there are too many alarms, it is at least marked.
        if next.has_report(id) { Step::Alarm(next) } else { Step::Mark(next) }
    }

    /// This alarm, with the report beside the record.
    fn alarm(
        &self,
        current: Option<&Record>,
        (kind, because): (AlarmKind, &str),
        Moment { revision, now }: Moment,
    ) -> Beside {
        let id = self.base.report_id();
        let Some(current) = current else { return Beside::Full };
        match current.alarm(Alarm::new(kind, because, Some(id), now), revision) {
            Some(next) => Beside::Alarm(next),
            None if current.has_report(id) => Beside::Already,
            None => Beside::Full,
        }
    }

    /// The mark of its effect, if it reports one that the record does not show: until the report can be applied, no retry runs. `None` for
    /// an operation that may run again, because its next run repairs it.
    fn mark(&self, current: Option<&Record>, revision: Revision, now: Timestamp) -> Option<Transition> {
        if self.may_run_again || !self.report.reports_an_effect() {
            return None;
        }
        // With its rows: a record that is gone, perhaps together with them, is not written anew.
        let uncommitted = self.told(Some(&Report::Uncommitted), Deferred::Sent);
        let mark = WorkerReport { has_rows: self.rows != Rows::None, ..uncommitted };
        match mark.fate(current, revision, now) {
            Fate::Written(mark) | Fate::Marked(mark) => Some(mark),
            Fate::Alarmed(_) | Fate::Fenced | Fate::Gone => None,
        }
    }

    /// What the record is told: its report, or another one instead.
    fn told<'r>(&'r self, instead: Option<&'r Report>, deferred: Deferred) -> WorkerReport<'r> {
        WorkerReport {
            base: &self.base,
            report: instead.unwrap_or(&self.report),
            has_rows: instead.is_none() && self.rows != Rows::None,
            may_run_again: self.may_run_again,
            deferred,
        }
    }
}

impl WorkerReport<'_> {
    /// The write of this report. If nobody has the domain writes of its effect, that is an alarm.
    fn write<N>(&self, next: Transition, now: Timestamp) -> Step<N> {
        let next = match *self.report {
            Report::Uncommitted => next.raises(Alarm::new(AlarmKind::RefusedRows, UNCOMPUTED, None, now)),
            _ => next,
        };
        Step::Write { next, commits: self.has_rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        Effects, Evidence, Head, KeptAnswer, MAX_ALARMS, Note, SettledBy, Verdict,
        fate::tests::table,
        tests::{answer, reservation, reservation_for},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn fresh() -> Revision {
        Revision::mint()
    }

    fn at() -> Moment {
        Moment { revision: fresh(), now: NOW }
    }

    fn effect() -> Report {
        Report::Completed(answer())
    }

    fn refusal() -> Report {
        let head = Head::Http { status: 402, headers: [].into() };
        Report::Completed(KeptAnswer { head, ..answer() })
    }

    fn ending(base: &Record, report: Report) -> Ending {
        Ending { base: base.clone(), report, rows: Rows::None, may_run_again: false }
    }

    /// What a worker does about its report, and what its caller is told.
    fn story(ending: &Ending, current: Option<&Record>, mut so_far: SoFar) -> (String, Option<Record>) {
        let (mut done, mut current) = (String::new(), current.cloned());
        loop {
            let (word, next) = match ending.step(current.as_ref(), &so_far, at()) {
                Step::Write { next, .. } => {
                    so_far.write = Some(Written::Applied);
                    let word = if !next.alarms.is_empty() { "written with alarm" } else { "written" };
                    (word, Some(next.into()))
                }
                Step::Mark(next) => {
                    so_far.write = Some(Written::Marked);
                    ("marked", Some(next.into()))
                }
                Step::Next(WorkerNext::Defer) => {
                    so_far.deferred = Deferred::Sent;
                    ("queued", current)
                }
                Step::Alarm(next) => {
                    so_far.write = Some(Written::Beside);
                    ("alarm", Some(next.into()))
                }
                Step::Next(WorkerNext::Tell { says, .. }) => {
                    let says = match says {
                        Says::Own { .. } | Says::Released => "its own answer".to_owned(),
                        Says::Replay(_) => "the record's answer".to_owned(),
                        other => other.name().replace('_', " "),
                    };
                    return (if done.is_empty() { says } else { format!("{done}; {says}") }, current);
                }
            };
            done = if done.is_empty() { word.to_owned() } else { format!("{done}, {word}") };
            current = next;
        }
    }

    fn two() -> (Record, Record) {
        let first = Record::reserve(&reservation("k"), fresh(), NOW);
        let second = first.again(&reservation("k"), fresh(), NOW);
        (first, second)
    }

    fn becomes(record: &Record, report: &Report) -> Record {
        report.of(record, record, fresh(), NOW).expect("it is its own").into()
    }

    #[test]
    fn the_documents_table_of_what_callers_are_told_is_the_code() {
        let (first, second) = two();
        let perhaps = Report::PerhapsExecuted(None);
        let unknown = becomes(&second, &perhaps);
        let released = becomes(&second, &Report::NotExecuted(None));
        let done = [becomes(&second, &effect()), becomes(&second, &refusal())];
        let held: Record = first.hold(fresh(), Timestamp::from_secs(1_030)).unwrap().into();
        let others = Record::reserve(&reservation_for("k", "another body"), fresh(), NOW);
        let unanswered = || SoFar { write: Some(Written::Perhaps { passing: true }), ..SoFar::default() };
        let records = [
            vec![(Some(&first), SoFar::default())],
            vec![(Some(&second), SoFar::default())],
            vec![(Some(&unknown), SoFar::default())],
            vec![(Some(&released), SoFar::default())],
            done.iter().map(|done| (Some(done), SoFar::default())).collect(),
            vec![(Some(&held), SoFar::default())],
            vec![(Some(&others), SoFar::default())],
            vec![(None, SoFar::default())],
            vec![(Some(&first), unanswered())],
        ];
        let reports = [
            ("an effect", effect()),
            ("perhaps an effect", perhaps),
            ("a refusal", refusal()),
            ("nothing done", Report::NotExecuted(None)),
        ];
        let rows = table("its worker reports");
        assert_eq!(rows.len(), reports.len());
        for (row, (name, report)) in rows.iter().zip(reports) {
            assert_eq!((row[0].as_str(), row.len()), (name, records.len() + 1));
            for (cell, records) in row[1..].iter().zip(&records) {
                for (current, so_far) in records {
                    let (story, _) = story(&ending(&first, report.clone()), *current, so_far.clone());
                    assert_eq!(*cell, story, "{name}, {current:?}");
                }
            }
        }
    }

    // T54: its process may die after any of them.
    #[test]
    fn no_other_execution_is_marked_before_the_report_is_queued() {
        let (first, second) = two();
        for report in [effect(), Report::PerhapsExecuted(None)] {
            let (done, marked) = story(&ending(&first, report.clone()), Some(&second), SoFar::default());
            assert!(done.starts_with("queued, marked"), "{done}");
            assert_eq!(marked.and_then(|marked| marked.reported), report.evidence());
        }
    }

    // T55
    #[test]
    fn an_effect_without_its_rows_is_queued_before_it_is_written() {
        let (first, _) = two();
        let ending = Ending { rows: Rows::Conditional, ..ending(&first, effect()) };
        let refused = SoFar { instead: Instead::Refused, ..SoFar::default() };
        let (done, record) = story(&ending, Some(&first), refused.clone());
        assert_eq!(done, "queued, written; unknown");
        assert_eq!(record.and_then(|record| record.reported), Some(Evidence::Effect));
        assert_eq!(ending.letter(&refused), (effect(), true), "from there, they are tried once more");
    }

    // T55
    #[test]
    fn a_report_that_neither_store_nor_queue_takes_is_tried_and_counted() {
        let (first, _) = two();
        let ending = Ending { rows: Rows::Conditional, ..ending(&first, effect()) };
        let unanswered = |deferred| {
            let write = Some(Written::Perhaps { passing: true });
            let so_far = SoFar { write, instead: Instead::Refused, deferred, ..SoFar::default() };
            ending.step(Some(&first), &so_far, at())
        };
        let unknown = |counts| Step::Next(WorkerNext::Tell { says: Says::UNKNOWN, counts });
        assert_eq!(unanswered(Deferred::Perhaps), Step::Next(WorkerNext::Defer));
        assert_eq!(unanswered(Deferred::PerhapsAgain), unknown(Some(Counts::Unwritten)));
        assert_eq!(unanswered(Deferred::NoQueue), unknown(Some(Counts::Unwritten)));
        assert_eq!(unanswered(Deferred::Sent), unknown(None));
    }

    // T5: the store does not answer.
    #[test]
    fn no_caller_gets_its_own_answer_beside_another_execution() {
        let (first, second) = two();
        let unknown = becomes(&second, &Report::PerhapsExecuted(None));
        let held: Record = first.hold(fresh(), Timestamp::from_secs(1_030)).unwrap().into();
        let ending = ending(&first, effect());
        for deferred in [Deferred::Sent, Deferred::PerhapsAgain, Deferred::NoQueue] {
            for (seen, told) in [(&second, "answered_elsewhere"), (&unknown, "unknown"), (&held, "unknown")] {
                let so_far = SoFar { deferred, ..SoFar::default() };
                let next: Record = match ending.step(Some(seen), &so_far, at()) {
                    Step::Write { next, .. } | Step::Mark(next) | Step::Alarm(next) => next.into(),
                    other => panic!("{other:?}"),
                };
                let unanswered = SoFar { write: Some(Written::Perhaps { passing: true }), ..so_far };
                let Step::Next(WorkerNext::Tell { says, .. }) = ending.step(Some(&next), &unanswered, at())
                else {
                    panic!("it is not over")
                };
                assert_eq!(says.name(), told, "{deferred:?}");
            }
        }
    }

    // T54: without a queue, the record is the only trace.
    #[test]
    fn a_report_that_no_queue_takes_lies_beside_the_other_execution() {
        let (first, second) = two();
        let ending = ending(&first, effect());
        let so_far = SoFar { deferred: Deferred::NoQueue, ..SoFar::default() };
        let (done, alarmed) = story(&ending, Some(&second), so_far);
        assert_eq!(done, "alarm; answered elsewhere");
        assert!(alarmed.is_some_and(|alarmed| alarmed.has_alarm(AlarmKind::SecondExecution)));
    }

    // T55: the other execution did nothing, and its record is marked at once; but no answer came.
    #[test]
    fn an_unanswered_mark_of_what_no_queue_has_is_deferred() {
        let (first, second) = two();
        let contested = Record { reported: Some(Evidence::Perhaps), ..second };
        let contested = becomes(&contested, &Report::NotExecuted(None));
        let ending = Ending { rows: Rows::Conditional, ..ending(&first, effect()) };
        let uncomputed = SoFar { instead: Instead::Uncomputed, ..SoFar::default() };
        let Step::Write { next, .. } = ending.step(Some(&contested), &uncomputed, at()) else {
            panic!("it is not written")
        };
        assert_eq!(next.attempt, contested.attempt);
        let unanswered = SoFar { write: Some(Written::Perhaps { passing: true }), ..uncomputed };
        let step = ending.step(Some(&next), &unanswered, at());
        assert_eq!(step, Step::Next(WorkerNext::Defer));
    }

    // T53: what a restored table has forgotten is no second execution.
    #[test]
    fn what_an_operator_holds_is_no_double_execution() {
        let (first, second) = two();
        let held: Record = first.hold(fresh(), Timestamp::from_secs(1_030)).unwrap().into();
        let (done, alarmed) = story(&ending(&second, effect()), Some(&held), SoFar::default());
        let alarms = alarmed.map(|alarmed| alarmed.alarms).unwrap_or_default();
        assert!(alarms.iter().map(|alarm| alarm.kind).eq([AlarmKind::HeldReport]));
        assert_eq!(done, "alarm; unknown");
    }

    // T43
    #[test]
    fn a_transaction_that_can_no_longer_commit_is_not_committed() {
        let (first, _) = two();
        let transactional = Record { effects: Effects::InTransaction, ..first };
        let ending = Ending { rows: Rows::Conditional, ..ending(&transactional, effect()) };
        let released = becomes(&transactional, &Report::NotExecuted(None));
        let refused = SoFar { instead: Instead::Refused, ..SoFar::default() };
        assert_eq!(story(&ending, Some(&released), refused).0, "not committed");
    }

    // T55: they must be made by hand.
    #[test]
    fn an_effect_whose_rows_nobody_has_is_an_alarm() {
        let (first, _) = two();
        let ending = Ending { rows: Rows::Conditional, ..ending(&first, effect()) };
        let uncomputed = SoFar { instead: Instead::Uncomputed, ..SoFar::default() };
        let (done, record) = story(&ending, Some(&first), uncomputed);
        assert_eq!(done, "written with alarm; unknown");
        assert!(record.is_some_and(|record| record.has_alarm(AlarmKind::RefusedRows)));
        let unsent = SoFar { instead: Instead::Refused, deferred: Deferred::NoQueue, ..SoFar::default() };
        let (done, record) = story(&ending, Some(&first), unsent);
        assert_eq!(done, "alarm; unknown");
        let record = record.expect("it is written");
        assert_eq!((record.state.name(), record.reported), ("unknown", Some(Evidence::Effect)));
        assert!(record.has_alarm(AlarmKind::RefusedRows) && record.has_report(ending.base.report_id()));
    }

    // T55
    #[test]
    fn rows_that_are_refused_at_delivery_lie_beside_the_record() {
        let (first, second) = two();
        let ending = Ending { rows: Rows::Conditional, ..ending(&first, effect()) };
        let refused = SoFar { instead: Instead::Refused, ..SoFar::default() };
        let done = becomes(&second, &effect());
        for (current, state, reported) in [
            (&first, "unknown", Some(Evidence::Effect)),
            (&second, "in_progress", Some(Evidence::Effect)),
            (&done, "completed", None),
        ] {
            let Step::Alarm(next) = ending.deliver(Some(current), &refused, at()) else {
                panic!("{current:?}")
            };
            assert_eq!((next.state.name(), next.reported), (state, reported));
            assert!(next.has_alarm(AlarmKind::RefusedRows) && next.has_report(ending.base.report_id()));
            let beside = SoFar { write: Some(Written::Beside), ..refused.clone() };
            let ended = ending.deliver(Some(&next), &beside, at());
            assert_eq!(ended, Step::Next(MessageNext::Done));
        }
        let others = Record::reserve(&reservation_for("k", "another body"), fresh(), NOW);
        for current in [None, Some(&others)] {
            let ended = ending.deliver(current, &refused, at());
            assert_eq!(ended, Step::Next(MessageNext::Escalate(REFUSED)));
        }
    }

    /// With as many alarms as can be.
    fn full(record: &Record) -> Record {
        let alarm = |number: usize| Alarm {
            kind: AlarmKind::Contradicted,
            because: Note::new(&number.to_string()),
            raised_at: NOW,
            report: None,
            is_told: true,
        };
        Record { alarms: (0..MAX_ALARMS).map(alarm).collect(), ..record.clone() }
    }

    #[test]
    fn a_report_beside_too_many_alarms_is_escalated() {
        let (first, second) = two();
        let done = full(&becomes(&second, &effect()));
        let ending = ending(&first, effect());
        let step = ending.deliver(Some(&done), &SoFar::default(), at());
        assert!(matches!(step, Step::Next(MessageNext::Escalate(_))), "{step:?}");
        let step = ending.step(Some(&done), &SoFar::default(), at());
        assert_eq!(step, Step::Next(WorkerNext::Defer));
        let unsent = SoFar { deferred: Deferred::NoQueue, ..SoFar::default() };
        let Step::Next(WorkerNext::Tell { counts, .. }) = ending.step(Some(&done), &unsent, at()) else {
            panic!("it is not over")
        };
        assert_eq!(counts, Some(Counts::ContradictionUnsent));
    }

    // T54: no retry may run.
    #[test]
    fn an_effect_is_marked_however_many_alarms_there_are() {
        let (first, second) = two();
        let effect = |rows| Ending { rows, ..ending(&first, effect()) };
        let unsent = SoFar { deferred: Deferred::NoQueue, ..SoFar::default() };
        let refused = SoFar { instead: Instead::Refused, ..unsent.clone() };
        for (step, state) in [
            (effect(Rows::None).step(Some(&full(&second)), &unsent, at()), "in_progress"),
            (effect(Rows::Conditional).step(Some(&full(&first)), &refused, at()), "unknown"),
        ] {
            let Step::Mark(next) = step else { panic!("{step:?}") };
            assert_eq!((next.state.name(), next.reported), (state, Some(Evidence::Effect)));
        }
        let refused = SoFar { instead: Instead::Refused, ..SoFar::default() };
        let step = effect(Rows::Conditional).deliver(Some(&full(&second)), &refused, at());
        let Step::Mark(next) = step else { panic!("{step:?}") };
        let marked = SoFar { write: Some(Written::Marked), ..refused };
        let step = effect(Rows::Conditional).deliver(Some(&next), &marked, at());
        assert_eq!(step, Step::Next(MessageNext::Escalate(REFUSED)));
    }

    // T54: a queue delivers twice.
    #[test]
    fn a_report_that_comes_twice_raises_one_alarm() {
        let (first, second) = two();
        let done = becomes(&second, &effect());
        let ending = ending(&first, effect());
        let Step::Alarm(alarmed) = ending.deliver(Some(&done), &SoFar::default(), at()) else {
            panic!("it is an alarm")
        };
        let again = ending.deliver(Some(&alarmed), &SoFar::default(), at());
        assert_eq!(again, Step::Next(MessageNext::Done));
        let Step::Next(WorkerNext::Tell { says, .. }) = ending.step(Some(&alarmed), &SoFar::default(), at())
        else {
            panic!("it is over")
        };
        assert_eq!(says.name(), "replay");
    }

    // T5: it began with the alarm of others.
    #[test]
    fn an_earlier_alarm_hides_no_second_execution() {
        let (first, _) = two();
        let unknown = becomes(&first, &Report::PerhapsExecuted(None));
        let third = unknown.again(&reservation("k"), fresh(), NOW);
        let alarm = |record: &Record, of: &str| {
            let because = format!("of {of}");
            let alarmed = record.alarm(Alarm::new(AlarmKind::SecondExecution, &because, None, NOW), fresh());
            Record::from(alarmed.unwrap())
        };
        let third = alarm(&third, "the first two");
        let fourth = becomes(&third.again(&reservation("k"), fresh(), NOW), &Report::PerhapsExecuted(None));
        let fourth = Record { state: fourth.state.clone(), ..fourth };
        let ending = ending(&third, effect());
        let Step::Write { next, .. } = ending.step(Some(&fourth), &SoFar::default(), at()) else {
            panic!("it is written")
        };
        assert_eq!(next.alarms.len(), 2);
        let write = Some(Written::Perhaps { passing: true });
        let unanswered = SoFar { write, deferred: Deferred::Sent, ..SoFar::default() };
        let told = ending.step(Some(&next), &unanswered, at());
        assert_eq!(told, Step::Next(WorkerNext::Tell { says: Says::UNKNOWN, counts: None }));
    }

    // T55: a webhook has claimed it, so its effect is no news.
    #[test]
    fn rows_that_nobody_has_are_an_alarm_over_a_known_effect() {
        let (first, _) = two();
        let dead: Record = first.expire(fresh(), Timestamp::from_secs(1_030)).unwrap().into();
        let claimed: Record = dead.claim(fresh(), NOW, NOW).unwrap().into();
        let ending = Ending { rows: Rows::Conditional, ..ending(&first, effect()) };
        let with = |instead, deferred| SoFar { instead, deferred, ..SoFar::default() };
        for so_far in [with(Instead::Uncomputed, Deferred::NotYet), with(Instead::Refused, Deferred::NoQueue)]
        {
            let (done, record) = story(&ending, Some(&claimed), so_far);
            assert_eq!(done, "alarm; unknown");
            assert!(record.is_some_and(|record| record.has_alarm(AlarmKind::RefusedRows)));
        }
        // The queue has them, and they are tried once more.
        let (done, _) = story(&ending, Some(&claimed), with(Instead::Refused, Deferred::NotYet));
        assert_eq!(done, "queued; unknown");
    }

    // T54: its trace would be lost.
    #[test]
    fn nothing_is_overwritten_for_which_there_is_no_alarm_left() {
        let (first, second) = two();
        let unknown = full(&becomes(&second, &Report::PerhapsExecuted(None)));
        let ending = ending(&first, effect());
        let step = ending.step(Some(&unknown), &SoFar::default(), at());
        assert_eq!(step, Step::Next(WorkerNext::Defer));
        let step = ending.deliver(Some(&unknown), &SoFar::default(), at());
        assert!(matches!(step, Step::Next(MessageNext::Escalate(_))), "{step:?}");
    }

    // T55: its worker got no answer of the store.
    #[test]
    fn rows_that_nobody_has_are_an_alarm_from_the_queue_too() {
        let (first, second) = two();
        let of = |base: &Record| ending(base, Report::Uncommitted);
        let Step::Write { next, .. } = of(&first).deliver(Some(&first), &SoFar::default(), at()) else {
            panic!("it is written")
        };
        assert!(next.has_alarm(AlarmKind::RefusedRows));
        let unknown = becomes(&second, &Report::PerhapsExecuted(None));
        let settled = unknown.settle(Verdict::Executed(answer()), SettledBy::Provider, fresh(), NOW);
        let settled: Record = settled.unwrap().into();
        let Step::Alarm(next) = of(&second).deliver(Some(&settled), &SoFar::default(), at()) else {
            panic!("it was completed without them")
        };
        assert!(next.has_alarm(AlarmKind::RefusedRows));
    }

    // T53
    #[test]
    fn a_second_answer_is_an_alarm() {
        let (first, _) = two();
        let unknown = becomes(&first, &Report::PerhapsExecuted(None));
        let settled = unknown.settle(Verdict::Executed(answer()), SettledBy::Provider, fresh(), NOW);
        let settled: Record = settled.unwrap().into();
        let deliver = |rows, differs| {
            let ending = Ending { rows, ..ending(&first, effect()) };
            ending.deliver(Some(&settled), &SoFar { differs, ..SoFar::default() }, at())
        };
        assert_eq!(deliver(Rows::None, None), Step::Next(MessageNext::Compare));
        assert_eq!(deliver(Rows::None, Some(false)), Step::Next(MessageNext::TooLate));
        let Step::Alarm(next) = deliver(Rows::None, Some(true)) else { panic!("it is an alarm") };
        assert!(next.has_alarm(AlarmKind::SecondAnswer));
    }
}
