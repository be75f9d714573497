//! What can go wrong with a store.

use std::{error::Error, fmt};

/// What went wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No answer, or a failure of the store's. Whether a write was applied is not known.
    Unavailable,
    /// The key, or the table, is asked too often. Whether an earlier try was applied is not known.
    Throttled,
    /// The item is part of a transaction under way, or others change it each time. Not written.
    Contended,
    /// What stands there is no record that this version can read. Not written.
    Unreadable,
    /// The store refuses us: no such table, no right to it. Not written, and no retry helps.
    Refused,
}

/// An error of a store: what kind, and what was behind it.
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

    /// The error of a call that we did not wait for: `cut_short` if for less time than the store takes for one try.
    pub(crate) fn no_answer_in_time(cut_short: bool) -> Self {
        Self { cut_short, ..Self::new(StoreErrorKind::Unavailable, "no answer in time") }
    }

    /// Whether it says nothing of the store, because nobody waited long enough.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// What kind of error it is.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later, by itself.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self.kind, StoreErrorKind::Refused | StoreErrorKind::Unreadable)
    }

    /// What is behind it, in words for a log.
    pub(crate) fn cause(&self) -> String {
        self.source.to_string()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store is unavailable",
            StoreErrorKind::Throttled => "the store is asked too often",
            StoreErrorKind::Contended => "the record is part of a transaction under way",
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
