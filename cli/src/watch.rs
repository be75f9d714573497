//! `watch`: shows the records that are not settled, or have an alarm, and refreshes them until Ctrl-C.

use std::cell::RefCell;

use lambda_idempotency::{record::Record, time::Timestamp};
use serde_json::json;

use crate::{
    alarms::is_alarmed,
    args::Watch,
    context::Context,
    failure::Failure,
    list,
    output::{iso, when},
    record::RecordJson,
};

/// How many records of each kind a picture counts and shows at most.
const MAX_COUNTED: usize = 1000;
const MAX_SHOWN: usize = 20;

/// What the last scan found, and when.
type Scanned = RefCell<Option<(Timestamp, Vec<Record>)>>;

pub async fn run(context: &Context, args: &Watch) -> Result<(), Failure> {
    let scanned = Scanned::default();
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(|error| Failure::from_error(&error)),
        failed = scan(context, args, &scanned) => failed,
        failed = paint(context, args, &scanned) => failed,
    }
}

/// Scans at its own pace: a large table takes minutes, and the picture does not wait for it.
async fn scan(context: &Context, args: &Watch, scanned: &Scanned) -> Result<(), Failure> {
    let tenant = list::tenant(args.tenant.as_deref())?;
    loop {
        let rate = args.pace.units_per_second;
        let stale = |record: &Record| list::is_stale(context, record);
        let (found, _) = list::scanned(context, tenant.as_ref(), MAX_COUNTED, rate, false, stale).await?;
        *scanned.borrow_mut() = Some((context.now(), found));
        tokio::time::sleep(args.scan_every).await;
    }
}

async fn paint(context: &Context, args: &Watch, scanned: &Scanned) -> Result<(), Failure> {
    let tenant = list::tenant(args.tenant.as_deref())?;
    loop {
        let kinds: [&dyn Fn(&Record) -> bool; 3] =
            [&list::is_unknown, &list::is_between_workers, &is_alarmed];
        let (unresolved, unreadable) = list::unresolved(context, tenant.as_ref(), kinds, MAX_COUNTED).await?;
        let now = context.now();
        // A copy, so that nothing is borrowed across an await.
        let stale = scanned.borrow().clone();
        match context.screen.is_json() {
            true => print_line(context, &unresolved, unreadable, stale, now)?,
            false => print_picture(context, &unresolved, unreadable, stale, now)?,
        }
        tokio::time::sleep(args.every).await;
    }
}

fn print_line(
    context: &Context,
    unresolved: &[Vec<Record>; 3],
    unreadable: usize,
    stale: Option<(Timestamp, Vec<Record>)>,
    now: Timestamp,
) -> Result<(), Failure> {
    let kind = |at: Timestamp, records: &[Record]| {
        let counted = records.len().min(MAX_COUNTED);
        let shown: Vec<_> = records[..counted].iter().map(RecordJson::from).collect();
        json!({ "at": iso(at), "count": counted, "more": records.len() > counted, "records": shown })
    };
    // Null until the first scan has ended.
    let stale = stale.map(|(at, records)| kind(at, &records));
    let [unknown, between_workers, alarmed] = unresolved.each_ref().map(|records| kind(now, records));
    let line = json!({
        "unknown": unknown, "between_workers": between_workers, "alarmed": alarmed, "unreadable": unreadable,
        "stale": stale
    });
    context.screen.print_json(&line, true)
}

fn print_picture(
    context: &Context,
    [unknown, between_workers, alarmed]: &[Vec<Record>; 3],
    unreadable: usize,
    stale: Option<(Timestamp, Vec<Record>)>,
    now: Timestamp,
) -> Result<(), Failure> {
    let screen = &context.screen;
    let part = |title: String, records: &[Record]| {
        let more = if records.len() > MAX_COUNTED { "more than " } else { "" };
        screen.print(&format!("{title}: {more}{}", records.len().min(MAX_COUNTED)))?;
        match &records[..records.len().min(MAX_SHOWN)] {
            [] => Ok(()),
            shown => screen.print_table(&list::table(screen, shown, now)),
        }
    };
    screen.clear()?;
    part(format!("{}  unknown", iso(now).unwrap_or_default()), unknown)?;
    part("between workers".to_owned(), between_workers)?;
    part("with an alarm".to_owned(), alarmed)?;
    if unreadable > 0 {
        screen.print(&format!("unreadable: {unreadable}"))?;
    }
    match stale {
        Some((at, records)) => part(format!("stale, scanned {}", when(at, now)), &records),
        None => screen.print("stale: the first scan is not finished"),
    }?;
    screen.print("")
}
