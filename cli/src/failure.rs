//! Why a command failed, in one line, and what its exit code says.

use std::{error::Error, fmt, process::ExitCode};

use lambda_idempotency::store::StoreError;

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// Something went wrong; the line says whether anything was changed.
    Error(String),
    /// The command cannot be meant so. Nothing was asked or changed.
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

    /// An error with what is behind it.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let (mut lines, mut next) = (Vec::new(), Some(error));
        while let Some(cause) = next {
            lines.push(cause.to_string());
            next = cause.source();
        }
        // Many an error says its cause already.
        lines.dedup_by(|cause, above| above.contains(cause.as_str()));
        Self::Error(lines.join(": "))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Error(line) | Self::Usage(line) | Self::NotAsExpected(line)) = self;
        // One line, whatever a service has answered.
        f.write_str(&line.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::from_error(&error)
    }
}
