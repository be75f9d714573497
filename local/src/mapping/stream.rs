//! Delivers the table's stream to a function in batches: every shard from its beginning and after its parent, with one batch
//! at a time per shard.

use super::{
    batch::{self, Stream},
    record::Record,
    warn,
};
use crate::changes;
use aws_sdk_dynamodbstreams::types::{Record as Raw, Shard, ShardIteratorType};
use lambda_idempotency::telemetry::error_chain;
use std::{
    collections::{HashMap, VecDeque},
    error::Error,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{self, Instant},
};

/// Records in one batch.
const BATCH: usize = 1_000;
/// Bytes of one batch: Lambda's payload limit, less the brackets around the records.
const BATCH_BYTES: usize = 6_000_000;
/// The wait before a shard without new records is read again, if the tables have changed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two searches for new shards.
const DISCOVERY: Duration = Duration::from_secs(1);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Follows the stream without end.
pub async fn run(stream: Arc<Stream>) {
    // Each shard, and whether it has been read to its end.
    let mut shards: HashMap<String, bool> = HashMap::new();
    let (mut readers, mut changes) = (JoinSet::new(), subscribed(&stream));
    loop {
        changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
        match describe(&stream).await {
            Ok(listed) => {
                // A parent that is no longer listed has expired.
                shards.retain(|id, _| listed.iter().any(|shard| shard.shard_id() == Some(id)));
                for shard in &listed {
                    let parent = shard
                        .parent_shard_id()
                        .filter(|parent| listed.iter().any(|shard| shard.shard_id() == Some(parent)));
                    let follows = parent.is_none_or(|parent| shards.get(parent) == Some(&true));
                    if let Some(id) = shard.shard_id()
                        && follows
                        && !shards.contains_key(id)
                    {
                        shards.insert(id.to_owned(), false);
                        readers.spawn(read(stream.clone(), id.to_owned()));
                    }
                }
            }
            Err(error) => {
                warn(&stream.function, &format!("cannot list the stream's shards: {}", error_chain(&*error)))
            }
        }
        let next = Instant::now() + DISCOVERY;
        while let Ok(Some(Ok(ended))) = time::timeout_at(next, readers.join_next()).await {
            shards.insert(ended, true);
        }
        time::sleep_until(next).await;
        if let Some(changes) = &mut changes {
            changes::next(changes).await;
        }
    }
}

fn subscribed(stream: &Stream) -> Option<watch::Receiver<()>> {
    stream.changes.as_ref().map(watch::Sender::subscribe)
}

async fn describe(stream: &Stream) -> Outcome<Vec<Shard>> {
    let (mut shards, mut after) = (Vec::new(), None);
    loop {
        let describe = stream.client.describe_stream().stream_arn(&stream.arn);
        let answer = describe.set_exclusive_start_shard_id(after).send().await?;
        let Some(description) = answer.stream_description else { return Ok(shards) };
        shards.extend(description.shards.unwrap_or_default());
        after = description.last_evaluated_shard_id;
        if after.is_none() {
            return Ok(shards);
        }
    }
}

/// Reads a shard to its end, and returns its id.
async fn read(stream: Arc<Stream>, shard: String) -> String {
    let (mut cursor, mut changes) = (Cursor::new(&stream, &shard), subscribed(&stream));
    let mut waiting = VecDeque::new();
    while !(cursor.ended && waiting.is_empty()) {
        // Records left over from the last batch have waited already.
        let mut closes = (!waiting.is_empty()).then(Instant::now);
        while !cursor.ended && !is_full(&waiting) && closes.is_none_or(|closes| Instant::now() < closes) {
            let current = waiting.len();
            // Before the shard is read, so that no change is missed.
            changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let has_read = cursor.advance(&mut waiting).await;
            if waiting.len() > current {
                closes = closes.or(Some(Instant::now() + stream.window));
            } else if !has_read {
                let next_poll = Instant::now() + POLL_INTERVAL;
                time::sleep_until(closes.map_or(next_poll, |closes| closes.min(next_poll))).await;
                if let (Some(changes), None) = (&mut changes, closes) {
                    changes::next(changes).await;
                }
            }
        }
        // A shard may end without a record that is delivered.
        if !waiting.is_empty() {
            batch::deliver(&stream, &shard, take(&mut waiting)).await;
        }
    }
    shard
}

fn is_full(waiting: &VecDeque<Record>) -> bool {
    waiting.len() >= BATCH || waiting.iter().map(|record| record.event.len()).sum::<usize>() >= BATCH_BYTES
}

/// Takes one batch, or a single record that is larger.
fn take(waiting: &mut VecDeque<Record>) -> Vec<Record> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(record) = waiting.pop_front() {
        bytes += record.event.len() + 1;
        if batch.len() == BATCH || (bytes > BATCH_BYTES && !batch.is_empty()) {
            waiting.push_front(record);
            break;
        }
        batch.push(record);
    }
    batch
}

/// A place in a shard.
struct Cursor<'a> {
    stream: &'a Stream,
    shard: &'a str,
    /// `None` at first, and after an error, because an iterator expires.
    iterator: Option<String>,
    /// The last record read.
    after: Option<String>,
    ended: bool,
    failing: bool,
}

impl<'a> Cursor<'a> {
    fn new(stream: &'a Stream, shard: &'a str) -> Self {
        Self { stream, shard, iterator: None, after: None, ended: false, failing: false }
    }

    /// Reads the next records, and keeps those that match a filter. Returns whether there were any to read. An error is logged once, and
    /// the next call tries again.
    async fn advance(&mut self, waiting: &mut VecDeque<Record>) -> bool {
        match self.page().await {
            Ok(records) => {
                self.failing = false;
                let Stream { arn, filters, .. } = self.stream;
                waiting.extend(records.iter().filter_map(|raw| Record::of(raw, arn, filters)));
                !records.is_empty()
            }
            Err(error) => {
                if !self.failing {
                    let error = error_chain(&*error);
                    warn(&self.stream.function, &format!("cannot read shard {}: {error}", self.shard));
                }
                self.failing = true;
                self.iterator = None;
                false
            }
        }
    }

    async fn page(&mut self) -> Outcome<Vec<Raw>> {
        let client = &self.stream.client;
        let iterator = match self.iterator.take() {
            Some(iterator) => iterator,
            None => self.iterator().await?,
        };
        let answer = match client.get_records().shard_iterator(iterator).send().await {
            Ok(answer) => answer,
            Err(error) => {
                if error.as_service_error().is_some_and(|error| error.is_trimmed_data_access_exception()) {
                    self.after = None;
                }
                return Err(error.into());
            }
        };
        self.iterator = answer.next_shard_iterator;
        self.ended = self.iterator.is_none();
        let records = answer.records.unwrap_or_default();
        if let Some(last) = records.last() {
            self.after = last.dynamodb().and_then(|change| change.sequence_number()).map(str::to_owned);
        }
        Ok(records)
    }

    async fn iterator(&self) -> Outcome<String> {
        let from = match &self.after {
            Some(_) => ShardIteratorType::AfterSequenceNumber,
            None => ShardIteratorType::TrimHorizon,
        };
        let get = self.stream.client.get_shard_iterator().stream_arn(&self.stream.arn).shard_id(self.shard);
        let get = get.shard_iterator_type(from).set_sequence_number(self.after.clone());
        get.send().await?.shard_iterator.ok_or_else(|| "no iterator".into())
    }
}
