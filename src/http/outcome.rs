//! What a handler says about its effect.

/// What a response says about the operation's effect. Put it into the response's extensions. The outer one of two nested
/// guards reads it too, so code between them that has an effect must set it. Without it, the status counts:
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
    /// attempt it counts as `NotExecuted`: the key belongs to the first attempt's request.
    ///
    /// Nothing remembers the refusal, so a late duplicate of the request is decided anew. Use this for refusals that follow
    /// from the request alone, such as a missing field, not for those that may differ in a minute, such as a low balance.
    NotBegun,
    /// Perhaps something was done: `unknown` until it is reconciled.
    PerhapsExecuted,
}
