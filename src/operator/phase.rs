//! Corrections of single phases of an operation that resumes.

use serde::de::IgnoredAny;

use super::error::{CorrectionError, PhaseCorrectionError};
use crate::{
    record::{NotTaken, Phase, Phases, Record, Revision, SettleError, State, Transition, phase_of},
    time::Timestamp,
};

/// The record with the result of a phase.
pub(super) fn executed(
    seen: &Record,
    name: &str,
    result: &str,
    revision: Revision,
    now: Timestamp,
) -> Result<Transition, CorrectionError> {
    let open = open(seen, name, revision, now)?;
    serde_json::from_str::<IgnoredAny>(result).map_err(|_| PhaseCorrectionError::NotJson)?;
    let phase = phase_of(name.to_owned(), Some(result.to_owned()), now);
    let next = open.note(&phase, revision, now).map_err(|not_taken| match not_taken {
        NotTaken::Known if is_without_result(&open, name) => PhaseCorrectionError::TooLong,
        NotTaken::Known => PhaseCorrectionError::Known,
        NotTaken::Differs => PhaseCorrectionError::Differs,
    })?;
    // A handler that has to ask would not get what the operator knows.
    let noted = next.phases().into_iter().flat_map(|phases| &phases.noted).find(|noted| noted.name == name);
    match noted.is_some_and(|noted| noted.result.is_some()) {
        true => Ok(next),
        false => Err(PhaseCorrectionError::TooLong.into()),
    }
}

/// The record of which the phase that follows was not executed.
pub(super) fn not_executed(
    seen: &Record,
    name: &str,
    revision: Revision,
    now: Timestamp,
) -> Result<Transition, CorrectionError> {
    let open = open(seen, name, revision, now)?;
    let phases = open.phases().ok_or(PhaseCorrectionError::NoPhases)?;
    if known(phases).any(|known| known.name == name) {
        return Err(PhaseCorrectionError::Known.into());
    }
    // Nothing may be open, but only a deployment of its own phases resumes it: the operator's word lets any do so.
    if phases.begun.is_none()
        && phases.declared.is_none()
        && matches!(open.state, State::BetweenWorkers { .. })
    {
        return Err(PhaseCorrectionError::NothingOpen.into());
    }
    open.nothing_is_open(revision, now).ok_or(PhaseCorrectionError::NothingOpen.into())
}

/// The record, if it is not settled and no worker is alive. The lease of a dead worker ends with the correction.
fn open(seen: &Record, name: &str, revision: Revision, now: Timestamp) -> Result<Record, CorrectionError> {
    match seen.state {
        State::Pending { .. } => return Err(SettleError::Pending.into()),
        State::Completed { .. } | State::FailedRetryable { .. } => {
            return Err(SettleError::Settled(seen.state.name()).into());
        }
        State::InProgress { lease_until } if now < lease_until => return Err(SettleError::InFlight.into()),
        State::InProgress { .. } | State::Unknown { .. } | State::BetweenWorkers { .. } => {}
    }
    if seen.phases().is_none() {
        return Err(PhaseCorrectionError::NoPhases.into());
    }
    if !Phase::is_name(name) {
        return Err(PhaseCorrectionError::Name.into());
    }
    Ok(seen.expire(revision, now).map_or_else(|| seen.clone(), Record::from))
}

/// Whether it knows this phase, and not its result.
fn is_without_result(open: &Record, name: &str) -> bool {
    let mut known = open.phases().into_iter().flat_map(known).filter(|known| known.name == name);
    known.all(|known| known.result.is_none())
}

fn known(phases: &Phases) -> impl Iterator<Item = &Phase> {
    phases.kept.iter().chain(&phases.noted)
}
