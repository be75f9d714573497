//! `hold`: holds what a deployment released although it perhaps had its effect, so that no retry runs it.

use lambda_idempotency::{operator::Correction, record::Record};
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
    if args.released { unreadable(unread) } else { several::each_was_meant(&done, &refused, "held") }
}

fn show(context: &Context, args: &Hold, held: &[Record], refused: &[Refused]) -> Result<(), Failure> {
    let screen = &context.screen;
    let table = || released::table(screen, held, context.now()).trim_fmt();
    let held = (!held.is_empty()).then(table);
    let tables: Vec<_> = held.into_iter().chain(several::table(screen, "not held", refused)).collect();
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
