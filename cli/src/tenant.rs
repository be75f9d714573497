//! `tenant`: shows what operators have set for a tenant, limits it, stops it, lets it go on.

use comfy_table::Cell;
use lambda_idempotency::{
    World,
    bounds::Limits,
    key::Tenant,
    store::{AuditLine, Stop, TenantRule, TenantRules, Tenants},
    time::Timestamp,
    world::SystemWorld,
};
use serde_json::{Value, json};

use crate::{
    args::{ChangeArgs, Global, Limit, TenantCommand},
    change,
    context::Context,
    failure::Failure,
    output::{cell, cell_of_lines, iso, when},
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
            set_stop(global, tenant, Some(stop), change).await
        }
        TenantCommand::Resume { tenant, change } => set_stop(global, tenant, None, change).await,
    }
}

async fn show_all(context: &Context) -> Result<(), Failure> {
    let rules = context.store.rules().await?;
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
        table.add_row([cell(tenant), cell(stopped(rule)), cell_of_lines(limits(rule))]);
    }
    context.screen.print_table(&table)
}

async fn show(context: &Context, tenant: &Tenant) -> Result<(), Failure> {
    let rule = rule_of(context.store.rules().await?.as_ref(), tenant);
    let open =
        context.store.open_records(tenant, MAX_COUNTED).await.map_err(|error| context.no_index(error))?;
    let lines = context.store.rules_lines().await?;
    let lines = lines.iter().filter(|line| is_about(line, tenant));
    if context.screen.is_json() {
        let lines: Vec<_> = lines.map(line_json).collect();
        let shown = json!({ "tenant": tenant.as_str(), "rule": rule_json(&rule), "open_records": open, "audit": lines });
        return context.screen.print_json(&shown, false);
    }
    let more = if open == MAX_COUNTED { " or more" } else { "" };
    let mut fields = fields(tenant, &rule);
    fields.push(("open records", cell(format!("{open}{more}"))));
    let now = context.now();
    fields.extend(lines.map(|line| {
        let at = when(Timestamp::from_millis(line.at), now);
        ("audit", cell_of_lines([at, format!("{} by {}", line.what, line.who), line.reason.clone()]))
    }));
    context.screen.print_table(&context.screen.fields(fields))
}

async fn limit(global: &Global, args: &Limit) -> Result<(), Failure> {
    let Limit { tenant, operation, new_keys, accepted_bytes, open_records, none, change } = args;
    let limits = Limits { new_keys: *new_keys, accepted_bytes: *accepted_bytes, open_records: *open_records };
    limits.check().map_err(|error| Failure::Usage(error.to_owned()))?;
    // Those that are not named stay as they are.
    let set = |mut rule: TenantRule| {
        let before = rule.limits.remove(operation.as_str()).unwrap_or_default();
        let after = Limits {
            new_keys: new_keys.or(before.new_keys),
            accepted_bytes: accepted_bytes.or(before.accepted_bytes),
            open_records: open_records.or(before.open_records),
        };
        if !none {
            rule.limits.insert(operation.as_str().to_owned(), after);
        }
        rule
    };
    let what = format!("limit {} {operation} {}", quoted(tenant), limits_text(&limits));
    write(global, tenant, set, &what, change).await
}

async fn set_stop(
    global: &Global,
    tenant: &Tenant,
    stop: Option<Stop>,
    args: &ChangeArgs,
) -> Result<(), Failure> {
    let what = match stop {
        Some(Stop::New) => "stop",
        Some(Stop::NewAndWork) => "stop --work",
        None => "resume",
    };
    // Only `resume` lets go of anything.
    let set = |rule: TenantRule| match (rule.stop, stop) {
        (Some(Stop::NewAndWork), Some(Stop::New)) => rule,
        _ => TenantRule { stop, ..rule },
    };
    write(global, tenant, set, &format!("{what} {}", quoted(tenant)), args).await
}

/// Shows the plan, asks, and writes.
async fn write(
    global: &Global,
    tenant: &Tenant,
    set: impl FnOnce(TenantRule) -> TenantRule,
    what: &str,
    args: &ChangeArgs,
) -> Result<(), Failure> {
    change::check(global, args)?;
    let context = Context::open(global).await?;
    let seen = context.store.rules().await?;
    let (before, revision) = (rule_of(seen.as_ref(), tenant), SystemWorld.nonce().into());
    let after = set(before.clone());
    if before == after {
        return Err(Failure::NotAsExpected("nothing was changed: it is so already".into()));
    }
    let shown = |rule| context.screen.fields(fields(tenant, rule)).trim_fmt();
    context.screen.print_plan(&format!("{}\n\nbecomes\n\n{}\n", shown(&before), shown(&after)), args.yes)?;
    change::confirm(args, "Write this?")?;
    let who = change::who(args)?;
    let line = AuditLine::new([&who, what, &args.reason], context.now(), None, None);
    let seen_revision = seen.as_ref().map(|seen| seen.revision);
    let tenants = seen.map(|seen| seen.tenants).unwrap_or_default();
    let rules = TenantRules { revision, tenants }.with(tenant, after.clone());
    if !context.store.write_rules(seen_revision, &rules, &line).await? {
        let changed = "nothing was changed: the rules were changed meanwhile, look again";
        return Err(Failure::NotAsExpected(changed.into()));
    }
    if context.screen.is_json() {
        let done = json!({
            "what": what, "tenant": tenant.as_str(), "before": rule_json(&before), "after": rule_json(&after)
        });
        return context.screen.print_json(&done, false);
    }
    let within = "It is known everywhere within ten seconds, to guards that have bounds.";
    context.screen.print(&format!(
        "Done: {}, with an audit line by {}. {within}",
        harmless(what),
        harmless(&who)
    ))
}

fn rule_of(rules: Option<&TenantRules>, tenant: &Tenant) -> TenantRule {
    rules.and_then(|rules| rules.of(tenant)).cloned().unwrap_or_default()
}

/// The tenant in an audit line: nothing that follows can look like a part of it.
fn quoted(tenant: &Tenant) -> String {
    json!(tenant.as_str()).to_string()
}

fn is_about(line: &AuditLine, tenant: &Tenant) -> bool {
    let tenant = quoted(tenant);
    ["limit ", "stop ", "stop --work ", "resume "].iter().any(|what| {
        let rest = line.what.strip_prefix(what).and_then(|rest| rest.strip_prefix(&*tenant));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
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
    rule.limits.iter().map(|(operation, limits)| format!("{operation}: {}", limits_text(limits))).collect()
}

fn limits_text(Limits { new_keys, accepted_bytes, open_records }: &Limits) -> String {
    let limits = [
        new_keys.map(|rate| format!("new keys {rate}")),
        accepted_bytes.map(|rate| format!("accepted bytes {rate}")),
        open_records.map(|number| format!("open records {number}")),
    ];
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    if limits.is_empty() { "as the program".to_owned() } else { limits.join(", ") }
}

fn fields(tenant: &Tenant, rule: &TenantRule) -> Vec<(&'static str, Cell)> {
    vec![
        ("tenant", cell(tenant.as_str())),
        ("stopped", cell(stopped(rule))),
        ("limits", cell_of_lines(limits(rule))),
    ]
}

fn rule_json(rule: &TenantRule) -> Value {
    json!({ "stop": rule.stop, "limits": rule.limits })
}

fn line_json(line: &AuditLine) -> Value {
    let AuditLine { who, at, what, reason, .. } = line;
    json!({ "at": iso(Timestamp::from_millis(*at)), "who": who, "what": what, "reason": reason })
}
