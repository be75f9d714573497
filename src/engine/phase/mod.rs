//! Phases: an operation that resumes behind what is kept.
//!
//! 1. A phase either makes one external call ([`Execution::phase`]), or commits domain writes ([`Execution::commit`]).
//! 2. Its result is kept in the record: a *recovery point*. An execution that takes the record over runs the handler from its
//!    top; each kept phase answers at once.
//! 3. Nothing is written before a call. So whether an earlier execution made a call that is not kept is decided when the handler
//!    gets there: it is made again with the same key while the provider remembers that key, else the provider is asked, else the
//!    outcome is unknown.
//! 4. An error of a phase is final for its execution: the handler's answer is not kept then, and a retry resumes.
//!
//! What a kept phase does to the record is in `record/phase.rs`.

mod call;
mod error;
mod keep;
mod opened;

pub use call::Phase;
pub use error::{CallError, PhaseError};
pub use keep::Committed;
