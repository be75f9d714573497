//! Decides what a caller may do if its key already has a record: one pure function.

use std::time::Duration;

use super::{
    Admission, AnswerKind, AttemptId, Effects, Evidence, Found, Note, Record, Resumes, Revision, Says,
    Standing, State, Transition, UnknownCause, Work,
};
use crate::{fingerprint::Fingerprints, key::RecordKey, time::Timestamp};

/// A caller's request to execute an operation.
#[derive(Clone, derive_more::Debug)]
pub struct ReservationRequest {
    /// Tenant, operation and idempotency key.
    pub key: RecordKey,
    /// What tells a retry from another request.
    pub fingerprints: Fingerprints,
    /// The kind of answer that the caller reads.
    pub answer_kind: AnswerKind,
    /// The execution that the caller would run.
    pub attempt: AttemptId,
    /// Until when it would own the record.
    pub lease_until: Timestamp,
    /// How long the record is to be kept once it is settled.
    pub retention: Duration,
    /// Whether an execution may begin. If not, it only gets the current record's answer.
    pub admission: Admission,
    /// How its tenant stands.
    pub standing: Standing,
    /// Whether an execution may begin again, from its beginning, if its worker is dead.
    pub may_run_again: bool,
    /// Where all effects of the execution are, and how the operation resumes if they are in its phases.
    pub effects: Effects<Resumes>,
    /// When it is executed.
    pub work: Work,
    /// The method and route of the request.
    #[debug(skip)]
    pub origin: Option<Note>,
}

impl ReservationRequest {
    /// A request over HTTP that is admitted for good, and executed at once, and once.
    pub const fn new(
        key: RecordKey,
        fingerprints: Fingerprints,
        attempt: AttemptId,
        lease_until: Timestamp,
        retention: Duration,
    ) -> Self {
        Self {
            key,
            fingerprints,
            answer_kind: AnswerKind::Http,
            attempt,
            lease_until,
            retention,
            admission: Admission::ALWAYS,
            standing: Standing::Within,
            may_run_again: false,
            effects: Effects::Anywhere,
            work: Work::Now,
            origin: None,
        }
    }
}

/// Decides what `reservation` may do about the record that its key has, if there is one. If an execution may begin: the record of
/// it, with this `revision`.
///
/// In this order, because each step protects the next:
/// 1. A settled record that has expired counts as absent: the reservation request starts anew.
/// 2. Another request under the same key is refused, in every state. A worker's claim is compared by the id of its request instead.
/// 3. A completed operation is replayed; a released one is taken over.
/// 4. A live lease is respected. An expired one is handled as the operation is configured, unless an effect has been reported. If
///    all effects are in the worker's transaction, the record is taken over, and that transaction can no longer commit.
/// 5. A record with phases is resumed, unless this deployment's operation does not resume, or declares other phases, or its worker died
///    over a reported effect.
/// 6. What was accepted is taken over by its worker alone: a client waits for it, whatever has become of the worker.
/// 7. A reservation request whose [admission](Admission) does not let it begin gets the record's answer, and takes nothing over, but for
///    what is only resumed (T43). So it is if operators have [stopped](Standing) its tenant. A tenant that is over a bound begins nothing
///    without a record (T86).
pub fn decide(
    existing: Option<&Record>,
    reservation: &ReservationRequest,
    revision: Revision,
    now: Timestamp,
) -> Result<Transition, Found> {
    let admitted = reservation.admission.begins(now);
    let Some(existing) = existing.filter(|existing| !existing.expired(now)) else {
        return match (reservation.work, admitted.and_then(|()| reservation.standing.begins())) {
            (Work::Claimed(_), _) => Err(Says::Gone.into()),
            (_, Err(says)) => Err(says.into()),
            (Work::Now, _) => Ok(Transition::to(Record::reserve(reservation, revision, now))),
            (Work::Later { claim_by, max_attempts }, _) => {
                Ok(Transition::to(Record::accept(reservation, claim_by, max_attempts, revision, now)))
            }
        };
    };
    let begins = admitted.and_then(|()| match reservation.work {
        Work::Claimed(_) => reservation.standing.begins_work(),
        Work::Now | Work::Later { .. } => reservation.standing.begins_again(),
    });
    match reservation.work {
        // A worker executes what its message asks for, and nothing else. A message of an earlier life of the key is no mismatch.
        Work::Claimed(request) if existing.accepted.map(|accepted| accepted.request) != Some(request) => {
            return Err(Says::Gone.into());
        }
        // The id says more than a fingerprint, which may be by a former rule.
        Work::Claimed(_) => {}
        Work::Now | Work::Later { .. } => match reservation.fingerprints.matches(&existing.fingerprint) {
            Some(true) => {}
            Some(false) => return Err(Says::Mismatch.into()),
            None => return Err(Says::Unreadable.into()),
        },
    }
    let found = || Found::Says(Says::of(existing, now));
    let unknown = || Found::Says(Says::Unknown { wait: existing.wait(now) });
    let dead_worker = || existing.expire(revision, now).map_or_else(found, Found::Ends);
    // A custom rule may leave out what tells a function from a request. Neither could read the other's answer.
    if existing.answer_kind != reservation.answer_kind {
        return Err(Says::Mismatch.into());
    }
    // What was accepted is executed by its worker alone.
    if matches!(reservation.work, Work::Now | Work::Later { .. }) && existing.accepted.is_some() {
        return Err(found());
    }
    // It was executed at once until now: only what is released is accepted, or is released by the write that accepts it.
    if let Work::Later { claim_by, max_attempts } = reservation.work {
        let undone = existing.expire(revision, now).filter(|_| existing.is_undone_by_the_next_write());
        let released = undone.as_deref().unwrap_or(existing);
        let accepted = released.accept_again(claim_by, max_attempts, revision);
        return match (accepted, &existing.state) {
            (_, State::Completed { .. }) => Err(found()),
            (Some(accepted), _) => Ok(begins.map(|()| accepted)?),
            (None, State::InProgress { .. }) => Err(dead_worker()),
            (None, _) => Err(unknown()),
        };
    }
    let take_over = || Ok(Transition::to(existing.again(reservation, revision, now)));
    let is_over = existing.attempts_are_over();
    let may_run_again = !is_over
        && reservation.may_run_again
        && begins.is_ok()
        && existing.reported != Some(Evidence::Effect)
        && existing.phases().is_none();
    let declared = reservation.effects.phases();
    let resumes = declared.is_some() && existing.phases().is_some();
    let declares_others = declared.is_some_and(|resumes| existing.has_others_than(resumes.list));
    match &existing.state {
        State::Completed { .. } => Err(found()),
        State::FailedRetryable { .. } => begins.map_err(Found::Says).and_then(|()| take_over()),
        // The stale function found the dead worker first: the operation's configuration still applies.
        State::Unknown { cause: UnknownCause::LeaseExpired, .. } if may_run_again => take_over(),
        State::BetweenWorkers { .. } if declares_others => Err(Says::OtherPhases.into()),
        State::BetweenWorkers { .. } if resumes => take_over(),
        State::Unknown { .. } | State::BetweenWorkers { .. } => Err(unknown()),
        State::Pending { .. } => match existing.abandon(revision, now) {
            Some(ended) => Err(Found::Ends(ended)),
            None => begins.map_err(Found::Says).and_then(|()| take_over()),
        },
        State::InProgress { lease_until } if now < *lease_until => Err(found()),
        State::InProgress { .. } if declares_others && existing.may_end_without_effect() => {
            Err(Says::OtherPhases.into())
        }
        State::InProgress { .. } if may_run_again || resumes && existing.may_end_without_effect() => {
            take_over()
        }
        // The take-over proves that the dead worker's transaction has not committed, and never will.
        State::InProgress { .. } if begins.is_ok() && !is_over && existing.is_undone_by_the_next_write() => {
            take_over()
        }
        State::InProgress { .. } => Err(dead_worker()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::{
        AttemptId, Phase, PhaseResult, Refusal,
        admission::tests::refused,
        tests::{accepted, answer, reservation, reservation_for, resuming},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const LATER: Timestamp = Timestamp::from_secs(1_000_000);

    /// What is decided, in one word.
    fn word(decision: &Result<Transition, Found>) -> &'static str {
        match decision {
            Ok(_) => "begins",
            Err(Found::Ends(_)) => "ends",
            Err(Found::Says(says)) => says.name(),
        }
    }

    /// A retry of an operation that may, or may not, run again if its worker is dead.
    fn retry(may_run_again: bool) -> ReservationRequest {
        ReservationRequest { may_run_again, ..reservation("k") }
    }

    /// Interrupted behind a phase.
    fn between_workers() -> Record {
        let resumes = ReservationRequest { effects: resuming(Duration::from_secs(60)), ..reservation("k") };
        let reserved = Record::reserve(&resumes, Revision::mint(), NOW);
        let charge = Phase::new("charge".into(), Some(PhaseResult::new("1".into(), "1")), NOW);
        let kept: Record = reserved.keep(&reserved, 0, &charge, Revision::mint(), NOW).unwrap().into();
        kept.release(kept.attempt, Revision::mint(), NOW).unwrap().into()
    }

    /// One record in each state, all of the same request.
    fn in_each_state() -> Vec<Record> {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let owner = reserved.attempt;
        vec![
            accepted("k", NOW),
            reserved.complete(&reserved, Revision::mint(), answer(), NOW).unwrap().into(),
            reserved.release(owner, Revision::mint(), NOW).unwrap().into(),
            reserved.mark_unknown(&reserved, Revision::mint(), NOW).unwrap().into(),
            between_workers(),
            reserved,
        ]
    }

    // T14
    #[test]
    fn another_request_under_the_same_key_is_a_mismatch_in_every_state() {
        for record in in_each_state() {
            let decision = decide(Some(&record), &reservation_for("k", "other"), Revision::mint(), NOW);
            assert_eq!(word(&decision), "mismatch", "{}", record.state.name());
        }
        // Also once the lease has expired.
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let decision = decide(Some(&reserved), &reservation_for("k", "other"), Revision::mint(), LATER);
        assert_eq!(word(&decision), "mismatch");
    }

    #[test]
    fn a_function_and_a_request_are_never_one() {
        let of_function = ReservationRequest { answer_kind: AnswerKind::Function, ..reservation("k") };
        for record in in_each_state() {
            let decision = decide(Some(&record), &of_function, Revision::mint(), NOW);
            assert_eq!(word(&decision), "mismatch", "{}", record.state.name());
        }
    }

    // T12
    #[test]
    fn a_settled_record_past_its_time_is_absent_whatever_was_asked() {
        for record in in_each_state().into_iter().filter(|record| record.state.expires_at().is_some()) {
            for reservation in [reservation("k"), reservation_for("k", "other")] {
                let Ok(next) = decide(Some(&record), &reservation, Revision::mint(), LATER) else {
                    panic!("an expired {} was not absent", record.state.name());
                };
                assert_eq!((next.attempts, next.created_at, next.began_at), (1, LATER, LATER));
                assert_eq!(next.fingerprint, reservation.fingerprints.current());
            }
        }
    }

    #[test]
    fn a_released_record_is_taken_over_as_one_more_attempt() {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let released = reserved.release(reserved.attempt, Revision::mint(), NOW).unwrap();
        let (reservation, revision) = (reservation("k"), Revision::mint());
        let Ok(next) = decide(Some(&released), &reservation, revision, NOW) else {
            panic!("not taken over");
        };
        assert_eq!((next.attempt, next.attempts, next.revision), (reservation.attempt, 2, revision));
        assert_eq!(next.created_at, reserved.created_at);
    }

    #[test]
    fn a_lease_that_is_over_is_treated_as_the_operation_chose() {
        let record = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let decision = decide(Some(&record), &reservation("k"), Revision::mint(), LATER);
        assert_eq!(word(&decision), "ends");
        let reservation = retry(true);
        // Whether this caller finds the dead worker, or the stale function did before.
        let found_stale = record.expire(Revision::mint(), LATER).unwrap();
        for record in [&record, &found_stale] {
            let decision = decide(Some(record), &reservation, Revision::mint(), LATER);
            let Ok(next) = decision else { panic!("not taken over: {decision:?}") };
            assert_eq!(next.attempt, reservation.attempt);
        }
    }

    // T53: the stale function, which may come first, finds it contested.
    #[test]
    fn nothing_resumes_over_an_effect_of_another_execution() {
        let resumes = ReservationRequest { effects: resuming(Duration::from_secs(60)), ..reservation("k") };
        let dead = Record::reserve(&resumes, Revision::mint(), NOW);
        let begins = |record: &Record| word(&decide(Some(record), &resumes, Revision::mint(), LATER));
        assert_eq!(begins(&dead), "begins");
        for reported in Evidence::EACH.iter().copied() {
            let marked = Record { reported: Some(reported), ..dead.clone() };
            assert_eq!(begins(&marked), "ends");
            assert_eq!(begins(&marked.expire(Revision::mint(), LATER).unwrap()), "unknown");
        }
    }

    // T28
    #[test]
    fn a_live_lease_is_respected_to_its_last_millisecond() {
        let record = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let State::InProgress { lease_until } = record.state else { panic!("not in progress") };
        let just_before = Timestamp::from_millis(lease_until.as_millis() - 1);
        for may_run_again in [false, true] {
            let at = |now| decide(Some(&record), &retry(may_run_again), Revision::mint(), now);
            assert_eq!(word(&at(just_before)), "in_flight");
            assert_ne!(word(&at(lease_until)), "in_flight");
        }
    }

    #[test]
    fn every_record_that_is_to_be_written_has_the_fresh_revision() {
        for (may_run_again, expected) in [(false, 2), (true, 3)] {
            let mut written = 0;
            for record in in_each_state() {
                let revision = Revision::mint();
                if let Ok(next) = decide(Some(&record), &retry(may_run_again), revision, LATER) {
                    assert_eq!(next.revision, revision, "{}", record.state.name());
                    written += 1;
                }
            }
            assert_eq!(written, expected);
        }
    }

    // T36
    #[test]
    fn a_rule_that_this_version_does_not_know_is_no_mismatch() {
        let mut record = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        record.fingerprint = crate::fingerprint::Fingerprint::new(99, *record.fingerprint.digest());
        let decision = decide(Some(&record), &reservation("k"), Revision::mint(), NOW);
        assert_eq!(word(&decision), "unreadable");
    }

    #[test]
    fn an_unknown_outcome_blocks_retries_unless_an_expired_lease_may_run_again() {
        for cause in UnknownCause::EACH.iter().copied() {
            let unknown = Record::reserve(&reservation("k"), Revision::mint(), NOW).unknown(
                Revision::mint(),
                cause,
                NOW,
            );
            for may_run_again in [false, true] {
                let decision = decide(Some(&unknown), &retry(may_run_again), Revision::mint(), LATER);
                // An expired lease is the one cause that the operation configures.
                if cause == UnknownCause::LeaseExpired && may_run_again {
                    assert!(decision.is_ok(), "{cause:?} {may_run_again}");
                } else {
                    assert_eq!(word(&decision), "unknown", "{cause:?} {may_run_again}");
                }
            }
        }
    }

    // T43
    #[test]
    fn an_old_key_gets_its_record_and_begins_nothing() {
        for may_run_again in [false, true] {
            let old = ReservationRequest { admission: refused(), ..retry(may_run_again) };
            let decided = |record: &Record, now| word(&decide(Some(record), &old, Revision::mint(), now));
            let lease_expired = Record::reserve(&reservation("k"), Revision::mint(), NOW).unknown(
                Revision::mint(),
                UnknownCause::LeaseExpired,
                NOW,
            );
            assert_eq!(decided(&lease_expired, LATER), "unknown", "{may_run_again}");
            for record in in_each_state() {
                let (live, late) = match record.state {
                    State::Pending { .. } => ("in_flight", "in_flight"),
                    State::InProgress { .. } => ("in_flight", "ends"),
                    State::Completed { .. } => ("replay", "too_old"),
                    State::FailedRetryable { .. } => ("too_old", "too_old"),
                    State::Unknown { .. } | State::BetweenWorkers { .. } => ("unknown", "unknown"),
                };
                assert_eq!((decided(&record, NOW), decided(&record, LATER)), (live, late), "{may_run_again}");
            }
        }
        let other = ReservationRequest { admission: refused(), ..reservation_for("k", "other") };
        for record in in_each_state() {
            let decision = decide(Some(&record), &other, Revision::mint(), NOW);
            assert_eq!(word(&decision), "mismatch", "{}", record.state.name());
        }
    }

    // T3
    #[test]
    fn a_new_invocation_does_not_own_an_earlier_invocations_record() {
        let record = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        // Not even if it had the same attempt id.
        for attempt in [AttemptId::mint(), record.attempt] {
            let redelivered = ReservationRequest { attempt, ..reservation("k") };
            let decision = decide(Some(&record), &redelivered, Revision::mint(), NOW);
            assert_eq!(word(&decision), "in_flight");
        }
    }

    // T46: not even if the operation says that its effect may be repeated.
    #[test]
    fn a_reported_effect_stops_an_operation_that_may_run_again() {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let reported = reserved.claim(Revision::mint(), NOW, NOW).unwrap();
        let expired = reported.expire(Revision::mint(), LATER).unwrap();
        let at_last = |record| decide(Some(record), &retry(true), Revision::mint(), LATER);
        assert_eq!(word(&at_last(&reported)), "ends");
        assert_eq!(word(&at_last(&expired)), "unknown");
    }

    // T43: the take-over would prove that nothing was done, but it would also begin.
    #[test]
    fn an_old_key_takes_over_no_dead_transactional_worker() {
        let transactional = ReservationRequest { effects: Effects::InTransaction, ..reservation("k") };
        let record = Record::reserve(&transactional, Revision::mint(), NOW);
        let decided = |admission| {
            let request = ReservationRequest { admission, ..transactional.clone() };
            decide(Some(&record), &request, Revision::mint(), LATER)
        };
        assert!(decided(Admission::ALWAYS).is_ok());
        assert_eq!(word(&decided(refused())), "ends");
        assert_eq!(word(&decided(Admission::Admitted { begin_by: Some(NOW) })), "ends");
    }

    // T43
    #[test]
    fn what_was_admitted_long_ago_begins_nothing_and_gets_its_record() {
        let late =
            ReservationRequest { admission: Admission::Admitted { begin_by: Some(NOW) }, ..reservation("k") };
        let at = |record: Option<&Record>, now| decide(record, &late, Revision::mint(), now);
        assert!(at(None, NOW).is_ok());
        let now = NOW.plus(Duration::from_millis(1));
        assert_eq!(word(&at(None, now)), "too_late");
        for record in in_each_state() {
            let found = match record.state {
                State::Completed { .. } => "replay",
                State::FailedRetryable { .. } => "too_late",
                State::BetweenWorkers { .. } | State::Unknown { .. } => "unknown",
                State::Pending { .. } | State::InProgress { .. } => "in_flight",
            };
            assert_eq!(word(&at(Some(&record), now)), found, "{}", record.state.name());
        }
        // What is accepted begins too.
        let accepts = ReservationRequest { work: Work::Later { claim_by: LATER, max_attempts: 1 }, ..late };
        let released = in_each_state().remove(2);
        for record in [None, Some(&released)] {
            assert_eq!(word(&decide(record, &accepts, Revision::mint(), now)), "too_late");
        }
    }

    // T43: its first request may be about to insert its reservation, or to take the record over.
    #[test]
    fn an_old_key_that_another_may_have_admitted_is_in_flight() {
        let Admission::Refused(refusal) = refused() else { unreachable!() };
        let lately = Admission::Refused(Refusal { perhaps_in_flight: true, ..refusal });
        let old = ReservationRequest { admission: lately, ..reservation("k") };
        let released = in_each_state().remove(2);
        for record in [None, Some(&released)] {
            assert_eq!(word(&decide(record, &old, Revision::mint(), NOW)), "in_flight");
        }
    }

    /// What each record of [`in_each_state`] is decided to be for a request of a tenant that stands so; first, if there is none.
    fn decided(request: &ReservationRequest, standing: Standing, now: Timestamp) -> Vec<&'static str> {
        let request = ReservationRequest { standing, ..request.clone() };
        let records = in_each_state();
        let records = records.iter().map(Some);
        let decided = |record: Option<&Record>| word(&decide(record, &request, Revision::mint(), now));
        // First without a record.
        [None].into_iter().chain(records).map(decided).collect()
    }

    // T86
    #[test]
    fn a_bound_is_asked_only_where_there_is_no_record() {
        let over = Standing::Over(Duration::from_secs(5));
        let later = Work::Later { claim_by: LATER, max_attempts: 1 };
        let resumes = ReservationRequest { effects: resuming(Duration::from_secs(60)), ..retry(false) };
        for request in
            [retry(false), retry(true), resumes, ReservationRequest { work: later, ..retry(false) }]
        {
            let (within, over) = (decided(&request, Standing::Within, NOW), decided(&request, over, NOW));
            assert_eq!((within[0], over[0]), ("begins", "over_bound"));
            assert_eq!(within[1..], over[1..]);
            assert!(over[1..].contains(&"begins"), "a retry of what was released: {over:?}");
        }
        // A record that is over is none.
        let completed = in_each_state().remove(1);
        let request = ReservationRequest { standing: over, ..retry(false) };
        assert_eq!(word(&decide(Some(&completed), &request, Revision::mint(), LATER)), "over_bound");
    }

    #[test]
    fn of_a_stopped_tenant_only_what_is_interrupted_goes_on() {
        // None, pending, completed, released, unknown, between workers, in progress.
        let settled = ["stopped", "in_flight", "replay", "stopped", "unknown"];
        let resumes = ReservationRequest { effects: resuming(Duration::from_secs(60)), ..retry(false) };
        for standing in [Standing::Stopped, Standing::WorkStopped] {
            let of = |request: &ReservationRequest| decided(request, standing, NOW);
            assert_eq!(of(&retry(true)), [&settled[..], &["unknown", "in_flight"]].concat());
            assert_eq!(of(&resumes), [&settled[..], &["begins", "in_flight"]].concat());
            // A dead worker's operation does not run from its beginning, even if that does no harm.
            let late = decided(&retry(true), standing, LATER);
            assert_eq!(late.last(), Some(&"ends"));
            assert_eq!(decided(&retry(true), Standing::Within, LATER).last(), Some(&"begins"));
        }
    }

    #[test]
    fn accepted_work_waits_if_operators_have_stopped_it_too() {
        let pending = accepted("k", NOW);
        let claim = ReservationRequest {
            work: Work::Claimed(pending.accepted.expect("accepted").request),
            ..reservation("k")
        };
        let claimed = |standing| {
            let claim = ReservationRequest { standing, ..claim.clone() };
            word(&decide(Some(&pending), &claim, Revision::mint(), NOW))
        };
        let over = Standing::Over(Duration::from_secs(5));
        let claims = [Standing::Within, over, Standing::Stopped, Standing::WorkStopped].map(claimed);
        assert_eq!(claims, ["begins", "begins", "begins", "stopped"]);
    }
}
