//! For the packages of this repository only: the command line, the functions, the local cloud, tests and benchmarks.
//! Everything here may change in any version.

pub mod terminal;

#[cfg(feature = "lambda")]
pub use crate::lambda::{
    deferred_reports::DeferredReports,
    reconcile::reconcile_event,
    run::http_event,
    stale::stale_event,
    trigger::{BatchFailures, Event},
};
pub use crate::{
    backoff::Backoff,
    engine::{
        executor::{Executor, Request},
        ownership::Ownership,
        report::{FinishOutcome, Report},
        reserve::{Replay, ReserveOutcome},
        single_transaction::{Computed, SingleTransactionOutcome},
    },
    error_chain::error_chain,
    operator::{Correction, CorrectionError, Message, MessageSummary, Operator, PhaseCorrectionError},
    stale::{CheckOutcome, Stale},
};
pub use protocol::{
    fingerprint::{Fingerprint, Fingerprints},
    key::Scope,
    record::{Admission, HoldError, Refusal, SettleError},
};
