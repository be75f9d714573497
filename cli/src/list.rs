//! `list`: lists records that are not settled, or have an alarm.

use std::{collections::HashMap, time::Duration};

use comfy_table::Table;
use indicatif::ProgressBar;
use lambda_idempotency::{
    key::Tenant,
    operator::Correction,
    record::{Note, Record, State},
    store::{Cursor, Page, StoreErrorKind, Unsettled},
    time::Timestamp,
};
use serde_json::json;

use crate::{
    alarms::{is_alarmed, kinds, needs_operator},
    args::{List, Listed},
    context::Context,
    failure::{Failure, unreadable},
    not_found,
    output::{Screen, cell, span, state_cell},
    record::{RecordJson, asks_next, attempts, claims, escalates},
    released, scan, undelivered,
};

/// The number of items per step of a scan.
const STEP: u32 = 1000;

/// How often a page of the index is tried.
const PAGE_TRIES: u32 = 3;

pub async fn run(context: &Context, args: &List) -> Result<(), Failure> {
    if (args.escalated || args.alarmed) && args.state == Listed::Stale {
        return Err(Failure::Usage(
            "--escalated and --alarmed are for records in the index: leave --state stale out".into(),
        ));
    }
    let tenant = tenant(args.tenant.as_deref())?;
    let (tenant, limit, rate) = (tenant.as_ref(), args.limit, args.pace.units_per_second);
    if args.undelivered {
        return undelivered::list(context, tenant, limit, rate).await;
    }
    let indexed = async |kind: fn(&Record) -> bool| {
        let wanted = |record: &Record| {
            let is_meant = !args.escalated || needs_operator(record);
            kind(record) && is_meant && (!args.alarmed || is_alarmed(record))
        };
        let ([records], unreadable) = unresolved(context, tenant, [&wanted], limit).await?;
        Ok::<_, Failure>((records, unreadable))
    };
    let (mut records, unread) = match args.state {
        _ if args.released => released::find(context, tenant, &args.which, rate).await?,
        _ if args.pending => scanned(context, tenant, limit, rate, true, is_pending).await?,
        Listed::Unresolved => indexed(|_| true).await?,
        Listed::Unknown => indexed(is_unknown).await?,
        Listed::BetweenWorkers => indexed(is_between_workers).await?,
        Listed::Stale => {
            scanned(context, tenant, limit, rate, true, |record| is_stale(context, record)).await?
        }
    };
    not_found::warn(context).await;
    let more = records.len() > limit;
    match args.released {
        true => records.truncate(limit),
        false => keep_in_turns(&mut records, limit),
    }
    let table = if args.released { released::table } else { table };
    if context.screen.is_json() {
        let records: Vec<_> = records.iter().map(RecordJson::from).collect();
        context.screen.print_json(&json!(records), false)?;
    } else if !records.is_empty() {
        context.screen.print_table(&table(&context.screen, &records, context.now()))?;
    } else if unread == 0 {
        context.screen.print("None.")?;
    }
    if more {
        let of_each = match tenant.is_none() && !args.released {
            true => " These are some of each tenant's: --tenant lists one's alone.",
            false => "",
        };
        eprintln!("There are more: raise --limit.{of_each}");
    }
    unreadable(unread)
}

pub fn tenant(text: Option<&str>) -> Result<Option<Tenant>, Failure> {
    let parse =
        |text| Tenant::parse(text).map_err(|error| Failure::Usage(format!("invalid tenant: {error}")));
    text.map(parse).transpose()
}

pub const fn is_unknown(record: &Record) -> bool {
    matches!(record.state, State::Unknown { .. })
}

pub const fn is_between_workers(record: &Record) -> bool {
    matches!(record.state, State::BetweenWorkers { .. })
}

const fn is_pending(record: &Record) -> bool {
    matches!(record.state, State::Pending { .. })
}

/// The records of the index of each of these kinds: those that wait for an operator first, then by age, oldest first. If there are
/// more than `limit` of a kind, one more than that, some [of each tenant](keep_in_turns). And how many records cannot be read, of
/// whatever kind.
///
/// The index is not ordered by age, so all of it is read, however small the limit.
pub async fn unresolved<const KINDS: usize>(
    context: &Context,
    tenant: Option<&Tenant>,
    kinds: [&dyn Fn(&Record) -> bool; KINDS],
    limit: usize,
) -> Result<([Vec<Record>; KINDS], usize), Failure> {
    // It is shown only on a terminal.
    let spinner = ProgressBar::new_spinner();
    let (mut found, mut from) = ([const { Vec::new() }; KINDS], None);
    let (mut scanned, mut unreadable) = (0, 0);
    loop {
        let page = page(context, tenant, from.as_ref()).await?;
        for (records, is_wanted) in found.iter_mut().zip(kinds) {
            records.extend(page.records.iter().filter(|record| is_wanted(record)).cloned());
            keep_in_turns(records, limit.saturating_add(1));
        }
        scanned += page.scanned;
        unreadable += page.unreadable;
        spinner.set_message(format!("{scanned} records of the index read"));
        spinner.tick();
        from = page.next;
        if from.is_none() {
            spinner.finish_and_clear();
            return Ok((found, unreadable));
        }
    }
}

/// A page of the index. One that fails in passing is read again: a list of a large index has hundreds.
pub async fn page(
    context: &Context,
    tenant: Option<&Tenant>,
    from: Option<&Cursor>,
) -> Result<Page, Failure> {
    let mut tries = 1;
    loop {
        match context.store.unresolved(tenant, from).await {
            Err(error) if tries < PAGE_TRIES && error.kind() != StoreErrorKind::Refused => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    tries,
                    "a page of the index is read again"
                );
                tries += 1;
            }
            answer => return answer.map_err(|error| Failure::from_error(&error)),
        }
    }
}

/// Sorts the records: those that wait for an operator first, then by age, oldest first. Keeps at most `limit`: some of each tenant, in
/// turns, the oldest of each. So one tenant with thousands does not hide another's.
fn keep_in_turns(records: &mut Vec<Record>, limit: usize) {
    let by_age = |record: &Record| (!needs_operator(record), since(record));
    records.sort_by_key(by_age);
    if records.len() <= limit {
        return;
    }
    let mut counts = HashMap::<_, usize>::new();
    let turn_of = |record: Record| {
        let waits_longer = !needs_operator(&record);
        let turn = counts.entry((waits_longer, record.key.tenant().clone())).or_default();
        *turn += 1;
        ((waits_longer, *turn), record)
    };
    let mut turns: Vec<_> = records.drain(..).map(turn_of).collect();
    // Stable: within a turn they stay sorted by age.
    turns.sort_by_key(|(turn, _)| *turn);
    records.extend(turns.into_iter().take(limit).map(|(_, record)| record));
    records.sort_by_key(by_age);
}

/// The records of this kind, oldest first and [some of each tenant](keep_in_turns), and how many cannot be read. Scans the whole table, however small the limit, because it is
/// not ordered by age; at no more than `units_per_second`. Its progress is `shown` on a terminal.
pub async fn scanned(
    context: &Context,
    tenant: Option<&Tenant>,
    limit: usize,
    units_per_second: f64,
    shown: bool,
    is_wanted: impl Fn(&Record) -> bool,
) -> Result<(Vec<Record>, usize), Failure> {
    let bar = if shown { scan::bar(context).await } else { ProgressBar::hidden() };
    let (mut records, mut from) = (Vec::new(), None);
    let (mut scanned, mut unreadable) = (0, 0);
    loop {
        let page = context.store.scan((0, 1), from.as_ref(), context.now(), STEP).await?;
        let ours = |record: &Record| tenant.is_none_or(|tenant| record.key.tenant() == tenant);
        records.extend(page.records.into_iter().filter(|record| ours(record) && is_wanted(record)));
        keep_in_turns(&mut records, limit.saturating_add(1));
        scanned += page.scanned;
        unreadable += page.unreadable;
        scan::show(&bar, scanned);
        from = page.next;
        if from.is_none() {
            bar.finish_and_clear();
            return Ok((records, unreadable));
        }
        tokio::time::sleep(Duration::from_secs_f64(page.units / units_per_second)).await;
    }
}

/// Whether its lease can be declared expired.
pub fn is_stale(context: &Context, record: &Record) -> bool {
    context.operator.preview(record, &Correction::ExpireLease).is_ok()
}

/// When a record entered the state for which it is listed, or its last alarm was raised.
fn since(record: &Record) -> Timestamp {
    let raised_at = record.alarms.iter().map(|alarm| alarm.raised_at).max();
    match record.state {
        State::Unknown { since, .. } | State::BetweenWorkers { since, .. } => since,
        // A live worker's lease is over later.
        State::InProgress { lease_until } => raised_at.map_or(lease_until, |at| at.min(lease_until)),
        _ => raised_at.unwrap_or(record.created_at),
    }
}

/// A line for each record. The first column names the record for every other command, the second names it in logs.
pub fn table(screen: &Screen, records: &[Record], now: Timestamp) -> Table {
    let mut table =
        screen.table(["record", "in logs", "state", "for", "cause", "attempts", "asked", "asks next"]);
    for record in records {
        let (cause, asked, next) = match record.state {
            State::Unknown { cause, asked, reconcile_at, .. } => {
                // An operator's hold has its own words.
                let held = record.last_failure.as_ref().filter(|_| record.is_held());
                (held.map_or(cause.name(), Note::as_str), asked.to_string(), asks_next(reconcile_at, now))
            }
            State::BetweenWorkers { reconcile_at, .. } => {
                let cause = record.last_failure.as_ref().map_or("", Note::as_str);
                (cause, String::new(), escalates(reconcile_at, now))
            }
            State::Pending { .. } => {
                let failure = record.last_failure.as_ref().map_or("no worker yet", Note::as_str);
                (failure, String::new(), claims(record, now))
            }
            State::InProgress { lease_until } if lease_until <= now => {
                ("lease expired", String::new(), cell(""))
            }
            _ => ("", String::new(), cell("never: an operator must clear its alarms")),
        };
        let escalated = record.note.as_ref().filter(|_| record.is_escalated()).map(Note::as_str);
        let causes = Some(cause).filter(|cause| !cause.is_empty()).into_iter().chain(escalated);
        let causes: Vec<_> = causes.chain(kinds(record)).collect();
        table.add_row([
            cell(record.key.partition_key()),
            cell(record.key.hash()),
            state_cell(record.state.name()),
            cell(span(now.since(since(record)))),
            cell(causes.join(", ")),
            cell(attempts(record)),
            cell(asked),
            next,
        ]);
    }
    table
}
