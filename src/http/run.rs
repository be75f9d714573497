//! Runs a handler once, and collects its whole response.

use std::{error::Error, fmt, panic::AssertUnwindSafe};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};

use super::{
    IDEMPOTENCY_EXPIRES, IDEMPOTENCY_RETENTION, IDEMPOTENT_REPLAYED, deliver::clean, settings::Guard,
};
use crate::{record::HANDLER_FAILED, time::Instant, time_budget::TimeBudget};

/// A handler's response and body.
pub(super) type Answered = (response::Parts, Bytes);

/// A handler's response body.
pub trait ResponseBody: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send {}

impl<R: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send> ResponseBody for R {}

impl Guard {
    /// The handler's response, its body within bounds of time and size; as an error, why its outcome is unknown. A panic is caught.
    pub(super) async fn run<R: ResponseBody, E: fmt::Display>(
        &self,
        ends_at: Option<Instant>,
        response: impl Future<Output = Result<Response<R>, E>>,
    ) -> Result<Answered, &'static str> {
        let whole = async {
            let response = response.await.map_err(|error| {
                tracing::error!(%error, "the handler failed: perhaps executed");
                HANDLER_FAILED
            })?;
            let (parts, body) = response.into_parts();
            let world = self.world();
            let time = TimeBudget::at(world.instant(), ends_at).read();
            let body = match world
                .within(time, Limited::new(body, self.settings.longest.response).collect())
                .await
            {
                Some(body) => body.map_err(|error| error.to_string()),
                None => Err("it did not end in time".to_owned()),
            };
            let body = body.map_err(|error| {
                tracing::error!(error, "the handler's response body was lost: perhaps executed");
                "response_lost"
            })?;
            Ok((parts, body.to_bytes()))
        };
        let (mut parts, body) = AssertUnwindSafe(whole).catch_unwind().await.unwrap_or_else(|_| {
            // The panic hook has printed the panic's message; the client does not get it.
            tracing::error!("the handler panicked");
            Err("panicked")
        })?;
        for name in [IDEMPOTENT_REPLAYED, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_RETENTION] {
            // Set by an inner service, about the inner service's answer.
            parts.headers.remove(name);
        }
        // Here, the log line names the record.
        clean(&mut parts.headers, None);
        Ok((parts, body))
    }
}
