//! What a handler says of its effect.

/// What a handler says of its effect, if the status code does not say it: put it into the response's extensions.
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
    /// The request was refused before anything was done, as invalid input is: the key is free at once, for any request, so that
    /// a corrected one may come under it. Say it only before the first effect, and never because of a status alone.
    NotBegun,
    /// Perhaps something was done: `unknown`, until reconciliation has found out.
    PerhapsExecuted,
}
