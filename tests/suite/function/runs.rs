//! What becomes of a guarded function, and what each of its callers gets.

use std::{error::Error, io, time::Duration};

use futures_util::future::join_all;
use lambda_idempotency::{
    Execution, Failure, Guard, How, Operation, RunError, async_trait,
    engine::{CallError, PhaseError},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant, age::KeyTime},
    queue::MemoryQueue,
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Answer, Record},
    store::Store,
};
use macro_rules_attribute::apply;
use serde::{Deserialize, Serialize};

use crate::support::{
    clock::in_time,
    faults::{ANY, Fault},
    guarded::{GRACE, Guarded, LEASE},
    http::{Counter, Gate},
    on_each_store,
    returns::Returns,
};

const SHIP: &str = "ship";
const KEY: &[&str] = &["order-1"];
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Shipment {
    tracking: String,
    run: usize,
}

fn tenant() -> Tenant {
    Tenant::parse("acme").expect("a tenant")
}

fn guard_of(guarded: &Guarded, operation: Operation) -> Guard {
    Guard::new(guarded.store(), operation, tenant()).world(guarded.clock.clone())
}

fn guard(guarded: &Guarded) -> Guard {
    guard_of(guarded, Operation::new(SHIP))
}

fn record_key(parts: &[&str]) -> RecordKey {
    let operation = OperationName::parse(SHIP).expect("a name");
    RecordKey::new(tenant(), operation, IdempotencyKey::of(parts).expect("a key"))
}

async fn record(guarded: &Guarded) -> Option<Record> {
    guarded.undisturbed_store().load(&record_key(KEY)).await.expect("the store answers")
}

async fn state(guarded: &Guarded) -> &'static str {
    record(guarded).await.map_or("absent", |record| record.state.name())
}

/// What a function does in its next run.
#[derive(Clone, Copy, Debug)]
enum Does {
    Ships,
    Nothing,
    Fails,
    Panics,
    Refuses,
}

/// Ships, or fails as `does` says, and counts its runs.
async fn ship(guard: &Guard, runs: &Counter, does: Does, parcel: &str) -> Result<Shipment, RunError> {
    let runs = runs.clone();
    let function = async move |execution: Execution, _: String| {
        let run = runs.add();
        match does {
            Does::Ships => Ok(Shipment { tracking: execution.downstream_key("carrier"), run }),
            Does::Nothing => Err(Failure::not_executed("no connection")),
            Does::Fails => Err(io::Error::other("no answer").into()),
            Does::Panics => panic!("in the function"),
            Does::Refuses => Err(Failure::permanent("no such address")),
        }
    };
    guard.returns(KEY, parcel.to_owned(), function).await
}

#[apply(on_each_store)]
async fn a_function_runs_once_and_each_call_gets_its_result(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let first = ship(&guard(&guarded), &runs, Does::Ships, "tea").await.expect("a result");
    assert_eq!(guarded.meter.reading().total().round_trips, 2);
    // Another process, with another function.
    let again = ship(&guard(&guarded), &runs, Does::Panics, "tea").await.expect("the same result");
    assert_eq!((again, runs.count()), (first, 1));
    assert_eq!(guarded.meter.reading().total().round_trips, 3);
    // Another operation, another tenant: other records.
    let other = guard_of(&guarded, Operation::new("return"));
    let globex = guard(&guarded).tenant(Tenant::parse("globex").expect("a tenant"));
    for other in [other, globex] {
        ship(&other, &runs, Does::Ships, "tea").await.expect("a result");
    }
    assert_eq!(runs.count(), 3);
}

// T20
#[apply(on_each_store)]
async fn of_a_hundred_calls_at_once_one_runs(endpoint: &str) {
    let (guarded, runs, gate) = (Guarded::on(endpoint).await, Counter::default(), Gate::closed());
    let call = async |guard: Guard| {
        let (runs, gate) = (runs.clone(), gate.clone());
        let function = async move |_, _: u8| {
            gate.pass().await;
            Ok::<_, Failure>(runs.add())
        };
        guard.returns(KEY, 1, function).await
    };
    let guards: Vec<_> = (0..4).map(|_| guard(&guarded)).collect();
    let calls = join_all((0..100).map(|number| call(guards[number % 4].clone())));
    let opens = async {
        gate.reached(1).await;
        gate.open();
    };
    let (results, ()) = tokio::join!(calls, opens);
    assert_eq!(runs.count(), 1);
    let ended = results.iter().filter(|result| matches!(result, Ok(1))).count();
    let in_flight = results.iter().filter(|result| matches!(result, Err(RunError::InFlight { .. }))).count();
    assert!(ended >= 1 && ended + in_flight == 100, "{results:?}");
}

#[apply(on_each_store)]
async fn another_input_under_one_key_runs_nothing(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    ship(&guard(&guarded), &runs, Does::Ships, "tea").await.expect("a result");
    let mismatch = ship(&guard(&guarded), &runs, Does::Ships, "coffee").await;
    assert!(matches!(mismatch, Err(RunError::Mismatch)), "{mismatch:?}");
    assert_eq!(runs.count(), 1);
}

#[apply(on_each_store)]
async fn a_refusal_for_good_is_kept_with_its_reason(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    for _ in 0..2 {
        let refused = ship(&guard(&guarded), &runs, Does::Refuses, "tea").await;
        assert!(matches!(&refused, Err(RunError::Refused(why)) if why == "no such address"), "{refused:?}");
    }
    assert_eq!((runs.count(), state(&guarded).await), (1, "completed"));
}

#[apply(on_each_store)]
async fn a_function_that_did_nothing_runs_again(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let failed = ship(&guard(&guarded), &runs, Does::Nothing, "tea").await.expect_err("no result");
    assert!(matches!(failed, RunError::NotExecuted(_)), "{failed:?}");
    assert_eq!(failed.source().expect("the function's error").to_string(), "no connection");
    assert_eq!(state(&guarded).await, "failed_retryable");
    let shipped = ship(&guard(&guarded), &runs, Does::Ships, "tea").await.expect("a result");
    assert_eq!(shipped.run, 2);
}

#[apply(on_each_store)]
async fn a_function_that_fails_leaves_its_outcome_unknown(endpoint: &str) {
    for does in [Does::Fails, Does::Panics] {
        let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
        let failed = ship(&guard(&guarded), &runs, does, "tea").await;
        assert!(matches!(failed, Err(RunError::Unknown { .. })), "{failed:?}");
        assert_eq!(state(&guarded).await, "unknown");
        // Nothing runs until that is settled.
        let again = ship(&guard(&guarded), &runs, Does::Ships, "tea").await;
        assert!(matches!(again, Err(RunError::Unknown { source: None, .. })), "{again:?}");
        assert_eq!(runs.count(), 1);
    }
}

// T35
#[apply(on_each_store)]
async fn a_dropped_call_runs_to_its_end(endpoint: &str) {
    let (guarded, runs, gate) = (Guarded::on(endpoint).await, Counter::default(), Gate::closed());
    let (counted, held) = (runs.clone(), gate.clone());
    let guard = guard(&guarded);
    let function = async move |_, _: u8| {
        held.pass().await;
        Ok::<_, Failure>(counted.add())
    };
    let mut call = Box::pin(guard.returns(KEY, 1, function));
    tokio::select! {
        _ = &mut call => panic!("the gate is closed"),
        () = gate.reached(1) => drop(call),
    }
    gate.open();
    in_time(async {
        while state(&guarded).await != "completed" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let again = guard.returns(KEY, 1, async |_, _: u8| Ok::<_, Failure>(0)).await;
    assert!(matches!(again, Ok(1)), "{again:?}");
}

// T31
#[apply(on_each_store)]
async fn no_function_returns_before_its_result_is_kept(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard(&guarded);
    let shipped = || guard.returns(KEY, 1, async |_, _: u8| Ok::<_, Failure>("shipped".to_owned()));
    let result = guarded.ends_written(2, shipped()).await;
    assert!(matches!(&result, Ok(shipped) if shipped == "shipped"), "{result:?}");
    assert_eq!(state(&guarded).await, "completed");
}

#[apply(on_each_store)]
async fn a_function_runs_only_if_the_store_has_its_key(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    guarded.faults.for_all(ANY, Fault::DropRequest);
    let away = guarded.clock.passing(ship(&guard(&guarded), &runs, Does::Ships, "tea")).await;
    assert!(matches!(away, Err(RunError::Unavailable)), "{away:?}");
    guarded.faults.clear();
    assert_eq!((runs.count(), state(&guarded).await), (0, "absent"));
    ship(&guard(&guarded), &runs, Does::Ships, "tea").await.expect("a result");
}

// The store goes away while the function runs: its caller gets the result, and the report waits in a queue.
#[apply(on_each_store)]
async fn a_result_that_cannot_be_kept_is_deferred(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, MemoryQueue::new());
    let deferring = guard(&guarded).defer_reports_to(queue.clone());
    let faults = guarded.faults.clone();
    let function = async move |_, _: u8| {
        faults.for_all(ANY, Fault::DropRequest);
        Ok::<_, Failure>("shipped".to_owned())
    };
    let result = guarded.clock.passing(deferring.run(KEY, 1, function)).await.expect("a result");
    assert_eq!((&*result.value, result.how, result.expires_at), ("shipped", How::Executed, None));
    guarded.faults.clear();
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new());
    let reconciliation = reconciliation.operation(Operation::new(SHIP), Carrier).world(guarded.clock.clone());
    for (message, _) in queue.take() {
        reconciliation.receive(&message).await.expect("it is applied");
    }
    let again = deferring.returns(KEY, 1, async |_, _: u8| Ok::<_, Failure>(String::new())).await;
    assert!(matches!(&again, Ok(shipped) if shipped == "shipped"), "{again:?}");
}

// T78
#[apply(on_each_store)]
async fn a_function_that_stood_still_past_its_lease_goes_no_further(endpoint: &str) {
    let (guarded, gate, effects) = (Guarded::on(endpoint).await, Gate::closed(), Counter::default());
    let (held, counted) = (gate.clone(), effects.clone());
    let function = async move |_: Execution, _: u8| {
        held.pass().await;
        Ok::<_, Failure>(counted.add())
    };
    let guard = guard(&guarded);
    let call = tokio::spawn({
        let guard = guard.clone();
        async move { guard.run(KEY, 1, function).await }
    });
    gate.reached(1).await;
    guarded.clock.advance(LEASE);
    gate.open();
    let ended = call.await.expect("it ends");
    assert!(matches!(ended, Err(RunError::Unknown { .. })), "{ended:?}");
    assert_eq!((effects.count(), state(&guarded).await), (0, "unknown"));
}

#[apply(on_each_store)]
async fn each_caller_is_told_whether_the_function_ran_for_it(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard(&guarded);
    let ship = async |_: Execution, _: u8| Ok::<_, Failure>("shipped".to_owned());
    let began = guarded.now();
    let first = guard.run(KEY, 1, ship).await.expect("a result");
    guarded.clock.advance(Duration::from_secs(60));
    let retry = guard.run(KEY, 1, ship).await.expect("a result");
    assert_eq!((first.how, first.expires_at), (How::Executed, retry.expires_at));
    let How::Replayed { first_at } = retry.how else { panic!("{retry:?}") };
    assert!(first_at >= began && first_at < guarded.now(), "{first_at:?}");
    assert_eq!(retry.map(|value| value.len()).value, first.value.len());
    assert!(first.expires_at.is_some_and(|until| until > guarded.now()));
    // In one round trip, too.
    let one = ["order-9"];
    for replayed in [false, true] {
        let ran = guard.run_single_transaction(&one, 1, async |_, _: u8| Ok::<_, Failure>(1)).await;
        let ran = ran.expect("a result");
        assert_eq!((ran.value, ran.how.is_replay(), ran.expires_at.is_some()), (1, replayed, true));
    }
}

/// Knows every shipment.
struct Carrier;

#[async_trait]
impl Reconciler for Carrier {
    async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>> {
        let tracking = question.downstream_key("carrier");
        Ok(Finding::Executed(Answer::payload(&Shipment { tracking, run: 0 })?))
    }
}

// T1: its worker died.
#[apply(on_each_store)]
async fn what_reconciliation_finds_is_the_result_of_each_call(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let guard = guard(&guarded);
    // Its handler has begun: before that, it would take its reservation back.
    let gate = Gate::closed();
    let held = gate.clone();
    let died = guard.returns(KEY, "tea".to_owned(), async move |_, _: String| -> Result<Shipment, Failure> {
        held.pass().await;
        panic!("it is dead")
    });
    let mut died = Box::pin(died);
    tokio::select! {
        _ = &mut died => panic!("the gate is closed"),
        () = gate.reached(1) => {}
    }
    guarded.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    let unknown = ship(&guard, &runs, Does::Ships, "tea").await;
    assert!(matches!(unknown, Err(RunError::Unknown { source: None, .. })), "{unknown:?}");
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new());
    let reconciliation = reconciliation.operation(Operation::new(SHIP), Carrier).world(guarded.clock.clone());
    reconciliation.ask(&record_key(KEY)).await.expect("it is settled");
    let shipped = ship(&guard, &runs, Does::Ships, "tea").await.expect("what was found");
    assert_eq!((shipped.run, runs.count()), (0, 0));
}

#[apply(on_each_store)]
async fn an_interrupted_function_resumes_behind_its_phases(endpoint: &str) {
    let (guarded, charges) = (Guarded::on(endpoint).await, Counter::default());
    let guard = guard_of(&guarded, Operation::new(SHIP).resumes(["charge", "ship"], DAY));
    let call = async |fails: bool| {
        let charges = charges.clone();
        let function = async move |execution: Execution, _: u8| {
            let charge = execution.phase("charge").keys_live(DAY).call(async |_| Ok(charges.add())).await?;
            let ship = execution.phase("ship").keys_live(DAY).call(async |_| match fails {
                true => Err(CallError::not_executed("no connection")),
                false => Ok("parcel-1".to_owned()),
            });
            Ok::<_, Failure>((charge, ship.await?))
        };
        guard.returns(KEY, 1, function).await
    };
    let interrupted = call(true).await.expect_err("no result");
    let RunError::Interrupted(Some(source)) = &interrupted else { panic!("{interrupted:?}") };
    assert!(source.is::<PhaseError>(), "{source:?}");
    assert_eq!(state(&guarded).await, "between_workers");
    let resumed = call(false).await.expect("a result");
    assert_eq!((resumed, charges.count()), ((1, "parcel-1".to_owned()), 1));
}

#[apply(on_each_store)]
async fn each_list_of_parts_is_a_key_of_its_own(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let guard = guard(&guarded);
    let long = "x".repeat(300);
    let hashed = IdempotencyKey::of(&["a", "b"]).expect("a key");
    let keys: [&[&str]; 8] =
        [&["a", "b"], &["b", "a"], &["ab"], &["a#b"], &[hashed.as_str()], &[&long], &["tab\t"], &["é#%"]];
    for key in keys {
        for _ in 0..2 {
            let counted = runs.clone();
            guard
                .returns(key, 1, async move |_, _: u8| Ok::<_, Failure>(counted.add()))
                .await
                .expect("a result");
        }
    }
    assert_eq!((runs.count(), guarded.number_of_items().await), (keys.len(), keys.len()));
    let keys: [&[&str]; 3] = [&[], &[""], &["a", ""]];
    for key in keys {
        let refused =
            guard.returns(key, 1, async |_, _: u8| -> Result<u8, Failure> { panic!("no key") }).await;
        assert!(matches!(refused, Err(RunError::Key(_))), "{refused:?}");
    }
    assert_eq!(guarded.number_of_items().await, runs.count());
}

// T43
#[apply(on_each_store)]
async fn a_key_that_is_too_old_begins_nothing(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let hour = Duration::from_secs(3600);
    let guard = guard_of(&guarded, Operation::new(SHIP).refuse_older_than(hour, KeyTime::UuidV7));
    let call = async |key: &str| {
        let runs = runs.clone();
        guard.returns(&[key], 1, async move |_, _: u8| Ok::<_, Failure>(runs.add())).await
    };
    let made_at = |before: Duration| {
        let at = guarded.now().as_millis() - u64::try_from(before.as_millis()).expect("milliseconds");
        let at = uuid::Timestamp::from_unix(uuid::NoContext, at / 1000, 0);
        uuid::Uuid::new_v7(at).to_string()
    };
    for (key, reason) in [(made_at(2 * hour), "too-old"), ("order-1".to_owned(), "not-a-uuid-v7")] {
        let refused = call(&key).await;
        assert!(matches!(&refused, Err(RunError::MayNotBegin(why)) if why == reason), "{refused:?}");
    }
    let key = made_at(hour / 2);
    assert!(matches!(call(&key).await, Ok(1)));
    guarded.clock.advance(hour);
    assert!(matches!(call(&key).await, Ok(1)), "an old key gets its result");
}

// Too large for its record; and read by a later version with another type.
#[apply(on_each_store)]
async fn a_result_is_read_back_or_nothing_runs(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard(&guarded);
    let long: Vec<usize> = (0..5_000).collect();
    let (function, expected) = (long.clone(), long);
    guard.returns(KEY, 1, async move |_, _: u8| Ok::<_, Failure>(function)).await.expect("a result");
    let again = guard.returns(KEY, 1, async |_, _: u8| Ok::<Vec<usize>, Failure>(Vec::new())).await;
    assert_eq!(again.expect("the result"), expected);
    let other =
        guard.returns(KEY, 1, async |_, _: u8| -> Result<Shipment, Failure> { panic!("it ran") }).await;
    assert!(matches!(other, Err(RunError::ResultUnreadable(_))), "{other:?}");
}
