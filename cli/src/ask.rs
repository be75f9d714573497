//! `ask`: makes the reconcile function ask the provider now. The command line has no provider to ask, so it sends a message.

use crate::terminal::harmless;
use aws_sdk_sqs::Client;
use lambda_idempotency::{
    operator::MessageSummary,
    record::{Record, State},
};
use serde_json::json;

use crate::{
    args::{Ask, Global},
    change,
    context::{self, Context},
    failure::{Failure, unreadable},
    list, not_found, queue,
    record::{RecordJson, fields},
    values,
};

pub async fn run(global: &Global, args: &Ask) -> Result<(), Failure> {
    if args.all {
        return all(global, args).await;
    }
    let key = args.record.record_key()?;
    let queue_url = queue::named(args.queue.as_deref(), "RECONCILE_QUEUE_URL")?;
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let client: Client = queue::client(&context::aws(global, args.sqs_endpoint_url.as_deref()).await?);
    let seen = context.load(&key).await?;
    can_be_asked_about(&context, &seen)?;
    let shown = context.screen.fields(fields(&seen, context.now())).trim_fmt();
    context.screen.print_plan(&shown, args.change.yes)?;
    not_found::warn(&context).await;
    change::confirm(&args.change, &format!("Ask the provider about {}?", change::name(&key)))?;
    // The audit line is written first: there is no question without one.
    context.operator.note(&key, "ask", &change::who(&args.change)?, &args.change.reason).await?;
    queue::send(&client, queue_url, &MessageSummary::ask(&key)).await?;
    if context.screen.is_json() {
        return context
            .screen
            .print_json(&json!({ "what": "ask", "record": RecordJson::from(&seen) }), false);
    }
    let name = harmless(&key.partition_key());
    context.screen.print(&format!(
        "Sent to the reconcile function, which asks within seconds and restarts its count of questions. `idempotency show \
         '{name}'` shows the outcome: if it stays unknown, see `asks next`, and the function's log for {}.",
        key.hash()
    ))
}

/// Asks about every unknown outcome of the tenant and the operation that are given.
async fn all(global: &Global, args: &Ask) -> Result<(), Failure> {
    let tenant = list::tenant(args.record.tenant.as_deref())?;
    let invalid = |error| Failure::Usage(format!("invalid operation: {error}"));
    let operation = args.record.operation.as_deref().map(values::operation).transpose().map_err(invalid)?;
    let queue_url = queue::named(args.queue.as_deref(), "RECONCILE_QUEUE_URL")?;
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let client: Client = queue::client(&context::aws(global, args.sqs_endpoint_url.as_deref()).await?);
    let is_meant = |record: &Record| {
        list::is_unknown(record) && operation.as_ref().is_none_or(|name| record.key.operation() == name)
    };
    let ([found], unread) = list::unresolved(&context, tenant.as_ref(), [&is_meant], usize::MAX).await?;
    if !found.is_empty() {
        let table = list::table(&context.screen, &found, context.now());
        context.screen.print_plan(&table.trim_fmt(), args.change.yes)?;
        not_found::warn(&context).await;
        change::confirm(&args.change, &format!("Ask the provider about these {}?", found.len()))?;
    }
    let (who, mut sent, mut failed) = (change::who(&args.change)?, Vec::new(), None);
    for record in &found {
        // The audit line is written first: there is no question without one.
        let asked = async {
            context.operator.note(&record.key, "ask", &who, &args.change.reason).await?;
            queue::send(&client, queue_url, &MessageSummary::ask(&record.key)).await
        };
        if let Err(error) = asked.await {
            failed = Some(Failure::Error(format!("{}: {error}", change::name(&record.key))));
            break;
        }
        sent.push(record);
    }
    // What was sent is printed even if not all was.
    if context.screen.is_json() {
        let records: Vec<_> = sent.iter().map(|record| RecordJson::from(*record)).collect();
        context
            .screen
            .print_json(&json!({ "what": "ask", "asked": sent.len(), "records": records }), false)?;
    } else {
        context.screen.print(&format!(
            "{} sent to the reconcile function. `idempotency list --state unknown` shows what stays unknown.",
            sent.len()
        ))?;
    }
    failed.map_or_else(|| unreadable(unread), Err)
}

fn can_be_asked_about(context: &Context, seen: &Record) -> Result<(), Failure> {
    match seen.state {
        State::Unknown { .. } => Ok(()),
        State::InProgress { lease_until } if lease_until <= context.now() => Ok(()),
        State::InProgress { .. } => Err(Failure::NotAsExpected(
            "nothing was asked: the record is in progress, and its lease has not expired".into(),
        )),
        _ => {
            let state = seen.state.name();
            Err(Failure::NotAsExpected(format!("nothing was asked: the record is {state}, and not unknown")))
        }
    }
}
