//! Messages that were published and not delivered yet: those of one record, and the records that have some. Never their bodies.

use std::{collections::BTreeMap, time::Duration};

use crate::terminal::harmless;
use lambda_idempotency::{
    key::{RecordKey, Tenant},
    store::{Outbox, OutboxMessage, StoreErrorKind, Unsettled},
    telemetry::error_chain,
    time::Timestamp,
};
use serde::Serialize;

use crate::{
    context::Context,
    failure::Failure,
    output::{cell, iso, span, when},
    record::KeyJson,
    scan,
};

/// The number of items per step of a scan.
const STEP: u32 = 1000;

/// A message in JSON.
#[derive(Debug, Serialize)]
pub struct MessageJson {
    /// Its place among the messages of its record.
    number: u32,
    topic: String,
    /// What its consumer uses as its key.
    id: String,
    published_at: Option<String>,
}

impl From<&OutboxMessage> for MessageJson {
    fn from(message: &OutboxMessage) -> Self {
        Self {
            number: message.sequence,
            topic: message.topic.clone(),
            id: message.id(),
            published_at: iso(message.published_at),
        }
    }
}

/// A message for an operator.
pub fn line(message: &OutboxMessage, now: Timestamp) -> String {
    let (number, topic, id) = (message.sequence, &message.topic, message.id());
    format!("{number}: {topic}, published {}, id {id}", when(message.published_at, now))
}

/// A record that has published messages which should have been delivered.
#[derive(Debug, Serialize)]
struct Undelivered {
    #[serde(flatten)]
    key: KeyJson,
    /// How many.
    messages: usize,
    /// The first one: it holds up the others.
    first: MessageJson,
}

/// Lists the records whose messages should have been delivered, those first whose first message is oldest. Scans the whole table, at no
/// more than `units_per_second`.
pub async fn list(
    context: &Context,
    tenant: Option<&Tenant>,
    limit: usize,
    units_per_second: f64,
) -> Result<(), Failure> {
    let (mut counted, mut from) = (BTreeMap::<String, (RecordKey, usize)>::new(), None);
    let (bar, mut scanned, mut unread) = (scan::bar(context).await, 0, 0);
    loop {
        let page = context.store.scan((0, 1), from.as_ref(), context.now(), STEP).await?;
        let ours = |key: &RecordKey| tenant.is_none_or(|tenant| key.tenant() == tenant);
        for key in page.undelivered.into_iter().filter(ours) {
            counted.entry(key.partition_key()).or_insert((key, 0)).1 += 1;
        }
        scanned += page.scanned;
        scan::show(&bar, scanned);
        from = page.next;
        if from.is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_secs_f64(page.units / units_per_second)).await;
    }
    bar.finish_and_clear();
    let mut found = Vec::new();
    for (key, messages) in counted.into_values() {
        // Read again: they may have been delivered meanwhile.
        match context.store.undelivered(&key).await {
            Ok(waiting) => found.extend(waiting.into_iter().next().map(|first| (first, messages))),
            Err(error) if error.kind() == StoreErrorKind::Unreadable => {
                unread += 1;
                let name = harmless(&key.partition_key());
                eprintln!(
                    "{name}: the first of its {messages} messages cannot be read: {}",
                    error_chain(&error)
                );
            }
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by_key(|(first, _)| first.published_at);
    let more = found.len() > limit;
    found.truncate(limit);
    print(context, &found, unread)?;
    if more {
        eprintln!("There are more: raise --limit.");
    }
    Ok(())
}

fn print(context: &Context, found: &[(OutboxMessage, usize)], unread: usize) -> Result<(), Failure> {
    if context.screen.is_json() {
        let found = found.iter().map(|(first, messages)| Undelivered {
            key: (&first.key).into(),
            messages: *messages,
            first: first.into(),
        });
        return context.screen.print_json(&found.collect::<Vec<_>>(), false);
    }
    if found.is_empty() {
        // What cannot be read was named.
        return if unread == 0 { context.screen.print("None.") } else { Ok(()) };
    }
    let mut table = context.screen.table(["record", "in logs", "messages", "for", "first", "topic", "id"]);
    for (first, messages) in found {
        table.add_row([
            cell(first.key.partition_key()),
            cell(first.key.hash()),
            cell(messages),
            cell(span(context.now().since(first.published_at))),
            cell(first.sequence),
            cell(&first.topic),
            cell(first.id()),
        ]);
    }
    context.screen.print_table(&table)
}
