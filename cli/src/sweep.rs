//! `sweep`: finds records of dead workers and marks their leases expired, each with an audit line.

use std::time::Duration;

use lambda_idempotency::{operator::Correction, record::Record, store::Unsettled};
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
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let (mut scanned, mut done) = (Scanned::default(), Vec::new());
    let mut swept = sweep(&context, args, &mut scanned, &mut done).await;
    if let (Ok(found), false) = (&mut swept, args.change.yes)
        && !found.is_empty()
    {
        show(&context, &args.change, found)?;
        change::confirm(&args.change, &format!("Mark {} expired?", found.len()))?;
        swept = expire(&context, args, std::mem::take(found), &mut done).await.map(|()| Vec::new());
    }
    // What was done is printed even if the sweep did not finish.
    print(&context, &scanned, &done)?;
    swept.map(|_| ())
}

/// A record whose lease has expired, and its next state.
type Found = (Record, &'static str);

/// Scans the table. With `--yes`, what it finds is expired as it goes, so that a sweep which ends early has done its part; otherwise
/// it is returned, for the question.
async fn sweep(
    context: &Context,
    args: &args::Sweep,
    scanned: &mut Scanned,
    done: &mut Vec<Found>,
) -> Result<Vec<Found>, Failure> {
    let bar = scan::bar(context).await;
    let (mut found, mut from) = (Vec::new(), None);
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
        bar.set_message(format!("{} found", done.len() + found.len()));
        if args.change.yes {
            let found = std::mem::take(&mut found);
            bar.suspend(|| show(context, &args.change, &found))?;
            expire(context, args, found, done).await?;
        }
        from = page.next;
        if from.is_none() {
            bar.finish_and_clear();
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_secs_f64(page.units / args.pace.units_per_second)).await;
    }
}

async fn expire(
    context: &Context,
    args: &args::Sweep,
    found: Vec<Found>,
    done: &mut Vec<Found>,
) -> Result<(), Failure> {
    let found = found.into_iter().map(|(record, _)| record);
    let (expired, failed) = change::each(context, found, &Correction::ExpireLease, &args.change).await?;
    done.extend(expired);
    failed.map_or(Ok(()), Err)
}

fn show(context: &Context, args: &ChangeArgs, found: &[(Record, &'static str)]) -> Result<(), Failure> {
    if found.is_empty() {
        return Ok(());
    }
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
    screen.print_plan(&table.trim_fmt(), args.yes)?;
    Ok(())
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
