//! `hold`: holds what perhaps had its effect, although its record says otherwise, so that no retry runs it.

use lambda_idempotency::{key::Tenant, operator::Correction, record::Record};
use serde_json::json;

use crate::{
    args::{Global, Hold},
    change::{self, BUSY},
    context::Context,
    failure::{Failure, unreadable},
    list, released,
    several::{self, Refused},
};

pub async fn run(global: &Global, args: &Hold) -> Result<(), Failure> {
    // Clap does not require an option that conflicts with one that is given.
    if !args.released && (args.which.since.is_some() || !args.which.by.is_empty()) {
        return Err(Failure::Usage("--since and --by pick among --released".into()));
    }
    let tenant = list::tenant(args.tenant.as_deref())?;
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let mut refused = Vec::new();
    let (found, unread) = match args.names.is_empty() {
        true => found(&context, args, tenant.as_ref()).await?,
        false => (several::named(&context, &args.names, &mut refused).await?, 0),
    };
    let held = several::allowed(&context, found, &Correction::Hold, &mut refused);
    show(&context, args, &held, &refused)?;
    if !held.is_empty() {
        change::confirm(&args.change, &format!("Hold these {}? No retry runs them then.", held.len()))?;
    }
    let (done, failed) = change::each(&context, held, &Correction::Hold, &args.change).await?;
    // What was done is printed even if not all were held.
    print(&context, &done, &refused)?;
    failed.map_or(Ok(()), Err)?;
    unreadable(unread)?;
    several::each_was_meant(&done, &refused, "held")
}

/// The records that the options pick, and how many cannot be read.
async fn found(
    context: &Context,
    args: &Hold,
    tenant: Option<&Tenant>,
) -> Result<(Vec<Record>, usize), Failure> {
    let rate = args.pace.units_per_second;
    if args.restored {
        return released::find_restored(context, tenant, &args.which, rate).await;
    }
    let (mut found, mut unread) = match args.released {
        true => released::find(context, tenant, &args.which, rate).await?,
        false => (Vec::new(), 0),
    };
    if args.between_workers {
        let is_meant = |record: &Record| list::is_between_workers(record) && args.which.means(&record.key);
        let ([waiting], unreadable) = list::unresolved(context, tenant, [&is_meant], usize::MAX).await?;
        found.extend(waiting);
        unread += unreadable;
    }
    Ok((found, unread))
}

fn show(context: &Context, args: &Hold, held: &[Record], refused: &[Refused]) -> Result<(), Failure> {
    let screen = &context.screen;
    let (released, open): (Vec<_>, Vec<_>) =
        held.iter().cloned().partition(|record| record.state.released_by().is_some());
    let mut tables = Vec::new();
    if !released.is_empty() {
        tables.push(released::table(screen, &released, context.now()).trim_fmt());
    }
    if !open.is_empty() {
        tables.push(list::table(screen, &open, context.now()).trim_fmt());
    }
    tables.extend(several::table(screen, "not held", refused));
    if !tables.is_empty() {
        screen.print_plan(&tables.join("\n\n"), args.change.yes)?;
    }
    Ok(())
}

fn print(context: &Context, done: &[(Record, &'static str)], refused: &[Refused]) -> Result<(), Failure> {
    let held = done.iter().filter(|(_, is)| *is != BUSY).count();
    if context.screen.is_json() {
        let (records, not_held) = (several::done_json(done), several::refused_json(refused));
        let document = json!({ "held": held, "records": records, "not_held": not_held });
        return context.screen.print_json(&document, false);
    }
    context.screen.print(&format!(
        "{held} held, each with an audit line; {} changed meanwhile, {} not held.",
        done.len() - held,
        refused.len()
    ))
}
