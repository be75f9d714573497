//! What is done about the result of a phase until it stands somewhere: pure, as in `step`.

use super::{Alarm, AlarmKind, BodyId, MessageNext, Moment, NotTaken, Phase, Record, Step, Written};

/// Why a phase's result is escalated that its record does not take.
const OTHER_PHASE: &str = "a call was made whose result its record does not have, or has otherwise";

/// The result of a phase on its way into the record.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The record as its worker last saw it; in a message, with the result.
    pub worker: Record,
    /// How many phases its handler came to before.
    pub place: usize,
    /// The phase, with its result.
    pub phase: Phase,
    /// What the result is of.
    pub of: Made,
}

/// What the result of a phase is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Made {
    /// A call. Its result counts also if another execution has the record.
    Call,
    /// A question about a call that is kept without its result: whoever has the record can ask again.
    Question,
    /// A commit of domain writes, which needs the record: otherwise it is decided when the next execution gets there.
    Commit,
}

/// Where the result of a phase stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// In the record, which is this execution's.
    Own,
    /// This execution no longer has the record, and nothing is left to do: the record has this result, or needs none.
    Lost,
    /// The record has not taken it.
    Left,
    /// The same, and an alarm of the record says so.
    Alarmed,
}

impl Keeping {
    /// The next command of the worker itself. `write` is what became of the last one.
    pub fn step(&self, current: Option<&Record>, write: Option<Written>, at: Moment) -> Step<Kept> {
        if write == Some(Written::Beside) {
            return Step::Next(Kept::Alarmed);
        }
        // What was asked for is no call that only this execution knows of.
        let left = if self.of == Made::Question { Kept::Lost } else { Kept::Left };
        let Some(current) = current else { return Step::Next(left) };
        let (is_own, commits) = (current.is_run_by(&self.worker), self.of == Made::Commit);
        if commits && !is_own {
            return Step::Next(Kept::Lost);
        }
        // Another version of the handler made a call of it, and its rows are not to be committed.
        if commits && current.kept_phase(self.place).is_some_and(|kept| kept.result.is_none()) {
            return Step::Next(Kept::Left);
        }
        match self.write(current, commits, at) {
            Ok(write) => write,
            // Another write of this execution, whose answer was lost, or what others report.
            Err(NotTaken::Known) if is_own => Step::Next(Kept::Own),
            Err(NotTaken::Known) => Step::Next(Kept::Lost),
            Err(NotTaken::Differs) if commits => Step::Next(Kept::Left),
            Err(NotTaken::Differs) if self.of == Made::Question && !is_own => Step::Next(Kept::Lost),
            Err(NotTaken::Differs) => match self.alarm(current, at) {
                Some(alarm) => alarm,
                None if self.is_beside(current) => Step::Next(Kept::Alarmed),
                None => Step::Next(left),
            },
        }
    }

    /// The next command for the message of a call.
    pub fn deliver(&self, current: Option<&Record>, write: Option<Written>, at: Moment) -> Step<MessageNext> {
        if write == Some(Written::Beside) {
            return Step::Next(MessageNext::Done);
        }
        let escalate = Step::Next(MessageNext::Escalate(OTHER_PHASE));
        let Some(current) = current else { return escalate };
        match self.write(current, false, at) {
            Ok(write) => write,
            Err(NotTaken::Known) => Step::Next(MessageNext::Done),
            Err(NotTaken::Differs) => match self.alarm(current, at) {
                Some(alarm) => alarm,
                None if self.is_beside(current) => Step::Next(MessageNext::Done),
                None => escalate,
            },
        }
    }

    /// Under which its report lies beside a record that does not take it, if it may be the only trace of a call.
    pub fn report_id(&self) -> Option<BodyId> {
        (self.of == Made::Call).then(|| BodyId::of_report(self.worker.attempt, Some(self.place)))
    }

    fn is_beside(&self, current: &Record) -> bool {
        self.report_id().is_some_and(|id| current.has_report(id))
    }

    /// The record as its worker would have it: what its report says.
    ///
    /// # Errors
    /// If the phase does not follow what its worker has kept.
    pub fn wanted(&self) -> Result<Record, NotTaken> {
        let Self { worker, place, phase, .. } = self;
        worker.keep(worker, *place, phase, worker.revision, phase.at).map(Record::from)
    }

    /// The record takes the result. If others report another one, that is an alarm.
    fn write<N>(
        &self,
        current: &Record,
        commits: bool,
        Moment { revision, now }: Moment,
    ) -> Result<Step<N>, NotTaken> {
        let next = current.keep(&self.worker, self.place, &self.phase, revision, now)?;
        let next = match current.noted_otherwise(&self.phase) {
            Some(noted) => {
                let because = format!("{}: its handler has another result", said(noted));
                let alarm = Alarm::new(AlarmKind::ForgottenPhase, &because, None, now);
                // The trace of what others report would be lost. A commit has its rows, whatever they say.
                if self.of == Made::Call && !current.has_room_for(&alarm) {
                    return Err(NotTaken::Differs);
                }
                next.raises(alarm)
            }
            None => next,
        };
        Ok(Step::Write { next, commits })
    }

    /// The alarm that the record has another phase, or result, with the report beside it.
    fn alarm<N>(&self, current: &Record, Moment { revision, now }: Moment) -> Option<Step<N>> {
        let current = Some(current).filter(|current| self.worker.is_same_request(current))?;
        let because = format!("{}: it is not that of the record", said(&self.phase));
        let alarm = Alarm::new(AlarmKind::ForgottenPhase, &because, self.report_id(), now);
        current.alarm(alarm, revision).map(Step::Alarm)
    }
}

/// A phase and the digest of its result, for operators.
fn said(phase: &Phase) -> String {
    format!("{} {}", phase.name, phase.digest().unwrap_or("without a result"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{
            AttemptId, MAX_ALARMS, PhaseResult, ReservationRequest, Revision,
            tests::{RETAIN, reservation, reservation_for, resuming},
        },
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn at() -> Moment {
        Moment { revision: Revision::mint(), now: NOW }
    }

    fn reserved(key: &str, body: &str) -> Record {
        let request = ReservationRequest { effects: resuming(RETAIN), ..reservation_for(key, body) };
        Record::reserve(&request, Revision::mint(), NOW)
    }

    fn charge(result: &str) -> Phase {
        Phase::new("charge".to_owned(), Some(PhaseResult::new(result.to_owned(), result)), NOW)
    }

    fn keeping(worker: &Record, of: Made) -> Keeping {
        Keeping { worker: worker.clone(), place: 0, phase: charge("1"), of }
    }

    fn kept(record: &Record, result: &str) -> Record {
        record.keep(record, 0, &charge(result), Revision::mint(), NOW).unwrap().into()
    }

    /// The same record, which another execution has meanwhile.
    fn of_another(record: &Record) -> Record {
        Record { attempt: AttemptId::mint(), ..record.clone() }
    }

    /// What a worker does about the result of its phase, until it stands somewhere.
    fn story(keeping: &Keeping, current: Option<&Record>) -> (String, Option<Record>) {
        let (mut done, mut current, mut write) = (String::new(), current.cloned(), None);
        loop {
            let (word, next, written) = match keeping.step(current.as_ref(), write, at()) {
                Step::Write { next, commits } => {
                    (if commits { "commits, " } else { "writes, " }, next, Written::Applied)
                }
                Step::Alarm(next) => ("raises an alarm, ", next, Written::Beside),
                Step::Mark(next) => ("marks, ", next, Written::Marked),
                Step::Next(kept) => return (format!("{done}{kept:?}"), current),
            };
            done.push_str(word);
            (current, write) = (Some(next.into()), Some(written));
        }
    }

    #[test]
    fn the_result_of_a_call_counts_wherever_its_record_is() {
        let ours = reserved("k", "body");
        let does_not_resume = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let (theirs, call) = (of_another(&ours), keeping(&ours, Made::Call));
        for (current, expected) in [
            (Some(ours.clone()), "writes, Own"),
            (Some(kept(&ours, "1")), "Own"),
            (Some(theirs.clone()), "writes, Lost"),
            (Some(kept(&theirs, "1")), "Lost"),
            (Some(kept(&theirs, "2")), "raises an alarm, Alarmed"),
            (Some(does_not_resume), "raises an alarm, Alarmed"),
            (Some(reserved("k", "other")), "Left"),
            (None, "Left"),
        ] {
            let (done, last) = story(&call, current.as_ref());
            assert_eq!(done, expected, "{current:?}");
            let is_beside = last.is_some_and(|last| last.has_report(call.report_id().unwrap()));
            assert_eq!(is_beside, expected.contains("alarm"));
        }
    }

    // T6: whoever gets there next makes it.
    #[test]
    fn a_commit_needs_the_record() {
        let ours = reserved("k", "body");
        let (theirs, commit) = (of_another(&ours), keeping(&ours, Made::Commit));
        for (current, expected) in [
            (Some(ours.clone()), "commits, Own"),
            (Some(theirs.clone()), "Lost"),
            (Some(kept(&theirs, "2")), "Lost"),
            (Some(kept(&ours, "2")), "Left"),
            (None, "Left"),
        ] {
            assert_eq!(story(&commit, current.as_ref()).0, expected, "{current:?}");
        }
        assert_eq!(commit.report_id(), None);
    }

    #[test]
    fn what_was_asked_for_can_be_asked_for_again() {
        let ours = reserved("k", "body");
        let question = keeping(&ours, Made::Question);
        for current in [None, Some(kept(&of_another(&ours), "2"))] {
            assert_eq!(story(&question, current.as_ref()).0, "Lost", "{current:?}");
        }
        assert_eq!(question.report_id(), None, "there is no message of it");
    }

    // T54: a message has the last word about its phase, and nobody else compares it with what was reported.
    #[test]
    fn another_result_than_reported_is_an_alarm_from_the_queue_too() {
        let ours = reserved("k", "body");
        let noted: Record = ours.note(&charge("2"), Revision::mint(), NOW).unwrap().into();
        let call = keeping(&ours, Made::Call);
        for write in [story(&call, Some(&noted)).1, delivered(&call, &noted).1] {
            let record = write.unwrap();
            assert_eq!(record.kept_phase(0).unwrap().result, call.phase.result);
            assert!(record.has_alarm(AlarmKind::ForgottenPhase), "{record:?}");
        }
    }

    // T54: others may have the only trace of a second effect.
    #[test]
    fn what_others_report_is_not_overwritten_without_an_alarm() {
        let ours = reserved("k", "body");
        let noted: Record = ours.note(&charge("2"), Revision::mint(), NOW).unwrap().into();
        let (call, full) = (keeping(&ours, Made::Call), full(noted));
        assert_eq!(story(&call, Some(&full)).0, "Left");
        assert_eq!(delivered(&call, &full).0, MessageNext::Escalate(OTHER_PHASE));
    }

    // The answer of the write was lost, and a poll has told of the alarm since.
    #[test]
    fn a_result_that_lies_beside_its_record_is_not_sent_once_more() {
        let ours = reserved("k", "body");
        let (call, theirs) = (keeping(&ours, Made::Call), kept(&of_another(&ours), "2"));
        let alarmed = story(&call, Some(&theirs)).1.unwrap();
        let told: Record = alarmed.told(&alarmed.alarms[0], Revision::mint()).unwrap().into();
        assert_eq!(story(&call, Some(&told)).0, "Alarmed");
        assert_eq!(delivered(&call, &told).0, MessageNext::Done);
    }

    /// This record, with as many alarms as it takes.
    fn full(record: Record) -> Record {
        (0..MAX_ALARMS).fold(record, |record, number| {
            let alarm = Alarm::new(AlarmKind::Contradicted, &number.to_string(), None, NOW);
            record.alarm(alarm, Revision::mint()).unwrap().into()
        })
    }

    /// What its message does, until it is done with.
    fn delivered(keeping: &Keeping, current: &Record) -> (MessageNext, Option<Record>) {
        let mut current = Some(current.clone());
        loop {
            match keeping.deliver(current.as_ref(), None, at()) {
                Step::Write { next, .. } | Step::Mark(next) | Step::Alarm(next) => {
                    current = Some(next.into());
                }
                Step::Next(next) => return (next, current),
            }
        }
    }

    // T54
    #[test]
    fn a_phase_that_no_record_takes_is_escalated() {
        let ours = reserved("k", "body");
        let (call, theirs) = (keeping(&ours, Made::Call), kept(&of_another(&ours), "2"));
        let escalated = MessageNext::Escalate(OTHER_PHASE);
        assert_eq!(delivered(&call, &theirs).0, MessageNext::Done, "it lies beside the record");
        assert_eq!(delivered(&call, &reserved("k", "other")).0, escalated);
        assert_eq!(call.deliver(None, None, at()), Step::Next(escalated));
        let full = full(theirs);
        assert_eq!(delivered(&call, &full).0, escalated);
        assert_eq!(story(&call, Some(&full)).0, "Left", "its message escalates it");
    }
}
