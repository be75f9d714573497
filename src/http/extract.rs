//! Support for axum handlers: an [`Execution`] as an argument, an [`Answer`] as a response.

use std::convert::Infallible;

use ::axum::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::IntoResponse,
};
use http::{Response, request::Parts};

use super::{Problem, ProblemType, Profile, replay};
use crate::{
    engine::{Execution, SingleTransaction},
    record::Answer,
};

macro_rules! extracted {
    ($argument:ty, $advice:literal) => {
        impl<S: Sync> FromRequestParts<S> for $argument {
            type Rejection = Response<Body>;

            /// Rejects a request that was not guarded so: a handler with this argument never runs unguarded.
            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
                parts.extensions.get::<Self>().cloned().ok_or_else(|| {
                    tracing::error!($advice);
                    Problem::new(ProblemType::NotGuarded).into_response(&Profile::default()).map(Body::new)
                })
            }
        }

        impl<S: Sync> OptionalFromRequestParts<S> for $argument {
            type Rejection = Infallible;

            /// `None` for a request that runs unguarded, such as one without a key under [`Profile::key_optional`].
            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
                Ok(parts.extensions.get::<Self>().cloned())
            }
        }
    };
}

extracted!(
    Execution,
    "a handler takes an Execution, but no guard has reserved this request: its route has no guard, or \
     Profile::key_optional let it pass (then take an Option<Execution>)"
);

extracted!(
    SingleTransaction,
    "a handler takes a SingleTransaction, but its route is not guarded by Idempotency::single_transaction, or \
     Profile::key_optional let the request pass (then take an Option<SingleTransaction>)"
);

impl IntoResponse for Answer {
    /// Looks like its replay, so that a handler and a reconciler can return the same answer.
    fn into_response(self) -> Response<Body> {
        replay::of_answer(self).map(Body::new)
    }
}
