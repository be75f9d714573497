//! `list`: records that are not settled.

use std::time::Duration;

use comfy_table::{Cell, Table};
use lambda_idempotency::{
    key::Tenant,
    operator::Correction,
    record::{Record, State},
    store::Unsettled,
    time::Timestamp,
};
use serde_json::json;

use crate::{
    args::{List, Listed},
    context::Context,
    failure::Failure,
    output::{Screen, span, state_cell},
    record::{RecordJson, asks_next},
};

/// How many items one step of a scan looks at.
const STEP: u32 = 1000;

pub async fn run(context: &Context, args: &List) -> Result<(), Failure> {
    let tenant = tenant(args.tenant.as_deref())?;
    let mut records = match args.state {
        Listed::Unknown => unknown(context, tenant.as_ref(), args.limit).await?,
        Listed::Stale => stale(context, tenant.as_ref(), args.limit, None).await?,
    };
    let more = records.len() > args.limit;
    records.truncate(args.limit);
    if context.screen.is_json() {
        let records: Vec<_> = records.iter().map(RecordJson::from).collect();
        context.screen.print_json(&json!(records), false)?;
    } else if records.is_empty() {
        context.screen.print("None.")?;
    } else {
        context.screen.print_table(&table(&context.screen, &records, context.now()))?;
    }
    if more {
        eprintln!("There are more: raise --limit.");
    }
    Ok(())
}

pub fn tenant(text: Option<&str>) -> Result<Option<Tenant>, Failure> {
    let parse =
        |text| Tenant::parse(text).map_err(|error| Failure::Usage(format!("this is no tenant: {error}")));
    text.map(parse).transpose()
}

/// Unknown outcomes, the oldest first; one more than `limit` where there are more.
pub async fn unknown(
    context: &Context,
    tenant: Option<&Tenant>,
    limit: usize,
) -> Result<Vec<Record>, Failure> {
    let (mut records, mut from) = (Vec::new(), None);
    loop {
        let page = context.store.unknown(tenant, from.as_ref()).await?;
        records.extend(page.records);
        from = page.next;
        if from.is_none() || records.len() > limit {
            break;
        }
    }
    records.sort_by_key(since);
    records.truncate(limit.saturating_add(1));
    Ok(records)
}

/// Records whose worker's lease is over, or that nobody took in time, by a scan of the whole table at no more than
/// `units_per_second`.
pub async fn stale(
    context: &Context,
    tenant: Option<&Tenant>,
    limit: usize,
    units_per_second: Option<f64>,
) -> Result<Vec<Record>, Failure> {
    let (mut records, mut from) = (Vec::new(), None);
    loop {
        let page = context.store.scan((0, 1), from.as_ref(), context.now(), STEP).await?;
        let ours = |record: &Record| tenant.is_none_or(|tenant| record.key.tenant() == tenant);
        records.extend(page.records.into_iter().filter(|record| ours(record) && is_stale(context, record)));
        from = page.next;
        if from.is_none() || records.len() > limit {
            break;
        }
        if let Some(rate) = units_per_second {
            tokio::time::sleep(Duration::from_secs_f64(page.units / rate.max(0.1))).await;
        }
    }
    records.sort_by_key(since);
    records.truncate(limit.saturating_add(1));
    Ok(records)
}

/// Whether its worker is to be given up. A scan finds unknown outcomes too, if they are not in the index.
fn is_stale(context: &Context, record: &Record) -> bool {
    let is_unknown = matches!(record.state, State::Unknown { .. });
    !is_unknown && context.operator.preview(record, &Correction::GiveUp).is_ok()
}

/// Since when a record has been what it is listed for.
fn since(record: &Record) -> Timestamp {
    match record.state {
        State::Unknown { since, .. } => since,
        State::InProgress { lease_until } => lease_until,
        _ => record.created_at,
    }
}

/// A line for each record; its first column names the record for every other command.
pub fn table(screen: &Screen, records: &[Record], now: Timestamp) -> Table {
    let header = ["record", "state", "for", "cause", "attempts", "asked", "asks next"];
    let mut table = screen.table(header);
    for record in records {
        let (cause, asked, next) = match record.state {
            State::Unknown { cause, asked, reconcile_at, .. } => {
                (cause.name(), asked.to_string(), asks_next(reconcile_at, now))
            }
            State::Pending => ("taken by nobody", String::new(), Cell::new("")),
            _ => ("lease over", String::new(), Cell::new("")),
        };
        table.add_row([
            Cell::new(record.key.partition_key()),
            state_cell(record.state.name()),
            Cell::new(span(now.since(since(record)))),
            Cell::new(cause),
            Cell::new(record.attempts),
            Cell::new(asked),
            next,
        ]);
    }
    table
}
