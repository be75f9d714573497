//! What it costs to find dead workers by the table's stream: CPU time per batch, and the messages and reads that healthy
//! operations cause, by the window in which stream records are gathered.
//!
//! `cargo bench --bench unmatched`

#[path = "../cost/random.rs"]
mod random;

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::FutureExt;
use lambda_idempotency::{queue::MemoryQueue, stale::Stale, store::memory::MemoryStore};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use random::Random;

/// Healthy operations of the simulation, and how many begin in a second.
const OPERATIONS: usize = 20_000;
const RATES: [u64; 2] = [5, 100];

/// The windows, in milliseconds.
const WINDOWS: [u64; 3] = [1_000, 5_000, 60_000];

/// The largest batch that Lambda makes.
const LARGEST_BATCH: usize = 10_000;

/// Half of the operations take less than this, in milliseconds; one in twenty takes more than ten times as long.
const MEDIAN: u64 = 200;

/// The records of a batch as the function reads them from its event.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    records: Vec<Box<RawValue>>,
}

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    batch();
    windows();
}

/// CPU time of one core for a full batch, from the event's bytes to the open records.
fn batch() {
    let mut random = Random(1);
    let changes = (0..LARGEST_BATCH as u64 / 2).flat_map(|id| {
        let key = random.next();
        [change(2 * id, key, id, "in_progress"), change(2 * id + 1, key, id, "completed")]
    });
    let event = format!("{{\"Records\":[{}]}}", changes.collect::<Vec<_>>().join(","));
    let mut times: Vec<_> = (0..21)
        .map(|_| {
            let started = cpu_time();
            let read: Event = serde_json::from_str(&event).expect("an event");
            assert_eq!((read.records.len(), open(&read.records)), (LARGEST_BATCH, 0));
            cpu_time() - started
        })
        .collect();
    times.sort();
    let [median, worst] =
        [times[times.len() / 2], times[times.len() - 1]].map(|time| time.as_secs_f64() * 1e3);
    let megabytes = event.len() as f64 / 1e6;
    println!(
        "a batch of {LARGEST_BATCH} stream records ({megabytes:.1} MB): {median:.0} ms of CPU, at worst {worst:.0} ms\n"
    );
}

/// Every healthy operation that a batch leaves open costs a message and, when its lease has expired, a read.
fn windows() {
    println!("operations/s  window  messages and reads for 1,000 healthy operations");
    for rate in RATES {
        for window in WINDOWS {
            let open = open_after(rate, window);
            let each = open as f64 * 1000.0 / OPERATIONS as f64;
            println!("{rate:>12}  {:>4} s  {each:>6.1}", window / 1000);
        }
    }
}

fn open_after(rate: u64, window: u64) -> usize {
    let mut random = Random(7);
    let mut changes = Vec::new();
    for id in 0..OPERATIONS as u64 {
        let begins = id * 1000 / rate + random.below(1000) as u64;
        // Log-uniform around the median, over a factor of 100.
        let factor = 10_f64.powf(random.below(2000) as f64 / 1000.0 - 1.0);
        let ends = begins + (MEDIAN as f64 * factor) as u64;
        let key = random.next();
        changes.push((begins, key, id, "in_progress"));
        changes.push((ends, key, id, "completed"));
    }
    changes.sort_unstable();
    // A batch ends when its window ends, or when it is full. The next one begins with the next record.
    let (mut open_now, mut batch, mut began_at) = (0, Vec::new(), None);
    let mut defer = |batch: &mut Vec<Box<RawValue>>| {
        open_now += open(batch);
        batch.clear();
    };
    for (number, (at, key, id, state)) in changes.into_iter().enumerate() {
        let began = *began_at.get_or_insert(at);
        if at >= began + window || batch.len() == LARGEST_BATCH {
            defer(&mut batch);
            began_at = Some(at);
        }
        batch.push(RawValue::from_string(change(number as u64, key, id, state)).expect("JSON"));
    }
    defer(&mut batch);
    open_now
}

/// How many executions a batch leaves open: each is a message.
fn open(batch: &[Box<RawValue>]) -> usize {
    let (checks, dead_letters) = (MemoryQueue::new(), MemoryQueue::new());
    let stale = Stale::new(MemoryStore::new(), checks.clone(), MemoryQueue::new(), dead_letters.clone());
    let failed =
        stale.stream(batch, Duration::from_secs(60)).now_or_never().expect("nothing to wait for in memory");
    assert!(failed.is_empty() && dead_letters.take().is_empty(), "every record can be read");
    checks.take().len()
}

/// A stream record with the new image, as the table's stream has it.
fn change(number: u64, key: u64, id: u64, state: &str) -> String {
    let text = |text: &str| json!({ "S": text });
    let binary = |length: usize| {
        let bytes: Vec<u8> = id.to_be_bytes().into_iter().cycle().take(length).collect();
        json!({ "B": BASE64_STANDARD.encode(bytes) })
    };
    let digits = |number: u64| json!({ "N": number.to_string() });
    let mut image = json!({
        "pk": text(&format!("tenant-{:04}#create-payment#{key:016x}-{id:016x}", id % 1000)),
        "sk": text("record"),
        "schema": digits(2),
        "state": text(state),
        "revision": binary(16),
        "attempt": binary(16),
        "attempts": digits(1),
        "fingerprint": binary(32),
        "fingerprint_rule": digits(1),
        "answer_kind": text("http"),
        "created_at": digits(1_800_000_000_000 + number),
    });
    if state == "in_progress" {
        image["lease_until"] = digits(1_800_000_030_000 + number);
    } else {
        image["completed_at"] = digits(1_800_000_000_200 + number);
        image["expires_at"] = digits(1_800_086_400);
        image["status"] = digits(201);
        image["body_place"] = text("record");
        image["body_encoding"] = text("identity");
        image["body_length"] = digits(150);
        image["body"] = binary(150);
    }
    json!({
        "eventID": format!("{key:016x}{id:016x}"),
        "eventName": if state == "in_progress" { "INSERT" } else { "MODIFY" },
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-central-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_800_000_000,
            "Keys": { "pk": image["pk"], "sk": image["sk"] },
            "NewImage": image,
            "SequenceNumber": format!("{number:021}"),
            "SizeBytes": 600,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/idempotency/stream/2026-11-01T00:00:00.000",
    })
    .to_string()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
