//! The recovery points of an operation that resumes: what is known of its phases.
//!
//! A phase either makes one external call, or commits domain writes. Nothing is written before a call; its result is kept after
//! it. So a record never says that a call was begun by the execution that owns it. It says since when an *earlier* execution may
//! have begun the call that follows the last kept phase.
//!
//! 1. A kept phase belongs to the record, not to the execution that kept it.
//! 2. Only the handler knows what follows, so whoever takes the record over decides at each call: see [`Phases::next`].
//! 3. What others report of a phase is noted until the handler gets there.

use std::time::Duration;

use super::{Record, Revision, State, Transition};
use crate::{time::Timestamp, time_budget::CLOCK_SKEW};

/// How long all results of an operation's phases together may be, as JSON, in bytes. Duplicates read them, and each write of the
/// record writes them. A longer result is kept without its value: an execution that resumes has to ask for it.
pub const MAX_PHASE_RESULTS: usize = 2048;

/// How long a phase's name may be, in bytes.
const MAX_NAME: usize = 64;

/// What is known of the phases of an operation that resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Phases {
    /// How long after its last recovery point the record waits for a retry before it is escalated.
    pub resume_within: Duration,
    /// The phases that are kept, in the order in which the handler made them. Of a completed record: their names alone.
    pub kept: Vec<Phase>,
    /// Phases that others report, and that no handler has got to.
    pub noted: Vec<Phase>,
    /// Since when an earlier execution may have begun the call that follows the last kept phase; `None` if none has.
    pub begun: Option<Timestamp>,
}

/// A phase whose result is known.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// Without the result: it does not belong in logs.
#[debug("Phase({name:?})")]
#[non_exhaustive]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Its result, as JSON; `None` if it was too long to be kept.
    pub result: Option<String>,
    /// When it was kept or noted.
    pub at: Timestamp,
}

/// What a handler does about its next phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// It is kept, with this result.
    Kept(&'a str),
    /// It is not kept, but others report this result: it is kept without a call.
    Noted(&'a str),
    /// It is called, with the same downstream key as ever.
    Call,
    /// An earlier execution may have made the call, and the provider may have forgotten its key; or the result was too long to be
    /// kept. So the provider is asked.
    Ask,
    /// Another phase is kept in its place: the record was written by another version of the handler.
    Mismatch,
}

/// Why a record did not take the result of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It has the same result.
    Known,
    /// It has another result, or another phase in its place, or it is another request's, or is settled without this phase.
    Differs,
}

impl Phase {
    /// A phase of this result. A result that is too long is left out when the record takes it.
    pub(crate) const fn new(name: String, result: Option<String>, at: Timestamp) -> Self {
        Self { name, result, at }
    }

    /// Whether it has another result than `other`, as far as both are kept.
    fn differs(&self, other: &Self) -> bool {
        // The members of an object have no order.
        let json = |phase: &Self| {
            let result = phase.result.as_ref()?;
            Some(serde_json::from_str(result).unwrap_or(serde_json::Value::String(result.clone())))
        };
        json(self).zip(json(other)).is_some_and(|(ours, theirs)| ours != theirs)
    }

    /// Whether this can be the name of a phase: 1 to 64 letters, digits, `-`, `_` or `.`.
    pub(crate) fn is_name(name: &str) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_valid)
    }
}

impl Phases {
    /// Nothing is kept yet.
    pub(crate) const fn none(resume_within: Duration) -> Self {
        Self { resume_within, kept: Vec::new(), noted: Vec::new(), begun: None }
    }

    /// What a handler does about the phase of this name, its `place`-th, whose provider remembers keys for `keys_live`.
    ///
    /// `begun` is by another worker's clock, which may be ahead of ours.
    pub fn next(&self, place: usize, name: &str, keys_live: Duration, now: Timestamp) -> Next<'_> {
        if let Some(kept) = self.kept.get(place) {
            return match &kept.result {
                _ if kept.name != name => Next::Mismatch,
                Some(result) => Next::Kept(result),
                None => Next::Ask,
            };
        }
        match (self.noted.iter().find(|noted| noted.name == name), self.begun) {
            (Some(Phase { result: Some(result), .. }), _) => Next::Noted(result),
            (Some(_), _) => Next::Ask,
            (None, Some(begun)) if begun.plus(keys_live) <= now.plus(CLOCK_SKEW) => Next::Ask,
            (None, _) => Next::Call,
        }
    }

    /// Whether the record knows, or suspects, that a phase was made.
    fn has_any(&self) -> bool {
        !self.kept.is_empty() || !self.noted.is_empty() || self.begun.is_some()
    }

    /// The phase of this name, kept or noted.
    fn find(&self, name: &str) -> Option<&Phase> {
        self.kept.iter().chain(&self.noted).find(|phase| phase.name == name)
    }

    /// This phase, without its result if there is no room for it.
    fn fitted(&self, phase: Phase) -> Phase {
        let others = self.kept.iter().chain(&self.noted).filter(|other| other.name != phase.name);
        let used: usize = others.filter_map(|other| other.result.as_ref()).map(String::len).sum();
        let result = phase.result.filter(|result| used + result.len() <= MAX_PHASE_RESULTS);
        Phase { result, ..phase }
    }

    /// The names of the kept phases, for a completed record; `None` if there are none.
    pub(super) fn names(&self) -> Option<Self> {
        let named = |phase: &Phase| Phase { result: None, ..phase.clone() };
        let kept: Vec<_> = self.kept.iter().map(named).collect();
        (!kept.is_empty()).then(|| Self { kept, ..Self::none(self.resume_within) })
    }
}

impl Record {
    /// Whether the next execution continues behind what is known of earlier ones. Such a record is never released or free.
    pub(crate) fn is_resumed(&self) -> bool {
        self.phases.as_ref().is_some_and(Phases::has_any)
    }

    /// Whether the execution of `worker` still runs it: only then does its handler go on behind a phase.
    pub(crate) fn is_run_by(&self, worker: &Self) -> bool {
        self.attempt == worker.attempt && matches!(self.state, State::InProgress { .. })
    }

    /// Whether a phase is noted that no handler has got to.
    pub(super) fn has_noted(&self) -> bool {
        self.phases.as_ref().is_some_and(|phases| !phases.noted.is_empty())
    }

    /// Its phases, after an execution that may have begun the call that follows.
    pub(super) fn phases_after_a_call(&self) -> Option<Phases> {
        let begun =
            |phases: &Phases| Some(phases.begun.map_or(self.began_at, |begun| begun.min(self.began_at)));
        self.phases.as_ref().map(|phases| Phases { begun: begun(phases), ..phases.clone() })
    }

    /// No worker has it: the next retry resumes behind what is kept. If none comes in time, it is escalated.
    pub(super) fn between_workers(&self, phases: Option<Phases>, revision: Revision, now: Timestamp) -> Self {
        let within = phases.as_ref().map(|phases| phases.resume_within).unwrap_or_default();
        let points = phases.iter().flat_map(|phases| phases.kept.iter().chain(&phases.noted));
        let recovered_at = points.map(|phase| phase.at).fold(self.created_at, Timestamp::max);
        let state = State::BetweenWorkers { since: now, reconcile_at: recovered_at.plus(within) };
        Self { revision, settled_note: None, phases, state, ..self.clone() }
    }

    /// Keeps the result of a phase, the `place`-th of its handler, of the execution of `worker`. A worker that has lost the record
    /// keeps it too, while the phase is open. Only the record's owner goes on.
    ///
    /// # Errors
    /// If the record does not take it.
    pub(crate) fn keep(
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
        let phases = self.phases.as_ref().or(worker.phases.as_ref()).ok_or(NotTaken::Differs)?;
        if matches!(self.state, State::Completed { .. }) {
            let known = phases.kept.iter().any(|kept| kept.name == phase.name);
            return Err(if known { NotTaken::Known } else { NotTaken::Differs });
        }
        match phases.kept.get(place) {
            Some(kept) if kept.name == phase.name && !kept.differs(phase) => return Err(NotTaken::Known),
            Some(_) => return Err(NotTaken::Differs),
            None if place != phases.kept.len() => return Err(NotTaken::Differs),
            None => {}
        }
        if phases.noted.iter().any(|noted| noted.name == phase.name && noted.differs(phase)) {
            return Err(NotTaken::Differs);
        }
        let mut next = Phases { begun: None, ..phases.clone() };
        next.noted.retain(|noted| noted.name != phase.name);
        next.kept.push(next.fitted(phase.clone()));
        Ok(self.with_phases(next, revision, now))
    }

    /// Notes the result of a phase that a provider, a reconciler or an operator reports. It is used when a handler gets there.
    ///
    /// # Errors
    /// If the record does not take it.
    pub(crate) fn note(
        &self,
        phase: &Phase,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Transition, NotTaken> {
        let phases = self.phases.as_ref().ok_or(NotTaken::Differs)?;
        match phases.find(&phase.name) {
            Some(known) if known.differs(phase) => return Err(NotTaken::Differs),
            Some(_) => return Err(NotTaken::Known),
            None => {}
        }
        if matches!(self.state, State::Completed { .. } | State::Pending) {
            return Err(NotTaken::Differs);
        }
        let mut next = phases.clone();
        next.noted.push(next.fitted(phase.clone()));
        Ok(self.with_phases(next, revision, now))
    }

    /// The provider or an operator knows that the call which follows was not made, and will not be: the next retry makes it.
    pub(crate) fn nothing_follows(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let phases = Phases { begun: None, ..self.phases.clone()? };
        let (State::Unknown { since, .. } | State::BetweenWorkers { since, .. }) = self.state else {
            return None;
        };
        let state = State::BetweenWorkers { since, reconcile_at: now.plus(phases.resume_within) };
        Some(Transition::to(Self {
            revision,
            settled_note: None,
            phases: Some(phases),
            state,
            ..self.clone()
        }))
    }

    /// An operator lets a retry resume it, for as long again as its operation allows.
    pub(crate) fn resume(&self, revision: Revision, now: Timestamp) -> Option<Transition> {
        let within = self.phases.as_ref()?.resume_within;
        let State::BetweenWorkers { since, .. } = self.state else { return None };
        let state = State::BetweenWorkers { since, reconcile_at: now.plus(within) };
        Some(Transition::to(Self { revision, state, ..self.clone() }))
    }

    /// Nobody resumed it in time, or what is known of it cannot be true: an operator has to look at it.
    pub(crate) fn not_resumed(&self, revision: Revision) -> Option<Transition> {
        let State::BetweenWorkers { since, .. } = self.state else { return None };
        let state = State::BetweenWorkers { since, reconcile_at: Timestamp::MAX };
        Some(Transition::to(Self { revision, state, ..self.clone() }))
    }

    /// A worker keeps the record; otherwise the next retry resumes it.
    fn with_phases(&self, phases: Phases, revision: Revision, now: Timestamp) -> Transition {
        Transition::to(match self.state {
            State::InProgress { .. } => Self { revision, phases: Some(phases), ..self.clone() },
            _ => self.between_workers(Some(phases), revision, now),
        })
    }
}
