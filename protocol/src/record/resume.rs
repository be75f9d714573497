//! The transitions of an operation that resumes: keep a phase, note one, wait between workers.
//!
//! What is known of its phases, and what a handler does next, is in `phase`.

use std::time::Duration;

use super::{
    Effects, MAX_PHASES, Note, Phase, PhaseList, Phases, Record, Reference, Revision, State, Transition,
};
use crate::time::Timestamp;

/// Why an operation between workers is escalated: it stays so, even if a later retry resumes it, and fails.
pub const NOT_RESUMED: &str = "it was interrupted, and no retry resumed it in time";

/// Why a record did not take the result of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It knows that phase, with the same result, or with one where this has none.
    Known,
    /// It has another result, or another phase in its place, or it is another request's, or is settled without this phase.
    Differs,
}

impl Record {
    /// Whether the next execution continues behind what is known of earlier ones. Such a record is never released or free.
    pub fn is_resumed(&self) -> bool {
        self.phases().is_some_and(Phases::has_any)
    }

    /// Whether an operation that declares other phases than `list` began what is open.
    pub(super) fn has_others_than(&self, list: PhaseList) -> bool {
        let declared = self.phases().and_then(|phases| phases.declared);
        declared.is_some_and(|declared| declared != list)
    }

    /// Whether one of its phases has this reference. Only then does a reference lead to it: anybody may have written that.
    pub fn names(&self, reference: &Reference) -> bool {
        let phases = self.phases().into_iter().flat_map(|phases| &phases.kept);
        phases.flat_map(|phase| &phase.references).any(|known| known == reference)
    }

    /// The phase that is kept in this place, with or without its result.
    pub fn kept_phase(&self, place: usize) -> Option<&Phase> {
        self.phases()?.kept.get(place)
    }

    /// Whether the execution of `worker` still runs it: only then does its handler go on behind a phase.
    pub fn is_run_by(&self, worker: &Self) -> bool {
        self.attempt == worker.attempt && matches!(self.state, State::InProgress { .. })
    }

    /// Whether it knows a phase that the handler of `worker` has not come to: noted, or kept by another execution meanwhile.
    pub(super) fn knows_more_than(&self, worker: &Self) -> bool {
        let kept = |record: &Self| record.phases().map_or(0, |phases| phases.kept.len());
        let came_to = |noted: &Phase| {
            let mut own = worker.phases().into_iter().flat_map(|phases| &phases.kept);
            own.any(|own| own.name == noted.name && !own.differs(noted))
        };
        let mut noted = self.phases().into_iter().flat_map(|phases| &phases.noted);
        noted.any(|noted| !came_to(noted)) || kept(self) > kept(worker)
    }

    /// Its effects, if it knows of a phase that the worker did not when it last saw it: its call that is unknown may be that one, because each
    /// handler comes to the same phase in the same place. So the next retry decides, and not a question. Of a phase that is only noted, it is
    /// not known whether it was that call.
    pub(super) fn effects_learned_since(&self, worker: &Self) -> Option<Effects> {
        let known = |record: &Self| record.phases().cloned().unwrap_or(Phases::none(Duration::ZERO));
        let (ours, theirs) = (known(self), known(worker));
        if ours.kept.len() > theirs.kept.len() {
            return Some(self.effects.clone());
        }
        let is_new = |noted: &Phase| theirs.find(&noted.name).is_none();
        ours.noted.iter().any(is_new).then(|| self.effects_after_a_call())
    }

    /// Whether it lacks a phase that the handler of `worker` had kept.
    pub(super) fn has_forgotten_a_phase_of(&self, worker: &Self) -> bool {
        let is_known = |kept: &Phase| self.phases().is_some_and(|phases| phases.find(&kept.name).is_some());
        worker.phases().into_iter().flat_map(|phases| &phases.kept).any(|kept| !is_known(kept))
    }

    /// The phase as it is noted, if that is with another result. What its handler got itself counts.
    pub fn noted_otherwise(&self, phase: &Phase) -> Option<&Phase> {
        let mut noted = self.phases().into_iter().flat_map(|phases| &phases.noted);
        noted.find(|noted| noted.name == phase.name && noted.differs(phase))
    }

    /// Its effects, after an execution that may have begun the call that follows.
    pub(super) fn effects_after_a_call(&self) -> Effects {
        let begun =
            |phases: &Phases| Some(phases.begun.map_or(self.began_at, |begun| begun.min(self.began_at)));
        self.effects.clone().map(|phases| Phases { begun: begun(&phases), ..phases })
    }

    /// No worker has it: the next retry resumes behind what is kept. If none comes in time, it is escalated.
    pub(super) fn between_workers(&self, effects: Effects, revision: Revision, now: Timestamp) -> Self {
        let within = effects.phases().map(|phases| phases.resume_within).unwrap_or_default();
        let reconcile_at = self.recovered_at(effects.phases()).plus(within);
        let state = State::BetweenWorkers { since: now, reconcile_at };
        // A retry has resumed it after that, and has failed.
        let note = (reconcile_at == Timestamp::MAX).then(|| Note::new(NOT_RESUMED));
        Self { revision, note, effects, state, ..self.clone() }
    }

    /// When the last of these phases was kept or noted, when it was last allowed to wait again, or when the key was first seen.
    fn recovered_at(&self, phases: Option<&Phases>) -> Timestamp {
        let points = phases.into_iter().flat_map(|phases| phases.kept.iter().chain(&phases.noted));
        let granted = phases.and_then(|phases| phases.granted);
        points.map(|phase| phase.at).chain(granted).fold(self.created_at, Timestamp::max)
    }

    /// It waits for a retry as long again, counted from now. Retries that fail do not take that back.
    fn waits_again(&self, mut phases: Phases, revision: Revision, now: Timestamp) -> Option<Transition> {
        let (State::Unknown { .. } | State::BetweenWorkers { .. }) = self.state else { return None };
        phases.granted = Some(now);
        Some(Transition::to(self.between_workers(Effects::InPhases(phases), revision, now)))
    }

    /// Keeps the result of a phase, the `place`-th of its handler, of the execution of `worker`. A worker that has lost the record
    /// keeps it too, while the phase is open. Only the record's owner goes on.
    ///
    /// # Errors
    /// If the record does not take it.
    pub fn keep(
        &self,
        worker: &Self,
        place: usize,
        phase: &Phase,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Transition, NotTaken> {
        if self.created_at != worker.created_at || !worker.is_same_request(self) {
            return Err(NotTaken::Differs);
        }
        // A deployment that does not resume has taken it over: the result must not be lost there.
        let phases = self.phases().ok_or(NotTaken::Differs)?;
        if self.state.is_completed() {
            let known = phases.kept.iter().find(|kept| kept.name == phase.name);
            let same = known.is_some_and(|known| !known.differs(phase));
            return Err(if same { NotTaken::Known } else { NotTaken::Differs });
        }
        match phases.kept.get(place) {
            Some(kept) if kept.name != phase.name || kept.differs(phase) => return Err(NotTaken::Differs),
            // It has asked.
            Some(_) if self.is_run_by(worker) => {
                let next = phases.with_result(phase).ok_or(NotTaken::Known)?;
                return Ok(self.with_phases(next, revision, now));
            }
            Some(_) => return Err(NotTaken::Known),
            None if place != phases.kept.len() => return Err(NotTaken::Differs),
            None => {}
        }
        let mut next = Phases { begun: None, ..phases.recovered() };
        next.noted.retain(|noted| noted.name != phase.name);
        next.kept.push(next.fitted(phase.clone()));
        Ok(self.with_phases(next, revision, now))
    }

    /// Notes the result of a phase that a provider, a reconciler or an operator reports. It is used when a handler gets there.
    ///
    /// # Errors
    /// If the record does not take it.
    pub fn note(&self, phase: &Phase, revision: Revision, now: Timestamp) -> Result<Transition, NotTaken> {
        let phases = self.phases().ok_or(NotTaken::Differs)?;
        let kept = phases.kept.iter().find(|kept| kept.name == phase.name);
        let known = || kept.into_iter().chain(phases.noted(&phase.name));
        if known().any(|known| known.differs(phase)) {
            return Err(NotTaken::Differs);
        }
        // A phase without its result may get it.
        if known().any(|known| known.result.is_some() || phase.result.is_none()) {
            return Err(NotTaken::Known);
        }
        let is_unbegun = matches!(self.state, State::Pending { released_by: None });
        let is_open = !self.state.is_completed() && !is_unbegun;
        let is_full = phases.kept.len() + phases.noted.len() >= MAX_PHASES;
        if kept.is_none() && (!is_open || is_full && known().next().is_none()) {
            return Err(NotTaken::Differs);
        }
        let (mut next, noted) = (phases.recovered(), phases.fitted(phase.clone()));
        if kept.is_some() && (!is_open || noted.result.is_none()) {
            return Err(NotTaken::Known);
        }
        next.noted.retain(|noted| noted.name != phase.name);
        next.noted.push(noted);
        Ok(match self.state {
            // Its handler asks for it there. It says nothing of the call that follows, which may be what is unknown.
            State::InProgress { .. } | State::Unknown { .. } if kept.is_some() => {
                Transition::to(Self { revision, effects: Effects::InPhases(next), ..self.clone() })
            }
            _ => self.with_phases(next, revision, now),
        })
    }

    /// The provider or an operator knows that the call which follows was not made, and will not be: the next retry makes it. Nothing else
    /// lets a retry resume what is held.
    pub fn nothing_follows(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let phases = Phases { begun: None, ..self.phases()?.clone() };
        Self { reported: None, ..self.without_hold() }.waits_again(phases, revision, now)
    }

    /// The same by an operator's word, so that any deployment resumes it: no call is open that another name would make once more, and what is
    /// kept is compared by its name. What is noted is not: only the deployment that declares it uses it.
    pub fn nothing_is_open(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let phases = self.phases()?.clone();
        let declared = phases.declared.filter(|_| !phases.noted.is_empty());
        Self { effects: Effects::InPhases(Phases { declared, ..phases }), ..self.clone() }
            .nothing_follows(revision, now)
    }

    /// An operator lets a retry resume it, for as long again as its operation allows.
    pub fn resume(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let State::BetweenWorkers { .. } = self.state else { return None };
        self.waits_again(self.phases()?.clone(), revision, now)
    }

    /// No retry resumed it in time, or what is known of it cannot be true: an operator has to look at it. Retries that fail do not take
    /// that back: it would be escalated once more for each.
    pub fn not_resumed(&self, revision: Revision) -> Option<Transition> {
        let State::BetweenWorkers { since, .. } = self.state else { return None };
        let state = State::BetweenWorkers { since, reconcile_at: Timestamp::MAX };
        let effects = self.effects.clone().map(|phases| Phases { granted: Some(Timestamp::MAX), ..phases });
        Some(Transition::to(Self { revision, effects, state, ..self.clone() }))
    }

    /// Whether a retry took it from operators, who have it again if that retry fails.
    pub fn is_left_to_operators(&self) -> bool {
        let escalated = self.phases().is_some_and(|phases| phases.granted == Some(Timestamp::MAX));
        escalated && matches!(self.state, State::InProgress { .. })
    }

    /// A worker keeps the record. Over an effect that was reported, operators do, because more may have been done than this phase.
    /// Otherwise the next retry resumes it.
    fn with_phases(&self, phases: Phases, revision: Revision, now: Timestamp) -> Transition {
        let stays = match self.state {
            State::InProgress { .. } => true,
            State::Unknown { .. } => !self.may_end_without_effect(),
            // Not completed: that takes no phase.
            State::Pending { .. }
            | State::BetweenWorkers { .. }
            | State::FailedRetryable { .. }
            | State::Completed { .. } => false,
        };
        Transition::to(match stays {
            true => Self { revision, effects: Effects::InPhases(phases), ..self.clone() },
            false => self.between_workers(Effects::InPhases(phases), revision, now),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        AlarmKind, AttemptId, Deferred, Evidence, KeptAnswer, Next, PhaseResult, Report, ReservationRequest,
        SettleError, SettledBy, UnknownCause, Verdict,
        fate::{
            Fate, WorkerReport,
            tests::{name, table},
        },
        tests::{answer, reservation, resuming},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const LATER: Timestamp = Timestamp::from_secs(2_000);
    const WITHIN: Duration = Duration::from_secs(3_600);

    fn fresh() -> Revision {
        Revision::mint()
    }

    fn reserved() -> Record {
        let resumes = ReservationRequest { effects: resuming(WITHIN), ..reservation("k") };
        Record::reserve(&resumes, fresh(), NOW)
    }

    fn phase(name: &str, result: &str) -> Phase {
        // For a test, the same for the members in each order.
        let mut canonical: Vec<_> = result.chars().collect();
        canonical.sort_unstable();
        let canonical: String = canonical.into_iter().collect();
        Phase::new(name.to_owned(), Some(PhaseResult::new(result.to_owned(), &canonical)), NOW)
    }

    fn charged() -> Record {
        let reserved = reserved();
        reserved.keep(&reserved, 0, &phase("charge", "7"), fresh(), NOW).unwrap().into()
    }

    fn noted() -> Record {
        charged().note(&phase("refund", "8"), fresh(), NOW).unwrap().into()
    }

    fn ended(record: &Record, report: &Report) -> Record {
        report.of(record, record, fresh(), LATER).unwrap().into()
    }

    fn unknown() -> Record {
        ended(&charged(), &Report::PerhapsExecuted(None))
    }

    fn between() -> Record {
        ended(&charged(), &Report::NotExecuted(None))
    }

    fn completed() -> Record {
        ended(&charged(), &Report::Completed(answer()))
    }

    fn known(record: &Record) -> (Vec<&str>, Vec<&str>, bool) {
        let phases = record.phases().unwrap();
        let kept = phases.kept.iter().map(|phase| phase.name.as_str()).collect();
        let noted = phases.noted.iter().map(|phase| phase.name.as_str()).collect();
        (kept, noted, phases.begun.is_some())
    }

    #[test]
    fn the_documents_table_of_phases_is_the_code() {
        let refusal =
            KeptAnswer { head: crate::record::Head::Http { status: 409, headers: [].into() }, ..answer() };
        let reports = [
            ("its answer, also a refusal", vec![Report::Completed(answer()), Report::Completed(refusal)]),
            (
                "it ended outside a call",
                vec![Report::NotExecuted(None), Report::NotBegun, Report::NotStarted],
            ),
            ("it ended in a call", vec![Report::Interrupted(None)]),
            ("a call whose outcome is unknown", vec![Report::PerhapsExecuted(None)]),
        ];
        let other = Record { attempt: AttemptId::mint(), ..charged() };
        let worker = charged();
        let own = |record: Record| Record { attempt: worker.attempt, ..record };
        let others = |record: Record| Record { attempt: other.attempt, ..record };
        let records = [
            vec![own(reserved())],
            vec![own(charged()), own(Record { effects: noted().effects_after_a_call(), ..charged() })],
            vec![own(between())],
            vec![others(charged()), others(between()), others(unknown())],
            vec![own(completed()), others(completed())],
        ];
        let rows = table("a worker with phases reports");
        assert_eq!(rows.len(), reports.len());
        for (row, (reported, all)) in rows.iter().zip(&reports) {
            assert_eq!((row[0].as_str(), row.len()), (*reported, records.len() + 1));
            for (cell, current) in
                row[1..].iter().zip(&records).flat_map(|(cell, all)| all.iter().map(move |one| (cell, one)))
            {
                for ended in all {
                    // What is noted and not answered for has a test of its own.
                    let current =
                        &match (ended, current.phases().is_some_and(|phases| !phases.noted.is_empty())) {
                            (Report::Completed(_) | Report::PerhapsExecuted(_), true) => own(charged()),
                            _ => current.clone(),
                        };
                    let worker = &if current.is_resumed() { worker.clone() } else { own(reserved()) };
                    let next = ended.of(current, worker, fresh(), LATER);
                    assert_eq!(*cell, name(next.as_deref(), current), "{reported}, {current:?}");
                }
            }
        }
    }

    #[test]
    fn a_completion_over_a_phase_only_noted_is_not_the_end() {
        let ended = ended(&noted(), &Report::Completed(answer()));
        assert_eq!(ended.state.name(), "between_workers");
        assert_eq!(known(&ended), (vec!["charge"], vec!["refund"], false));
        // What another execution reported may be that effect or another one: only an operator says so.
        let marked = Record { reported: Some(Evidence::Perhaps), ..noted() };
        let contested = super::tests::ended(&marked, &Report::Completed(answer()));
        assert_eq!((contested.state.name(), contested.reported), ("unknown", marked.reported));
    }

    fn reports<'a>(base: &'a Record, ended: &'a Report) -> WorkerReport<'a> {
        WorkerReport { base, report: ended, has_rows: false, may_run_again: false, deferred: Deferred::Sent }
    }

    // T5: what it tells would be forgotten.
    #[test]
    fn a_report_with_any_trace_of_a_phase_matters() {
        let not_executed = Report::NotExecuted(None);
        assert!(!reports(&reserved(), &not_executed).matters());
        assert!(reports(&reserved(), &Report::Interrupted(None)).matters());
        let only_noted = reserved().note(&phase("charge", "7"), fresh(), NOW).unwrap().into();
        let only_begun = ended(&reserved(), &Report::Interrupted(None));
        assert_eq!(known(&only_begun), (vec![], vec![], true));
        for base in [charged(), only_noted, only_begun] {
            assert!(reports(&base, &not_executed).matters(), "{base:?}");
        }
    }

    #[test]
    fn a_report_that_tells_nothing_new_contradicts_no_hold() {
        let base = charged();
        let held: Record = base.hold(fresh(), LATER).unwrap().into();
        for (ended, alarm) in
            [(Report::NotExecuted(None), None), (Report::Interrupted(None), Some(AlarmKind::HeldReport))]
        {
            assert_eq!(reports(&base, &ended).overtaken_by(&held, LATER).alarm(), alarm);
        }
        let not_executed = Report::NotExecuted(None);
        let forgotten =
            reports(&base, &not_executed).overtaken_by(&Record { effects: Effects::Anywhere, ..held }, LATER);
        assert_eq!(forgotten.alarm(), Some(AlarmKind::ForgottenPhase));
    }

    #[test]
    fn a_phase_is_noted_once_and_with_one_result() {
        let report = |record: &Record, name: &str, result: &str| {
            record.note(&phase(name, result), fresh(), LATER).map(Record::from)
        };
        for record in [charged(), between(), unknown()] {
            assert_eq!(report(&record, "charge", "7"), Err(NotTaken::Known), "{:?}", record.state);
            assert_eq!(report(&record, "charge", "9"), Err(NotTaken::Differs), "{:?}", record.state);
            let noted = report(&record, "ship", r#"{"id":1,"at":2}"#).unwrap();
            assert_eq!(known(&noted).1, ["ship"]);
            let other = if record.state.name() == "in_progress" { "in_progress" } else { "between_workers" };
            assert_eq!(noted.state.name(), other, "the next retry uses it");
            assert_eq!(report(&noted, "ship", r#"{"at":2,"id":1}"#), Err(NotTaken::Known));
            assert_eq!(report(&noted, "ship", "2"), Err(NotTaken::Differs));
            // Its handler gets there, and keeps it.
            let kept: Record =
                noted.keep(&record, 1, &phase("ship", r#"{"id":1,"at":2}"#), fresh(), NOW).unwrap().into();
            assert_eq!(known(&kept).0, ["charge", "ship"]);
            // What it got itself counts.
            let other = noted.keep(&record, 1, &phase("ship", "2"), fresh(), NOW).unwrap();
            assert!(noted.noted_otherwise(&phase("ship", "2")).is_some() && known(&other).1.is_empty());
        }
        let completed = completed();
        assert_eq!(report(&completed, "charge", "7"), Err(NotTaken::Known));
        assert_eq!(report(&completed, "charge", "9"), Err(NotTaken::Differs), "a second effect");
        assert_eq!(report(&completed, "refund", "8"), Err(NotTaken::Differs));
        let without = Record { effects: Effects::Anywhere, ..charged() };
        assert_eq!(report(&without, "charge", "7"), Err(NotTaken::Differs));
    }

    #[test]
    fn a_report_without_a_result_takes_one_later() {
        let without = Phase::new("ship".to_owned(), None, NOW);
        let open: Record = between().note(&without, fresh(), NOW).unwrap().into();
        assert_eq!(open.note(&without, fresh(), NOW).map(Record::from), Err(NotTaken::Known));
        let noted = open.note(&phase("ship", "8"), fresh(), NOW).unwrap();
        assert_eq!(noted.phases().unwrap().noted, [phase("ship", "8")]);
        assert_eq!(noted.note(&without, fresh(), NOW), Err(NotTaken::Known));
    }

    // T69: so that each later execution sees the same.
    #[test]
    fn a_phase_without_its_result_takes_one_later() {
        let without = Phase::new("charge".to_owned(), None, NOW);
        let worker: Record = reserved().keep(&reserved(), 0, &without, fresh(), NOW).unwrap().into();
        let long = phase("charge", &format!("\"{}\"", "x".repeat(crate::record::MAX_PHASE_RESULTS)));
        for nothing in [&without, &long] {
            assert_eq!(worker.keep(&worker, 0, nothing, fresh(), NOW), Err(NotTaken::Known));
            assert_eq!(worker.note(nothing, fresh(), NOW), Err(NotTaken::Known));
        }
        let begun = Record { effects: worker.effects_after_a_call(), ..worker.clone() };
        let noted = Record::from(begun.note(&phase("charge", "7"), fresh(), NOW).unwrap());
        for asked in [&begun, &noted] {
            let next = Record::from(asked.keep(&begun, 0, &phase("charge", "7"), fresh(), NOW).unwrap());
            let phases = next.phases().unwrap();
            assert_eq!(
                (&phases.kept[0].result, phases.begun, phases.noted.len()),
                (&Some(PhaseResult::new("7".to_owned(), "7")), begun.phases().unwrap().begun, 0)
            );
            assert_eq!(next.state, begun.state);
            assert_eq!(next.keep(&begun, 0, &phase("charge", "8"), fresh(), NOW), Err(NotTaken::Differs));
            assert_eq!(next.note(&phase("charge", "7"), fresh(), NOW), Err(NotTaken::Known));
        }
        // What others report is used if the handler can read it, and asked about if not. Either is its word.
        let phases = noted.phases().unwrap();
        assert_eq!(phases.next(0, "charge", Duration::ZERO, NOW), Next::Noted("7"));
        assert_eq!(phases.next_unread(0, true, WITHIN, NOW), Next::Ask { made: true });
        assert!(noted.keep(&begun, 0, &phase("charge", "8"), fresh(), NOW).is_ok());
        assert_eq!(noted.note(&phase("charge", "7"), fresh(), NOW), Err(NotTaken::Known));
        assert_eq!(noted.note(&phase("charge", "8"), fresh(), NOW), Err(NotTaken::Differs));
        // The call that follows is still unknown, and a record that waits does so for as long again.
        let unknown = worker.unknown(fresh(), UnknownCause::PerhapsExecuted, NOW);
        let noted = unknown.note(&phase("charge", "7"), fresh(), NOW).unwrap();
        assert_eq!(noted.state, unknown.state);
        let waits = worker.between_workers(worker.effects.clone(), fresh(), NOW);
        let report = Phase { at: LATER, ..phase("charge", "7") };
        let State::BetweenWorkers { reconcile_at, .. } = waits.note(&report, fresh(), LATER).unwrap().state
        else {
            panic!("not between workers");
        };
        assert_eq!(reconcile_at, LATER.plus(WITHIN));
        // Another execution has it, and asks too.
        let other = Record { attempt: AttemptId::mint(), ..worker.clone() };
        assert_eq!(other.keep(&worker, 0, &phase("charge", "7"), fresh(), NOW), Err(NotTaken::Known));
        let settled = ended(&worker, &Report::Completed(answer()));
        assert_eq!(
            settled.note(&phase("charge", "7"), fresh(), NOW),
            Err(NotTaken::Known),
            "nobody needs it"
        );
    }

    #[test]
    fn an_effect_that_is_reported_of_a_released_operation_is_resumed() {
        let released = ended(&reserved(), &Report::NotExecuted(None));
        assert_eq!(released.state.name(), "failed_retryable");
        let noted = released.note(&phase("charge", "7"), fresh(), LATER).unwrap();
        assert_eq!((noted.state.name(), known(&noted).1), ("between_workers", vec!["charge"]));
    }

    #[test]
    fn an_answer_ends_only_what_its_handler_knows() {
        let worker = reserved();
        let late: Record = worker.keep(&worker, 0, &phase("charge", "7"), fresh(), NOW).unwrap().into();
        let ended = Report::Completed(answer()).of(&late, &worker, fresh(), LATER).unwrap();
        assert_eq!((ended.state.name(), known(&ended).0), ("between_workers", vec!["charge"]));
    }

    #[test]
    fn a_result_is_kept_in_its_place_and_only_by_its_request() {
        let record = charged();
        let keep = |record: &Record, worker: &Record, place, name: &str| {
            record.keep(worker, place, &phase(name, "1"), fresh(), NOW).map(Record::from)
        };
        assert!(keep(&record, &record, 1, "ship").is_ok());
        assert_eq!(keep(&record, &record, 2, "ship"), Err(NotTaken::Differs), "a phase is missing");
        assert_eq!(keep(&record, &record, 0, "ship"), Err(NotTaken::Differs));
        let without = Record { effects: Effects::Anywhere, ..record.clone() };
        assert_eq!(keep(&without, &record, 0, "charge"), Err(NotTaken::Differs), "it has no phases");
        let anew = Record { created_at: LATER, ..record.clone() };
        assert_eq!(keep(&anew, &record, 1, "ship"), Err(NotTaken::Differs), "of a later generation");
        assert_eq!(keep(&completed(), &record, 1, "ship"), Err(NotTaken::Differs));
        assert_eq!(keep(&completed(), &record, 0, "charge"), Err(NotTaken::Differs), "another result");
        let same = completed().keep(&record, 0, &phase("charge", "7"), fresh(), NOW);
        assert_eq!(same.map(Record::from), Err(NotTaken::Known));
        for open in [between(), unknown()] {
            assert_eq!(keep(&open, &record, 1, "ship").unwrap().state.name(), "between_workers");
        }
        // It was released, because its worker was thought to have done nothing.
        let released =
            reserved().settle(Verdict::NotExecuted, SettledBy::Operator, fresh(), LATER.plus(WITHIN));
        let kept = keep(&released.unwrap(), &reserved(), 0, "charge").unwrap();
        assert_eq!((kept.state.name(), known(&kept).0), ("between_workers", vec!["charge"]));
    }

    #[test]
    fn what_waits_between_workers_is_escalated_after_its_last_recovery_point() {
        let at = |record: &Record| match record.state {
            State::BetweenWorkers { reconcile_at, .. } => reconcile_at,
            ref other => panic!("{other:?}"),
        };
        assert_eq!(at(&between()), NOW.plus(WITHIN), "not after its worker's end");
        let escalated = between().not_resumed(fresh()).unwrap();
        assert_eq!(at(&escalated), Timestamp::MAX);
        let again: Record = escalated.resume(fresh(), LATER).unwrap().into();
        assert_eq!(at(&again), LATER.plus(WITHIN));
        // A retry that fails does not take that back.
        let resumes = ReservationRequest { effects: resuming(WITHIN), ..reservation("k") };
        let retry = again.again(&resumes, fresh(), LATER);
        let failed = ended(&retry, &Report::NotExecuted(None));
        assert_eq!(at(&failed), LATER.plus(WITHIN));
        // Nor is it granted twice.
        let late = LATER.plus(WITHIN * 2);
        assert_eq!(at(&failed.resume(fresh(), late).unwrap()), late.plus(WITHIN));
        for other in [charged(), unknown(), completed()] {
            assert!(other.resume(fresh(), LATER).is_none() && other.not_resumed(fresh()).is_none());
        }
    }

    #[test]
    fn what_was_denied_is_made_by_the_next_retry() {
        for open in [unknown(), ended(&charged(), &Report::Interrupted(None))] {
            assert!(known(&open).2);
            let denied = open.nothing_follows(fresh(), LATER).unwrap();
            assert_eq!((denied.state.name(), known(&denied).2), ("between_workers", false));
        }
        for other in [charged(), completed()] {
            assert!(other.nothing_follows(fresh(), LATER).is_none());
        }
    }

    // T53: the table may have forgotten a later call than this one.
    #[test]
    fn a_hold_ends_by_the_operators_word_about_what_follows() {
        let held: Record = between().hold(fresh(), LATER).unwrap().into();
        let noted: Record = held.note(&phase("ship", "8"), fresh(), LATER).unwrap().into();
        let kept: Record = noted.keep(&charged(), 1, &phase("ship", "8"), fresh(), LATER).unwrap().into();
        assert_eq!((known(&noted).1, known(&kept).0), (vec!["ship"], vec!["charge", "ship"]));
        for still in [&held, &noted, &kept] {
            assert_eq!((&still.state, still.reported), (&held.state, held.reported));
        }
        let ended: Record = kept.nothing_follows(fresh(), LATER).unwrap().into();
        assert_eq!((ended.state.name(), ended.reported, known(&ended).2), ("between_workers", None, false));
        assert_eq!((ended.is_held(), ended.last_failure), (false, None));
    }

    // T53: a restored table has forgotten it, or a deployment that does not resume has taken the record over.
    #[test]
    fn a_report_over_a_forgotten_phase_goes_to_operators() {
        let worker = charged();
        let (effect, nothing) = (Report::Completed(answer()), Report::NotExecuted(None));
        let overtaken = |current: &Record, ended| {
            let report = reports(&worker, ended);
            assert_eq!(report.fate(Some(current), fresh(), LATER), Fate::Fenced);
            report.overtaken_by(current, LATER).alarm()
        };
        let another = |record: Record| Record { attempt: AttemptId::mint(), ..record };
        let without = another(Record { effects: Effects::Anywhere, ..charged() });
        // Its own, as an earlier time has it: the phase may have had rows.
        let restored = Record { attempt: worker.attempt, ..between() };
        let restored = Record { effects: reserved().effects, ..restored };
        for (current, expected) in [
            (restored, Some(AlarmKind::ForgottenPhase)),
            (another(reserved()), Some(AlarmKind::ForgottenPhase)),
            (without, Some(AlarmKind::ForgottenPhase)),
            (another(charged()), None),
            (another(noted()), None),
            (another(completed()), None),
        ] {
            assert_eq!(overtaken(&current, &effect), expected, "{current:?}");
            assert_eq!(overtaken(&current, &nothing), expected, "what is forgotten was done");
        }
    }

    #[test]
    fn an_answer_beside_another_noted_result_is_not_the_end() {
        let restored = reserved().note(&phase("charge", "8"), fresh(), NOW).unwrap();
        let ended = Report::Completed(answer()).of(&restored, &charged(), fresh(), LATER);
        assert_eq!(ended.map(|ended| ended.state.name()), None);
        let restored = Record { attempt: charged().attempt, ..restored.into() };
        let worker = Record { attempt: restored.attempt, ..charged() };
        let ended = Report::Completed(answer()).of(&restored, &worker, fresh(), LATER).unwrap();
        assert_eq!((ended.state.name(), known(&ended).1), ("between_workers", vec!["charge"]));
    }

    #[test]
    fn what_is_kept_is_settled_only_as_executed() {
        let late = reservation("k").lease_until;
        for open in [charged(), between(), unknown(), noted()] {
            let settle = |verdict| open.settle(verdict, SettledBy::Operator, fresh(), late).map(Record::from);
            assert_eq!(settle(Verdict::NotExecuted), Err(SettleError::Kept), "{:?}", open.state);
            assert_eq!(settle(Verdict::Executed(answer())).unwrap().state.name(), "completed");
        }
        let nothing = reserved().settle(Verdict::NotExecuted, SettledBy::Operator, fresh(), late);
        assert_eq!(nothing.unwrap().state.name(), "failed_retryable");
    }

    #[test]
    fn a_dead_worker_may_have_begun_the_call_that_follows() {
        let late = reservation("k").lease_until;
        let dead = charged().expire(fresh(), late).unwrap();
        assert_eq!((dead.state.name(), dead.phases().unwrap().begun), ("between_workers", Some(NOW)));
        let resumes = ReservationRequest { effects: resuming(WITHIN * 2), ..reservation("k") };
        for before in [dead.into(), charged()] {
            let again = Record::again(&before, &resumes, fresh(), LATER);
            let phases = again.phases().unwrap();
            assert_eq!((phases.begun, phases.resume_within), (Some(NOW), WITHIN * 2));
            // The earliest execution counts.
            let twice = Record::again(&again, &resumes, fresh(), LATER);
            assert_eq!(twice.phases().unwrap().begun, Some(NOW));
        }
    }
}
