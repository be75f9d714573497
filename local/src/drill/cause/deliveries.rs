//! Messages that are not delivered, accepted work that waits, and jobs.

use super::functions::stop;
use crate::drill::{
    client::{fresh, order, payment},
    operations::{CREATE_ORDER, CREATE_PAYMENT, CREATE_REPORT},
    stage::Stage,
};
use lambda_idempotency::{
    operator::MessageSummary,
    telemetry::{OUTBOX_NOT_DELIVERED, WORK_ABANDONED},
};
use serde_json::json;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// More often than is tolerated.
const TRIES: f64 = 3.0;

/// The event bus takes nothing.
pub async fn not_delivered(stage: &mut Stage) -> Result<(), String> {
    let counted = stage.counted(OUTBOX_NOT_DELIVERED);
    stage.cloud.queues.faults.break_bus(true);
    stage.post("/orders", &fresh(), &order("tok_ok"), 201).await?;
    stage.until_counted(OUTBOX_NOT_DELIVERED, counted + TRIES).await
}

/// The event bus takes everything again.
pub async fn delivered(stage: &mut Stage) -> Result<(), String> {
    stage.cloud.queues.faults.break_bus(false);
    stage.until_queue("outbox", true).await
}

/// An order's message was missed by the stream, and a sweep finds it.
pub async fn undelivered(stage: &mut Stage) -> Result<(), String> {
    let record = Stage::record_key(CREATE_ORDER, UNDELIVERED)?;
    stop(stage, "outbox", true);
    stage.post("/orders", UNDELIVERED, &order("tok_ok"), 201).await?;
    stage.age(&record, &["published_at"], HOUR).await?;
    stage.job("stale", "sweep").await
}

/// It is delivered, and a sweep finds none.
pub async fn all_delivered(stage: &mut Stage) -> Result<(), String> {
    stop(stage, "outbox", false);
    stage.until_queue("outbox", true).await?;
    stage.until_delivered(&Stage::record_key(CREATE_ORDER, UNDELIVERED)?).await?;
    stage.job("stale", "sweep").await
}

const UNDELIVERED: &str = "drill-undelivered";

/// Accepts a report that no worker gets.
async fn accept(stage: &mut Stage, key: &str) -> Result<(), String> {
    stop(stage, "report-worker", true);
    stage.post("/reports", key, &json!({ "seconds": 1 }), 202).await
}

/// Accepted work waits in its queue.
pub async fn work_waits(stage: &mut Stage) -> Result<(), String> {
    accept(stage, &fresh()).await?;
    stage.until_queue("work", false).await
}

/// A worker takes it.
pub async fn worked(stage: &mut Stage) -> Result<(), String> {
    stop(stage, "report-worker", false);
    stage.until_queue("work", true).await
}

/// Accepted work has waited for an hour, and a sweep finds it.
pub async fn work_is_found(stage: &mut Stage) -> Result<(), String> {
    accept(stage, WAITS).await?;
    stage.age(&Stage::record_key(CREATE_REPORT, WAITS)?, &["kept_at"], HOUR).await?;
    stage.job("stale", "sweep").await
}

/// A worker takes it, and a sweep finds none.
pub async fn no_work_is_found(stage: &mut Stage) -> Result<(), String> {
    worked(stage).await?;
    stage.until_settled(&Stage::record_key(CREATE_REPORT, WAITS)?).await?;
    stage.job("stale", "sweep").await
}

const WAITS: &str = "drill-work-waits";

/// No worker has taken accepted work within its bound, and a sweep ends it.
pub async fn abandoned(stage: &mut Stage) -> Result<(), String> {
    let (record, counted) = (Stage::record_key(CREATE_REPORT, ABANDONED)?, stage.counted(WORK_ABANDONED));
    accept(stage, ABANDONED).await?;
    stage.age(&record, &["claim_by", "created_at", "kept_at"], 48 * HOUR).await?;
    stage.job("stale", "sweep").await?;
    stage.until_counted(WORK_ABANDONED, counted + 1.0).await
}

const ABANDONED: &str = "drill-work-abandoned";

/// A worker may be dead, and nothing takes its check.
pub async fn check_waits(stage: &mut Stage) -> Result<(), String> {
    let before = stage.messages("checks").await?.iter().sum();
    let payment = payment("tok_slow_900");
    let request = tokio::spawn(stage.request("/payments", &fresh(), &payment));
    stage.until_more("checks", before).await?;
    stop(stage, "stale", true);
    request.await.map_err(|error| error.to_string())?;
    stage.until_visible("checks").await
}

/// Nothing takes an operator's question.
pub async fn question_waits(stage: &mut Stage) -> Result<(), String> {
    let key = fresh();
    stage.post("/payments", &key, &payment("tok_ok"), 201).await?;
    stop(stage, "reconcile", true);
    let record = Stage::record_key(CREATE_PAYMENT, &key)?;
    stage.send("reconcile", &MessageSummary::ask(&record)).await
}

/// Nothing continues a sweep.
pub async fn sweep_waits(stage: &mut Stage) -> Result<(), String> {
    stop(stage, "stale", true);
    stage.send("sweep", &json!({ "version": 1, "kind": "sweep" }).to_string()).await
}

/// Nothing ships an order.
pub async fn shipment_waits(stage: &mut Stage) -> Result<(), String> {
    stop(stage, "shipping", true);
    stage.post("/orders", &fresh(), &order("tok_ok"), 201).await?;
    stage.until_queue("shipments", false).await
}
