//! Runs a handler once, and collects its whole response.

use std::{fmt, panic::AssertUnwindSafe};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};

use super::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY, MAX_BODY, settings::Guard};
use crate::{record::UnknownCause, time::Instant, time_budget::TimeBudget};

/// A handler's response and body, or why its outcome is unknown.
pub(super) type Handled = Result<(response::Parts, Bytes), UnknownCause>;

impl Guard {
    /// The handler's response, its body within bounds of time and size. A panic is caught.
    pub(super) async fn run<R, E>(
        &self,
        ends_at: Option<Instant>,
        response: impl Future<Output = Result<Response<R>, E>>,
    ) -> Handled
    where
        E: fmt::Display,
        R: Body<Data = Bytes>,
        R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let whole = AssertUnwindSafe(self.whole(ends_at, response));
        whole.catch_unwind().await.unwrap_or_else(|_| {
            // The panic hook has printed the panic's message; the client does not get it.
            tracing::error!("the handler panicked");
            Err(UnknownCause::Panicked)
        })
    }

    async fn whole<R, E>(
        &self,
        ends_at: Option<Instant>,
        response: impl Future<Output = Result<Response<R>, E>>,
    ) -> Handled
    where
        E: fmt::Display,
        R: Body<Data = Bytes>,
        R::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let response = response.await.map_err(|error| {
            tracing::error!(%error, "the handler failed: perhaps executed");
            UnknownCause::HandlerFailed
        })?;
        let (mut parts, body) = response.into_parts();
        let world = self.world();
        let time = TimeBudget::at(world.instant(), ends_at).read();
        let body = tokio::select! {
            biased;
            body = Limited::new(body, MAX_BODY).collect() => body.map_err(|error| error.to_string()),
            // Lazy: a body that is already complete needs no timer.
            () = async { world.sleep(time).await } => Err("it did not end in time".to_owned()),
        };
        match body {
            Ok(body) => {
                for name in [IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY, IDEMPOTENCY_EXPIRES] {
                    // Set by an inner service, about its own answer.
                    parts.headers.remove(name);
                }
                Ok((parts, body.to_bytes()))
            }
            Err(error) => {
                tracing::error!(error, "the handler's response body was lost: perhaps executed");
                Err(UnknownCause::ResponseLost)
            }
        }
    }
}
