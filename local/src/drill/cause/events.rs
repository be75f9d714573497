//! The provider's events, and its ledger.

use crate::drill::{
    client::{TENANT, fresh, payment},
    stage::Stage,
};
use aws_smithy_types::{DateTime, date_time::Format};
use futures_util::future::join_all;
use lambda_idempotency::telemetry::WEBHOOK_AGAIN;
use serde_json::json;
use std::time::SystemTime;

/// More than are tolerated within an hour.
const SCANNED: usize = 51;
const WEBHOOK: &str = "/webhooks/provider";

/// Scanners send what has no signature.
pub async fn unsigned(stage: &mut Stage) -> Result<(), String> {
    let requests = (0..SCANNED).map(|_| stage.request(WEBHOOK, &fresh(), &json!({})));
    match join_all(requests).await.iter().all(|status| *status == 401) {
        true => Ok(()),
        false => Err("the webhook takes an event without a signature".to_owned()),
    }
}

/// An event has a signature that is not valid.
pub async fn refused(stage: &mut Stage) -> Result<(), String> {
    let request = stage.cloud.http.post(format!("{}{WEBHOOK}", stage.cloud.url));
    let request = request.header("provider-signature", "t=1,v1=00").body("{}");
    match request.send().await.map_or(0, |answer| answer.status().as_u16()) {
        401 => Ok(()),
        status => Err(format!("the webhook answers {status}")),
    }
}

/// The provider has changed its events.
pub async fn unreadable(stage: &mut Stage) -> Result<(), String> {
    match stage.cloud.provider.sends("{}").await {
        true => Err("the webhook takes an event that it cannot read".to_owned()),
        false => Ok(()),
    }
}

/// The table does not answer when an event comes.
pub async fn not_processed(stage: &mut Stage) -> Result<(), String> {
    let counted = stage.counted(WEBHOOK_AGAIN);
    stage.post("/payments", &fresh(), &payment("tok_ok"), 201).await?;
    stage.table_is_away(true);
    let delivered = stage.deliver().await;
    stage.table_is_away(false);
    delivered?;
    stage.until_counted(WEBHOOK_AGAIN, counted + 1.0).await
}

/// The provider has a charge that no record of ours knows, and the day is compared.
pub async fn differ(stage: &mut Stage) -> Result<(), String> {
    let charge = json!({ "amountCents": 100, "currency": "EUR", "source": "tok_ok", "tenant": TENANT });
    let request = stage.cloud.http.post(format!("{}/charges", stage.cloud.provider.url));
    let sent = request.header("idempotency-key", fresh()).json(&charge).send().await;
    sent.and_then(reqwest::Response::error_for_status).map_err(|error| error.to_string())?;
    let now = DateTime::from(SystemTime::now()).fmt(Format::DateTime).map_err(|error| error.to_string())?;
    let compare = json!({ "job": "compare", "day": &now[..10] });
    let compared = stage.invoke("compare", &compare).await?;
    compared.map(drop).map_err(|failure| failure.to_string())
}
