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
        report::Report,
        reserve::Replay,
        run::Replied,
        single_transaction::Computed,
    },
    error_chain::error_chain,
    operator::{
        Correction, CorrectionError, Message, MessageSummary, Operator, PhaseCorrectionError, ReportBeside,
        ReportSummary,
    },
    stale::{CheckOutcome, Stale},
};
pub use protocol::{
    fingerprint::{Fingerprint, Fingerprints},
    key::Scope,
    record::{Admission, HoldError, Refusal, SettleError},
};

/// What the caller of a request is told.
pub type Says = protocol::record::Says<Replay>;
