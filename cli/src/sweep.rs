//! `sweep`: finds dead workers now, and gives them up.

use aws_sdk_dynamodb::Client;
use comfy_table::Cell;
use indicatif::{ProgressBar, ProgressStyle};
use lambda_idempotency::{
    record::Record,
    stale::{self, Looked, Stale, SweepProgress},
    time::Timestamp,
};
use serde_json::json;

use crate::{args, context::Context, failure::Failure, output::span, record::RecordJson};

pub async fn run(context: &Context, args: &args::Sweep) -> Result<(), Failure> {
    let sweep = stale::Sweep { segments: args.segments, units_per_second: args.pace.units_per_second };
    let bar = bar(context).await;
    let (mut progress, mut found) = (SweepProgress::default(), Vec::new());
    let stale = Stale::new(context.store.clone());
    let swept = stale.sweep(&sweep, &mut progress, Timestamp::MAX, |progress, step| {
        // The table's own count is hours old.
        if bar.length().is_some_and(|length| length < progress.scanned) {
            bar.set_length(progress.scanned);
        }
        bar.set_position(progress.scanned);
        bar.set_message(format!("{} given up, {} abandoned", progress.given_up, progress.abandoned));
        let changed = step.iter().filter_map(|found| Some((found.record.clone(), done(&found.looked)?)));
        found.extend(changed);
    });
    let swept = swept.await;
    bar.finish_and_clear();
    // What was done is said even where the sweep did not come to its end.
    print(context, &progress, &found)?;
    swept.map_err(Failure::from)
}

/// How far a sweep is, on a terminal; its length is about the table's.
async fn bar(context: &Context) -> ProgressBar {
    // Without leave to describe the table it goes without its length.
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

/// What a look changed.
fn done(looked: &Looked) -> Option<&'static str> {
    match looked {
        Looked::GivenUp => Some("unknown"),
        Looked::Abandoned => Some("completed (408)"),
        Looked::Busy => Some("(busy: sweep again)"),
        Looked::Gone | Looked::Settled | Looked::Live(_) => None,
    }
}

fn print(
    context: &Context,
    progress: &SweepProgress,
    found: &[(Record, &'static str)],
) -> Result<(), Failure> {
    let screen = &context.screen;
    if screen.is_json() {
        let records = found.iter().map(|(record, now)| json!({ "was": RecordJson::from(record), "is": now }));
        let done = json!({
            "complete": progress.is_done(),
            "scanned": progress.scanned,
            "read_units": progress.units,
            "given_up": progress.given_up,
            "abandoned": progress.abandoned,
            "unreadable": progress.unreadable,
            "records": records.collect::<Vec<_>>(),
        });
        return screen.print_json(&done, false);
    }
    if !found.is_empty() {
        let mut table = screen.table(["record", "was", "age", "is"]);
        for (record, is) in found {
            let age = span(context.now().since(record.created_at));
            table.add_row([
                Cell::new(record.key.partition_key()),
                Cell::new(record.state.name()),
                Cell::new(age),
                Cell::new(is),
            ]);
        }
        screen.print_table(&table)?;
    }
    screen.print(&format!(
        "{} items looked at for {:.1} read units: {} given up, {} abandoned, {} unreadable.",
        progress.scanned, progress.units, progress.given_up, progress.abandoned, progress.unreadable
    ))
}
