//! `resume`: lets retries resume operations that were escalated between workers.

use lambda_idempotency::{operator::Correction, record::Record, time::Timestamp};
use serde_json::json;

use crate::{
    args::{Global, Resume},
    change::{self, BUSY, Change},
    context::Context,
    failure::{Failure, unreadable},
    list,
    record::RecordJson,
};

pub async fn run(global: &Global, args: &Resume) -> Result<(), Failure> {
    let tenant = list::tenant(args.tenant.as_deref())?;
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    if let Some(key) = args.name.clone() {
        let question = format!("Let a retry resume {}?", change::name(&key));
        return Change { key, question, correction: Correction::Resume, refusal: |_| None, remark }
            .make(&context, &args.change)
            .await;
    }
    let is_wanted = |record: &Record| list::is_between_workers(record) && record.is_escalated();
    let ([found], unread) = list::unresolved(&context, tenant.as_ref(), [&is_wanted], usize::MAX).await?;
    if !found.is_empty() {
        let table = list::table(&context.screen, &found, context.now());
        context.screen.print_plan(&table.trim_fmt(), args.change.yes)?;
        change::confirm(&args.change, &format!("Let retries resume these {}?", found.len()))?;
    }
    let (done, failed) = change::each(&context, found, &Correction::Resume, &args.change).await?;
    let resumed = done.iter().filter(|(_, is)| *is != BUSY).count();
    if context.screen.is_json() {
        let records = done.iter().map(|(record, is)| json!({ "was": RecordJson::from(record), "is": is }));
        let document = json!({ "resumed": resumed, "records": records.collect::<Vec<_>>() });
        context.screen.print_json(&document, false)?;
    } else {
        let busy = done.len() - resumed;
        context.screen.print(&format!("{resumed} wait for a retry again, {busy} changed meanwhile."))?;
    }
    failed.map_or_else(|| unreadable(unread), Err)
}

fn remark(_: &Record, _: Timestamp) -> Option<String> {
    Some("nothing runs until its client sends the request again".into())
}
