//! Why a command failed, in one line, with its exit code.

use std::{error::Error, fmt, process::ExitCode};

use aws_sdk_dynamodb::error::ErrorMetadata;
use lambda_idempotency::{
    internal::CorrectionError,
    store::{StoreError, StoreErrorKind},
};

use crate::output::harmless;

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// Something went wrong; the line says whether anything was changed.
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

    /// An error with its causes, without what they quote of a request, because requests hold keys.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let (mut lines, mut next) = (Vec::new(), Some(error));
        while let Some(cause) = next {
            lines.push(match cause.downcast_ref::<ErrorMetadata>() {
                // Its `Display` is a dump; the service's message is not.
                Some(answer) => without_dumps(answer.message().unwrap_or_default()),
                None => without_dumps(&cause.to_string()),
            });
            next = cause.source();
        }
        // Many errors repeat their cause.
        lines.retain(|line| !line.is_empty());
        lines.dedup_by(|cause, above| above.contains(cause.as_str()));
        Self::Error(lines.join(": "))
    }
}

/// The text without the part in braces, in which the SDK prints its own structs, whole requests among them. The cut goes to the
/// last brace, as a key may have braces too.
fn without_dumps(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else { return text.to_owned() };
    let after = rest.rsplit_once('}').map_or("", |(_, after)| after);
    format!("{before}{{…}}{after}")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Error(line) | Self::Usage(line) | Self::NotAsExpected(line)) = self;
        // One line, whatever a service answered.
        f.write_str(&harmless(&line.split_whitespace().collect::<Vec<_>>().join(" ")))
    }
}

impl Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::from_error(&error)
    }
}

impl From<CorrectionError> for Failure {
    fn from(error: CorrectionError) -> Self {
        let unchanged = |why: &str| format!("nothing was changed: {why}");
        match error {
            CorrectionError::InFlight
            | CorrectionError::NothingCommitted
            | CorrectionError::Pending
            | CorrectionError::Settled(_)
            | CorrectionError::NoAnswer(_)
            | CorrectionError::NothingKept
            | CorrectionError::NotDead
            | CorrectionError::Changed(_)
            | CorrectionError::Deleted => Self::NotAsExpected(unchanged(&error.to_string())),
            CorrectionError::NoRetention => Self::Usage(unchanged(&format!("{error}: say `--retain`"))),
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
    use super::*;

    /// The SDK's error for an invalid endpoint.
    #[derive(Debug)]
    struct Dump;

    impl fmt::Display for Dump {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(
                r#"no endpoint for `Request { body: {"pk":{"S":"acme#pay#a } key"}}, n: 1 }`: no scheme"#,
            )
        }
    }

    impl Error for Dump {}

    // R36
    #[test]
    fn what_an_error_quotes_of_a_request_is_left_out() {
        let said = Failure::from_error(&Dump).to_string();
        assert_eq!(said, "no endpoint for `Request {…}`: no scheme");
        let answer = ErrorMetadata::builder().code("AccessDenied").message("no leave to read").build();
        assert_eq!(Failure::from_error(&answer).to_string(), "no leave to read");
        assert_eq!(without_dumps("cut off { acme"), "cut off {…}");
        assert_eq!(without_dumps("nothing to hide }"), "nothing to hide }");
    }

    // R31
    #[test]
    fn a_failed_change_says_whether_anything_was_changed() {
        let store = |kind| CorrectionError::Store(StoreError::new(kind, "no answer in time"));
        for (error, expected, said) in [
            (CorrectionError::Changed("completed"), true, "nothing was changed: "),
            (CorrectionError::Deleted, true, "nothing was changed: "),
            (CorrectionError::NoAnswer("unknown"), true, "nothing was changed: "),
            (CorrectionError::InFlight, true, "nothing was changed: "),
            (CorrectionError::NothingCommitted, true, "nothing was changed: "),
            (CorrectionError::BodyTooLarge, false, "nothing was changed: "),
            (CorrectionError::NoRetention, false, "say `--retain`"),
            (CorrectionError::ShortRetention, false, "nothing was changed: `--retain`"),
            (store(StoreErrorKind::Refused), false, "nothing was changed: "),
            (store(StoreErrorKind::Unreadable), false, "nothing was changed: "),
            (store(StoreErrorKind::Unavailable), false, "is not known"),
            (store(StoreErrorKind::Throttled), false, "is not known"),
            (store(StoreErrorKind::Contended), false, "nothing was changed: "),
        ] {
            let failure = Failure::from(error);
            assert_eq!(matches!(failure, Failure::NotAsExpected(_)), expected, "{failure}");
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }
}
