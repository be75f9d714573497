//! What axum handlers take and return: the [`Execution`] as an argument, an [`Answer`] as a response.

use std::convert::Infallible;

use ::axum::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::IntoResponse,
};
use http::{Response, request::Parts};

use super::{Problem, ProblemType, Profile, replay};
use crate::{engine::Execution, record::Answer};

impl<S: Sync> FromRequestParts<S> for Execution {
    type Rejection = Response<Body>;

    /// Refuses a request that no guard has seen: an operation that takes an `Execution` never runs unguarded.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!(
                "a handler takes an Execution, and no guard has reserved this request: its route has no guard, or \
                 Profile::key_optional let it pass (then take an Option<Execution>)"
            );
            let problem = Problem::new(ProblemType::NotGuarded);
            problem.into_response(&Profile::default()).map(Body::new)
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Execution {
    type Rejection = Infallible;

    /// Takes also a request that runs unguarded, without a key, because [`Profile::key_optional`] leaves that to clients.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

impl IntoResponse for Answer {
    /// As a replay of it will be, so that a handler and a reconciler can give the same answer.
    fn into_response(self) -> Response<Body> {
        replay::of_answer(self).map(Body::new)
    }
}
