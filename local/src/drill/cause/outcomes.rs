//! Outcomes that are not known, that contradict their record, or that were executed twice.

use super::{functions::stop, queues::close};
use crate::drill::{
    client::{order, payment},
    operations::{CREATE_ORDER, CREATE_PAYMENT, INTENT_PHASE},
    stage::Stage,
};
use futures_util::future::join_all;
use lambda_idempotency::{
    Answer,
    key::RecordKey,
    operator::{Correction, MessageSummary},
    telemetry::{
        BETWEEN_WORKERS_COUNT, COMPLETION_DENIED, COMPLETION_UNWRITTEN, CONTRADICTION_SENT,
        CONTRADICTION_UNSENT, DOUBLE_EXECUTION, PHASE_MISMATCH, RECONCILE_ASSUMED, UNKNOWN_ESCALATED,
        ZOMBIE_KEY,
    },
};
use std::time::Duration;
use tokio::{task::JoinHandle, time};

const HOUR: Duration = Duration::from_secs(3600);
/// After this time, a payment with the slow card waits for the provider.
const RESERVED: Duration = Duration::from_millis(400);
/// It answers after this time, in milliseconds, and before the function's wait for it is over.
const SLOW: &str = "tok_slow_800";
/// More than are tolerated.
const TOO_MANY: usize = 11;

const NOT_EXECUTED: Correction = Correction::NotExecuted { retain: None };

/// The payment of a drill.
fn record(key: &str) -> Result<RecordKey, String> {
    Stage::record_key(CREATE_PAYMENT, key)
}

/// A payment that is in progress: its worker waits for the provider.
async fn in_progress(stage: &Stage, key: &str) -> JoinHandle<u16> {
    let request = tokio::spawn(stage.request("/payments", key, &payment(SLOW)));
    time::sleep(RESERVED).await;
    request
}

/// The provider does not answer, and is gone when it is asked.
pub async fn unknown(stage: &mut Stage) -> Result<(), String> {
    stage.post("/payments", UNKNOWN, &payment("tok_timeout_not_charged"), 504).await?;
    stage.cloud.provider.leave().await;
    stage.until_value(UNKNOWN_ESCALATED, 1.0).await?;
    stage.age(&record(UNKNOWN)?, &["since"], 2 * HOUR).await
}

/// The provider is back, and an operator settles the outcome.
pub async fn known(stage: &mut Stage) -> Result<(), String> {
    stage.cloud.provider.come_back().await.map_err(|error| error.to_string())?;
    stage.correct(&record(UNKNOWN)?, &NOT_EXECUTED).await
}

const UNKNOWN: &str = "drill-unknown";

/// The provider finds none of the charges, of more than are tolerated.
pub async fn not_found(stage: &mut Stage) -> Result<(), String> {
    let counted = stage.counted(RECONCILE_ASSUMED);
    let lost = payment("tok_timeout_not_charged");
    let keys = (0..TOO_MANY).map(|number| format!("drill-not-found-{number}"));
    join_all(keys.map(|key| stage.request("/payments", &key, &lost))).await;
    stage.until_counted(RECONCILE_ASSUMED, counted + TOO_MANY as f64).await
}

/// A worker dies after its charge.
pub async fn dies(stage: &mut Stage) -> Result<(), String> {
    let counted = stage.counted(ZOMBIE_KEY);
    stage.post("/payments", DEAD, &payment("tok_crash_after"), 502).await?;
    stage.until_counted(ZOMBIE_KEY, counted + 1.0).await
}

/// The provider knows the charge.
pub async fn found(stage: &mut Stage) -> Result<(), String> {
    stage.until_settled(&record(DEAD)?).await
}

const DEAD: &str = "drill-dead-worker";

/// An operator settles as declined what the provider has charged, and then its webhook comes.
pub async fn contradicted(stage: &mut Stage) -> Result<(), String> {
    stage.off.insert("poll");
    let counted = stage.counted(CONTRADICTION_SENT);
    stage.post("/payments", CONTRADICTED, &payment("tok_timeout_charged"), 504).await?;
    let answer = Answer::json(402, r#"{"title":"The card was declined"}"#);
    let declined = Correction::Executed { answer, retain: None, messages: Vec::new() };
    stage.correct(&record(CONTRADICTED)?, &declined).await?;
    stage.deliver().await?;
    let contradicted = stage.until_counted(CONTRADICTION_SENT, counted + 1.0).await;
    stage.off.remove("poll");
    contradicted
}

/// An operator has dealt with the contradiction.
pub async fn cleared(stage: &mut Stage) -> Result<(), String> {
    stage.correct(&record(CONTRADICTED)?, &Correction::ClearAlarms).await?;
    stage.empty("contradictions").await
}

const CONTRADICTED: &str = "drill-contradicted";

/// A worker's report waits in a queue. Meanwhile an operator releases its record, and a retry runs.
pub async fn twice(stage: &mut Stage) -> Result<(), String> {
    let (record, counted) = (record(TWICE)?, stage.counted(DOUBLE_EXECUTION));
    defer(stage, TWICE).await?;
    stage.until_state(&record, &["unknown"]).await?;
    stage.correct(&record, &NOT_EXECUTED).await?;
    stage.post("/payments", TWICE, &payment(SLOW), 201).await?;
    stop(stage, "reconcile", false);
    stage.until_counted(DOUBLE_EXECUTION, counted + 1.0).await
}

/// An operator has counted the effects.
pub async fn counted(stage: &mut Stage) -> Result<(), String> {
    stop(stage, "reconcile", false);
    stage.until_queue("deferred-reports", true).await?;
    stage.correct(&record(TWICE)?, &Correction::ClearAlarms).await?;
    stage.play().await?;
    stage.empty("contradictions").await
}

const TWICE: &str = "drill-twice";

/// A worker cannot write its report, and nothing takes it from its queue.
async fn defer(stage: &mut Stage, key: &str) -> Result<(), String> {
    stop(stage, "reconcile", true);
    let request = in_progress(stage, key).await;
    stage.table_is_away(true);
    let _ = request.await;
    let deferred = stage.until_queue("deferred-reports", false).await;
    stage.table_is_away(false);
    deferred
}

pub async fn deferred(stage: &mut Stage) -> Result<(), String> {
    defer(stage, DEFERRED).await
}

/// The report is taken.
pub async fn applied(stage: &mut Stage) -> Result<(), String> {
    stop(stage, "reconcile", false);
    stage.until_queue("deferred-reports", true).await?;
    stage.until_settled(&record(DEFERRED)?).await
}

const DEFERRED: &str = "drill-deferred";

/// A worker can neither write its report nor defer it.
pub async fn unwritten(stage: &mut Stage) -> Result<(), String> {
    let counted = stage.counted(COMPLETION_UNWRITTEN);
    close(stage, "deferred-reports", true)?;
    let request = in_progress(stage, UNWRITTEN).await;
    stage.table_is_away(true);
    let _ = request.await;
    stage.table_is_away(false);
    stage.until_counted(COMPLETION_UNWRITTEN, counted + 1.0).await
}

/// The provider knows the charge.
pub async fn written(stage: &mut Stage) -> Result<(), String> {
    close(stage, "deferred-reports", false)?;
    stage.until_settled(&record(UNWRITTEN)?).await
}

const UNWRITTEN: &str = "drill-unwritten";

/// The record of a worker is deleted, and the queue of deferred reports takes nothing.
pub async fn unsent(stage: &mut Stage) -> Result<(), String> {
    let counted = stage.counted(CONTRADICTION_UNSENT);
    close(stage, "deferred-reports", true)?;
    let request = in_progress(stage, UNSENT).await;
    stage.delete(&record(UNSENT)?).await?;
    let _ = request.await;
    stage.until_counted(CONTRADICTION_UNSENT, counted + 1.0).await
}

pub fn sent(stage: &Stage) -> Result<(), String> {
    close(stage, "deferred-reports", false)
}

const UNSENT: &str = "drill-unsent";

/// The row that a completion writes is another charge's.
pub async fn refused(stage: &mut Stage) -> Result<(), String> {
    let counted = stage.counted(COMPLETION_DENIED);
    stage.post("/payments", REFUSED, &payment("tok_ok"), 201).await?;
    stage.delete(&record(REFUSED)?).await?;
    stage.change_charges(|charge| format!("another {charge}")).await?;
    let _ = stage.request("/payments", REFUSED, &payment("tok_ok")).await;
    stage.until_counted(COMPLETION_DENIED, counted + 1.0).await
}

/// The row is repaired, and an operator has the provider asked again.
pub async fn accepted(stage: &mut Stage) -> Result<(), String> {
    stage.change_charges(|charge| charge.trim_start_matches("another ").to_owned()).await?;
    stage.send("reconcile", &MessageSummary::ask(&record(REFUSED)?)).await?;
    stage.until_settled(&record(REFUSED)?).await
}

const REFUSED: &str = "drill-refused";

/// The orders that are interrupted.
fn interrupted() -> impl Iterator<Item = String> {
    (0..TOO_MANY).map(|number| format!("drill-interrupted-{number}"))
}

/// The workers of more operations die than are tolerated, behind a phase that is kept.
pub async fn interrupt(stage: &mut Stage) -> Result<(), String> {
    let order = order("tok_crash_phase_1");
    join_all(interrupted().map(|key| stage.request("/orders", &key, &order))).await;
    stage.until_value(BETWEEN_WORKERS_COUNT, TOO_MANY as f64).await
}

/// Their clients retry.
pub async fn resume(stage: &mut Stage) -> Result<(), String> {
    let order = order("tok_crash_phase_1");
    for key in interrupted() {
        stage.post("/orders", &key, &order, 201).await?;
    }
    Ok(())
}

/// The record keeps a phase of another handler.
pub async fn mismatched(stage: &mut Stage) -> Result<(), String> {
    let (record, counted) = (Stage::record_key(CREATE_ORDER, MISMATCHED)?, stage.counted(PHASE_MISMATCH));
    let order = order("tok_crash_phase_1");
    stage.post("/orders", MISMATCHED, &order, 502).await?;
    stage.until_state(&record, &["between_workers"]).await?;
    stage.rename_phase(&record, "of-another-handler").await?;
    stage.post("/orders", MISMATCHED, &order, 503).await?;
    stage.until_counted(PHASE_MISMATCH, counted + 1.0).await
}

/// The handler that knows the phase is deployed again.
pub async fn matched(stage: &mut Stage) -> Result<(), String> {
    let record = Stage::record_key(CREATE_ORDER, MISMATCHED)?;
    stage.rename_phase(&record, INTENT_PHASE).await?;
    stage.post("/orders", MISMATCHED, &order("tok_crash_phase_1"), 201).await
}

const MISMATCHED: &str = "drill-mismatched";
