//! Messages that nothing takes, that cannot be read, or that cannot be buried.

use super::functions::stop;
use crate::drill::{
    client::{fresh, order},
    operations::{CHARGE_PHASE, CREATE_ORDER},
    stage::Stage,
};
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use lambda_idempotency::{
    operator::Correction,
    telemetry::{MESSAGE_HELD, MESSAGE_NOT_BURIED, error_chain},
};

/// What no consumer can read.
const POISON: &str = "a drill";

fn dead_letters(queue: &str) -> String {
    match queue {
        // Those of `sweep` and `reconcile` go there too.
        "checks" => "dead-letters".to_owned(),
        queue => format!("{queue}-dead-letters"),
    }
}

/// A message that cannot be read goes to the dead letters.
pub async fn buried(stage: &mut Stage, queue: &str) -> Result<(), String> {
    stage.send(queue, POISON).await?;
    stage.until_queue(&dead_letters(queue), false).await
}

/// An operator has dealt with the dead letters.
pub async fn dealt_with(stage: &mut Stage, queue: &str) -> Result<(), String> {
    stage.empty(&dead_letters(queue)).await
}

/// A message that cannot be read, while the dead letters take nothing.
pub async fn not_buried(stage: &mut Stage, queue: &str) -> Result<(), String> {
    close(stage, &dead_letters(queue), true)?;
    let counted = stage.counted(MESSAGE_NOT_BURIED);
    stage.send(queue, POISON).await?;
    stage.until_counted(MESSAGE_NOT_BURIED, counted + 1.0).await
}

/// The dead letters take messages again. The one of the drill is taken out by hand: it would come only after a while.
pub async fn buried_again(stage: &mut Stage, queue: &str) -> Result<(), String> {
    close(stage, &dead_letters(queue), false)?;
    stage.purge(queue).await?;
    stage.empty(&dead_letters(queue)).await
}

/// Lets the queue of this name take no messages, or take them again.
pub fn close(stage: &Stage, queue: &str, closes: bool) -> Result<(), String> {
    let full_name = &stage.queue(queue)?.full_name;
    stage.cloud.queues.faults.close(full_name, closes);
    Ok(())
}

/// An order of the queue.
fn queued(source: &str) -> String {
    let mut order = order(source);
    order["orderId"] = fresh().into();
    order.to_string()
}

/// The provider is away, and an operator does not trust what was done: the order is held.
pub async fn held(stage: &mut Stage) -> Result<(), String> {
    let (record, counted) = (Stage::record_key(CREATE_ORDER, HELD)?, stage.counted(MESSAGE_HELD));
    stage.cloud.provider.leave().await;
    let mut order = order("tok_ok");
    order["orderId"] = HELD.into();
    stage.send("orders", &order.to_string()).await?;
    stage.until_state(&record, &["between_workers"]).await?;
    stage.correct(&record, &Correction::Hold).await?;
    stage.until_counted(MESSAGE_HELD, counted + 1.0).await
}

/// The provider is back and did not charge, and the order comes by HTTP too. Its message would come again within half an hour.
pub async fn released(stage: &mut Stage) -> Result<(), String> {
    stage.cloud.provider.come_back().await.map_err(|error| error.to_string())?;
    let record = Stage::record_key(CREATE_ORDER, HELD)?;
    let not_charged = Correction::PhaseNotExecuted { phase: CHARGE_PHASE.to_owned() };
    stage.correct(&record, &not_charged).await?;
    stage.post("/orders", HELD, &order("tok_ok"), 201).await?;
    stage.purge("orders").await
}

const HELD: &str = "drill-held";

/// An order waits.
pub async fn order_waits(stage: &mut Stage) -> Result<(), String> {
    stop(stage, "order-queue", true);
    stage.send("orders", &queued("tok_ok")).await
}

/// More orders wait than are tolerated.
pub async fn orders_wait(stage: &mut Stage) -> Result<(), String> {
    const BATCHES: usize = 101;
    const MOST: usize = 10;
    stop(stage, "order-queue", true);
    let url = stage.queue("orders")?.url.clone();
    for _ in 0..BATCHES {
        let entries = (0..MOST).map(|place| {
            let entry = SendMessageBatchRequestEntry::builder().id(place.to_string());
            let entry = entry.message_body(queued("tok_ok")).message_group_id(fresh());
            entry.message_deduplication_id(fresh()).build()
        });
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        let send = stage.cloud.queues.client.send_message_batch().queue_url(&url);
        send.set_entries(Some(entries)).send().await.map_err(|error| error_chain(&error))?;
    }
    Ok(())
}

/// The orders are taken out by hand: to charge them all would take long.
pub async fn orders_are_dropped(stage: &mut Stage) -> Result<(), String> {
    stage.purge("orders").await?;
    stop(stage, "order-queue", false);
    Ok(())
}

/// The function takes its queue again.
pub async fn taken(stage: &mut Stage, function: &str, queue: &str) -> Result<(), String> {
    stop(stage, function, false);
    stage.until_queue(queue, true).await
}
