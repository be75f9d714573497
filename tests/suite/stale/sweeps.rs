//! The sweep: what it finds, and that only one sweep at a time scans the table.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::FutureExt;
use lambda_idempotency::{
    queue::MemoryQueue,
    record::State,
    stale::Stale,
    store::{Checkpoint, Unsettled, dynamodb::DynamoDbStore, memory::MemoryStore},
    time::Timestamp,
    time_budget::DELIVERY_GRACE,
    world::{ManualWorld, World},
};
use macro_rules_attribute::apply;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use uuid::Uuid;

use super::records::{BOUND, Found};
use crate::support::{
    clock::STORE_TIMEOUT,
    faults::{Fault, Late},
    guarded::{GRACE, LEASE, body_of, completed, fresh, owned, random, replayed, request, written},
    http::until,
    logs::Logs,
    on_each_store,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

impl Found {
    /// The function in another process.
    fn another(&self, store: DynamoDbStore) -> Stale {
        Stale::new(store, MemoryQueue::new(), self.sweeps.clone(), MemoryQueue::new())
            .sweep_units_per_second(1e9)
            .world(self.guarded.clock.clone())
    }

    async fn sweep(&self, time: Duration) {
        self.stale.sweep(time).await.expect("store and queue answer");
    }

    async fn resume(&self, time: Duration) {
        self.stale.receive(RESUME, time).await.expect("store and queue answer");
    }

    /// Whether a message was sent to resume the sweep.
    fn resumes(&self) -> bool {
        let messages = self.sweeps.take();
        assert!(
            messages.iter().all(|message| *message == (RESUME.to_owned(), Duration::ZERO)),
            "{messages:?}"
        );
        assert_eq!(self.checks.take(), [], "it does not use the queue of checks");
        assert!(messages.len() <= 1, "{messages:?}");
        messages.len() == 1
    }

    async fn checkpoint(&self) -> Option<Checkpoint> {
        self.guarded.undisturbed_store().load_checkpoint("sweep").await.expect("the store answers")
    }

    async fn progress(&self) -> Option<Value> {
        Some(serde_json::from_str(&self.checkpoint().await?.progress?).expect("the progress is JSON"))
    }

    /// Makes the sweep count from a number that identifies its log line.
    async fn count_on_from(&self, scanned: u64) {
        let (checkpoint, mut progress) = (self.checkpoint().await.unwrap(), self.progress().await.unwrap());
        progress["scanned"] = json!(scanned);
        let next =
            Checkpoint { revision: fresh(), progress: Some(progress.to_string()), ..checkpoint.clone() };
        assert!(
            self.guarded
                .undisturbed_store()
                .write_checkpoint(Some(checkpoint.revision), &next)
                .await
                .unwrap()
        );
    }
}

const RESUME: &str = r#"{"version":1,"kind":"sweep"}"#;

fn a_number() -> u64 {
    u64::from(Uuid::new_v4().as_fields().0) + 1_000_000
}

/// The fields of the one log line of a sweep that looked at this many items.
fn line(logs: Logs, scanned: u64) -> Value {
    let lines = logs.lines_with(&format!("\"scanned\":{scanned},"));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    serde_json::from_str(&line.text).unwrap()
}

// The sweep read those items long ago. Finishing it would not count as a sweep of the whole table.
#[apply(on_each_store)]
async fn an_abandoned_sweep_begins_anew(endpoint: &str) {
    let found = Found::on(endpoint).await;
    for (by_schedule, delay, counts_on) in
        [(true, HOUR, true), (true, HOUR + SECOND, false), (false, HOUR, true), (false, HOUR + SECOND, false)]
    {
        found.sweep(Duration::ZERO).await;
        assert!(found.resumes());
        let (logs, so_far) = (Logs::capture(), a_number());
        found.count_on_from(so_far).await;
        found.guarded.clock.advance(delay);
        if by_schedule {
            found.sweep(BOUND).await;
        } else {
            found.resume(BOUND).await;
        }
        assert_eq!((found.resumes(), found.progress().await), (false, None));
        // The checkpoint is an item too, and is scanned.
        let swept = logs.lines_with(&format!("\"scanned\":{},", so_far + 1));
        assert_eq!(swept.len(), usize::from(counts_on), "{delay:?}");
    }
}

// They look like the requests of accepted work, which a sweep deletes once they are not needed.
#[apply(on_each_store)]
async fn a_sweep_leaves_the_bodies_of_answers(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let (executor, request) = (found.guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, completed(random(20_000))).await);
    for _ in 0..2 {
        found.sweep(BOUND).await;
        assert_eq!(found.guarded.collection(&request.key).await.len(), 2);
        found.guarded.clock.advance(DELIVERY_GRACE);
    }
    let replay = replayed(executor.reserve(&request).await);
    assert_eq!(body_of(&replay), Some(&random(20_000)));
}

#[apply(on_each_store)]
async fn a_sweep_finds_what_the_stream_missed_and_resumes(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let executor = found.guarded.executor();
    let mut dead = Vec::new();
    for _ in 0..5 {
        dead.push(found.dead().await);
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, completed(random(20_000))).await);
    }
    found.guarded.clock.advance(LEASE + GRACE);
    let live = found.dead().await;
    // Without any time nothing is done, and nothing is lost.
    found.sweep(Duration::ZERO).await;
    assert!(found.resumes());
    let progress = found.progress().await.unwrap();
    assert_eq!(progress["segments"], json!(["begin", "begin", "begin", "begin"]));
    assert_eq!(progress["scanned"], json!(0));
    let (logs, so_far) = (Logs::capture(), a_number());
    found.count_on_from(so_far).await;
    found.resume(BOUND).await;
    assert!(!found.resumes(), "it is done");
    // Records, their body items, and the sweep's checkpoint.
    let swept = line(logs, so_far + 5 + 5 + 5 + 1 + 1);
    let count = |name: &str| swept["fields"][name].as_u64();
    assert_eq!(count("done"), count("segments"));
    assert_eq!(
        (count("lease_expired"), count("abandoned"), count("unreadable")),
        (Some(5), Some(0), Some(0))
    );
    for request in dead {
        assert_eq!(found.guarded.state(&request).await, "unknown");
    }
    assert_eq!(found.guarded.state(&live).await, "in_progress");
    assert_eq!(found.progress().await, None);
    found.resume(BOUND).await;
    assert_eq!((found.resumes(), found.progress().await), (false, None), "no sweep is left to resume");
}

// T50: DynamoDB ends a page at 1 MB, so DynamoDB chooses the record at which the sweep stops.
#[apply(on_each_store)]
async fn a_sweep_continues_through_pages_that_the_store_cuts(endpoint: &str) {
    const DEAD: usize = 24;
    let found = Found::on(endpoint).await;
    let mut dead = Vec::new();
    for number in 0..DEAD {
        dead.push(found.dead().await);
        // A record with a body item, as a large answer has. At least one of the sweep's four parts has six of them, which is two pages or
        // more.
        let mut body = found.guarded.item(&dead[number].key).await.unwrap();
        body.insert("sk".into(), AttributeValue::S("body#0".into()));
        body.insert("body".into(), AttributeValue::B(random(390_000).to_vec().into()));
        found.guarded.write_raw(body).await;
    }
    found.guarded.clock.advance(LEASE + GRACE);
    let store = found.guarded.undisturbed_store();
    let page = store.scan((0, 1), None, found.guarded.now(), 250).await.unwrap();
    assert!(page.next.is_some() && page.scanned < 250, "the store cuts the page: {page:?}");

    // So slow that each run looks at one page of each part, and then waits until its time is up.
    let stale = || {
        let (checks, sweeps) = (found.checks.clone(), found.sweeps.clone());
        Stale::new(store.clone(), checks, sweeps, found.dead_letters.clone())
            .sweep_units_per_second(0.1)
            .world(found.guarded.clock.clone())
    };
    let (mut runs, mut scanned) = (0, 0);
    loop {
        // A new process each time. The store contains everything that it needs to resume.
        let stale = stale();
        let run = async {
            // A scheduled run resumes the sweep, as a message does.
            if runs == 0 || runs % 2 == 1 {
                stale.sweep(8 * SECOND).await
            } else {
                stale.receive(RESUME, 8 * SECOND).await
            }
        };
        // A page may take half of the time, so no page is begun in the second half.
        let its_time_is_up = async {
            found.guarded.clock.slept(4 * SECOND, runs + 1).await;
            found.guarded.clock.advance(4 * SECOND);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = run => done.unwrap(),
            () = its_time_is_up => unreachable!(),
        }
        runs += 1;
        if !found.resumes() {
            break;
        }
        let progress = found.progress().await.unwrap();
        let places = progress["segments"].as_array().unwrap();
        assert!(places.iter().any(|place| place["after"].is_array()), "{progress}");
        let before = std::mem::replace(&mut scanned, progress["scanned"].as_u64().unwrap());
        assert!(scanned > before, "run {runs} stayed at {before}: {progress}");
        assert!(runs < 20, "{progress}");
    }
    assert!(runs > 2, "a schedule and a message resumed it");
    for request in &dead {
        assert_eq!(found.guarded.state(request).await, "unknown");
    }
}

// T50
#[apply(on_each_store)]
async fn of_two_simultaneous_sweeps_one_stops(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let dead = found.dead().await;
    found.guarded.clock.advance(LEASE + GRACE);
    // Both have read the checkpoint before either writes it: first without a checkpoint, then with one.
    let (faults, [first, second]) =
        (&found.guarded.faults, [(); 2].map(|()| found.another(found.guarded.store())));
    for round in 0..2 {
        let (scans, meet) = (faults.asked("Scan"), Fault::Meet(Arc::new(Barrier::new(2))));
        faults.script("PutItem", [meet.clone(), meet]);
        let race = tokio::join!(first.sweep(BOUND), second.sweep(BOUND));
        assert!(race.0.is_ok() && race.1.is_ok(), "{race:?}");
        // One page of each of the table's four parts.
        assert_eq!(
            (faults.left(), faults.asked("Scan") - scans),
            (0, 4),
            "round {round}: only one continues"
        );
        assert!(!found.resumes(), "round {round}");
    }
    assert_eq!(found.guarded.state(&dead).await, "unknown");

    // While another sweep's lease lasts, the schedule and messages leave the sweep alone.
    let (logs, store) = (Logs::capture(), found.guarded.undisturbed_store());
    let for_ms = a_number();
    let theirs = Checkpoint {
        name: "sweep".into(),
        revision: fresh(),
        lease_until: found.guarded.now().plus(Duration::from_millis(for_ms)),
        progress: Some("{}".into()),
    };
    let current = found.checkpoint().await.map(|checkpoint| checkpoint.revision);
    assert!(store.write_checkpoint(current, &theirs).await.unwrap());
    found.sweep(BOUND).await;
    found.resume(BOUND).await;
    // Each returns once the lease has expired, and looks whether the sweep was finished.
    let delays: Vec<_> = found.sweeps.take().into_iter().map(|(_, delay)| delay).collect();
    assert_eq!((delays, found.checkpoint().await), (vec![Duration::from_millis(for_ms); 2], Some(theirs)));
    let lines = logs.lines_with(&format!("\"for_ms\":{for_ms}"));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.text.contains("another sweep is under way")), "{lines:?}");
}

// T50
#[apply(on_each_store)]
async fn the_next_scheduled_run_resumes_a_dead_sweep(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let (before, after) = (found.dead().await, found.dead().await);
    found.guarded.clock.advance(LEASE + GRACE);
    // It dies during its run. Only its beginning has been written.
    let (faults, page) = (&found.guarded.faults, Late::hanging());
    faults.for_all("Scan", page.fault());
    let dying = found.another(found.guarded.store());
    tokio::select! {
        ended = dying.sweep(10 * SECOND) => panic!("it waits for its page: {ended:?}"),
        () = page.held(1) => {}
    }
    let lease = found.checkpoint().await.unwrap().lease_until.since(found.guarded.now());
    assert_eq!(lease, 10 * SECOND + GRACE);

    found.guarded.clock.advance(lease - Duration::from_millis(1));
    found.sweep(BOUND).await;
    assert_eq!(found.guarded.state(&before).await, "in_progress", "its lease is not over");
    // If no schedule follows, a message arrives once the lease has expired.
    let [(_, delay)] = &found.sweeps.take()[..] else { panic!("not one message") };
    assert_eq!(*delay, Duration::from_millis(1));
    found.guarded.clock.advance(Duration::from_millis(1));
    found.sweep(BOUND).await;
    for request in [&before, &after] {
        assert_eq!(found.guarded.state(request).await, "unknown");
    }
    assert_eq!((found.resumes(), found.progress().await), (false, None));

    // A sweep that continues after its lease has expired finds that another sweep owns the checkpoint, and stops.
    faults.clear();
    let (first, second) =
        (found.another(found.guarded.store()), found.another(found.guarded.undisturbed_store()));
    let held = Late::hanging();
    faults.script("Scan", [held.fault()]);
    let late = async {
        held.held(1).await;
        // Only the wall clock. The first sweep still waits for its page.
        found.guarded.clock.set(found.guarded.now().plus(10 * SECOND + GRACE));
        second.sweep(Duration::ZERO).await.unwrap();
        let theirs = found.checkpoint().await;
        found.guarded.clock.advance(STORE_TIMEOUT);
        theirs
    };
    let (ended, theirs) = tokio::join!(first.sweep(10 * SECOND), late);
    assert_eq!((ended.is_err(), found.checkpoint().await), (true, theirs));
    assert!(found.resumes(), "the second one's message, and no other");
}

// T50
#[apply(on_each_store)]
async fn a_lost_answer_about_the_checkpoint_stops_no_sweep(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let dead = found.dead().await;
    found.guarded.clock.advance(LEASE + GRACE);
    let faults = &found.guarded.faults;
    // The first and the last write of the checkpoint are applied, and their answers are lost.
    faults.script("PutItem", [Fault::DropAnswer, Fault::Pass, Fault::Pass, Fault::DropAnswer]);
    let queues = [(); 3].map(|()| MemoryQueue::new());
    let [checks, sweeps, dead_letters] = queues;
    let stale = Stale::new(found.guarded.store(), checks, sweeps.clone(), dead_letters)
        .sweep_units_per_second(1e9)
        .world(found.guarded.clock.clone());
    stale.sweep(BOUND).await.unwrap();
    assert_eq!((faults.left(), sweeps.take().len(), found.progress().await), (0, 0, None));
    assert_eq!(found.guarded.state(&dead).await, "unknown");
}

#[apply(on_each_store)]
async fn one_unreadable_record_does_not_stop_a_sweep(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let (dead, damaged) = (found.dead().await, found.dead().await);
    let mut item = found.guarded.item(&damaged.key).await.unwrap();
    item.remove("attempt");
    found.guarded.write_raw(item).await;
    found.guarded.clock.advance(LEASE + GRACE);
    let (logs, so_far) = (Logs::capture(), a_number());
    found.sweep(Duration::ZERO).await;
    found.count_on_from(so_far).await;
    found.resume(BOUND).await;
    let swept = line(logs, so_far + 2 + 1);
    let count = |name: &str| swept["fields"][name].as_u64();
    assert_eq!((count("lease_expired"), count("unreadable")), (Some(1), Some(1)));
    let State::Unknown { since, .. } = found.guarded.record(&dead.key).await.unwrap().state else {
        panic!("not unknown")
    };
    assert_eq!(since, found.guarded.clock.now());
}

#[test]
fn a_whole_sweep_is_counted_and_a_part_is_not() {
    let recorder = DebuggingRecorder::new();
    let queues = [(); 3].map(|()| MemoryQueue::new());
    let [checks, sweeps, dead_letters] = queues;
    let world = ManualWorld::at(Timestamp::from_secs(2_000_000_000));
    let stale = Stale::new(MemoryStore::new(), checks, sweeps, dead_letters).world(world);
    for time in [Duration::ZERO, BOUND] {
        // Ready at once, because the store is in this process's memory.
        let swept = metrics::with_local_recorder(&recorder, || stale.sweep(time).now_or_never());
        swept.expect("nothing to wait for").expect("the store answers");
        let counted = recorder.snapshotter().snapshot().into_vec();
        let counted = counted.iter().map(|(key, _, _, value)| (key.key().name(), value));
        let counted = counted.filter(|(_, value)| matches!(value, DebugValue::Counter(_)));
        let name = "api.idempotency.sweep.completed.count";
        let expected: &[_] = if time.is_zero() { &[] } else { &[(name, &DebugValue::Counter(1))] };
        assert_eq!(counted.collect::<Vec<_>>(), expected);
    }
}

// T50: the store may refuse the place from which the sweep would continue.
#[apply(on_each_store)]
async fn a_sweep_whose_page_is_refused_begins_anew(endpoint: &str) {
    let found = Found::on(endpoint).await;
    found.sweep(Duration::ZERO).await;
    assert!(found.resumes());
    found.count_on_from(a_number()).await;
    found.guarded.faults.for_all("Scan", Fault::AccessDenied);
    assert!(found.another(found.guarded.store()).sweep(BOUND).await.is_err());
    let progress = found.progress().await.unwrap();
    assert_eq!((&progress["scanned"], &progress["segments"]), (&json!(0), &json!([])));
}

// T36, T50: it becomes unreadable between its scan and its check.
#[apply(on_each_store)]
async fn a_record_that_is_damaged_during_a_sweep_does_not_stop_it(endpoint: &str) {
    let found = Found::on(endpoint).await;
    let dead = found.dead().await;
    found.guarded.clock.advance(LEASE + GRACE);
    let mut damaged = found.guarded.item(&dead.key).await.expect("a record");
    damaged.insert("schema".to_owned(), AttributeValue::N("99".to_owned()));
    let (faults, both) = (&found.guarded.faults, Arc::new(Barrier::new(2)));
    // The first read is that of the checkpoint.
    faults.script("GetItem", [Fault::Pass, Fault::Meet(both.clone())]);
    let damages = async {
        until(|| faults.asked("GetItem") == 2).await;
        found.guarded.write_raw(damaged.clone()).await;
        both.wait().await;
    };
    let stale = found.another(found.guarded.store());
    let (swept, ()) = tokio::join!(stale.sweep(BOUND), damages);
    swept.expect("it goes on");
    assert_eq!((found.resumes(), found.progress().await), (false, None));
    assert_eq!(found.guarded.item(&dead.key).await, Some(damaged));
}
