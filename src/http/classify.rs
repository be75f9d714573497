//! What a handler's response means for its operation: one rule for both guards.

use bytes::Bytes;
use http::{StatusCode, response};

use super::Outcome;
use crate::operation::ServerErrors;

/// What a response means. What a guard does about it depends on how it keeps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The operation's answer.
    Answer,
    /// Certainly nothing was done.
    NotExecuted,
    /// The request was refused before anything was done.
    NotBegun,
    /// Perhaps something was done.
    PerhapsExecuted,
    /// The status is about the caller, the moment or the route: it says nothing about the operation (T44).
    Inconclusive,
}

/// The handler's own word counts first, then the status. `server_errors` is what a 5xx means.
pub(super) fn classify(parts: &response::Parts, body: &Bytes, server_errors: ServerErrors) -> Meaning {
    if let Some(outcome) = parts.extensions.get::<Outcome>() {
        return match outcome {
            Outcome::Completed => Meaning::Answer,
            Outcome::NotExecuted => Meaning::NotExecuted,
            Outcome::NotBegun => Meaning::NotBegun,
            Outcome::PerhapsExecuted => Meaning::PerhapsExecuted,
        };
    }
    if parts.status.is_server_error() {
        return match server_errors {
            ServerErrors::Reconcile => Meaning::PerhapsExecuted,
            ServerErrors::Keep => Meaning::Answer,
            ServerErrors::RetryFresh => Meaning::NotExecuted,
        };
    }
    if is_inconclusive(parts.status, body) { Meaning::Inconclusive } else { Meaning::Answer }
}

/// A time-out layer that answers 408 has dropped the handler midway.
fn is_inconclusive(status: StatusCode, body: &Bytes) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::MISDIRECTED_REQUEST
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => true,
        // A router's own 404 or 405 has no body; a handler's says what was not found, or can no longer be done.
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => body.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn meaning(status: u16, outcome: Option<Outcome>, body: &'static str, errors: ServerErrors) -> Meaning {
        let mut response = Response::builder().status(status);
        if let Some(outcome) = outcome {
            response = response.extension(outcome);
        }
        let (parts, ()) = response.body(()).expect("a response").into_parts();
        classify(&parts, &Bytes::from_static(body.as_bytes()), errors)
    }

    #[test]
    fn a_status_alone_never_frees_a_key() {
        let of = |status| meaning(status, None, "", ServerErrors::Reconcile);
        for status in
            (200..500).filter(|status| ![401, 403, 404, 405, 407, 408, 421, 425, 429].contains(status))
        {
            assert_eq!(of(status), Meaning::Answer, "{status}");
        }
        for status in [401, 403, 404, 405, 407, 408, 421, 425, 429] {
            assert_eq!(of(status), Meaning::Inconclusive, "{status}");
        }
        for status in [404, 405] {
            assert_eq!(meaning(status, None, "no such order", ServerErrors::Reconcile), Meaning::Answer);
        }
    }

    #[test]
    fn the_settings_say_what_a_server_error_means() {
        let of = |errors| [500, 503, 599].map(|status| meaning(status, None, "", errors));
        assert_eq!(of(ServerErrors::Reconcile), [Meaning::PerhapsExecuted; 3]);
        assert_eq!(of(ServerErrors::Keep), [Meaning::Answer; 3]);
        assert_eq!(of(ServerErrors::RetryFresh), [Meaning::NotExecuted; 3]);
    }

    #[test]
    fn the_handlers_own_outcome_counts_before_any_status() {
        for status in [200, 401, 404, 500] {
            let of = |outcome| meaning(status, Some(outcome), "", ServerErrors::Keep);
            assert_eq!(of(Outcome::Completed), Meaning::Answer);
            assert_eq!(of(Outcome::NotExecuted), Meaning::NotExecuted);
            assert_eq!(of(Outcome::NotBegun), Meaning::NotBegun);
            assert_eq!(of(Outcome::PerhapsExecuted), Meaning::PerhapsExecuted);
        }
    }
}
