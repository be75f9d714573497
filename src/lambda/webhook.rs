//! The function that a provider calls. It takes a reader of the provider's events; the library does the rest.
//!
//! | the event | answer |
//! | --- | --- |
//! | is not from the provider | 401, and nothing is done |
//! | is from the provider, but cannot be read | 400 |
//! | is not about an operation | 200 |
//! | settles a record, agrees with it, or will be checked against it later | 200 |
//! | contradicts a record, or has none | 200: it is escalated |
//! | could not be processed | 503: the provider sends it again |
//!
//! An event that comes twice settles once: the second finds the record settled.

use std::{
    convert::Infallible,
    error::Error as _,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use lambda_runtime::Error;
use tracing::Instrument;

use super::run::run;
use crate::{
    http::MAX_BODY,
    key::RecordKey,
    reconcile::{ProviderReport, ReconcileOutcome, Reconciliation},
    telemetry::{self, WEBHOOK_AGAIN, WEBHOOK_REFUSED, WEBHOOK_UNREADABLE},
    time::Timestamp,
};

/// Reads a provider's events. One for each webhook.
pub trait Events: Send + Sync + 'static {
    /// Checks that the provider sent this, and returns what it says. `now` is for checking a signature's age.
    fn read(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Notice;
}

/// What a request to the webhook says.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// It is not from the provider, for this reason.
    Refused(String),
    /// It is from the provider, but cannot be read: the provider has changed its events.
    Unreadable,
    /// It is not about an operation.
    Ignored,
    /// It reports an effect, but the reference to its record cannot be read now: the provider must send it again.
    Again(&'static str),
    /// It reports an effect that leads to no record.
    Unclaimed {
        /// The key under which the provider has it.
        downstream_key: String,
        /// Why it leads to no record.
        reason: &'static str,
    },
    /// It reports what became of this operation.
    ProviderReport(RecordKey, ProviderReport),
}

/// A provider's webhook, as a `tower` service. Clones share everything.
#[derive(Clone)]
pub struct Webhook(Arc<Parts>);

struct Parts {
    reconciliation: Reconciliation,
    events: Box<dyn Events>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").finish_non_exhaustive()
    }
}

impl Webhook {
    /// Applies what `events` reads to the records of `reconciliation`.
    pub fn new(reconciliation: Reconciliation, events: impl Events) -> Self {
        Self(Arc::new(Parts { reconciliation, events: Box::new(events) }))
    }

    async fn answer<B>(&self, request: Request<B>) -> (StatusCode, &'static str)
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            return (StatusCode::METHOD_NOT_ALLOWED, "events are posted");
        }
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            return (StatusCode::PAYLOAD_TOO_LARGE, "too large");
        };
        self.receive(&parts.headers, &body.to_bytes()).await
    }

    async fn receive(&self, headers: &HeaderMap, body: &[u8]) -> (StatusCode, &'static str) {
        let Parts { reconciliation, events } = &*self.0;
        match events.read(headers, body, reconciliation.now()) {
            Notice::Refused(reason) => {
                tracing::warn!(reason, "a webhook is refused");
                (StatusCode::UNAUTHORIZED, "refused")
            }
            Notice::Unreadable => {
                tracing::error!(bytes = body.len(), "an event of the provider cannot be read");
                (StatusCode::BAD_REQUEST, "unreadable")
            }
            Notice::Ignored => (StatusCode::OK, "ignored"),
            Notice::Again(reason) => {
                tracing::error!(reason, "an event of the provider cannot be processed now");
                TRY_AGAIN
            }
            Notice::Unclaimed { downstream_key, reason } => {
                match reconciliation.unclaimed(&downstream_key, reason).await {
                    Ok(()) => ESCALATED,
                    Err(error) => {
                        tracing::error!(%error, cause = error.source(), "an effect could not be escalated");
                        TRY_AGAIN
                    }
                }
            }
            Notice::ProviderReport(key, reported) => {
                self.reported(&key, &reported).instrument(telemetry::record_span(&key)).await
            }
        }
    }

    async fn reported(&self, key: &RecordKey, reported: &ProviderReport) -> (StatusCode, &'static str) {
        match self.0.reconciliation.process(key, reported).await {
            Ok(ReconcileOutcome::Resolved(state)) => {
                tracing::info!(state, "the provider's report settles a record");
                (StatusCode::OK, "settled")
            }
            // Logged where it was found.
            Ok(ReconcileOutcome::Escalated) => ESCALATED,
            Ok(ReconcileOutcome::Scheduled(_)) => (StatusCode::OK, "taken up later"),
            Ok(outcome @ (ReconcileOutcome::Settled | ReconcileOutcome::Gone)) => {
                tracing::info!(?outcome, "the provider's report changes nothing");
                (StatusCode::OK, "nothing to settle")
            }
            Ok(
                outcome @ (ReconcileOutcome::InFlight(_) | ReconcileOutcome::NotDue | ReconcileOutcome::Busy),
            ) => {
                tracing::info!(?outcome, "the provider must send its event again");
                TRY_AGAIN
            }
            Err(error) => {
                let cause = error.source();
                tracing::error!(%error, cause, "the provider's report could not be processed");
                TRY_AGAIN
            }
        }
    }
}

const TRY_AGAIN: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "try again");
const ESCALATED: (StatusCode, &str) = (StatusCode::OK, "escalated");

impl<B> tower_service::Service<Request<B>> for Webhook
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let webhook = self.clone();
        Box::pin(async move {
            let (status, outcome) = webhook.answer(request).await;
            match status {
                StatusCode::UNAUTHORIZED => telemetry::count(WEBHOOK_REFUSED),
                StatusCode::BAD_REQUEST => telemetry::count(WEBHOOK_UNREADABLE),
                StatusCode::SERVICE_UNAVAILABLE => telemetry::count(WEBHOOK_AGAIN),
                _ => {}
            }
            let body = format!("{{\"outcome\":\"{outcome}\"}}");
            let mut response = Response::new(Full::from(body));
            *response.status_mut() = status;
            response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

/// Runs the webhook until Lambda ends it.
///
/// # Errors
/// If the runtime fails.
pub async fn webhook(reconciliation: Reconciliation, events: impl Events) -> Result<(), Error> {
    run(lambda_http::Adapter::from(Webhook::new(reconciliation, events))).await
}
