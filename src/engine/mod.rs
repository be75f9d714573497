//! Runs an operation once per key: reserves the key, lets the handler execute, records how it ended.
//!
//! 1. A front (HTTP, a function, a queue) turns what it received into a [`Request`]. The [`Executor`] knows no front.
//!    Each front does the next three.
//! 2. [`Executor::reserve`] takes the key, or reports what holds it: an answer, an execution in flight, another request, an
//!    unknown outcome.
//! 3. A successful reservation returns an [`Ownership`], which is finished once. Dropping it writes nothing: the record stays in
//!    progress until its lease has expired.
//! 4. [`Executor::finish`] writes the report. It is fenced: it never ends another execution that is in progress, nor changes a
//!    completed record. A report that cannot be written goes to a queue, and is applied from there under the same fence.
//! 5. Every change of a record goes through one loop, in `apply`. It turns a pure function on a record into a conditional write.
//! 6. An operation that resumes has phases, whose results are kept one by one: see [`Execution::phase`].
//!
//! HTTP, functions and queues are its entrances, and do more than it. Another one runs the handler between [`Executor::reserve`] and
//! [`Executor::finish`], and must see to what these cannot: that it runs to its end if its caller goes away (T35), that it goes no further once
//! its lease is over (T39), that the answer is one that the operation's callers can read, and that
//! [admission](crate::record::Admission) and tenant come from what was verified.
//!
//! Of all this, handlers see [`Execution`] or [`SingleTransaction`] alone. The engine does not settle unknown outcomes: see
//! [`reconcile`](crate::reconcile).

pub(crate) mod apply;
mod bodies;
mod breaker;
mod codec;
mod collected;
mod commit;
mod deferred_report;
mod delivery;
pub(crate) mod execution;
pub(crate) mod executor;
mod finish;
mod heartbeat;
mod keeping;
pub(crate) mod ownership;
mod phase;
mod phasing;
pub(crate) mod report;
pub(crate) mod reserve;
pub(crate) mod run;
mod sending;
pub(crate) mod single_transaction;
mod standing;
mod take_back;
#[cfg(test)]
pub(crate) mod tests;
mod to_its_end;

pub(crate) use crate::record::Moment;
pub(crate) use apply::{Applied, Change, Effort, Engine, Retries, Start, Step, Tried, Unapplied};
pub(crate) use bodies::Placed;
#[cfg(feature = "http")]
pub(crate) use bodies::body_in;
pub(crate) use commit::{completing, with_writes};
pub(crate) use delivery::Left;
pub use execution::Execution;
pub use executor::{Executor, Request};
pub use ownership::Ownership;
pub use phase::{CallError, Committed, Phase, PhaseError};
pub use report::Report;
pub use reserve::Replay;
pub use run::Replied;
pub(crate) use run::{Handled, LeaseOver};
pub use single_transaction::{Computed, SingleTransaction};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
