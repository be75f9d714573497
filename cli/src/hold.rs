//! `hold`: holds what a deployment released although it perhaps had its effect, so that no retry runs it.

use lambda_idempotency::{internal::Correction, key::RecordKey, record::Record};
use serde_json::json;

use crate::{
    args::{Global, Hold},
    change::{self, BUSY},
    context::Context,
    failure::{Failure, unreadable},
    list,
    output::cell,
    record::RecordJson,
    released,
};

pub async fn run(global: &Global, args: &Hold) -> Result<(), Failure> {
    change::check(&args.change)?;
    if !args.released && (args.which.is_given() || args.tenant.is_some()) {
        return Err(Failure::Usage("--since, --by, --operation and --tenant pick among --released".into()));
    }
    let tenant = list::tenant(args.tenant.as_deref())?;
    let context = Context::open(global).await?;
    let mut refused = Vec::new();
    let (found, unread) = match args.released {
        true => {
            let rate = args.pace.units_per_second;
            released::find(&context, tenant.as_ref(), &args.which, rate).await?
        }
        false => {
            let mut named = Vec::new();
            for key in &args.names {
                match context.load(key).await {
                    Ok(record) => named.push(record),
                    Err(Failure::NotAsExpected(why)) => {
                        refused.push(NotHeld { key: key.clone(), why, record: None })
                    }
                    Err(failure) => return Err(failure),
                }
            }
            (named, 0)
        }
    };
    let mut held = Vec::new();
    for record in found {
        match context.operator.preview(&record, &Correction::Hold) {
            Ok(_) => held.push(record),
            Err(error) => {
                let (key, why) = (record.key.clone(), error.to_string());
                refused.push(NotHeld { key, why, record: Some(record) });
            }
        }
    }
    show(&context, args, &held, &refused)?;
    if !held.is_empty() {
        change::confirm(&args.change, &format!("Hold these {}? No retry runs them then.", held.len()))?;
    }
    let (done, failed) = change::each(&context, held, &Correction::Hold, &args.change).await?;
    // What was done is printed even if not all were held.
    print(&context, &done, &refused)?;
    failed.map_or(Ok(()), Err)?;
    // Of those that were named, each was meant.
    if let Some((record, _)) = done.iter().find(|(_, is)| *is == BUSY && !args.released) {
        let name = change::name(&record.key);
        return Err(Failure::NotAsExpected(format!("{name} has changed meanwhile, and is not held")));
    }
    match refused.first() {
        Some(NotHeld { key, why, .. }) if !args.released => {
            let name = change::name(key);
            Err(Failure::NotAsExpected(format!("{} not held: {name}: {why}", refused.len())))
        }
        _ => unreadable(unread),
    }
}

/// A record that is not held, and why; or a name without a record.
struct NotHeld {
    key: RecordKey,
    why: String,
    record: Option<Record>,
}

fn show(context: &Context, args: &Hold, held: &[Record], refused: &[NotHeld]) -> Result<(), Failure> {
    let screen = &context.screen;
    let mut tables = Vec::new();
    if !held.is_empty() {
        tables.push(released::table(screen, held, context.now()).trim_fmt());
    }
    if !refused.is_empty() {
        let mut table = screen.table(["not held", "why"]);
        for NotHeld { key, why, .. } in refused {
            table.add_row([cell(key.partition_key()), cell(why)]);
        }
        tables.push(table.trim_fmt());
    }
    if !tables.is_empty() {
        screen.print_plan(&tables.join("\n\n"), args.change.yes)?;
    }
    Ok(())
}

fn print(context: &Context, done: &[(Record, &'static str)], refused: &[NotHeld]) -> Result<(), Failure> {
    let held = done.iter().filter(|(_, is)| *is != BUSY).count();
    if context.screen.is_json() {
        let records = done.iter().map(|(record, is)| json!({ "was": RecordJson::from(record), "is": is }));
        let not_held = refused.iter().map(|NotHeld { key, why, record }| {
            let record = record.as_ref().map(RecordJson::from);
            json!({ "name": key.partition_key(), "record": record, "why": why })
        });
        let document = json!({
            "held": held,
            "records": records.collect::<Vec<_>>(),
            "not_held": not_held.collect::<Vec<_>>(),
        });
        return context.screen.print_json(&document, false);
    }
    context.screen.print(&format!(
        "{held} held, each with an audit line; {} changed meanwhile, {} not held.",
        done.len() - held,
        refused.len()
    ))
}
