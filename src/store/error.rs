//! The errors of stores.

use std::error::Error;

/// The outcome of a call of a store.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The kind of a store's error. It says whether the write may have been applied, and whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store did not answer, or failed. The write may have been applied.
    #[error("the store is unavailable")]
    Unavailable,
    /// Requests for the key or the table are throttled. An earlier try may have been applied.
    #[error("the store throttles requests")]
    Throttled,
    /// The item is part of a transaction in flight, or other writers change it before every try. Not written.
    #[error("the record is in a transaction, or others keep changing it")]
    Contended,
    /// An earlier try of the same transaction is still being applied. It may have been applied.
    #[error("an earlier try of the transaction is in progress")]
    InProgress,
    /// Credentials or signature are refused: they have expired, such as while the process was frozen, or are wrong. This try was not
    /// applied; an earlier one may have been.
    #[error("the store refuses the credentials")]
    Unauthenticated,
    /// The current item is not a record that this version can read. Not written.
    #[error("the record cannot be read")]
    Unreadable,
    /// The store refuses the request: there is no such table, or a permission is missing. Not written, and no retry helps.
    #[error("the store refuses the request")]
    Refused,
}

impl StoreErrorKind {
    /// Whether others hold the record, or our own earlier try does: a store that says so does not fail.
    pub(crate) fn is_contention(self) -> bool {
        matches!(self, Self::Contended | Self::InProgress)
    }

    /// Whether this try may have been applied, or an earlier one that the store's own client has made.
    pub(crate) const fn leaves_open(self) -> bool {
        self.openness() > 0
    }

    /// How much a try with this error leaves open: nothing, what its store has probably not done, or all.
    pub(crate) const fn openness(self) -> u8 {
        match self {
            Self::Unavailable | Self::InProgress => 2,
            Self::Throttled | Self::Unauthenticated => 1,
            Self::Contended | Self::Refused | Self::Unreadable => 0,
        }
    }
}

/// An error of a store: its kind, and its source.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct StoreError {
    kind: StoreErrorKind,
    cut_short: bool,
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, cut_short: false, source: source.into() }
    }

    pub(crate) fn refused(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Refused, source)
    }

    pub(crate) fn unreadable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StoreErrorKind::Unreadable, source)
    }

    /// The error of a call whose time ran out. It was `cut_short` if it had less time than the store needs for one try.
    pub(crate) fn no_answer_in_time(cut_short: bool) -> Self {
        Self { cut_short, ..Self::new(StoreErrorKind::Unavailable, "no answer in time") }
    }

    /// Whether the call had too little time, so that its error says nothing about the store.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// The kind of the error.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without a repair.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self.kind, StoreErrorKind::Refused | StoreErrorKind::Unreadable)
    }

    /// The text of its source, for a log.
    pub(crate) fn cause(&self) -> String {
        self.source.to_string()
    }
}
