//! How a record gets alarms, and loses them. `alarm` says what they are.

use super::{Alarm, Alarms, BodyId, Note, Record, Revision, Transition};
use crate::time::Timestamp;

impl Record {
    /// Raises an alarm, and changes nothing else. `None` if the record counts as absent.
    pub fn alarm(
        &self,
        alarm: Alarm,
        because: &str,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        let same = Transition::to(Self { revision, ..self.clone() });
        (!self.is_not_begun()).then(|| same.alarms(alarm, because, now))
    }

    /// The same, with a report that its write puts beside the record. `None` if there are too many too.
    pub fn alarm_with_report(
        &self,
        alarm: Alarm,
        because: &str,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        self.alarm(alarm, because, revision, now)?.keeps_report()
    }

    /// Raises an alarm of which operators have been told, with the reason. `None` if the record says so already, or counts as absent.
    pub fn told_alarm(
        &self,
        alarm: Alarm,
        because: &str,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        let known = self.alarms.as_deref();
        if known.is_some_and(|known| known.kinds.contains(&alarm) && known.because == Note::new(because)) {
            return None;
        }
        // Of others they may not have been told.
        let next = self.alarm(alarm, because, revision, now)?;
        if self.untold().is_some() { Some(next) } else { next.told(revision) }
    }

    /// Whether it has this alarm.
    pub fn has_alarm(&self, alarm: Alarm) -> bool {
        self.alarms.as_ref().is_some_and(|alarms| alarms.kinds.contains(&alarm))
    }

    /// The report that the write of this revision has put beside it, if it has.
    pub fn own_report(&self) -> Option<BodyId> {
        let id = BodyId::from(*self.revision.as_bytes());
        self.alarms.as_ref()?.reports.last().copied().filter(|last| *last == id)
    }

    /// Whether this body item is needed: it has the accepted request, or a report that an alarm names.
    pub fn needs_body(&self, id: BodyId) -> bool {
        self.needs_request(id) || self.alarms.as_ref().is_some_and(|alarms| alarms.reports.contains(&id))
    }

    /// The alarms of which operators have not been told.
    pub fn untold(&self) -> Option<&Alarms> {
        self.alarms.as_deref().filter(|alarms| !alarms.is_told)
    }

    /// Operators have been told of its alarms.
    pub fn told(&self, revision: Revision) -> Option<Transition> {
        let alarms = Alarms { is_told: true, ..self.untold()?.clone() };
        Some(Transition::to(Self { revision, alarms: Some(Box::new(alarms)), ..self.clone() }))
    }

    /// An operator has looked at its alarms. A record that is settled lives on as if there had been none.
    pub fn clear_alarms(&self, revision: Revision) -> Option<Transition> {
        self.alarms.as_ref()?;
        Some(Transition::to(Self { revision, alarms: None, ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        MAX_REPORTS,
        tests::{answer, reservation},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn fresh() -> Revision {
        Revision::mint()
    }

    fn completed() -> Record {
        let reserved = Record::reserve(&reservation("k"), fresh(), NOW);
        reserved.complete(&reserved, fresh(), answer(), NOW).unwrap().into()
    }

    // T54: it is what operators have of it.
    #[test]
    fn a_record_with_an_alarm_never_expires_until_an_operator_clears_it() {
        let completed = completed();
        assert!(completed.expired(Timestamp::MAX));
        let alarmed: Record =
            completed.alarm(Alarm::SecondAnswer, "another one", fresh(), NOW).unwrap().into();
        assert!(!alarmed.expired(Timestamp::MAX) && alarmed.has_alarm(Alarm::SecondAnswer));
        assert_eq!(alarmed.state, completed.state);
        let told: Record = alarmed.told(fresh()).unwrap().into();
        assert!(!told.expired(Timestamp::MAX) && told.untold().is_none() && told.told(fresh()).is_none());
        let cleared: Record = told.clear_alarms(fresh()).unwrap().into();
        assert!(cleared.expired(Timestamp::MAX));
        assert_eq!(cleared, Record { revision: cleared.revision, ..completed });
        assert!(cleared.clear_alarms(fresh()).is_none());
    }

    #[test]
    fn operators_are_told_of_each_new_alarm() {
        let first = completed().alarm(Alarm::SecondAnswer, "one", fresh(), NOW).unwrap();
        let told = first.told(fresh()).unwrap();
        let revision = fresh();
        let second = told.alarm_with_report(Alarm::RefusedRows, "two", revision, NOW).unwrap();
        let alarms = second.untold().expect("it is new");
        assert!(alarms.kinds.iter().eq(&[Alarm::SecondAnswer, Alarm::RefusedRows]));
        assert_eq!((alarms.because.as_str(), second.own_report()), ("two", alarms.reports.last().copied()));
        assert_eq!(second.own_report(), Some(BodyId::from(*revision.as_bytes())));
        let told = second.told(fresh()).unwrap();
        assert_eq!(told.own_report(), None, "it is another write's");
    }

    #[test]
    fn a_record_names_a_bounded_number_of_reports() {
        let mut record = completed();
        for _ in 0..MAX_REPORTS {
            record = record.alarm_with_report(Alarm::SecondAnswer, "", fresh(), NOW).unwrap().into();
        }
        assert!(record.alarm_with_report(Alarm::SecondAnswer, "", fresh(), NOW).is_none());
        assert!(record.alarm(Alarm::SecondAnswer, "", fresh(), NOW).is_some());
    }
}
