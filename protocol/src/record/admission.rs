//! Whether a request may begin an execution, as its front decided before anything was read.

use std::borrow::Cow;

use super::Says;
use crate::time::Timestamp;

/// Whether a request may begin an execution. It counts only where one would begin: whatever its key's record says comes first (T43).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Admitted {
        /// Until when, by its worker's wall clock; at any time if there is none. Later, a retry may be told that the key is too old.
        begin_by: Option<Timestamp>,
    },
    /// It may not.
    Refused(Refusal),
}

/// Why a request may not begin an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One stable word, for the client's program.
    pub reason: &'static str,
    /// A sentence for the client.
    pub detail: Cow<'static, str>,
    /// Whether another worker may have admitted this key so lately that its execution has yet to begin, or its transaction to arrive.
    pub perhaps_in_flight: bool,
}

impl Admission {
    /// Admitted for good: the key has no age that could end it.
    pub const ALWAYS: Self = Self::Admitted { begin_by: None };

    /// Whether an execution may begin now.
    ///
    /// # Errors
    /// What its caller is told instead.
    pub fn begins(&self, now: Timestamp) -> Result<(), Says> {
        match self {
            // Its client would be led to a new key, and that execution may begin all the same.
            Self::Refused(Refusal { perhaps_in_flight: true, .. }) => Err(Says::PerhapsInFlight),
            Self::Refused(_) => Err(Says::MayNotBegin),
            Self::Admitted { .. } if self.is_over(now) => Err(Says::TooLate),
            Self::Admitted { .. } => Ok(()),
        }
    }

    /// Whether it was admitted, and too long ago to begin now: its process stood still.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.begin_by().is_some_and(|begin_by| begin_by < now)
    }

    /// Until when an execution may begin, if that is bounded.
    pub const fn begin_by(&self) -> Option<Timestamp> {
        match self {
            Self::Admitted { begin_by } => *begin_by,
            Self::Refused(_) => None,
        }
    }

    /// Why it is refused, if so.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Admitted { .. } => None,
            Self::Refused(refusal) => Some(refusal),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    /// Refused, long after any other request of its key.
    pub(crate) fn refused() -> Admission {
        let (reason, detail) = ("too-old", "It is too old".into());
        Admission::Refused(Refusal { reason, detail, perhaps_in_flight: false })
    }

    // T43
    #[test]
    fn an_admission_ends_before_a_retry_is_told_too_old() {
        let begin_by = Timestamp::from_secs(1_000);
        let late = begin_by.plus(Duration::from_millis(1));
        let admitted = Admission::Admitted { begin_by: Some(begin_by) };
        assert_eq!((admitted.begins(begin_by), admitted.is_over(begin_by)), (Ok(()), false));
        assert_eq!((admitted.begins(late), admitted.is_over(late)), (Err(Says::TooLate), true));
        assert_eq!(Admission::ALWAYS.begins(Timestamp::MAX), Ok(()));
        let Admission::Refused(refusal) = refused() else { unreachable!() };
        let lately = Admission::Refused(Refusal { perhaps_in_flight: true, ..refusal });
        assert_eq!(refused().begins(late), Err(Says::MayNotBegin));
        assert_eq!(lately.begins(late), Err(Says::PerhapsInFlight));
        // What it resumes is no beginning.
        assert!(!refused().is_over(late));
    }
}
