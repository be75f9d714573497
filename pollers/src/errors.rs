//! Errors of clients in one line.

use std::{error::Error, iter};

/// The error with its causes.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<_> =
        iter::successors(Some(error), |error| (*error).source()).map(ToString::to_string).collect();
    texts.dedup_by(|cause, above| above.contains(cause.as_str()));
    texts.join(": ")
}
