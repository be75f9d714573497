//! Records that were released, accepted work that is pending again, and what a restored table cannot know: found by a scan of the whole
//! table.

use aws_sdk_dynamodb::operation::scan::builders::ScanFluentBuilder;
use comfy_table::Table;
use futures_util::{StreamExt, TryStreamExt, stream};
use lambda_idempotency::{
    key::{RecordKey, Tenant},
    record::{Note, Record, SettledBy, State, StateName},
    store::{Store, StoreErrorKind},
    time::Timestamp,
};

use crate::{
    args::Released,
    context::Context,
    failure::Failure,
    output::{Screen, cell, state_cell, when},
    record::attempts,
    scan,
};

/// How many records are read at once.
const AT_ONCE: usize = 16;

/// The released records that are meant, oldest first, and how many cannot be read. Each is read again, consistently.
pub async fn find(
    context: &Context,
    tenant: Option<&Tenant>,
    args: &Released,
    units_per_second: f64,
) -> Result<(Vec<Record>, usize), Failure> {
    let since = args.since.map(|since| since.at(context.now())).unwrap_or_default();
    let query = |scan: ScanFluentBuilder| {
        scan.filter_expression(
            "sk = :record AND (#state = :released OR (#state = :pending AND attribute_exists(settled_by)))",
        )
        .expression_attribute_values(":released", scan::text(StateName::FailedRetryable.name()))
        .expression_attribute_values(":pending", scan::text(StateName::Pending.name()))
    };
    let is_meant = |record: &Record| is_meant(record, since, &args.by);
    read(context, tenant, args, units_per_second, query, is_meant).await
}

/// What a restored table cannot know to be undone. Its workers, and retries, may have executed that since the point in time. Only what is
/// completed is certain, and what is unknown is asked about, unless it resumes: another phase may have been executed since.
pub async fn find_restored(
    context: &Context,
    tenant: Option<&Tenant>,
    args: &Released,
    units_per_second: f64,
) -> Result<(Vec<Record>, usize), Failure> {
    let query = |scan: ScanFluentBuilder| {
        scan.filter_expression("sk = :record AND #state <> :completed")
            .expression_attribute_values(":completed", scan::text(StateName::Completed.name()))
    };
    let is_meant = |record: &Record| match record.state {
        State::Completed { .. } => false,
        // A denial was of what the table knew.
        State::Unknown { .. } => record.phases().is_some() && !record.is_held() || record.is_denied(),
        State::Pending { .. }
        | State::InProgress { .. }
        | State::BetweenWorkers { .. }
        | State::FailedRetryable { .. } => true,
    };
    read(context, tenant, args, units_per_second, query, is_meant).await
}

/// The records that a scan finds and `is_meant` picks, oldest first, and how many cannot be read.
async fn read(
    context: &Context,
    tenant: Option<&Tenant>,
    args: &Released,
    units_per_second: f64,
    query: impl Fn(ScanFluentBuilder) -> ScanFluentBuilder,
    is_meant: impl Fn(&Record) -> bool,
) -> Result<(Vec<Record>, usize), Failure> {
    let mut keys = Vec::new();
    let query = |scan| {
        query(scan)
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":record", scan::text("record"))
    };
    let ours = |key: &RecordKey| tenant.is_none_or(|tenant| key.tenant() == tenant) && args.means(key);
    let mut unreadable = scan::names(context, units_per_second, query, |key| {
        keys.extend(Some(key).filter(ours));
        true
    })
    .await?;
    let reads = stream::iter(keys).map(async |key| match context.store.load(&key).await {
        Err(error) if error.kind() == StoreErrorKind::Unreadable => Ok(Err(())),
        read => read.map(Ok),
    });
    let read: Vec<_> = reads.buffer_unordered(AT_ONCE).try_collect().await?;
    let mut records = Vec::new();
    for record in read {
        match record {
            Ok(record) => records.extend(record.filter(&is_meant)),
            Err(()) => unreadable += 1,
        }
    }
    records.sort_by_key(released_at);
    Ok((records, unreadable))
}

fn is_meant(record: &Record, since: Timestamp, by: &[SettledBy]) -> bool {
    let released_by = record.state.released_by();
    // Accepted work does not say when it was released: rather one too many.
    let is_late = matches!(record.state, State::Pending { .. }) || released_at(record) >= since;
    released_by.is_some_and(|who| by.is_empty() || by.contains(&who)) && is_late
}

/// When it was released; of accepted work, when the execution began that did nothing.
pub fn released_at(record: &Record) -> Timestamp {
    match record.state {
        State::FailedRetryable { failed_at, .. } => failed_at,
        _ => record.began_at,
    }
}

/// A line for each record.
pub fn table(screen: &Screen, records: &[Record], now: Timestamp) -> Table {
    let mut table = screen.table(["record", "in logs", "state", "released", "by", "attempts", "why"]);
    for record in records {
        table.add_row([
            cell(record.key.partition_key()),
            cell(record.key.hash()),
            state_cell(record.state.name()),
            cell(when(released_at(record), now)),
            cell(record.state.released_by().map_or("", SettledBy::name)),
            cell(attempts(record)),
            cell(record.last_failure.as_ref().map_or("", Note::as_str)),
        ]);
    }
    table
}
