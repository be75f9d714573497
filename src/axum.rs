//! The [`Execution`] as an argument of axum handlers.

use ::axum::{body::Body, extract::FromRequestParts};
use ::http::{Response, request::Parts};

use crate::{
    executor::Execution,
    http::{Problem, ProblemType, Profile},
};

impl<S: Sync> FromRequestParts<S> for Execution {
    type Rejection = Response<Body>;

    /// Refuses a request that no guard has seen: an operation that takes an `Execution` never runs unguarded.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!("a handler that takes an Execution stands on a route without a guard");
            let problem = Problem::new(ProblemType::NotGuarded);
            problem.into_response(&Profile::default()).map(Body::new)
        })
    }
}
