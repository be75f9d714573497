//! The transitions of the execution that owns a record.
//!
//! A transition takes the record that was seen and returns its replacement. The store writes it only if the revision seen is
//! still current. `report` decides which of them a worker's report may make. There, `worker` is the record as its worker last saw it.

use super::{
    Accepted, AttemptId, Effects, Evidence, KeptAnswer, Note, Phases, Record, ReservationRequest, Resumes,
    Revision, SettledBy, State, Transition, UnknownCause, Verdict,
};
use crate::time::{CLOCK_SKEW, Timestamp};

/// The note for an execution that certainly did nothing.
pub const NOT_EXECUTED: &str = "not_executed";

/// The note for an execution that was taken back.
const NOT_STARTED: &str = "not_started";

/// The note for a handler that reported a failure, answered 5xx, or gave an inconclusive answer.
pub const HANDLER_FAILED: &str = "handler_failed";

impl Record {
    /// The record of a first execution: absent → in progress.
    pub fn reserve(reservation: &ReservationRequest, revision: Revision, now: Timestamp) -> Self {
        Self {
            key: reservation.key.clone(),
            revision,
            attempt: reservation.attempt,
            attempts: 1,
            fingerprint: reservation.fingerprints.current(),
            answer_kind: reservation.answer_kind,
            created_at: now,
            began_at: now,
            retention: reservation.retention,
            reported: None,
            effects: reservation.effects.map(Phases::of),
            with_writes: false,
            messages: 0,
            accepted: None,
            origin: reservation.origin.clone(),
            last_failure: None,
            note: None,
            effect_id: None,
            alarms: Vec::new(),
            state: State::InProgress { lease_until: reservation.lease_until },
        }
    }

    /// The record of work that is executed later: absent → pending.
    pub fn accept(
        reservation: &ReservationRequest,
        claim_by: Timestamp,
        max_attempts: u32,
        revision: Revision,
        now: Timestamp,
    ) -> Self {
        let state = State::Pending { released_by: None };
        let accepted = Some(Accepted::by(revision, claim_by, max_attempts));
        Self { attempts: 0, accepted, state, ..Self::reserve(reservation, revision, now) }
    }

    /// One more execution of the same operation. [`decide`](super::decide) has the records that allow it.
    pub fn again(&self, reservation: &ReservationRequest, revision: Revision, now: Timestamp) -> Self {
        Self {
            revision,
            attempt: reservation.attempt,
            attempts: self.attempts.saturating_add(1),
            answer_kind: reservation.answer_kind,
            began_at: now,
            retention: reservation.retention,
            effects: reservation.effects.map(|resumes| self.phases_for(resumes)),
            accepted: self.accepted.map(|accepted| match self.is_undone_by_the_next_write() {
                true => accepted.without(SettledBy::Certainty).claimed(),
                false => accepted.claimed(),
            }),
            origin: reservation.origin.clone().or_else(|| self.origin.clone()),
            note: None,
            state: State::InProgress { lease_until: reservation.lease_until },
            ..self.clone()
        }
    }

    /// What the next execution knows of the phases. One that takes over from a dead worker does not know whether that worker
    /// made the call that follows.
    fn phases_for(&self, resumes: Resumes) -> Phases {
        let known = match self.state {
            State::InProgress { .. } => self.effects_after_a_call(),
            _ => self.effects.clone(),
        };
        let Effects::InPhases(known) = known else { return Phases::of(resumes) };
        Phases { resume_within: resumes.within, declared: Some(resumes.list), ..known }
    }

    /// Extends the lease while the handler runs: a heartbeat.
    ///
    /// Also unknown → in progress, if a clock that was ahead counted this execution as dead, and the record has not been
    /// settled since.
    pub fn extend(
        &self,
        attempt: AttemptId,
        revision: Revision,
        lease_until: Timestamp,
    ) -> Option<Transition> {
        let lease_until = match &self.state {
            _ if self.attempt != attempt => return None,
            // A heartbeat never shortens a lease, even if the clock was set back.
            State::InProgress { lease_until: before } => lease_until.max(*before),
            State::Unknown { cause: UnknownCause::LeaseExpired, .. } => lease_until,
            _ => return None,
        };
        let state = State::InProgress { lease_until };
        Some(Transition::to(Self { revision, note: None, state, ..self.clone() }))
    }

    /// Records the answer: → completed.
    ///
    /// A refusal over reported evidence: → unknown. One of the two is wrong. Until it is known which, the client must not try
    /// another way.
    pub(super) fn completed(
        &self,
        worker: &Self,
        revision: Revision,
        answer: KeptAnswer,
        now: Timestamp,
    ) -> Transition {
        if !answer.head.is_effect() && !self.may_end_without_effect() {
            let refused = Note::new("it was refused, but an effect was reported");
            let unknown = self.contested(revision, now);
            return Transition::to(unknown).failed(Some(refused));
        }
        // An effect that its handler has not answered for.
        if self.knows_more_than(worker) {
            let because = Some(Note::new("a phase is known that its handler did not come to"));
            // Over reported evidence nothing resumes.
            let next = match self.may_end_without_effect() {
                true => self.between_workers(self.effects.clone(), revision, now),
                false => self.contested(revision, now),
            };
            return Transition::to(next).failed(because);
        }
        // The body is kept for the worker's retention. An operator may have chosen another one for the release overturned here.
        let completing = Self { attempt: worker.attempt, retention: worker.retention, ..self.clone() };
        Transition::to(completing.settled(Verdict::Executed(answer), SettledBy::Worker, revision, now))
    }

    /// Records an effect whose domain writes are not committed: → unknown. From then on only proof of the effect or an operator
    /// settles the record, and no earlier try of those writes can be applied.
    ///
    /// What another execution left unknown is [claimed](Self::claim). `None` if the effect is known already.
    pub(super) fn uncommitted(
        &self,
        worker: &Self,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        if matches!(self.state, State::Unknown { .. }) && self.attempt != worker.attempt {
            return self.claim(revision, now, now);
        }
        let effect = Some(Evidence::Effect);
        let (attempt, began_at) = (worker.attempt, self.began_at.min(worker.began_at));
        let known = matches!(self.state, State::Unknown { .. }) && self.reported == effect;
        let unknown = self.unknown(revision, UnknownCause::PerhapsExecuted, now);
        let because = Some(Note::new("uncommitted"));
        (!known)
            .then(|| Transition::to(Self { attempt, began_at, reported: effect, ..unknown }).failed(because))
    }

    /// Certainly not executed: → failed, retryable. If another execution may have done it, or an effect was reported: → unknown.
    pub(super) fn released(&self, revision: Revision, now: Timestamp) -> Transition {
        if !self.may_end_without_effect() {
            return Transition::to(self.contested(revision, now));
        }
        if self.is_resumed() {
            return Transition::to(self.between_workers(self.effects.clone(), revision, now))
                .failed(Some(Note::new(NOT_EXECUTED)));
        }
        let by = self.by_its_worker();
        let released = Transition::to(self.settled(Verdict::NotExecuted, by, revision, now));
        match released.state {
            State::Unknown { .. } => released,
            _ => released.failed(Some(Note::new(NOT_EXECUTED))),
        }
    }

    /// Who finds that this execution did nothing, if its worker says so.
    const fn by_its_worker(&self) -> SettledBy {
        if self.is_undone_by_the_next_write() { SettledBy::Certainty } else { SettledBy::Worker }
    }

    /// Its handler did not start: it counts as no execution, and the record is as before it. If it was the first one, the key is free for
    /// any request, or what was accepted waits as ever.
    pub(super) fn not_started(&self, revision: Revision, now: Timestamp) -> Transition {
        // What is known besides is of another execution, which is not counted here.
        let is_known = !self.may_end_without_effect() || self.is_resumed();
        let attempts = self.attempts.saturating_sub(1).max(u32::from(is_known));
        let before = Self { attempts, accepted: self.accepted.map(Accepted::taken_back), ..self.clone() };
        if is_known {
            return before.released(revision, now);
        }
        let is_absent = attempts == 0 && self.alarms.is_empty();
        let by = if is_absent { SettledBy::NotBegun } else { self.by_its_worker() };
        let next = match self.accepted {
            // Nothing ends here: an execution was due.
            Some(_) => before.waiting((attempts > 0).then_some(by), revision),
            None => before.settled(Verdict::NotExecuted, by, revision, now),
        };
        Transition::to(next).failed(Some(Note::new(NOT_STARTED)))
    }

    /// Refused before anything was done: a [release](Self::released) that counts as absent at once, so that the key is free for
    /// any request.
    ///
    /// Only a first execution frees the key. After an earlier one, the key belongs to its request: it may have done something.
    pub(super) fn not_begun(&self, revision: Revision, now: Timestamp) -> Transition {
        // What was accepted waits for its worker: its client has its answer.
        let is_first = self.attempts <= 1 && self.accepted.is_none() && self.alarms.is_empty();
        if !is_first || !self.may_end_without_effect() || self.is_resumed() {
            return self.released(revision, now);
        }
        let absent = self.settled(Verdict::NotExecuted, SettledBy::NotBegun, revision, now);
        Transition::to(absent).failed(Some(Note::new(NOT_EXECUTED)))
    }

    /// Ended within a call, which was perhaps made: the next retry decides whether it is made again. If that call is known since `worker`
    /// saw the record, no call is open.
    pub(super) fn interrupted(&self, worker: &Self, revision: Revision, now: Timestamp) -> Transition {
        if !self.may_end_without_effect() {
            return Transition::to(self.contested(revision, now));
        }
        let learned = self.effects_learned_since(worker);
        let effects = learned.unwrap_or_else(|| self.effects_after_a_call());
        Transition::to(self.between_workers(effects, revision, now))
    }

    /// Whether its request was refused before anything was done: the record counts as absent.
    pub fn is_not_begun(&self) -> bool {
        self.state.settled_by() == Some(SettledBy::NotBegun)
    }

    /// Marks the record of this execution, which is in progress: the execution of `worker`, another one, certainly or possibly ran the
    /// same operation. `None` if there is nothing to mark. This record may belong to a later generation of the key, if the worker's
    /// record was deleted.
    pub fn contest(&self, worker: &Self, evidence: Evidence, revision: Revision) -> Option<Transition> {
        let is_anothers = self.attempt != worker.attempt && matches!(self.state, State::InProgress { .. });
        if !is_anothers || self.reported >= Some(evidence) {
            return None;
        }
        // `began_at` is the earlier one: "not found" is proof only while the provider remembers the keys of both.
        let (began_at, reported) = (self.began_at.min(worker.began_at), Some(evidence));
        Some(Transition::to(Self { revision, began_at, reported, ..self.clone() }))
    }

    /// Perhaps executed: → unknown. If this execution counts as dead already, this cause replaces `lease_expired`, and
    /// `since` starts again, because its last request may still be on its way.
    ///
    /// If the record is another execution's, this one replaces it, so that a later report of the other worker does not settle it.
    ///
    /// If a phase is known since, perhaps of that very call: → between workers.
    pub(super) fn marked_unknown(&self, worker: &Self, revision: Revision, now: Timestamp) -> Transition {
        let is_own = self.attempt == worker.attempt && self.may_end_without_effect();
        if let Some(effects) = self.effects_learned_since(worker).filter(|_| is_own) {
            return Transition::to(self.between_workers(effects, revision, now));
        }
        let cause = UnknownCause::PerhapsExecuted;
        let unknown = self.unknown(revision, cause, now);
        match self.state {
            State::InProgress { .. } => Transition::to(unknown),
            State::Unknown { reconcile_at, asked, anew_at, .. } if self.attempt == worker.attempt => {
                let state = State::Unknown { cause, since: now, reconcile_at, asked, anew_at };
                Transition::to(Self { state, ..unknown }.for_the_reason_of(self))
            }
            _ => {
                // `began_at` is the earlier one: "not found" is proof only while the provider remembers the keys of both.
                let began_at = self.began_at.min(worker.began_at);
                // What another execution perhaps did is in the record itself now.
                let reported = self.reported.filter(|reported| *reported == Evidence::Effect);
                let state = match self.state {
                    // An operator has it, and its execution counts anew.
                    State::Unknown { reconcile_at: Timestamp::MAX, asked, anew_at, .. }
                        if reported.is_some() =>
                    {
                        State::Unknown { cause, since: now, reconcile_at: Timestamp::MAX, asked, anew_at }
                    }
                    _ => unknown.state.clone(),
                };
                let next = Self { attempt: worker.attempt, began_at, reported, state, ..unknown };
                Transition::to(next.for_the_reason_of(self))
            }
        }
    }

    /// Whether all effects of its executions are in its transaction, or in its phases. So a report of one that has lost the record
    /// tells nothing that the record must know.
    pub const fn contains_its_effects(&self) -> bool {
        !matches!(self.effects, Effects::Anywhere)
    }

    /// An execution says that it did nothing, over what was reported besides: → unknown. What is escalated stays so.
    fn contested(&self, revision: Revision, now: Timestamp) -> Self {
        let cause = UnknownCause::Contested;
        let unknown = self.unknown(revision, cause, now);
        match self.state {
            State::Unknown { since, reconcile_at: Timestamp::MAX, asked, anew_at, .. } => {
                let state = State::Unknown { cause, since, reconcile_at: Timestamp::MAX, asked, anew_at };
                Self { state, ..unknown }.for_the_reason_of(self)
            }
            _ => unknown,
        }
    }

    /// The same with the reason for which `before` was escalated, if both are.
    fn for_the_reason_of(self, before: &Self) -> Self {
        let note = before.note.clone().filter(|_| before.is_escalated() && self.is_escalated());
        Self { note, ..self }
    }

    pub(super) fn unknown(&self, revision: Revision, cause: UnknownCause, now: Timestamp) -> Self {
        let state = State::Unknown { cause, since: now, reconcile_at: now, asked: 0, anew_at: None };
        let last_failure = Some(Note::new(cause.name()));
        let effects = self.effects_after_a_call();
        Self { revision, last_failure, note: None, effects, state, ..self.clone() }
    }

    /// Whether a record of the same request belongs to the generation that the worker of this one ran for. A later one does too while
    /// the worker's retention lasts, even if the worker's clock was [`CLOCK_SKEW`] ahead: an operator deleted the record, or restored
    /// the table.
    pub(crate) fn shares_generation(&self, record: &Self, now: Timestamp) -> bool {
        record.created_at == self.created_at || now.plus(CLOCK_SKEW) < self.began_at.plus(self.retention)
    }

    /// Whether the record has expired, even if this clock is [`CLOCK_SKEW`] ahead: it counts as absent, deleted or not. Never while
    /// it has an alarm.
    pub fn expired(&self, now: Timestamp) -> bool {
        let is_over = |expires_at: Timestamp| expires_at.plus(CLOCK_SKEW) <= now;
        self.is_not_begun() || self.alarms.is_empty() && self.state.expires_at().is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{RETAIN, accepted, answer, reservation, resuming};
    use crate::record::{Phase, Report};

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const LATER: Timestamp = Timestamp::from_secs(2_000);

    fn reserved() -> Record {
        Record::reserve(&reservation("k"), Revision::mint(), NOW)
    }

    fn fresh() -> Revision {
        Revision::mint()
    }

    /// The same operation, run by another execution.
    fn again(record: &Record) -> Record {
        record.again(&reservation("k"), fresh(), LATER)
    }

    fn released(by: SettledBy) -> Record {
        let unknown = reserved().unknown(fresh(), UnknownCause::LeaseExpired, NOW);
        unknown.settle(Verdict::NotExecuted, by, fresh(), NOW).unwrap().into()
    }

    const EACH: [SettledBy; 4] =
        [SettledBy::Worker, SettledBy::Provider, SettledBy::Operator, SettledBy::Assumption];

    #[test]
    fn a_reservation_records_its_owner_lease_and_retention() {
        let (reservation, revision) = (reservation("k"), fresh());
        let expected = Record {
            key: reservation.key.clone(),
            revision,
            attempt: reservation.attempt,
            attempts: 1,
            fingerprint: reservation.fingerprints.current(),
            answer_kind: reservation.answer_kind,
            created_at: NOW,
            began_at: NOW,
            retention: reservation.retention,
            reported: None,
            effects: Effects::Anywhere,
            with_writes: false,
            messages: 0,
            accepted: None,
            origin: reservation.origin.clone(),
            last_failure: None,
            note: None,
            effect_id: None,
            alarms: Vec::new(),
            state: State::InProgress { lease_until: reservation.lease_until },
        };
        assert_eq!(Record::reserve(&reservation, revision, NOW), expected);
        let work = Accepted {
            request: (*revision.as_bytes()).into(),
            claim_by: LATER,
            max_attempts: 3,
            tries: 0,
            perhaps: 0,
        };
        let state = State::Pending { released_by: None };
        let pending = Record { attempts: 0, accepted: Some(work), state, ..expected };
        assert_eq!(Record::accept(&reservation, LATER, 3, revision, NOW), pending);
    }

    #[test]
    fn a_take_over_keeps_the_keys_data_and_replaces_its_owner() {
        let (first, revision) = (released(SettledBy::Worker), fresh());
        let next =
            ReservationRequest { retention: RETAIN * 2, lease_until: LATER.plus(RETAIN), ..reservation("k") };
        let expected = Record {
            revision,
            attempt: next.attempt,
            attempts: 2,
            began_at: LATER,
            retention: RETAIN * 2,
            state: State::InProgress { lease_until: LATER.plus(RETAIN) },
            ..first.clone()
        };
        assert_eq!(first.again(&next, revision, LATER), expected);
    }

    // T6
    #[test]
    fn a_worker_that_lost_its_record_to_another_execution_can_change_nothing() {
        let record = reserved();
        let (mine, worker) = (record.attempt, &record);
        let theirs = again(&record);
        let unknown = theirs.unknown(fresh(), UnknownCause::PerhapsExecuted, NOW);
        let completed = theirs.complete(&theirs, fresh(), answer(), NOW).unwrap();
        assert!(unknown.complete(worker, fresh(), answer(), NOW).is_some(), "it knows more");
        assert_eq!(unknown.release(mine, fresh(), NOW), None);
        for theirs in [theirs, completed.into()] {
            assert_eq!(theirs.complete(worker, fresh(), answer(), NOW), None);
            assert_eq!(theirs.release(mine, fresh(), NOW), None);
            assert_eq!(theirs.mark_unknown(worker, fresh(), NOW), None);
            assert_eq!(theirs.extend(mine, fresh(), NOW), None);
        }
    }

    // T5
    #[test]
    fn a_late_completion_ends_an_unknown_of_each_attempt_of_its_key() {
        let unknown = reserved().unknown(fresh(), UnknownCause::LeaseExpired, NOW);
        let completed = unknown.complete(&unknown, fresh(), answer(), NOW).unwrap();
        assert!(matches!(completed.state, State::Completed { by: SettledBy::Worker, .. }));
        let other = &Record { attempt: AttemptId::mint(), ..unknown.clone() };
        let completed = unknown.complete(other, fresh(), answer(), NOW).unwrap();
        assert_eq!((completed.state.name(), completed.attempt), ("completed", other.attempt));
        let retention = CLOCK_SKEW + RETAIN;
        let of_another_generation = &Record { created_at: LATER, retention, ..other.clone() };
        // An operator deleted its record.
        assert!(unknown.complete(of_another_generation, fresh(), answer(), NOW.plus(RETAIN / 2)).is_some());
        let late = unknown.complete(of_another_generation, fresh(), answer(), NOW.plus(RETAIN));
        assert_eq!(late, None);
    }

    // T5: the next retry would repeat what this worker did.
    #[test]
    fn a_completion_overrides_every_release_and_no_completion() {
        for by in EACH {
            let (released, revision) = (released(by), fresh());
            let completed = released.complete(&released, revision, answer(), LATER).unwrap();
            assert_eq!((completed.state.name(), completed.revision), ("completed", revision), "{by:?}");
            let again = completed.complete(&released, fresh(), answer(), LATER);
            assert_eq!(again, None);
        }
    }

    // T5: that another execution did nothing proves nothing about this one.
    #[test]
    fn a_completion_overrides_another_attempts_release_but_not_after_the_key_expired() {
        let record = reserved();
        let other = again(&released(SettledBy::Assumption));
        let other = other.release(other.attempt, fresh(), LATER).unwrap();
        let completed = other.complete(&record, fresh(), answer(), LATER).unwrap();
        assert_eq!((completed.state.name(), completed.attempt), ("completed", record.attempt));
        // The key has expired since, and this is its next generation.
        let anew = Record::reserve(&reservation("k"), fresh(), LATER);
        let anew = anew.release(anew.attempt, fresh(), LATER).unwrap();
        let late = anew.complete(&record, fresh(), answer(), LATER);
        assert_eq!(late, None);
    }

    // T5
    #[test]
    fn an_unknown_overrides_an_assumption_but_no_report() {
        for by in EACH {
            let (released, revision) = (released(by), fresh());
            let unknown = released.mark_unknown(&released, revision, LATER);
            let expected = match by {
                SettledBy::Assumption => {
                    let (cause, since) = (UnknownCause::PerhapsExecuted, LATER);
                    let state = State::Unknown { cause, since, reconcile_at: since, asked: 0, anew_at: None };
                    let last_failure = Some(Note::new("perhaps_executed"));
                    Some(Record { revision, last_failure, state, ..released.clone() })
                }
                _ => None,
            };
            assert_eq!(unknown.map(Record::from), expected, "{by:?}");
        }
        let record = reserved();
        let completed = record.complete(&record, fresh(), answer(), NOW).unwrap();
        let unknown = completed.mark_unknown(&record, fresh(), LATER);
        assert_eq!(unknown, None);
    }

    // T5
    #[test]
    fn an_unknown_overrides_another_attempts_release_unless_provider_or_operator_made_it() {
        let record = reserved();
        for by in EACH {
            let other = again(&released(SettledBy::Assumption));
            let other = other.unknown(fresh(), UnknownCause::LeaseExpired, LATER);
            let other = other.settle(Verdict::NotExecuted, by, fresh(), LATER).unwrap();
            let unknown = other.mark_unknown(&record, fresh(), LATER);
            // The provider and an operator settle the operation as a whole.
            let taken = matches!(by, SettledBy::Worker | SettledBy::Assumption);
            assert_eq!(unknown.is_some(), taken, "{by:?}");
            assert!(unknown.is_none() || unknown.unwrap().attempt == record.attempt);
            let anew = &Record { created_at: LATER.plus(RETAIN), ..record.clone() };
            assert!(other.mark_unknown(anew, fresh(), LATER).is_none());
        }
    }

    // T5
    #[test]
    fn an_unknown_overrides_anothers_unknown_and_keeps_the_earlier_start() {
        let record = reserved();
        let other = again(&released(SettledBy::Assumption));
        let other = other.unknown(fresh(), UnknownCause::LeaseExpired, LATER);
        let (revision, later) = (fresh(), LATER.plus(RETAIN));
        let unknown = other.mark_unknown(&record, revision, later).unwrap();
        let state = State::Unknown {
            cause: UnknownCause::PerhapsExecuted,
            since: later,
            reconcile_at: later,
            asked: 0,
            anew_at: None,
        };
        let (attempt, began_at) = (record.attempt, NOW);
        let last_failure = Some(Note::new("perhaps_executed"));
        assert_eq!(
            unknown,
            Transition::to(Record { revision, attempt, began_at, last_failure, state, ..other.clone() })
        );
        assert_eq!(unknown.release(other.attempt, fresh(), later), None);
        assert!(unknown.complete(&other, fresh(), answer(), later).is_some());
    }

    // T5: between the first worker's report and the second's release, no retry runs.
    #[test]
    fn a_contested_execution_that_did_nothing_leaves_the_operation_unknown() {
        let (record, other) = (reserved(), again(&released(SettledBy::Assumption)));
        let revision = fresh();
        let contested = other.contest(&record, Evidence::Perhaps, revision).unwrap();
        assert_eq!(
            contested,
            Transition::to(Record {
                revision,
                began_at: NOW,
                reported: Some(Evidence::Perhaps),
                ..other.clone()
            })
        );
        assert_eq!(contested.contest(&record, Evidence::Perhaps, fresh()), None, "once is enough");
        let released = contested.release(other.attempt, fresh(), LATER).unwrap();
        assert!(matches!(
            released.state,
            State::Unknown { cause: UnknownCause::Contested, since: LATER, .. }
        ));
        let extended = contested.extend(other.attempt, fresh(), LATER).unwrap();
        assert_eq!(extended.reported, Some(Evidence::Perhaps));
        let unknown = released.mark_unknown(&record, fresh(), LATER).unwrap();
        assert_eq!(released.reported, Some(Evidence::Perhaps));
        assert_eq!(unknown.reported, None, "what was reported is in the record now");
        assert!(contested.complete(&other, fresh(), answer(), LATER).is_some());
        // An effect weighs more, and stays.
        let effect = contested.contest(&record, Evidence::Effect, fresh()).unwrap();
        assert_eq!(effect.contest(&record, Evidence::Perhaps, fresh()), None);
        let released = effect.release(other.attempt, fresh(), LATER).unwrap();
        let unknown = released.mark_unknown(&record, fresh(), LATER).unwrap();
        assert_eq!((effect.reported, unknown.reported), (Some(Evidence::Effect), Some(Evidence::Effect)));
        // Its own is not contested.
        assert_eq!(other.contest(&other, Evidence::Perhaps, fresh()), None);
        let unknown = other.unknown(fresh(), UnknownCause::LeaseExpired, NOW);
        assert_eq!(unknown.contest(&record, Evidence::Perhaps, fresh()), None, "it is written over it");
    }

    // T5: its own execution did nothing, so the other's effect is the only one.
    #[test]
    fn a_contested_execution_stays_with_operators() {
        let (record, other) = (reserved(), again(&released(SettledBy::Assumption)));
        let contested: Record = other.contest(&record, Evidence::Perhaps, fresh()).unwrap().into();
        let unknown = contested.unknown(fresh(), UnknownCause::LeaseExpired, LATER);
        let escalated: Record = unknown.postpone(fresh(), 3, None, Timestamp::MAX, LATER).unwrap().into();
        let denied = escalated.release(other.attempt, fresh(), LATER).unwrap();
        let (cause, asked) = (UnknownCause::Contested, 3);
        let (since, reconcile_at) = (LATER, Timestamp::MAX);
        assert_eq!(denied.state, State::Unknown { cause, since, reconcile_at, asked, anew_at: None });
    }

    // T5: the execution whose word came last counts as the one that perhaps did it, so a third one's effect is a double.
    #[test]
    fn another_perhaps_over_an_escalated_effect_counts_anew() {
        let (record, other) = (reserved(), again(&released(SettledBy::Assumption)));
        let claimed: Record =
            other.unknown(fresh(), UnknownCause::Contested, NOW).claim(fresh(), NOW, NOW).unwrap().into();
        let escalated: Record = claimed.postpone(fresh(), 3, None, Timestamp::MAX, NOW).unwrap().into();
        let marked = escalated.mark_unknown(&record, fresh(), LATER).unwrap();
        let (cause, since) = (UnknownCause::PerhapsExecuted, LATER);
        let state = State::Unknown { cause, since, reconcile_at: Timestamp::MAX, asked: 3, anew_at: None };
        assert_eq!(
            (&marked.state, marked.attempt, marked.reported),
            (&state, record.attempt, Some(Evidence::Effect))
        );
    }

    // T42, T49
    #[test]
    fn a_completion_is_kept_as_long_as_its_worker_keeps_its_body() {
        let worker = &Record { retention: RETAIN * 2, ..released(SettledBy::Operator) };
        let mut released = released(SettledBy::Operator);
        (released.attempt, released.retention) = (worker.attempt, RETAIN * 9);
        let completed = released.complete(worker, fresh(), answer(), NOW).unwrap();
        assert_eq!(completed.state.expires_at(), Some(NOW.plus(RETAIN * 2)));
        assert_eq!(completed.retention, RETAIN * 2);
    }

    // T41
    #[test]
    fn an_unknown_begins_anew_with_each_sign_of_life() {
        let record = reserved();
        let lease_expired = record.unknown(fresh(), UnknownCause::LeaseExpired, NOW);
        let asked = lease_expired.postpone(fresh(), 3, None, LATER.plus(RETAIN), NOW).unwrap();
        let revision = fresh();
        let unknown = asked.mark_unknown(&record, revision, LATER).unwrap();
        let cause = UnknownCause::PerhapsExecuted;
        let reconcile_at = LATER.plus(RETAIN);
        let state = State::Unknown { cause, since: LATER, reconcile_at, asked: 3, anew_at: None };
        assert_eq!(
            unknown,
            Transition::to(Record {
                revision,
                last_failure: Some(Note::new("perhaps_executed")),
                state,
                ..asked.into()
            })
        );
    }

    #[test]
    fn a_release_ends_what_is_open_and_nothing_that_is_settled() {
        let record = reserved();
        let unknown = record.unknown(fresh(), UnknownCause::LeaseExpired, NOW);
        for open in [&record, &unknown] {
            let revision = fresh();
            let released = open.release(record.attempt, revision, LATER).unwrap();
            let state = State::FailedRetryable {
                failed_at: LATER,
                by: SettledBy::Worker,
                expires_at: LATER.plus(RETAIN),
            };
            let last_failure = Some(Note::new(NOT_EXECUTED));
            assert_eq!(released, Transition::to(Record { revision, last_failure, state, ..(*open).clone() }));
        }
        let late = released(SettledBy::Assumption);
        let again = late.release(late.attempt, fresh(), LATER);
        assert_eq!(again, None);
        let pending = accepted("k", NOW);
        let early = pending.release(pending.attempt, fresh(), NOW);
        assert_eq!(early, None);
    }

    // Over a record in progress, the release proves that the transaction never commits.
    #[test]
    fn a_transactional_release_is_certain_while_its_record_is_in_progress() {
        let transactional = Record { effects: Effects::InTransaction, ..reserved() };
        let unknown = transactional.unknown(fresh(), UnknownCause::PerhapsExecuted, NOW);
        for (open, by) in [
            (transactional, SettledBy::Certainty),
            (unknown, SettledBy::Worker),
            (reserved(), SettledBy::Worker),
        ] {
            let released = open.release(open.attempt, fresh(), LATER).unwrap();
            assert_eq!(released.state.settled_by(), Some(by), "{open:?}");
        }
    }

    // T13, T22, T42
    #[test]
    fn only_settled_records_expire_and_by_their_own_retention() {
        let record = Record { retention: RETAIN * 7, ..reserved() };
        let late = NOW.plus(RETAIN * 10);
        assert_eq!(record.state.expires_at(), None);
        assert_eq!(record.unknown(fresh(), UnknownCause::PerhapsExecuted, NOW).state.expires_at(), None);
        assert_eq!(accepted("k", NOW).state.expires_at(), None);
        let completed = record.complete(&record, fresh(), answer(), late).unwrap();
        assert_eq!(completed.state.expires_at(), Some(late.plus(RETAIN * 7)));
        assert!(!record.expired(Timestamp::from_secs(u64::MAX)), "a lease is no expiry");
        let reported = late.plus(RETAIN * 7);
        assert!(
            !completed.expired(reported)
                && !completed.expired(Timestamp::from_millis(reported.plus(CLOCK_SKEW).as_millis() - 1))
        );
        assert!(completed.expired(reported.plus(CLOCK_SKEW)));
    }

    #[test]
    fn what_never_began_is_absent_at_once_for_every_clock() {
        let record = reserved();
        for now in [NOW, Timestamp::from_millis(LATER.as_millis() + 1)] {
            let (revision, behind) = (fresh(), now.minus(CLOCK_SKEW * 2));
            let refused = record.not_begun(revision, now);
            assert_eq!((refused.state.name(), refused.revision), ("failed_retryable", revision));
            assert!(refused.is_not_begun() && refused.expired(behind), "{now:?}");
            assert_eq!(
                refused.state.expires_at().unwrap().as_millis() % 1000,
                0,
                "as a time to live keeps it"
            );
        }
        let released = record.release(record.attempt, fresh(), NOW).unwrap();
        assert!(!released.is_not_begun() && !record.is_not_begun());
    }

    // T5: the earlier execution may have done something for its request.
    #[test]
    fn a_later_execution_that_never_began_leaves_the_key_to_its_request() {
        let again = again(&released(SettledBy::Assumption));
        let (revision, now) = (fresh(), LATER);
        let refused = again.not_begun(revision, now);
        assert_eq!(refused, again.release(again.attempt, revision, now).unwrap());
        let contested = reserved();
        let other = &Record { attempt: AttemptId::mint(), ..contested.clone() };
        let contested = contested.contest(other, Evidence::Perhaps, fresh()).unwrap();
        assert_eq!(contested.not_begun(fresh(), now).state.name(), "unknown");
        let another = &Record { attempt: AttemptId::mint(), ..again.clone() };
        assert_eq!(Report::NotBegun.of(&again, another, fresh(), now), None);
    }

    // T17
    #[test]
    fn a_take_back_leaves_the_record_as_before_its_reservation() {
        let started =
            |record: &Record| Report::NotStarted.of(record, record, fresh(), LATER).map(Record::from);
        // Also if others have counted its worker as dead.
        for first in [reserved(), reserved().unknown(fresh(), UnknownCause::LeaseExpired, NOW)] {
            let absent = started(&first).unwrap();
            assert!(absent.is_not_begun() && absent.expired(NOW), "{absent:?}");
            assert_eq!((absent.attempts, started(&absent)), (0, None));
        }
        let second = again(&released(SettledBy::Assumption));
        let released = started(&second).unwrap();
        assert_eq!((released.state.settled_by(), released.attempts), (Some(SettledBy::Worker), 1));
        assert_eq!((again(&released).attempts, started(&released)), (2, None));
        assert_eq!(started(&second.unknown(fresh(), UnknownCause::PerhapsExecuted, NOW)), None);
        let certain = started(&Record { effects: Effects::InTransaction, ..second.clone() }).unwrap();
        assert_eq!(certain.state.settled_by(), Some(SettledBy::Certainty));
        // Nor another's.
        assert_eq!(Report::NotStarted.of(&second, &reserved(), fresh(), LATER), None);
    }

    // T17, T68
    #[test]
    fn a_claim_taken_back_changes_nothing_of_accepted_work() {
        let pending = accepted("k", NOW);
        let claimed = again(&pending);
        assert_eq!(claimed.accepted.map(|work| (work.tries, work.perhaps)), Some((1, 1)));
        let before = Record::from(Report::NotStarted.of(&claimed, &claimed, fresh(), LATER).unwrap());
        assert_eq!(
            (before.attempts, before.accepted, before.state),
            (0, pending.accepted, State::Pending { released_by: None })
        );
        // It was the last one that may begin, and an earlier one perhaps did something.
        let last = pending.accepted.map(|work| Accepted { max_attempts: 1, perhaps: 1, ..work });
        let last = again(&Record { attempts: 1, accepted: last, ..pending });
        let waits = Record::from(Report::NotStarted.of(&last, &last, fresh(), LATER).unwrap());
        let released_by = Some(SettledBy::Worker);
        assert_eq!((waits.attempts, &waits.state), (1, &State::Pending { released_by }));
        assert_eq!(waits.accepted.map(|work| (work.tries, work.perhaps)), Some((0, 1)));
    }

    // T53: what is reported, or noted of a phase, is of an execution that this record has not counted.
    #[test]
    fn a_take_back_over_what_is_known_besides_frees_no_key() {
        let reported = reserved().claim(fresh(), NOW, NOW).unwrap();
        let resumes = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
        let phase = Phase::new("charge".to_owned(), None, NOW);
        let noted = Record::reserve(&resumes, fresh(), NOW).note(&phase, fresh(), NOW).unwrap();
        for (known, state) in [(reported, "unknown"), (noted, "between_workers")] {
            let back = Record::from(Report::NotStarted.of(&known, &known, fresh(), LATER).unwrap());
            assert_eq!((back.state.name(), back.attempts), (state, 1));
            assert_eq!(Report::NotStarted.of(&back, &back, fresh(), LATER), None, "once is enough");
        }
    }

    #[test]
    fn a_heartbeat_never_shortens_a_lease() {
        let (record, revision) = (reserved(), fresh());
        let until = NOW.plus(RETAIN * 9);
        let extended = record.extend(record.attempt, revision, until).unwrap();
        let state = State::InProgress { lease_until: until };
        assert_eq!(extended, Transition::to(Record { revision, state, ..record.clone() }));
        let again = extended.extend(record.attempt, fresh(), NOW).unwrap();
        assert_eq!(again.state, extended.state);
    }

    // T41
    #[test]
    fn a_heartbeat_reclaims_a_record_expired_but_not_one_settled() {
        let (record, revision, until) = (reserved(), fresh(), NOW.plus(RETAIN));
        let lease_expired = record.unknown(fresh(), UnknownCause::LeaseExpired, NOW);
        let lease_expired = lease_expired.postpone(fresh(), 3, None, LATER, NOW).unwrap();
        let state = State::InProgress { lease_until: until };
        let claimed = lease_expired.extend(record.attempt, revision, until).unwrap();
        assert_eq!(claimed, Transition::to(Record { revision, state, ..lease_expired.into() }));
        let reported = record.unknown(fresh(), UnknownCause::PerhapsExecuted, NOW);
        for over in [reported, released(SettledBy::Assumption)] {
            assert_eq!(over.extend(over.attempt, fresh(), until), None, "{over:?}");
        }
    }

    #[test]
    fn failure_reason_and_origin_outlive_the_next_attempt() {
        let failure = |record: &Record| record.last_failure.as_ref().map(Note::to_string);
        let first = reserved();
        assert_eq!(
            (failure(&first), first.origin.as_ref().map(Note::as_str)),
            (None, Some("POST /payments"))
        );
        let unknown = first.mark_unknown(&first, fresh(), NOW).unwrap();
        assert_eq!(failure(&unknown).as_deref(), Some("perhaps_executed"));
        let unknown = unknown.failed(Some(Note::new("handler_failed, status 500")));
        let settled = unknown.settle(Verdict::NotExecuted, SettledBy::Operator, fresh(), LATER).unwrap();
        let settled = settled.because(Note::new("alex: asked the bank"));
        assert_eq!(settled.note.as_ref().map(Note::as_str), Some("alex: asked the bank"));
        // A front that reports no origin does not erase it.
        let again = settled.again(&ReservationRequest { origin: None, ..reservation("k") }, fresh(), LATER);
        assert_eq!(failure(&again).as_deref(), Some("handler_failed, status 500"));
        assert_eq!((again.origin.as_ref(), again.note.as_ref()), (first.origin.as_ref(), None));
        // Only a settled record says who settled it, and only a failed one says why.
        let same = Transition::to(first.clone());
        assert_eq!(same.clone().because(Note::new("unsettled")), same);
        assert_eq!(same.clone().failed(Some(Note::new("nothing"))), same);
    }

    // T55
    #[test]
    fn an_effect_without_its_rows_claims_no_later_generation() {
        let worker = &reserved();
        let unknown =
            again(&released(SettledBy::Assumption)).unknown(fresh(), UnknownCause::PerhapsExecuted, LATER);
        let claimed = Report::Uncommitted.of(&unknown, worker, fresh(), LATER).unwrap();
        assert_eq!((claimed.attempt, claimed.reported), (unknown.attempt, Some(Evidence::Effect)));
        assert_eq!(Report::Uncommitted.of(&claimed, worker, fresh(), LATER), None, "once is enough");
        let later = Record { created_at: LATER, ..unknown };
        assert_eq!(Report::Uncommitted.of(&later, worker, fresh(), LATER), None);
    }

    // T4, T7: any later write proved that its transaction did not commit.
    #[test]
    fn a_transactional_worker_completes_only_the_record_that_it_owns() {
        let record = Record { effects: Effects::InTransaction, ..reserved() };
        let worker = &record;
        let released = record.release(record.attempt, fresh(), NOW).unwrap();
        for later in [released.into(), record.unknown(fresh(), UnknownCause::LeaseExpired, NOW)] {
            assert_eq!(later.complete(worker, fresh(), answer(), NOW), None);
        }
        assert!(record.complete(worker, fresh(), answer(), NOW).is_some());
    }
}
