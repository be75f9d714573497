//! What a guard says of a response: an extension of each of its responses, for layers around it, logs and metrics of one's own, and for
//! fronts that are not HTTP.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use http::{header::CONTENT_TYPE, response::Parts};
use serde::Deserialize;

use super::{Outcome, ProblemType};
use crate::operation::How;

/// What a guard says of its response: an extension of each.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::post};
/// use lambda_idempotency::{Idempotency, MemoryStore, Operation, SingleTenant, http::Guarded};
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let guard = Idempotency::new(MemoryStore::new(), Operation::new("create-order")).tenant(SingleTenant::new("shop"));
/// let app: Router = Router::new().route("/orders", post(async || "an order").route_layer(guard));
///
/// let order = || Request::post("/orders").header("idempotency-key", "order-1").body(Body::empty()).unwrap();
/// let first = app.clone().oneshot(order()).await.unwrap();
/// let retry = app.oneshot(order()).await.unwrap();
/// let is_replay = |guarded: &Guarded| guarded.how().is_some_and(|how| how.is_replay());
/// assert_eq!(first.extensions().get().map(is_replay), Some(false));
/// assert_eq!(retry.extensions().get().map(is_replay), Some(true));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    pub(crate) by: By,
    pub(crate) attempts: u32,
    /// Why the request was refused, for operators. Nothing that its caller sent is in it.
    pub(crate) why: Option<Cow<'static, str>>,
}

/// Who gives the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The handler, now or before. So the operation has this outcome.
    Handler(How, Outcome),
    /// What accepts requests that are executed later.
    Acceptance,
    /// The guard, in the handler's place.
    Guard {
        /// With this problem.
        problem: ProblemType,
        /// The client should wait this long.
        wait: Duration,
        /// How long the lease of the execution in flight still lasts.
        lease_left: Duration,
    },
}

impl Guarded {
    /// How its caller came by the operation's answer; `None` if the response is not that.
    pub const fn how(&self) -> Option<How> {
        match self.by {
            By::Handler(how, Outcome::Completed) => Some(how),
            By::Handler(..) | By::Acceptance | By::Guard { .. } => None,
        }
    }

    /// What is known of the operation, if its handler ran, now or before.
    pub const fn outcome(&self) -> Option<Outcome> {
        match self.by {
            By::Handler(_, outcome) => Some(outcome),
            By::Acceptance | By::Guard { .. } => None,
        }
    }

    /// The problem with which the guard answered in the handler's place.
    pub const fn problem(&self) -> Option<ProblemType> {
        match self.by {
            By::Guard { problem, .. } => Some(problem),
            By::Handler(..) | By::Acceptance => None,
        }
    }

    /// How many executions of the operation there were, if one of them was for this request; otherwise 0.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The handler ran for this caller.
    pub(super) const fn executed(outcome: Outcome) -> Self {
        Self::of(By::Handler(How::Executed, outcome))
    }

    /// Of no execution that is counted.
    pub(super) const fn of(by: By) -> Self {
        Self { by, attempts: 0, why: None }
    }
}

/// The title and the type of a handler's problem (RFC 9457). They are the same for each request, but its detail may quote one.
pub(super) fn why(parts: &Parts, body: &Bytes) -> Option<Cow<'static, str>> {
    #[derive(Deserialize)]
    struct Document {
        r#type: Option<String>,
        title: Option<String>,
    }
    let kind = parts.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    if !kind.starts_with("application/problem+json") {
        return None;
    }
    let why = match serde_json::from_slice(body).ok()? {
        Document { r#type: Some(kind), title: Some(title) } => format!("{title} ({kind})"),
        Document { r#type: one, title: other } => one.or(other)?,
    };
    Some(why.into())
}
