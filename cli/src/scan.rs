//! Scans the whole table for names of records, in several parts at once, at a bounded rate, and shows its progress.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    operation::scan::builders::ScanFluentBuilder,
    types::{AttributeValue, ReturnConsumedCapacity},
};
use futures_util::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};
use lambda_idempotency::{key::RecordKey, store::StoreError};

use crate::{context::Context, failure::Failure};

/// In how many parts. One part alone is read no faster than about a thousand units a second.
const PARTS: i32 = 8;

/// The number of items per step of a part.
const STEP: i32 = 1000;

/// Hands the names of the items that `query` selects to `found`, until that says that it has seen enough. Returns how many of them
/// cannot be read.
pub async fn names(
    context: &Context,
    units_per_second: f64,
    query: impl Fn(ScanFluentBuilder) -> ScanFluentBuilder,
    found: impl FnMut(RecordKey) -> bool,
) -> Result<usize, Failure> {
    let client = Client::new(&context.config);
    let bar = bar(context).await;
    let (found, enough) = (RefCell::new(found), Cell::new(false));
    let (scanned, unreadable) = (Cell::new(0_u64), Cell::new(0));
    let part = async |part| {
        let mut from = None;
        loop {
            let scan = client.scan().table_name(&context.table).projection_expression("pk").limit(STEP);
            let scan = scan.segment(part).total_segments(PARTS).set_exclusive_start_key(from);
            let scan = query(scan).return_consumed_capacity(ReturnConsumedCapacity::Total);
            let page = scan.send().await.map_err(StoreError::from)?;
            scanned.set(scanned.get() + u64::try_from(page.scanned_count).unwrap_or_default());
            show(&bar, scanned.get());
            for item in page.items.unwrap_or_default() {
                let name = item.get("pk").and_then(|pk| pk.as_s().ok());
                match name.and_then(|name| RecordKey::from_partition_key(name)) {
                    Some(key) if !enough.get() => enough.set(!found.borrow_mut()(key)),
                    Some(_) => {}
                    None => unreadable.set(unreadable.get() + 1),
                }
            }
            from = page.last_evaluated_key;
            if from.is_none() || enough.get() {
                return Ok::<_, Failure>(());
            }
            let units = page.consumed_capacity.and_then(|consumed| consumed.capacity_units);
            let seconds = units.unwrap_or_default() * f64::from(PARTS) / units_per_second;
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        }
    };
    let ended = try_join_all((0..PARTS).map(part)).await;
    bar.finish_and_clear();
    ended.map(|_| unreadable.get())
}

/// A value of an expression.
pub fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// The progress of a scan, on a terminal. Its length is the table's approximate item count.
pub async fn bar(context: &Context) -> ProgressBar {
    // Without permission to describe the table, the bar has no length.
    let described = Client::new(&context.config).describe_table().table_name(&context.table).send().await;
    let count = described.ok().and_then(|described| described.table?.item_count);
    let count = count.and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0);
    let (bar, template) = match count {
        Some(count) => (
            ProgressBar::new(count),
            "{bar:30} {human_pos} of about {human_len} items, {elapsed}, about {eta} left; {msg}",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {human_pos} items, {elapsed}; {msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Shows that so many items were scanned. The item count of the table may be hours old.
pub fn show(bar: &ProgressBar, scanned: u64) {
    if bar.length().is_some_and(|length| length < scanned) {
        bar.set_length(scanned);
    }
    bar.set_position(scanned);
}
