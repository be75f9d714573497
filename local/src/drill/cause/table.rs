//! A table that fails, clients that misuse it.

use crate::drill::{
    client::{fresh, order, payment},
    stage::{PATIENCE, Stage},
};
use crate::faults::TableFault;
use futures_util::future::join_all;
use lambda_idempotency::telemetry::{STORE_ERROR, STORE_THROTTLED, TRANSACTION_UNCONFIRMED};
use serde_json::json;
use tokio::time::Instant;

/// More than are tolerated.
const MANY: usize = 12;
/// Transactions: each counts once.
const UNCONFIRMED: usize = 7;
/// As many as the function has environments.
const AT_ONCE: usize = 4;
/// More replays within five minutes than are tolerated.
const REPLAYS: usize = 120;

/// The table does not answer.
pub async fn away(stage: &mut Stage) -> Result<(), String> {
    stage.table_is_away(true);
    fail(stage, STORE_ERROR).await
}

/// The table answers no transaction.
pub async fn transactions_fail(stage: &mut Stage) -> Result<(), String> {
    let unconfirmed = stage.counted(TRANSACTION_UNCONFIRMED);
    stage.cloud.queues.faults.break_table(Some(TableFault::NoTransactions));
    let transfer = json!({ "from": "a-0", "to": "a-1", "amountCents": 1 });
    stage.flood("/transfers", &transfer, UNCONFIRMED).await;
    stage.until_counted(TRANSACTION_UNCONFIRMED, unconfirmed + UNCONFIRMED as f64).await
}

/// The table throttles each call.
pub async fn throttles(stage: &mut Stage) -> Result<(), String> {
    stage.cloud.queues.faults.break_table(Some(TableFault::Throttled));
    fail(stage, STORE_THROTTLED).await
}

/// Sends payments until as many calls have failed as are too many. How often each is tried depends on those before it.
async fn fail(stage: &mut Stage, metric: &str) -> Result<(), String> {
    let (begun, most) = (Instant::now(), stage.counted(metric) + MANY as f64);
    while stage.counted(metric) < most {
        if begun.elapsed() > PATIENCE {
            return Err(format!("the functions do not write {metric} often enough"));
        }
        stage.flood("/payments", &payment("tok_ok"), AT_ONCE).await;
        stage.wait().await;
    }
    Ok(())
}

/// The table does not answer a scheduled run.
pub async fn run_fails(stage: &mut Stage) -> Result<(), String> {
    stage.table_is_away(true);
    stage.play().await
}

/// The table works again, and the functions use it: after failures, each process leaves it alone for a while.
pub async fn is_back(stage: &mut Stage) -> Result<(), String> {
    stage.cloud.queues.faults.break_table(None);
    let begun = Instant::now();
    loop {
        let requests = (0..AT_ONCE).map(|_| stage.request("/payments", &fresh(), &payment("tok_ok")));
        if join_all(requests).await.iter().all(|status| *status == 201) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("the functions do not use the table again".to_owned());
        }
        stage.wait().await;
    }
}

/// Somebody switches the table's time to live off, or on, and a sweep looks.
pub async fn time_to_live_is(stage: &mut Stage, on: bool) -> Result<(), String> {
    stage.switch_time_to_live(on).await?;
    stage.job("stale", "sweep").await
}

/// A client uses one key for other requests.
pub async fn misused(stage: &mut Stage) -> Result<(), String> {
    let key = fresh();
    stage.post("/payments", &key, &payment("tok_ok"), 201).await?;
    let mut other = payment("tok_ok");
    for amount in 0..MANY {
        other["amountCents"] = (200 + amount).into();
        stage.post("/payments", &key, &other, 422).await?;
    }
    Ok(())
}

/// A client sends one key in a loop.
pub async fn looped(stage: &mut Stage) -> Result<(), String> {
    let (key, payment) = (fresh(), payment("tok_ok"));
    stage.post("/payments", &key, &payment, 201).await?;
    join_all((0..REPLAYS).map(|_| stage.request("/payments", &key, &payment))).await;
    Ok(())
}

/// One more operation begins.
pub async fn request(stage: &mut Stage, path: &str) -> Result<(), String> {
    let body = match path {
        "/orders" => order("tok_ok"),
        _ => payment("tok_ok"),
    };
    stage.post(path, &fresh(), &body, 201).await
}
