//! `tenant`: shows what operators have set for a tenant, limits it, stops it, lets it go on.

use comfy_table::Cell;
use lambda_idempotency::{
    bounds::Limits,
    key::Tenant,
    operator::{TenantChange, TenantChangeError, in_words, stopped_by},
    store::{AuditLine, Bucket, Fullness, Stop, TenantRule, TenantRules, Tenants},
    time::Timestamp,
};
use serde_json::{Value, json};

use crate::{
    args::{ChangeArgs, Global, Limit, TenantCommand},
    change,
    context::Context,
    failure::Failure,
    output::{cell, cell_of_lines, iso, span, when},
    terminal::harmless,
};

/// How many open records `show` counts.
const MAX_COUNTED: usize = 1000;

pub async fn run(global: &Global, what: &TenantCommand) -> Result<(), Failure> {
    match what {
        TenantCommand::Show { tenant: None } => show_all(&Context::open(global).await?).await,
        TenantCommand::Show { tenant: Some(tenant) } => show(&Context::open(global).await?, tenant).await,
        TenantCommand::Limit(args) => limit(global, args).await,
        TenantCommand::Stop { tenant, work, change } => {
            let stop = if *work { Stop::NewAndWork } else { Stop::New };
            write(global, tenant, &TenantChange::Stop(stop), change).await
        }
        TenantCommand::Resume { tenant, change } => {
            write(global, tenant, &TenantChange::Resume, change).await
        }
    }
}

async fn show_all(context: &Context) -> Result<(), Failure> {
    let rules = context.tenants().rules().await?;
    let rules = rules.map(|rules| rules.tenants).unwrap_or_default();
    if context.screen.is_json() {
        let all: Vec<_> =
            rules.iter().map(|(tenant, rule)| json!({ "tenant": tenant, "rule": rule_json(rule) })).collect();
        return context.screen.print_json(&json!(all), false);
    }
    if rules.is_empty() {
        return context.screen.print("None: operators have limited or stopped no tenant.");
    }
    let mut table = context.screen.table(["tenant", "stopped", "limits"]);
    for (tenant, rule) in &rules {
        let unread =
            rule.unread.as_ref().map(|_| "cannot be read by this version: show the tenant".to_owned());
        let limits = limits(rule).into_iter().chain(unread);
        table.add_row([cell(tenant), cell(stopped(rule)), cell_of_lines(limits)]);
    }
    context.screen.print_table(&table)
}

async fn show(context: &Context, tenant: &Tenant) -> Result<(), Failure> {
    let tenants = context.tenants();
    let rule = rule_of(tenants.rules().await?.as_ref(), tenant);
    // Its flood may throttle the index just now.
    let open = context.store.open_records(tenant, MAX_COUNTED).await;
    let open = open.map_err(|error| Failure::from_error(&error));
    let (used, lines) = (tenants.used(tenant).await?, tenants.lines(tenant).await?);
    let stopped_by = stopped_by(&lines).filter(|_| rule.stop.is_some());
    if context.screen.is_json() {
        let used: Vec<_> = used.iter().map(used_json).collect();
        let stopped_by = stopped_by.map(line_json);
        let lines: Vec<_> = lines.iter().map(line_json).collect();
        let shown = json!({
            "tenant": tenant.as_str(), "rule": rule_json(&rule), "stopped_by": stopped_by, "used": used,
            "open_records": open.ok(), "audit": lines
        });
        return context.screen.print_json(&shown, false);
    }
    let open = match open {
        Ok(MAX_COUNTED) => format!("{MAX_COUNTED} or more"),
        Ok(open) => open.to_string(),
        Err(error) => format!("not known: {error}"),
    };
    let now = context.now();
    let at = |line: &AuditLine| when(Timestamp::from_millis(line.at), now);
    let mut fields = fields(tenant, &rule);
    if let Some(line) = stopped_by {
        fields.push(("stopped since", cell(format!("{}, by {}: {}", at(line), line.who, line.reason))));
    }
    let used: Vec<_> = used.iter().map(used_text).collect();
    let none = "nothing of a burst".to_owned();
    fields.push(("used", cell_of_lines(if used.is_empty() { vec![none] } else { used })));
    fields.push(("open records", cell(open)));
    fields.extend(lines.iter().map(|line| {
        let what = format!("{} by {}", line.what, line.who);
        ("audit", cell_of_lines([at(line), what, line.reason.clone()]))
    }));
    context.screen.print_table(&context.screen.fields(fields))
}

fn used_text((bucket, fullness): &(Bucket, Fullness)) -> String {
    let (bounded, rate) = bucket
        .bound()
        .map(|(bounded, rate)| (bounded.replace('_', " "), rate.to_string()))
        .unwrap_or_default();
    let used = match fullness {
        Fullness::Percent(percent) => format!("{percent} % of its burst"),
        Fullness::Over(over) => format!("over for {}", span(*over)),
    };
    format!("{}: {bounded} {rate}: {used}", bucket.operation)
}

fn used_json((bucket, fullness): &(Bucket, Fullness)) -> Value {
    let (bounded, rate) = bucket.bound().unzip();
    let (percent, over) = match fullness {
        Fullness::Percent(percent) => (*percent, None),
        Fullness::Over(over) => (100, Some(over.as_secs_f64().ceil())),
    };
    json!({
        "operation": bucket.operation.as_str(), "bound": bounded, "rate": rate.map(|rate| rate.to_string()),
        "percent_of_burst": percent, "over_for_seconds": over
    })
}

async fn limit(global: &Global, args: &Limit) -> Result<(), Failure> {
    let Limit { tenant, operation, new_keys, accepted_bytes, open_records, none, change } = args;
    let limits = Limits { new_keys: *new_keys, accepted_bytes: *accepted_bytes, open_records: *open_records };
    limits.check().map_err(|error| Failure::Usage(error.to_owned()))?;
    let what = match none {
        true => TenantChange::Unlimit(operation.clone()),
        false => TenantChange::Limit(operation.clone(), limits),
    };
    write(global, tenant, &what, change).await
}

/// Shows the plan, asks, and writes.
async fn write(
    global: &Global,
    tenant: &Tenant,
    what: &TenantChange,
    args: &ChangeArgs,
) -> Result<(), Failure> {
    change::check(global, args)?;
    let context = Context::open(global).await?;
    let tenants = context.tenants();
    let seen = tenants.rules().await?;
    let before = rule_of(seen.as_ref(), tenant);
    let after = what.of(&before);
    if before == after {
        return Err(refused(TenantChangeError::AlreadySo));
    }
    let shown = |rule| context.screen.fields(fields(tenant, rule)).trim_fmt();
    context.screen.print_plan(&format!("{}\n\nbecomes\n\n{}\n", shown(&before), shown(&after)), args.yes)?;
    change::confirm(args, "Write this?")?;
    let who = change::who(args)?;
    let after = tenants.change(seen.as_ref(), tenant, what, &who, &args.reason).await.map_err(refused)?;
    let what = what.what(tenant);
    if context.screen.is_json() {
        let done = json!({
            "what": what, "tenant": tenant.as_str(), "before": rule_json(&before), "after": rule_json(&after)
        });
        return context.screen.print_json(&done, false);
    }
    let within = "It is known everywhere within ten seconds, to guards that have bounds.";
    let work = match after.stop {
        Some(Stop::NewAndWork) => " What was accepted waits, and ends with 408 if that is too long.",
        _ => "",
    };
    context.screen.print(&format!(
        "Done: {}, with an audit line by {}. {within}{work}",
        harmless(&what),
        harmless(&who)
    ))
}

fn refused(error: TenantChangeError) -> Failure {
    match error {
        TenantChangeError::Store(error) => error.into(),
        error => Failure::NotAsExpected(error.to_string()),
    }
}

fn rule_of(rules: Option<&TenantRules>, tenant: &Tenant) -> TenantRule {
    rules.and_then(|rules| rules.of(tenant)).cloned().unwrap_or_default()
}

const fn stopped(rule: &TenantRule) -> &'static str {
    match rule.stop {
        None => "no",
        Some(Stop::New) => "yes: nothing new begins, accepted work is executed",
        Some(Stop::NewAndWork) => "yes: nothing new begins, accepted work waits",
    }
}

fn limits(rule: &TenantRule) -> Vec<String> {
    if rule.limits.is_empty() {
        return vec!["those of the program".to_owned()];
    }
    rule.limits.iter().map(|(operation, limits)| format!("{operation}: {}", in_words(limits))).collect()
}

fn fields(tenant: &Tenant, rule: &TenantRule) -> Vec<(&'static str, Cell)> {
    let mut fields = vec![
        ("tenant", cell(tenant.as_str())),
        ("stopped", cell(stopped(rule))),
        ("limits", cell_of_lines(limits(rule))),
    ];
    if let Some(written) = &rule.unread {
        let until = "what it can read applies, until you stop, resume or limit the tenant".to_owned();
        let lines = ["by this version, in whole:".to_owned(), written.to_string(), until];
        fields.push(("cannot be read", cell_of_lines(lines)));
    }
    fields
}

/// With the whole rule as it was written, if this version cannot read all of it.
fn rule_json(rule: &TenantRule) -> Value {
    let mut shown = json!({ "stop": rule.stop, "limits": rule.limits });
    if let Some(written) = &rule.unread {
        shown["cannot_be_read"] = written.clone();
    }
    shown
}

fn line_json(line: &AuditLine) -> Value {
    let AuditLine { who, at, what, reason, .. } = line;
    json!({ "at": iso(Timestamp::from_millis(*at)), "who": who, "what": what, "reason": reason })
}
