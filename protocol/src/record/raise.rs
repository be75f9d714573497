//! How a record gets alarms, and loses them. `alarm` says what they are.

use super::{Alarm, AlarmKind, BodyId, MAX_ALARMS, Record, Revision, Transition};

impl Record {
    /// Raises an alarm, and changes nothing else. `None` if it has this one, or too many, or if the record counts as absent.
    pub fn alarm(&self, alarm: Alarm, revision: Revision) -> Option<Transition> {
        let next = Transition::to(Self { revision, ..self.clone() }).raises(alarm);
        (!self.is_not_begun() && next.alarms.len() > self.alarms.len()).then_some(next)
    }

    /// Under which the report of its worker lies beside a record that does not take it.
    pub fn report_id(&self) -> BodyId {
        BodyId::of_report(self.attempt, None)
    }

    /// Whether it has this alarm, or can get it.
    pub(super) fn has_room_for(&self, alarm: &Alarm) -> bool {
        self.alarms.len() < MAX_ALARMS || self.alarms.iter().any(|known| known.is_same(alarm))
    }

    /// Whether it has an alarm of this kind.
    pub fn has_alarm(&self, kind: AlarmKind) -> bool {
        self.alarms.iter().any(|alarm| alarm.kind == kind)
    }

    /// Whether the report of this id lies beside it.
    pub fn has_report(&self, id: BodyId) -> bool {
        self.alarms.iter().any(|alarm| alarm.report == Some(id))
    }

    /// Whether this body item is needed: it has the accepted request, or a report that an alarm names.
    pub fn needs_body(&self, id: BodyId) -> bool {
        self.needs_request(id) || self.has_report(id)
    }

    /// The first alarm of which operators have not been told.
    pub fn untold(&self) -> Option<&Alarm> {
        self.alarms.iter().find(|alarm| !alarm.is_told)
    }

    /// Operators have been told of this alarm. `None` if it has it no more, or they had been.
    pub fn told(&self, alarm: &Alarm, revision: Revision) -> Option<Transition> {
        let mut alarms = self.alarms.clone();
        alarms.iter_mut().find(|one| *one == alarm && !one.is_told)?.is_told = true;
        Some(Transition::to(Self { revision, alarms, ..self.clone() }))
    }

    /// An operator has looked at its alarms. A record that is settled lives on as if there had been none. One that is held has to be asked
    /// about again: its alarms may have come after the provider's denial.
    pub fn clear_alarms(&self, revision: Revision) -> Option<Transition> {
        let note = self.note.clone().filter(|_| !self.is_held());
        let cleared = Self { revision, alarms: Vec::new(), note, ..self.clone() };
        (!self.alarms.is_empty()).then(|| Transition::to(cleared))
    }

    /// The same without the reports that lie beside it. The alarms stand.
    pub(super) fn without_reports(&self) -> Self {
        let alarms = self.alarms.iter().map(|alarm| Alarm { report: None, ..alarm.clone() });
        Self { alarms: alarms.collect(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        AttemptId, MAX_ALARMS, NOT_CONFIRMED, Note, Report,
        tests::{answer, reservation},
    };
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn fresh() -> Revision {
        Revision::mint()
    }

    fn reserved() -> Record {
        Record::reserve(&reservation("k"), fresh(), NOW)
    }

    fn completed() -> Record {
        let reserved = reserved();
        reserved.complete(&reserved, fresh(), answer(), NOW).unwrap().into()
    }

    fn alarmed(record: &Record, kind: AlarmKind, because: &str) -> Record {
        record.alarm(Alarm::new(kind, because, None, NOW), fresh()).expect("it is new").into()
    }

    // T54: it is what operators have of it.
    #[test]
    fn a_record_with_an_alarm_never_expires_until_an_operator_clears_it() {
        let completed = completed();
        assert!(completed.expired(Timestamp::MAX));
        let alarmed = alarmed(&completed, AlarmKind::SecondAnswer, "another one");
        assert!(!alarmed.expired(Timestamp::MAX) && alarmed.has_alarm(AlarmKind::SecondAnswer));
        assert_eq!(alarmed.state, completed.state);
        let told: Record = alarmed.told(&alarmed.alarms[0], fresh()).unwrap().into();
        assert!(!told.expired(Timestamp::MAX) && told.untold().is_none());
        assert!(told.told(&told.alarms[0], fresh()).is_none());
        let cleared: Record = told.clear_alarms(fresh()).unwrap().into();
        assert!(cleared.expired(Timestamp::MAX));
        assert_eq!(cleared, Record { revision: cleared.revision, ..completed });
        assert!(cleared.clear_alarms(fresh()).is_none());
    }

    // T53: the report that raised the alarm may have come after the provider's denial.
    #[test]
    fn clearing_the_alarm_of_a_held_record_ends_its_denial() {
        let held: Record = reserved().hold(fresh(), Timestamp::MAX).expect("its lease is over").into();
        assert!(!held.is_denied());
        let denied = Record { note: Some(Note::new(NOT_CONFIRMED)), ..held };
        assert!(denied.is_denied());
        let alarmed = alarmed(&denied, AlarmKind::HeldReport, "an effect");
        assert!(!alarmed.is_denied());
        let cleared: Record = alarmed.clear_alarms(fresh()).expect("it has one").into();
        assert!(cleared.is_held() && !cleared.is_denied());
    }

    // T54: the key is told to be free, but its record is not.
    #[test]
    fn a_request_that_did_not_begin_takes_no_alarm_with_it() {
        let open = alarmed(&reserved(), AlarmKind::SecondExecution, "of an earlier life");
        for report in [Report::NotBegun, Report::NotStarted] {
            let released: Record = report.of(&open, &open, fresh(), NOW).unwrap().into();
            assert_eq!((released.state.name(), released.is_not_begun()), ("failed_retryable", false));
            assert!(!released.expired(Timestamp::MAX) && released.alarms == open.alarms, "{report:?}");
        }
    }

    // T54: another one may be raised meanwhile.
    #[test]
    fn operators_are_told_of_each_alarm_once() {
        let first = alarmed(&completed(), AlarmKind::SecondAnswer, "one");
        let seen = first.untold().cloned().expect("it is new");
        let second = alarmed(&first, AlarmKind::Contradicted, "two");
        let told: Record = second.told(&seen, fresh()).unwrap().into();
        assert_eq!(told.untold().map(|alarm| alarm.because.as_str()), Some("two"));
        assert!(told.told(&seen, fresh()).is_none(), "once");
        let told: Record = told.told(told.untold().unwrap(), fresh()).unwrap().into();
        assert_eq!(told.untold(), None);
        let cleared: Record = told.clear_alarms(fresh()).unwrap().into();
        assert!(cleared.told(&seen, fresh()).is_none());
    }

    // T54: a queue delivers twice.
    #[test]
    fn one_report_raises_one_alarm() {
        let id = |attempt| Some(BodyId::of_report(attempt, None));
        let (one, other) = (AttemptId::mint(), AttemptId::mint());
        let raises = |record: &Record, attempt, because: &str| {
            record
                .alarm(Alarm::new(AlarmKind::SecondAnswer, because, id(attempt), NOW), fresh())
                .map(Record::from)
        };
        let first = raises(&completed(), one, "its answer").unwrap();
        assert_eq!(raises(&first, one, "again, in other words"), None);
        assert_eq!(raises(&first, other, "its answer").map(|second| second.alarms.len()), Some(2));
        // Without a report, the fact counts.
        let said = alarmed(&first, AlarmKind::Contradicted, "ch_2");
        assert_eq!(said.alarm(Alarm::new(AlarmKind::Contradicted, "ch_2", None, NOW), fresh()), None);
        assert_eq!(alarmed(&said, AlarmKind::Contradicted, "ch_3").alarms.len(), 3);
        let phases: Vec<_> = (0..3).map(|place| BodyId::of_report(one, Some(place))).collect();
        assert!(!phases.contains(&id(one).unwrap()) && phases[0] != phases[1]);
    }

    #[test]
    fn a_record_has_a_bounded_number_of_alarms() {
        let mut record = completed();
        for number in 0..MAX_ALARMS {
            record = alarmed(&record, AlarmKind::Contradicted, &number.to_string());
        }
        assert!(record.alarm(Alarm::new(AlarmKind::SecondAnswer, "one more", None, NOW), fresh()).is_none());
    }
}
