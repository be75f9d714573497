//! What becomes of a batch, without any input or output.
//!
//! 1. An invocation that succeeds ends its records, up to the first that the function names, in each lane.
//! 2. An invocation that fails is repeated. If the mapping bisects, the batch is halved, until a bad record is alone.
//! 3. What was retried too often, or is too old when it fails, is dropped, so that the others go on.
//!
//! A lane is a shard or a partition: the order of its records stands.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::{Map, Value};

use crate::mapping::Mapping;

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A record, ready for an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its shard, or its topic and partition.
    pub lane: Arc<str>,
    /// Where it is in its lane.
    pub place: String,
    /// How the function's answer names it.
    pub item: Value,
    /// JSON.
    pub event: String,
    pub arrived: SystemTime,
}

/// How an invocation ended.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// The function's answer.
    Answer(Vec<u8>),
    /// It failed, ran out of time, or its answer is lost.
    Failed(String),
    /// It never began.
    NotBegun(String),
}

/// What an invocation changed.
#[derive(Debug, Default, PartialEq)]
pub struct Step {
    /// They never come again.
    pub done: Vec<Record>,
    pub dropped: Option<Dropped>,
    /// To be printed.
    pub warning: Option<String>,
    /// How long to wait before the next invocation.
    pub wait: Duration,
}

/// Records that the mapping gives up.
#[derive(Debug, PartialEq)]
pub struct Dropped {
    pub records: Vec<Record>,
    /// As Lambda calls it.
    pub condition: &'static str,
    pub invocations: u32,
    /// Whether the function failed, and did not just name them.
    pub is_error: bool,
}

/// A batch, until all its records are done or dropped.
pub struct Batch {
    /// A stack: the last part is next.
    parts: Vec<Part>,
}

#[derive(Default)]
struct Part {
    records: Vec<Record>,
    failures: u32,
}

impl Batch {
    pub fn new(records: Vec<Record>) -> Self {
        Self { parts: vec![Part { records, failures: 0 }] }
    }

    /// The records of the next invocation.
    pub fn next(&self) -> Option<&[Record]> {
        self.parts.last().map(|part| &*part.records)
    }

    /// Takes how that invocation ended, at this time.
    pub fn ended(&mut self, outcome: Outcome, mapping: &Mapping, now: SystemTime) -> Step {
        let Some(mut part) = self.parts.pop() else { return Step::default() };
        let count = part.records.len();
        let (why, is_error) = match outcome {
            Outcome::NotBegun(why) => {
                self.parts.push(part);
                return Step { warning: Some(why), wait: FIRST_BACKOFF, ..Step::default() };
            }
            Outcome::Answer(answer) => match failed_items(&answer, &part.records) {
                Ok(failed) if failed.is_empty() => return Step { done: part.records, ..Step::default() },
                Ok(failed) if !mapping.report_failures => {
                    let warning = format!(
                        "{} records are lost, though the function reports them as failed: the mapping has no ReportBatchItemFailures",
                        failed.len()
                    );
                    return Step { done: part.records, warning: Some(warning), ..Step::default() };
                }
                Ok(failed) => {
                    let (done, left) = split(part.records, &failed);
                    if !done.is_empty() {
                        let warning = Some(format!("{} of {count} records come again", left.len()));
                        self.parts.push(Part { records: left, failures: 0 });
                        return Step { done, warning, wait: FIRST_BACKOFF, ..Step::default() };
                    }
                    part.records = left;
                    ("the function reports its first record as failed".to_owned(), false)
                }
                Err(_) if !mapping.report_failures => return Step { done: part.records, ..Step::default() },
                Err(why) => (why, true),
            },
            Outcome::Failed(why) => (why, true),
        };
        let mut step =
            Step { warning: Some(format!("a batch of {count} records failed: {why}")), ..Step::default() };
        // Halving takes no retry.
        if mapping.bisect && is_error && count > 1 {
            let rest = part.records.split_off(count / 2);
            self.parts.push(Part { records: rest, failures: part.failures });
            step.wait = FIRST_BACKOFF;
            self.parts.push(part);
            return step;
        }
        part.failures += 1;
        let invocations = part.failures;
        step.wait = backoff(invocations);
        let is_old = |record: &Record| {
            let age = now.duration_since(record.arrived).unwrap_or_default();
            u64::try_from(mapping.max_age).is_ok_and(|most| age > Duration::from_secs(most))
        };
        let (condition, dropped) = match u64::try_from(mapping.max_retries) {
            Ok(most) if u64::from(invocations) > most => {
                ("RetryAttemptsExhausted", std::mem::take(&mut part.records))
            }
            _ => {
                // Only what is in front of its lane: a checkpoint passes all before it.
                let young = |(place, record): (usize, &Record)| (!is_old(record)).then_some(place);
                let young = part.records.iter().enumerate().filter_map(young).collect();
                let (old, left) = split(std::mem::take(&mut part.records), &young);
                part.records = left;
                ("RecordAgeExceeded", old)
            }
        };
        if !dropped.is_empty() {
            step.done.clone_from(&dropped);
            step.dropped = Some(Dropped { records: dropped, condition, invocations, is_error });
        }
        if part.records.is_empty() {
            step.wait = Duration::ZERO;
        } else {
            self.parts.push(part);
        }
        step
    }
}

/// How long a batch waits after this many failures.
fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(failures - 1)).min(MAX_BACKOFF)
}

/// Of each lane, what is before the first of these, and the rest.
fn split(records: Vec<Record>, first_of: &HashSet<usize>) -> (Vec<Record>, Vec<Record>) {
    let mut stopped = HashSet::new();
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for (place, record) in records.into_iter().enumerate() {
        if first_of.contains(&place) {
            stopped.insert(record.lane.clone());
        }
        if stopped.contains(&record.lane) { left.push(record) } else { done.push(record) }
    }
    (done, left)
}

/// The places of the records that the answer names. An empty answer, no list and an empty one are success. Any other answer, and a name that
/// is not in the batch, fail the whole batch. `local/src/mapping` decides the same.
fn failed_items(answer: &[u8], records: &[Record]) -> Result<HashSet<usize>, String> {
    if answer.is_empty() {
        return Ok(HashSet::new());
    }
    let answer: Option<Map<String, Value>> = serde_json::from_slice(answer)
        .map_err(|error| format!("the answer is no object with batchItemFailures: {error}"))?;
    let items = match answer.unwrap_or_default().remove("batchItemFailures") {
        None | Some(Value::Null) => return Ok(HashSet::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("batchItemFailures is no list".to_owned()),
    };
    let places: HashMap<String, usize> =
        records.iter().enumerate().map(|(place, record)| (record.item.to_string(), place)).collect();
    let place = |item: &Value| {
        let item = item["itemIdentifier"].to_string();
        places
            .get(&item)
            .copied()
            .ok_or_else(|| format!("the answer names a record that is not in the batch: {item}"))
    };
    items.iter().map(place).collect()
}
