//! `sweep`: finds records of dead workers and marks their leases expired, each with an audit line.

use std::time::Duration;

use lambda_idempotency::{internal::Correction, record::Record, store::Unsettled};
use serde_json::json;

use crate::{
    args::{self, ChangeArgs, Global},
    change::{self, BUSY},
    context::Context,
    failure::Failure,
    output::{cell, span},
    record::RecordJson,
    scan,
};

/// The number of items per step of the scan.
const STEP: u32 = 500;

/// The extent of the scan.
#[derive(Default)]
struct Scanned {
    items: u64,
    units: f64,
    unreadable: usize,
}

pub async fn run(global: &Global, args: &args::Sweep) -> Result<(), Failure> {
    change::check(&args.change)?;
    let context = Context::open(global).await?;
    let (found, scanned) = find(&context, args.pace.units_per_second).await?;
    if !found.is_empty() {
        show(&context, &args.change, &found)?;
        change::confirm(&args.change, &format!("Mark {} expired?", found.len()))?;
    }
    let found = found.into_iter().map(|(record, _)| record);
    let (done, failed) = change::each(&context, found, &Correction::ExpireLease, &args.change).await?;
    // What was done is printed even if the sweep did not finish.
    print(&context, &scanned, &done)?;
    failed.map_or(Ok(()), Err)
}

/// The records whose lease has expired, each with its next state.
async fn find(
    context: &Context,
    units_per_second: f64,
) -> Result<(Vec<(Record, &'static str)>, Scanned), Failure> {
    let bar = scan::bar(context).await;
    let (mut found, mut scanned, mut from) = (Vec::new(), Scanned::default(), None);
    loop {
        let page = context.store.scan((0, 1), from.as_ref(), context.now(), STEP).await?;
        found.extend(page.records.into_iter().filter_map(|record| {
            let next = context.operator.preview(&record, &Correction::ExpireLease).ok()?;
            Some((record, next.state.name()))
        }));
        scanned.items += page.scanned;
        scanned.units += page.units;
        scanned.unreadable += page.unreadable;
        scan::show(&bar, scanned.items);
        bar.set_message(format!("{} found", found.len()));
        from = page.next;
        if from.is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_secs_f64(page.units / units_per_second)).await;
    }
    bar.finish_and_clear();
    Ok((found, scanned))
}

fn show(context: &Context, args: &ChangeArgs, found: &[(Record, &'static str)]) -> Result<(), Failure> {
    let screen = &context.screen;
    let mut table = screen.table(["record", "is", "age", "becomes"]);
    for (record, becomes) in found {
        let age = span(context.now().since(record.began_at));
        table.add_row([
            cell(record.key.partition_key()),
            cell(record.state.name()),
            cell(age),
            cell(becomes),
        ]);
    }
    match (screen.is_json(), args.yes) {
        (false, _) => screen.print_table(&table),
        // Standard output is for a program, but the operator must see the records before answering.
        (true, false) => {
            eprintln!("{table}");
            Ok(())
        }
        (true, true) => Ok(()),
    }
}

fn print(context: &Context, scanned: &Scanned, done: &[(Record, &'static str)]) -> Result<(), Failure> {
    let screen = &context.screen;
    let lease_expired = done.iter().filter(|(_, is)| *is != BUSY).count();
    if screen.is_json() {
        let records = done.iter().map(|(record, now)| json!({ "was": RecordJson::from(record), "is": now }));
        let done = json!({
            "scanned": scanned.items,
            "read_units": scanned.units,
            "lease_expired": lease_expired,
            "unreadable": scanned.unreadable,
            "records": records.collect::<Vec<_>>(),
        });
        return screen.print_json(&done, false);
    }
    screen.print(&format!(
        "{} items scanned for {:.1} read units: {lease_expired} expired, {} changed meanwhile, {} unreadable.",
        scanned.items,
        scanned.units,
        done.len() - lease_expired,
        scanned.unreadable
    ))
}
