//! Why there is no report, by names that alarms and retries can distinguish.

use std::{error::Error, io};

use lambda_runtime::Diagnostic;
use ledgers::CompareError;
use payments::ProviderError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The input is not a job of this function.
    #[error("the input must be {{\"job\": \"compare\"}}, with or without a \"day\"")]
    MalformedInput,
    /// The input's day is invalid.
    #[error("\"day\" must be a day such as 2026-11-20")]
    MalformedDay,
    /// The table of payments or that of orders does not answer.
    #[error("our payments and orders could not be read to the end")]
    Ledger(#[source] Box<dyn Error + Send + Sync>),
    /// The provider does not answer.
    #[error("the provider's charges and refunds could not be read to the end")]
    Provider(#[source] ProviderError),
    /// A page of the provider leads back to one before it.
    #[error("the provider's charges or refunds never end: a page leads back to one before it")]
    Endless,
    /// There is no space for the entries of the day.
    #[error("the entries of the day could not be kept in temporary files")]
    Files(#[source] io::Error),
    /// The report cannot be written.
    #[error("the report could not be written")]
    Report(#[source] Box<dyn Error + Send + Sync>),
}

impl Failure {
    pub(crate) fn report(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Report(error.into())
    }

    /// The error type that Lambda reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MalformedInput => "MalformedInput",
            Self::MalformedDay => "MalformedDay",
            Self::Ledger(_) => "LedgerUnavailable",
            Self::Provider(_) | Self::Endless => "ProviderUnavailable",
            Self::Files(_) => "NoCapacity",
            Self::Report(_) => "ReportNotWritten",
        }
    }
}

impl From<CompareError<Failure>> for Failure {
    fn from(error: CompareError<Failure>) -> Self {
        match error {
            CompareError::Side(_, failure) => failure,
            CompareError::Spill(error) => Self::Files(error),
            CompareError::Report(error) => Self::report(error),
        }
    }
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        Self { error_type: failure.name().to_owned(), error_message: failure.to_string() }
    }
}
