//! The record of one operation, and its answer. All that decides about a record is in the crate `idempotency-protocol`, without I/O; the
//! [`engine`](crate::engine) carries it out.

mod answer;
mod phase;

pub use protocol::record::{
    Accepted, Admission, Alarm, AlarmKind, AnswerKind, AttemptId, BodyId, Effects, Evidence, Head, HoldError,
    KeptAnswer, KeptBody, MAX_PHASE_RESULTS, MAX_PHASES, Note, Phase, PhaseList, PhaseResult, Phases, Place,
    Record, Reference, Refusal, Resumes, Revision, Says, SettleError, SettledBy, Standing, State, StateName,
    UnknownCause, Work,
};
pub(crate) use protocol::record::{
    Counts, Deferred, Encoding, Ending, Found, HANDLER_FAILED, Instead, Keeping, Kept, Made, MessageNext,
    Moment, NOT_EXECUTED, Next, NotTaken, Report, ReservationRequest, Rows, SoFar, Step, Transition, Verdict,
    WorkerNext, Written, decide,
};

pub use crate::headers::{SAFE_HEADERS, may_be_kept};
pub use answer::Answer;
pub(crate) use answer::Keeps;
pub(crate) use phase::{phase_of, phase_result};

#[cfg(test)]
pub(crate) mod tests;
