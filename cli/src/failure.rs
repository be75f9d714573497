//! Why a command failed, in one line, with its exit code.

use std::{error::Error, fmt, process::ExitCode};

use crate::terminal::harmless;
use lambda_idempotency::{
    operator::{CorrectionError, PhaseCorrectionError},
    store::{StoreError, StoreErrorKind},
    telemetry::error_chain,
};

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// The command failed; the line says whether anything was changed.
    Error(String),
    /// The command is invalid. Nothing was asked or changed.
    Usage(String),
    /// The record is not as the command expects it. Nothing was changed.
    NotAsExpected(String),
}

impl Failure {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Error(_) => 1.into(),
            Self::Usage(_) => 2.into(),
            Self::NotAsExpected(_) => 3.into(),
        }
    }

    /// An error with its causes.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        Self::Error(error_chain(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Error(line) | Self::Usage(line) | Self::NotAsExpected(line)) = self;
        // One line, whatever a service answered.
        f.write_str(&harmless(&line.split_whitespace().collect::<Vec<_>>().join(" ")))
    }
}

impl Error for Failure {}

/// What was printed is not all: so many records could not be read.
pub fn unreadable(number: usize) -> Result<(), Failure> {
    match number {
        0 => Ok(()),
        1 => Err(Failure::Error("one record cannot be read, and is left out: --debug names it".into())),
        _ => Err(Failure::Error(format!(
            "{number} records cannot be read, and are left out: --debug names them"
        ))),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::from_error(&error)
    }
}

impl From<CorrectionError> for Failure {
    fn from(error: CorrectionError) -> Self {
        let unchanged = |why: &str| format!("nothing was changed: {why}");
        match error {
            CorrectionError::Phase(error @ (PhaseCorrectionError::Name | PhaseCorrectionError::NotJson)) => {
                Self::Usage(unchanged(&error.to_string()))
            }
            CorrectionError::Unsettled(_)
            | CorrectionError::NotHeld(_)
            | CorrectionError::Phase(_)
            | CorrectionError::NoAnswer(_)
            | CorrectionError::NothingKept
            | CorrectionError::NotDead
            | CorrectionError::NoAlarm
            | CorrectionError::Changed(_)
            | CorrectionError::Deleted => Self::NotAsExpected(unchanged(&error.to_string())),
            CorrectionError::WrongKind(_) => Self::Usage(unchanged(&error.to_string())),
            CorrectionError::ShortRetention => Self::Usage(unchanged(&format!("`--retain`: {error}"))),
            CorrectionError::Store(error) => {
                let (kind, cause) = (error.kind(), Self::from(error).to_string());
                Self::Error(match kind {
                    StoreErrorKind::Unavailable | StoreErrorKind::Throttled => {
                        format!("it is not known whether the record was changed, look with `show`: {cause}")
                    }
                    _ => unchanged(&cause),
                })
            }
            error => Self::Error(unchanged(&Self::from_error(&error).to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use lambda_idempotency::record::{HoldError, SettleError};

    use super::*;

    #[test]
    fn a_failed_change_says_whether_anything_was_changed() {
        let store = |kind| CorrectionError::Store(StoreError::new(kind, "no answer in time"));
        for (error, expected, message) in [
            (CorrectionError::Changed("completed"), true, "nothing was changed: "),
            (CorrectionError::Deleted, true, "nothing was changed: "),
            (CorrectionError::NoAnswer("unknown"), true, "nothing was changed: "),
            (CorrectionError::NoAlarm, true, "nothing was changed: "),
            (CorrectionError::Unsettled(SettleError::InFlight), true, "nothing was changed: "),
            (CorrectionError::Unsettled(SettleError::NothingCommitted), true, "nothing was changed: "),
            (CorrectionError::NotHeld(HoldError("completed")), true, "nothing was changed: "),
            (CorrectionError::Phase(PhaseCorrectionError::Known), true, "nothing was changed: "),
            (CorrectionError::Phase(PhaseCorrectionError::NotJson), false, "nothing was changed: "),
            (CorrectionError::BodyTooLarge, false, "nothing was changed: "),
            (CorrectionError::ShortRetention, false, "nothing was changed: `--retain`"),
            (store(StoreErrorKind::Refused), false, "nothing was changed: "),
            (store(StoreErrorKind::Unreadable), false, "nothing was changed: "),
            (store(StoreErrorKind::Unavailable), false, "is not known"),
            (store(StoreErrorKind::Throttled), false, "is not known"),
            (store(StoreErrorKind::Contended), false, "nothing was changed: "),
        ] {
            let failure = Failure::from(error);
            assert_eq!(matches!(failure, Failure::NotAsExpected(_)), expected, "{failure}");
            assert!(failure.to_string().contains(message), "{failure}");
        }
    }
}
