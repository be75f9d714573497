//! What a function's processes execute.

use std::{fs, path::PathBuf, pin::Pin, time::SystemTime};

/// Runs a function until Lambda ends it.
pub type Run = fn() -> Pin<Box<dyn Future<Output = Result<(), lambda_idempotency::lambda::Error>>>>;

/// What a function's processes execute.
#[derive(Clone)]
pub enum Program {
    /// This program, as the function that has a program of this name elsewhere.
    Own(&'static str),
    /// A program of the user's.
    File(PathBuf),
}

impl Program {
    /// When it was built; `None` for this program, and while there is no file.
    pub fn built(&self) -> Option<SystemTime> {
        let Self::File(program) = self else { return None };
        fs::metadata(program).and_then(|file| file.modified()).ok()
    }
}
