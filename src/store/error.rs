//! The errors of stores.

use std::{error::Error, fmt};

/// What kind of error it is: whether the write may have been applied, and whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No answer, or a failure of the store's. The write may have been applied.
    Unavailable,
    /// Requests for the key or the table are throttled. An earlier try may have been applied.
    Throttled,
    /// The item is part of a transaction in flight, or others change it on every try. Not written.
    Contended,
    /// The current item is not a record that this version can read. Not written.
    Unreadable,
    /// The store refuses us: there is no such table, or a permission is missing. Not written, and no retry helps.
    Refused,
}

/// An error of a store: its kind, and its source.
#[derive(Debug)]
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

    /// The error of a call that we stopped waiting for; `cut_short` if we waited for less time than the store needs for one
    /// try.
    pub(crate) fn no_answer_in_time(cut_short: bool) -> Self {
        Self { cut_short, ..Self::new(StoreErrorKind::Unavailable, "no answer in time") }
    }

    /// Whether it says nothing about the store, because we did not wait long enough.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// The kind of the error.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later, by itself.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self.kind, StoreErrorKind::Refused | StoreErrorKind::Unreadable)
    }

    /// Its source, in words for a log.
    pub(crate) fn cause(&self) -> String {
        self.source.to_string()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store is unavailable",
            StoreErrorKind::Throttled => "the store throttles requests",
            StoreErrorKind::Contended => "the record is in a transaction, or others keep changing it",
            StoreErrorKind::Unreadable => "the record cannot be read",
            StoreErrorKind::Refused => "the store refuses the request",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
