//! Support for axum handlers: an [`Execution`] as an argument, an [`Answer`] as a response, and refusals before anything was
//! done.

use std::convert::Infallible;

use ::axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Request},
    response::IntoResponse,
};
use http::{Response, request::Parts};

use super::{Outcome, Problem, ProblemType, Profile, replay, respond::NoArgument};
use crate::{
    engine::{Execution, PhaseError, SingleTransaction},
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
                    let problem = Problem::new(ProblemType::NotGuarded);
                    let mut response = problem.into_response(&Profile::default()).map(Body::new);
                    // If there is a guard around it, it answers in its place, by its profile.
                    response.extensions_mut().insert(NoArgument);
                    // Inside of another kind of guard: the handler has not begun, and its key must stay free.
                    NotBegun(response).into_response()
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

impl IntoResponse for PhaseError {
    /// The guard answers in its place, by its profile.
    fn into_response(self) -> Response<Body> {
        let problem = match self {
            Self::Unknown => ProblemType::OutcomeUnknown,
            _ => ProblemType::Interrupted,
        };
        Problem::new(problem).into_response(&Profile::default()).map(Body::new)
    }
}

/// A response that says [`Outcome::NotBegun`]: the request was refused before anything was done, and its key is free for a
/// corrected one.
///
/// ```
/// use axum::{http::StatusCode, response::{IntoResponse, Response}};
/// use lambda_idempotency::http::NotBegun;
///
/// async fn order(quantity: String) -> Response {
///     let Ok(quantity) = quantity.parse::<u32>() else {
///         return NotBegun((StatusCode::BAD_REQUEST, "how many?")).into_response();
///     };
///     format!("{quantity} ordered").into_response()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NotBegun<R>(
    /// The response.
    pub R,
);

impl<R: IntoResponse> IntoResponse for NotBegun<R> {
    fn into_response(self) -> Response<Body> {
        let mut response = self.0.into_response();
        response.extensions_mut().insert(Outcome::NotBegun);
        response
    }
}

/// An extractor whose rejections say [`Outcome::NotBegun`]. It wraps `Json`, `Query`, `Path` or any other that has no
/// lasting effect. A client may then correct its request under the same key. A kept refusal would make the corrected one a
/// mismatch (`key-reused`).
///
/// ```
/// use axum::{Json, Router, routing::post};
/// use lambda_idempotency::{
///     engine::Execution,
///     http::{Idempotency, OrNotBegun, SingleTenant},
///     operation::Operation,
///     store::memory::MemoryStore,
/// };
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Order {
///     quantity: u32,
/// }
///
/// async fn order(execution: Execution, OrNotBegun(Json(order)): OrNotBegun<Json<Order>>) -> String {
///     format!("{} ordered as {}", order.quantity, execution.downstream_key("order"))
/// }
///
/// let guard = Idempotency::new(MemoryStore::new(), Operation::new("order")).tenant(SingleTenant::new("shop"));
/// let app: Router = Router::new().route("/orders", post(order).route_layer(guard));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OrNotBegun<E>(
    /// The extracted value.
    pub E,
);

impl<S: Sync, E: FromRequestParts<S>> FromRequestParts<S> for OrNotBegun<E> {
    type Rejection = NotBegun<E::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        E::from_request_parts(parts, state).await.map(Self).map_err(NotBegun)
    }
}

impl<S: Sync, E: FromRequest<S>> FromRequest<S> for OrNotBegun<E> {
    type Rejection = NotBegun<E::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        E::from_request(request, state).await.map(Self).map_err(NotBegun)
    }
}
