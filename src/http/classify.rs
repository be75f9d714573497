//! What a handler's response means for its operation: one rule for both guards.

use bytes::Bytes;
use http::{StatusCode, response};

use crate::operation::ServerErrors;

/// What a response says about the operation's effect. Put it into the response's extensions. If two guards are nested, the
/// outer one reads it too, so code between them that has an effect must set it. Without it, the status counts:
///
/// | status | counts as |
/// | --- | --- |
/// | 401, 403, 407, 408, 421, 425, 429, and 404 or 405 without a body | [`PerhapsExecuted`](Self::PerhapsExecuted): it is about the caller, the moment or the route, and no status frees a key |
/// | 5xx | as [`Operation::server_errors`](crate::operation::Operation::server_errors) or the profile says |
/// | any other | [`Completed`](Self::Completed) |
///
/// ```
/// use axum::{Extension, http::StatusCode, response::IntoResponse};
/// use lambda_idempotency::http::Outcome;
///
/// /// The connection was refused: the charge certainly did not happen.
/// fn provider_is_away() -> impl IntoResponse {
///     (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted), "try again")
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The response is the operation's answer, whatever its status.
    Completed,
    /// Certainly nothing was done: the key is released, and the same request may be retried.
    NotExecuted,
    /// The request was refused before anything was done, such as invalid input. The key is free at once for any request, so
    /// a corrected one may use it. Set this only before the first effect, and never because of a status alone. In a later
    /// execution it counts as `NotExecuted`: the key belongs to the first execution's request.
    ///
    /// Nothing remembers the refusal, so a late duplicate of the request is decided anew. Use this for refusals that follow
    /// from the request alone, such as a missing field, not for those that may differ in a minute, such as a low balance.
    NotBegun,
    /// Perhaps something was done: `unknown` until it is reconciled.
    PerhapsExecuted,
}

/// What a response means: the handler's own [`Outcome`] counts first, then the status. `server_errors` is what a 5xx means.
/// `None` if the status is inconclusive: it is about the caller, the moment or the route (T44).
pub(super) fn classify(
    parts: &response::Parts,
    body: &Bytes,
    server_errors: ServerErrors,
) -> Option<Outcome> {
    if let Some(outcome) = parts.extensions.get::<Outcome>() {
        return Some(*outcome);
    }
    if parts.status.is_server_error() {
        return Some(match server_errors {
            ServerErrors::Reconcile => Outcome::PerhapsExecuted,
            ServerErrors::Keep => Outcome::Completed,
            ServerErrors::RetryFresh => Outcome::NotExecuted,
        });
    }
    (!is_inconclusive(parts.status, body)).then_some(Outcome::Completed)
}

/// Whether this status is about the moment: another attempt may get another answer.
pub(super) fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT
                | StatusCode::MISDIRECTED_REQUEST
                | StatusCode::TOO_EARLY
                | StatusCode::TOO_MANY_REQUESTS
        )
}

/// A time-out layer that answers 408 has dropped the handler midway.
fn is_inconclusive(status: StatusCode, body: &Bytes) -> bool {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => true,
        // A router's own 404 or 405 has no body; a handler's says what was not found, or can no longer be done.
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => body.is_empty(),
        // The settings say what a server error means.
        _ => is_passing(status) && !status.is_server_error(),
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn meaning(
        status: u16,
        outcome: Option<Outcome>,
        body: &'static str,
        errors: ServerErrors,
    ) -> Option<Outcome> {
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
            assert_eq!(of(status), Some(Outcome::Completed), "{status}");
        }
        for status in [401, 403, 404, 405, 407, 408, 421, 425, 429] {
            assert_eq!(of(status), None, "{status}");
        }
        for status in [404, 405] {
            assert_eq!(
                meaning(status, None, "no such order", ServerErrors::Reconcile),
                Some(Outcome::Completed)
            );
        }
    }

    #[test]
    fn the_settings_say_what_a_server_error_means() {
        let of = |errors| [500, 503, 599].map(|status| meaning(status, None, "", errors));
        assert_eq!(of(ServerErrors::Reconcile), [Some(Outcome::PerhapsExecuted); 3]);
        assert_eq!(of(ServerErrors::Keep), [Some(Outcome::Completed); 3]);
        assert_eq!(of(ServerErrors::RetryFresh), [Some(Outcome::NotExecuted); 3]);
    }

    #[test]
    fn the_handlers_own_outcome_counts_before_any_status() {
        for status in [200, 401, 404, 500] {
            use Outcome::{Completed, NotBegun, NotExecuted, PerhapsExecuted};
            for outcome in [Completed, NotExecuted, NotBegun, PerhapsExecuted] {
                assert_eq!(meaning(status, Some(outcome), "", ServerErrors::Keep), Some(outcome));
            }
        }
    }
}
