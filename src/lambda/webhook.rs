//! The function that a provider calls. It needs a reader of the provider's events.
//!
//! | the event | answer |
//! | --- | --- |
//! | has no signature, or not the provider's | 401, and nothing is done |
//! | is too long, or does not end in time | 413, 408 |
//! | is from the provider, but cannot be read | 400 |
//! | is not about an operation | 200 |
//! | settles a record, agrees with it, or is processed later | 200 |
//! | contradicts a record, or has none | 200: it is escalated |
//! | refuses what is escalated already | 200: it stays so |
//! | comes before its record can take it, or could not be processed | 503: the provider sends it again |
//!
//! An event that comes twice settles once: the second time, the record is settled.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use lambda_runtime::{Error, service_fn};
use tower_service::Service;
use tracing::Instrument;

use super::run::run_http;
use crate::{
    error_chain::error_chain,
    http::MAX_BODY,
    key::RecordKey,
    reconcile::{ProviderReport, ReconcileOutcome, Reconciliation},
    record::Reference,
    telemetry::{self, WEBHOOK_AGAIN, WEBHOOK_EARLY, WEBHOOK_REFUSED, WEBHOOK_UNREADABLE, WEBHOOK_UNSIGNED},
    time::Timestamp,
    time_budget::{BODY_TIMEOUT, REFERENCE_WAIT},
};

/// Reads a provider's events. One for each webhook.
pub trait Events: Send + Sync + 'static {
    /// Checks that the provider sent this event, and returns what the event says. `now` is for the age of the signature.
    fn read(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Notice;
}

/// What a request to the webhook says.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// It has no signature, as requests of scanners have none.
    Unsigned,
    /// It has a signature, which is not the provider's or not valid now, for this reason.
    Refused(String),
    /// It is from the provider, but cannot be read: the provider has changed its events.
    Unreadable,
    /// It is not about an operation.
    Ignored,
    /// It reports an effect, but the reference to its record cannot be read now: the provider must send it again.
    Again(&'static str),
    /// It reports an effect that leads to no record.
    Unclaimed {
        /// The key under which the provider has the effect.
        downstream_key: String,
        /// Why it leads to no record.
        reason: &'static str,
    },
    /// It reports an effect, made at this time, of which only the provider's own id is known. The record that
    /// [refers](crate::Execution::refer) to it answers for it. If there is none, the provider must send the event again for
    /// [some minutes](crate::time_budget::REFERENCE_WAIT); after that it is escalated.
    Referred(Reference, Timestamp),
    /// It reports what became of this operation.
    ProviderReport(RecordKey, ProviderReport),
}

/// Applies what `events` reads to the records of `reconciliation`.
struct Webhook<E> {
    reconciliation: Reconciliation,
    events: E,
}

impl<E: Events> Webhook<E> {
    async fn answer(&self, request: Request<impl Body<Error: Into<Error>>>) -> (StatusCode, &'static str) {
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            return (StatusCode::METHOD_NOT_ALLOWED, "events are posted");
        }
        // On Lambda it is there already.
        let whole = Limited::new(body, MAX_BODY).collect();
        let body = match self.reconciliation.engine.world.within(BODY_TIMEOUT, whole).await {
            Some(Ok(body)) => body.to_bytes(),
            Some(Err(_)) => return (StatusCode::PAYLOAD_TOO_LARGE, "too large"),
            None => return (StatusCode::REQUEST_TIMEOUT, "too slow"),
        };
        match self.events.read(&parts.headers, &body, self.reconciliation.now()) {
            Notice::Unsigned => {
                telemetry::count(WEBHOOK_UNSIGNED);
                tracing::warn!("a webhook without a signature is refused");
                REFUSED
            }
            Notice::Refused(reason) => {
                telemetry::count(WEBHOOK_REFUSED);
                tracing::warn!(reason, "a webhook is refused");
                REFUSED
            }
            Notice::Unreadable => {
                telemetry::count(WEBHOOK_UNREADABLE);
                tracing::error!(bytes = body.len(), "an event of the provider cannot be read");
                (StatusCode::BAD_REQUEST, "unreadable")
            }
            Notice::Ignored => (StatusCode::OK, "ignored"),
            Notice::Again(reason) => {
                tracing::error!(reason, "an event of the provider cannot be processed now");
                TRY_AGAIN
            }
            Notice::Unclaimed { downstream_key, reason } => self.unclaimed(&downstream_key, reason).await,
            Notice::Referred(reference, made_at) => self.referred(&reference, made_at).await,
            Notice::ProviderReport(key, report) => {
                self.process(&key, &report).instrument(telemetry::record_span(&key)).await
            }
        }
    }

    async fn unclaimed(&self, id: &str, reason: &'static str) -> (StatusCode, &'static str) {
        match self.reconciliation.unclaimed(id, reason).await {
            Ok(()) => ESCALATED,
            Err(error) => {
                tracing::error!(error = error_chain(&error), "an effect could not be escalated");
                TRY_AGAIN
            }
        }
    }

    async fn referred(&self, reference: &Reference, made_at: Timestamp) -> (StatusCode, &'static str) {
        match self.reconciliation.referred(reference).await {
            Ok(Some(_)) => (StatusCode::OK, "known"),
            Ok(None) if self.reconciliation.now() < made_at.plus(REFERENCE_WAIT) => EARLY,
            Ok(None) => self.unclaimed(reference.id(), "no record refers to it").await,
            Err(error) => {
                tracing::error!(cause = error.cause(), "a reference could not be read");
                TRY_AGAIN
            }
        }
    }

    async fn process(&self, key: &RecordKey, report: &ProviderReport) -> (StatusCode, &'static str) {
        let outcome = match self.reconciliation.process(key, report).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::error!(error = error_chain(&error), "the provider's report could not be processed");
                return TRY_AGAIN;
            }
        };
        tracing::info!(?outcome, "the outcome of the provider's report");
        match outcome {
            ReconcileOutcome::Resolved(_) => (StatusCode::OK, "settled"),
            ReconcileOutcome::Noted => (StatusCode::OK, "noted"),
            ReconcileOutcome::Waits => (StatusCode::OK, "waits for a retry"),
            ReconcileOutcome::Escalated => ESCALATED,
            ReconcileOutcome::Scheduled(_) => (StatusCode::OK, "processed later"),
            ReconcileOutcome::Settled | ReconcileOutcome::Gone => (StatusCode::OK, "nothing to settle"),
            ReconcileOutcome::InFlight(_) => EARLY,
            ReconcileOutcome::NotDue | ReconcileOutcome::Busy => TRY_AGAIN,
        }
    }
}

const REFUSED: (StatusCode, &str) = (StatusCode::UNAUTHORIZED, "refused");
/// Its record cannot take it yet: that is normal, and a later delivery finds it.
const EARLY: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "too early");
/// Something failed.
const TRY_AGAIN: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "try again");
const ESCALATED: (StatusCode, &str) = (StatusCode::OK, "escalated");

/// A provider's webhook, as a `tower` service: applies what `events` reads to the records of `reconciliation`. Clones share
/// everything.
pub fn webhook_service<B>(
    reconciliation: Reconciliation,
    events: impl Events,
) -> impl Service<Request<B>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
where
    B: Body<Data: Send, Error: Into<Error>> + Send + 'static,
{
    let webhook = Arc::new(Webhook { reconciliation, events });
    service_fn(move |request| {
        let webhook = webhook.clone();
        async move {
            let (status, outcome) = webhook.answer(request).await;
            match (status, outcome) {
                EARLY => telemetry::count(WEBHOOK_EARLY),
                TRY_AGAIN => telemetry::count(WEBHOOK_AGAIN),
                _ => {}
            }
            let body = format!("{{\"outcome\":\"{outcome}\"}}");
            let mut response = Response::new(Full::from(body));
            *response.status_mut() = status;
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            match status {
                // Each requires its header (RFC 9110, sections 15.5.2 and 15.5.6). What signs a webhook has no registered scheme.
                StatusCode::UNAUTHORIZED => {
                    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Signature"));
                }
                StatusCode::METHOD_NOT_ALLOWED => {
                    headers.insert(ALLOW, HeaderValue::from_static("POST"));
                }
                _ => {}
            }
            Ok(response)
        }
    })
}

/// Runs the webhook until Lambda ends it.
///
/// # Errors
/// If the runtime fails.
pub async fn webhook(reconciliation: Reconciliation, events: impl Events) -> Result<(), Error> {
    run_http(webhook_service(reconciliation, events)).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::{
        reconcile::tests::restless,
        world::{ManualWorld, World},
    };

    struct NoEvents;

    impl Events for NoEvents {
        fn read(&self, _: &HeaderMap, _: &[u8], _: Timestamp) -> Notice {
            Notice::Ignored
        }
    }

    #[tokio::test]
    async fn an_event_with_only_an_id_waits_and_is_then_escalated() {
        let (_, reconciliation) = restless().await;
        let made_at = reconciliation.now();
        let webhook = Webhook { reconciliation, events: NoEvents };
        let reference = Reference::new("provider", "ch_1").expect("it is a reference");
        let early = made_at.minus(REFERENCE_WAIT - Duration::from_millis(1));
        assert_eq!(webhook.referred(&reference, early).await, EARLY);
        assert_eq!(webhook.referred(&reference, made_at.minus(REFERENCE_WAIT)).await, ESCALATED);
    }

    // T46: a provider sends an event again only if it is not acknowledged.
    #[tokio::test]
    async fn an_event_about_a_record_that_others_change_is_not_acknowledged() {
        let (key, reconciliation) = restless().await;
        let webhook = Webhook { reconciliation, events: NoEvents };
        assert_eq!(webhook.process(&key, &ProviderReport::not_executed()).await, TRY_AGAIN);
    }

    #[tokio::test]
    async fn an_event_whose_body_never_ends_is_refused_in_time() {
        let (_, reconciliation) = restless().await;
        let world = ManualWorld::at(reconciliation.now());
        let webhook = Webhook { reconciliation: reconciliation.world(world.clone()), events: NoEvents };
        let endless = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let request = Request::post("/").body(endless).expect("a request");
        let (status, _) = world.passing(webhook.answer(request)).await;
        assert_eq!((status, world.running()), (StatusCode::REQUEST_TIMEOUT, BODY_TIMEOUT));
    }
}
