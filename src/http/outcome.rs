//! What a handler says of its effect.

/// What a response says of the operation's effect. Put it into the response's extensions, where a guard around another one finds
/// it too: whoever does something between two guards says what that means. Without it the status counts:
///
/// | status | counts as |
/// | --- | --- |
/// | 401, 403, 407, 408, 421, 425, 429, and 404 or 405 without a body | [`PerhapsExecuted`](Self::PerhapsExecuted): it speaks of the caller, the moment or the route, and no status frees a key |
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
    /// The request was refused before anything was done, as invalid input is: the key is free at once, for any request, so that
    /// a corrected one may come under it. Say it only before the first effect, and never because of a status alone. In a later
    /// attempt it counts as `NotExecuted`: the key belongs to the request of the first.
    ///
    /// Nothing remembers the refusal, so a late duplicate of the request is asked anew: say it of refusals that follow from the
    /// request alone, such as a field that is missing, and not of those that may be another in a minute, such as a balance.
    NotBegun,
    /// Perhaps something was done: `unknown`, until reconciliation has found out.
    PerhapsExecuted,
}
