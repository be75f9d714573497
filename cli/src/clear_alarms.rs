//! `clear-alarms`: ends the alarms of records that an operator has looked at.

use comfy_table::Cell;
use lambda_idempotency::{
    operator::{Correction, ReportBeside},
    record::{Record, State},
    time::Timestamp,
};
use serde_json::json;

use crate::{
    alarms,
    args::{ClearAlarms, Global},
    change::{self, BUSY},
    context::Context,
    failure::Failure,
    output::{Screen, cell, state_cell, when},
    several::{self, Refused},
};

pub async fn run(global: &Global, args: &ClearAlarms) -> Result<(), Failure> {
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let mut refused = Vec::new();
    let found = several::named(&context, &args.names, &mut refused).await?;
    let cleared = several::allowed(&context, found, &Correction::ClearAlarms, &mut refused);
    show(&context, args, &cleared, &refused).await?;
    if !cleared.is_empty() {
        let number = cleared.len();
        let question = format!("Clear the alarms of these {number}, and delete the reports beside them?");
        change::confirm(&args.change, &question)?;
    }
    let (done, failed) = change::each(&context, cleared, &Correction::ClearAlarms, &args.change).await?;
    // What was done is printed even if not all were cleared.
    print(&context, &done, &refused)?;
    failed.map_or(Ok(()), Err)?;
    several::each_was_meant(&done, &refused, "cleared")
}

async fn show(
    context: &Context,
    args: &ClearAlarms,
    cleared: &[Record],
    refused: &[Refused],
) -> Result<(), Failure> {
    let (screen, now) = (&context.screen, context.now());
    let mut tables = Vec::new();
    for record in cleared {
        let reports = context.operator.reports(record).await?;
        tables.push(screen.fields(fields(record, &reports, now)).trim_fmt());
    }
    tables.extend(several::table(screen, "not cleared", refused));
    if !tables.is_empty() {
        screen.print_plan(&tables.join("\n\n"), args.change.yes)?;
    }
    Ok(())
}

fn fields(record: &Record, reports: &[ReportBeside], now: Timestamp) -> Vec<(&'static str, Cell)> {
    let mut fields =
        vec![("record", cell(record.key.partition_key())), ("state", state_cell(record.state.name()))];
    fields.extend(alarms::fields(record, now));
    fields.extend(alarms::report_fields(reports));
    if !reports.is_empty() {
        fields.push(("then deleted", cell("the reports beside it: `show --reports` prints them whole")));
    }
    fields.push(("then expires", cell(expires(&record.state, now))));
    fields
}

/// When the record expires without its alarms.
fn expires(state: &State, now: Timestamp) -> String {
    match state.expires_at() {
        Some(at) if at <= now => {
            format!("at once, its time was over {}: a retry with its key runs again", when(at, now))
        }
        Some(at) => when(at, now),
        None => "not before it is settled".to_owned(),
    }
}

fn print(context: &Context, done: &[(Record, &'static str)], refused: &[Refused]) -> Result<(), Failure> {
    let cleared = done.iter().filter(|(_, is)| *is != BUSY).count();
    let screen: &Screen = &context.screen;
    if screen.is_json() {
        let (records, not_cleared) = (several::done_json(done), several::refused_json(refused));
        let document = json!({ "cleared": cleared, "records": records, "not_cleared": not_cleared });
        return screen.print_json(&document, false);
    }
    screen.print(&format!(
        "{cleared} cleared, each with an audit line; {} changed meanwhile, {} not cleared.",
        done.len() - cleared,
        refused.len()
    ))
}
