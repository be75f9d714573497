//! `not-found-releases`: shows or switches whether a provider's "not found" lets a retry run.

use comfy_table::Cell;
use lambda_idempotency::{
    store::{AuditLine, NotFoundSwitch, Unsettled},
    time::Timestamp,
};
use serde_json::{Value, json};

use crate::{
    args::{ChangeArgs, Global, NotFoundReleases, SwitchTo},
    change,
    context::Context,
    failure::Failure,
    output::{cell, cell_of_lines, iso, when},
    terminal::harmless,
};

pub async fn run(global: &Global, args: &NotFoundReleases) -> Result<(), Failure> {
    match &args.to {
        None => show(&Context::open(global).await?).await,
        Some(SwitchTo::On(change)) => switch(global, true, change).await,
        Some(SwitchTo::Off(change)) => switch(global, false, change).await,
    }
}

async fn show(context: &Context) -> Result<(), Failure> {
    let (current, lines) = context.operator.not_found().await?;
    if context.screen.is_json() {
        return context.screen.print_json(&document(current.as_ref(), &lines), false);
    }
    let now = context.now();
    let mut fields = fields(current.as_ref(), now);
    fields.extend(lines.iter().map(|line| ("audit", cell_of_lines(line_text(line, now)))));
    context.screen.print_table(&context.screen.fields(fields))
}

async fn switch(global: &Global, releases: bool, args: &ChangeArgs) -> Result<(), Failure> {
    change::check(global, args)?;
    let context = Context::open(global).await?;
    let (seen, _) = context.operator.not_found().await?;
    let (is, becomes) = (position(seen.as_ref()), if releases { "on" } else { "off" });
    if is == becomes {
        return Err(Failure::NotAsExpected(format!("nothing was changed: it is {is} already")));
    }
    let shown = context.screen.fields(fields(seen.as_ref(), context.now())).trim_fmt();
    context
        .screen
        .print_plan(&format!("{shown}\n\nbecomes\n\n{becomes}: {}\n", meaning(releases)), args.yes)?;
    change::confirm(args, &format!("Switch it {becomes}, for all operations?"))?;
    let who = change::who(args)?;
    let written = context.operator.switch_not_found(seen.as_ref(), releases, &who, &args.reason).await?;
    let Some(written) = written else {
        let changed = "nothing was changed: it was switched meanwhile, look again";
        return Err(Failure::NotAsExpected(changed.into()));
    };
    if context.screen.is_json() {
        let done = json!({ "what": "not-found-releases", "before": is, "after": switch_json(&written) });
        return context.screen.print_json(&done, false);
    }
    let late =
        if releases { "" } else { " A question that is being answered at this moment may still release." };
    context.screen.print(&format!("Done: {is} → {becomes}, with an audit line by {}.{late}", harmless(&who)))
}

/// Says on standard error if it is off: what is unknown may stay so because of that.
pub async fn warn(context: &Context) {
    let line = match context.store.not_found_switch().await {
        Ok(Some(NotFoundSwitch { who, at, reason, releases: false, .. })) => {
            let since = when(at, context.now());
            format!("`not-found-releases` is off since {since}, by {who}: {reason}")
        }
        Ok(_) => return,
        Err(error) => format!("`not-found-releases` cannot be read, so it is off: {error}"),
    };
    eprintln!("{}", harmless(&line));
}

/// On, unless it was switched.
fn position(switch: Option<&NotFoundSwitch>) -> &'static str {
    switch.map_or("on", NotFoundSwitch::position)
}

const fn meaning(releases: bool) -> &'static str {
    match releases {
        true => "once an outcome has been unknown for long enough, \"not found\" lets a retry run",
        false => "\"not found\" lets no retry run: the question is asked again, and escalated in the end",
    }
}

fn fields(switch: Option<&NotFoundSwitch>, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let is = position(switch);
    let mut fields = vec![("not-found-releases", cell(format!("{is}: {}", meaning(is == "on"))))];
    if let Some(NotFoundSwitch { who, at, reason, .. }) = switch {
        fields.extend([("since", cell(when(*at, now))), ("by", cell(who)), ("because", cell(reason))]);
    }
    fields
}

fn line_text(line: &AuditLine, now: Timestamp) -> [String; 3] {
    let at = when(Timestamp::from_millis(line.at), now);
    [at, format!("{} by {}", line.what, line.who), line.reason.clone()]
}

fn document(switch: Option<&NotFoundSwitch>, lines: &[AuditLine]) -> Value {
    let lines = lines.iter().map(|AuditLine { who, at, what, reason, .. }| {
        json!({ "at": iso(Timestamp::from_millis(*at)), "who": who, "what": what, "reason": reason })
    });
    let lines: Vec<_> = lines.collect();
    json!({ "is": position(switch), "switched": switch.map(switch_json), "audit": lines })
}

fn switch_json(switch: &NotFoundSwitch) -> Value {
    let NotFoundSwitch { who, at, reason, .. } = switch;
    json!({ "is": switch.position(), "at": iso(*at), "who": who, "reason": reason })
}
