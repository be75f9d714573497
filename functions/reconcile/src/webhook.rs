//! The provider's webhook: `POST /webhooks/provider`.
//!
//! 1. A body whose signature does not verify, or is older than five minutes, is refused: 401.
//! 2. What names no record of ours, or one that is settled, is acknowledged and changes nothing: 200.
//! 3. What could not be written down is not acknowledged: 503, and the provider sends it again; likewise, for three days, what
//!    names a record in a way that no key opens.
//!
//! An event that comes twice settles once: the second finds the record settled.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use lambda_idempotency::{
    event,
    key::signature::{DEFAULT_TOLERANCE, Secrets},
    reconcile::{ReconcileOutcome, Reconciliation},
};
use lambda_runtime::Error;
use payments::{Charge, Found, Ledger, SealingKeys};
use serde::Deserialize;
use serde_json::json;

use crate::payment::Said;

/// The header with time stamp and signatures.
const SIGNATURE: &str = "provider-signature";

/// For how long an event about a charge whose record cannot be made out is sent again: providers give up an endpoint that keeps
/// failing, and with it the events that could be read.
const SENT_AGAIN: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// The metadata that leads from an event back to the record.
const RECORD: &str = "record";

/// What the webhook works with.
pub struct Webhook {
    /// Settles records.
    pub reconciliation: Reconciliation,
    /// Where payments are written down.
    pub ledger: Ledger,
    /// What the provider signs with; several while they are changed.
    pub secrets: Secrets,
    /// What opens the way from a charge back to its record.
    pub sealing_keys: SealingKeys,
}

/// An event of the provider.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    key: String,
    charge: Option<Charge>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// Runs the function until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong, by the name of what is wrong.
pub async fn run() -> Result<(), Error> {
    event::logs();
    let secrets = event::text("WEBHOOK_SECRETS").inspect_err(event::report)?;
    let secrets = Secrets::parse(&secrets)
        .map_err(|error| format!("the environment variable WEBHOOK_SECRETS: {error}"));
    let secrets = secrets.inspect_err(event::report)?;
    let sealing_keys = SealingKeys::from_env().inspect_err(event::report)?;
    let (reconciliation, ledger) = crate::build().await.inspect_err(event::report)?;
    lambda_http::run(router(Webhook { reconciliation, ledger, secrets, sealing_keys })).await
}

/// The webhook as a router.
pub fn router(webhook: Webhook) -> Router {
    Router::new().route("/webhooks/provider", post(receive)).with_state(Arc::new(webhook))
}

async fn receive(State(webhook): State<Arc<Webhook>>, headers: HeaderMap, body: Bytes) -> Response {
    let signature = headers.get(SIGNATURE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let now = webhook.reconciliation.now();
    if let Err(error) = webhook.secrets.verify(signature, &body, now, DEFAULT_TOLERANCE) {
        tracing::warn!(%error, "a webhook is refused");
        return answer(StatusCode::UNAUTHORIZED, "refused");
    }
    let Ok(event) = serde_json::from_slice::<Event>(&body) else {
        // Signed, so it is the provider's: it has changed its events.
        tracing::error!("an event of the provider cannot be read");
        return answer(StatusCode::BAD_REQUEST, "unreadable");
    };
    let Some(found) = event.found() else {
        tracing::info!("an event of the provider says nothing of a charge");
        return answer(StatusCode::OK, "ignored");
    };
    let Some(way_back) = event.metadata.get(RECORD) else {
        tracing::warn!("an event of the provider names no record");
        return answer(StatusCode::OK, "ignored");
    };
    let Some(key) = webhook.sealing_keys.open(way_back) else {
        // The downstream key, by which the charge is found at the provider.
        let charge = &event.key;
        tracing::error!(
            charge,
            "the metadata of an event opens with none of SEALING_KEYS: do `payments` and `webhook` have the same ones?"
        );
        // It may be the only proof that a charge was made: the provider sends it again, and not for ever.
        let made_at = event.charge.as_ref().map(|charge| charge.created_at);
        return match made_at.is_some_and(|made_at| now < made_at.plus(SENT_AGAIN)) {
            true => answer(StatusCode::SERVICE_UNAVAILABLE, "try again"),
            false => answer(StatusCode::OK, "ignored"),
        };
    };
    let said = Said { key: event.key.clone(), found, ledger: webhook.ledger.clone() };
    let (hash, operation) = (key.hash(), key.operation());
    match webhook.reconciliation.told(&key, &said).await {
        Ok(ReconcileOutcome::Resolved(state)) => {
            tracing::info!(key = %hash, %operation, state, "the provider's word settles a record");
            answer(StatusCode::OK, "settled")
        }
        Ok(ReconcileOutcome::Busy) => answer(StatusCode::SERVICE_UNAVAILABLE, "try again"),
        Ok(outcome) => {
            tracing::info!(key = %hash, %operation, ?outcome, "the provider's word changes nothing");
            answer(StatusCode::OK, "nothing to settle")
        }
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            let cause = error.source().map(ToString::to_string);
            tracing::error!(key = %hash, %operation, error, cause, "the provider's word could not be taken up");
            answer(StatusCode::SERVICE_UNAVAILABLE, "try again")
        }
    }
}

impl Event {
    fn found(&self) -> Option<Found> {
        match (&*self.kind, &self.charge) {
            ("charge.succeeded", Some(charge)) => Some(Found::Charged(charge.clone())),
            ("charge.declined", _) => Some(Found::Declined),
            _ => None,
        }
    }
}

fn answer(status: StatusCode, outcome: &'static str) -> Response {
    (status, Json(json!({ "outcome": outcome }))).into_response()
}
