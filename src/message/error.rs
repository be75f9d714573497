//! Why a message cannot be read.

use crate::queue::WorkError;

/// A message that is malformed. No retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed: {0}")]
pub(crate) struct MalformedError(pub(crate) &'static str);

impl From<MalformedError> for WorkError {
    fn from(MalformedError(what): MalformedError) -> Self {
        Self::Malformed(what)
    }
}
