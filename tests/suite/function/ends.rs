//! How a call ends whose function is late, or whose rows or refusal are not kept.

use std::{error::Error, io, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::{
    Answer, Execution, Failure, Finding, Guard, Operation, Question, Reconciler, RunError, async_trait,
    domain::Table,
    event::{Consumer, KeyFrom, MemorySource},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    operator::{Correction, Operator},
    queue::MemoryQueue,
    reconcile::Reconciliation,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    guarded::{GRACE, Guarded, LEASE, random},
    http::{Counter, Gate},
    messages::{QUEUE, deliver, message},
    on_each_store,
    returns::Returns,
    tables,
};

const SHIP: &str = "ship";
const KEY: &[&str] = &["order-1"];

fn guard_of(guarded: &Guarded, operation: Operation) -> Guard {
    let tenant = Tenant::parse("acme").expect("a tenant");
    Guard::new(guarded.store(), operation, tenant).world(guarded.clock.clone())
}

fn record_key(key: &[&str]) -> RecordKey {
    let (tenant, operation) = (Tenant::parse("acme"), OperationName::parse(SHIP));
    let key = IdempotencyKey::of(key).expect("a key");
    RecordKey::new(tenant.expect("a tenant"), operation.expect("a name"), key)
}

async fn state(guarded: &Guarded, key: &[&str]) -> &'static str {
    guarded.record(&record_key(key)).await.map_or("absent", |record| record.state.name())
}

/// Writes a row that must not exist yet, and counts its runs.
async fn ship(
    guard: &Guard,
    key: &[&str],
    table: &Table,
    row: &str,
    runs: &Counter,
) -> Result<usize, RunError> {
    let (write, runs) = (table.put(json!({ "id": row })).if_absent(), runs.clone());
    let function = async move |execution: Execution, _: u8| {
        execution.write(write)?;
        Ok::<_, Failure>(runs.add())
    };
    guard.returns(key, 1, function).await
}

// A function with other effects may have had them. One with rows alone did nothing, and is not blocked for ever.
#[apply(on_each_store)]
async fn rows_refused_without_an_answer_end_as_the_operation_says(endpoint: &str) {
    for (operation, state_after) in [
        (Operation::new(SHIP), "unknown"),
        (Operation::new(SHIP).effects_in_transaction(), "failed_retryable"),
    ] {
        let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
        let table = tables::domain_table(&guarded.undisturbed).await;
        let guard = guard_of(&guarded, operation);
        assert!(matches!(ship(&guard, KEY, &table, "p-1", &runs).await, Ok(1)));
        let other = &["order-2"];
        let refused = ship(&guard, other, &table, "p-1", &runs).await;
        assert_eq!(state(&guarded, other).await, state_after);
        let again = ship(&guard, other, &table, "p-2", &runs).await;
        if state_after == "unknown" {
            assert!(matches!(refused, Err(RunError::Unknown { .. })), "{refused:?}");
            assert!(matches!(again, Err(RunError::Unknown { .. })), "{again:?}");
            assert_eq!(runs.count(), 2);
        } else {
            assert!(matches!(refused, Err(RunError::NotExecuted(_))), "{refused:?}");
            assert!(matches!(again, Ok(3)), "{again:?}");
        }
    }
}

// With rows alone, an error of unknown meaning certainly did nothing.
#[apply(on_each_store)]
async fn a_function_of_rows_that_fails_in_any_way_runs_again(endpoint: &str) {
    for panics in [false, true] {
        let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
        let table = tables::domain_table(&guarded.undisturbed).await;
        let guard = guard_of(&guarded, Operation::new(SHIP).effects_in_transaction());
        let write = table.put(json!({ "id": "p-1" })).if_absent();
        let failed =
            guard.returns(KEY, 1, async move |execution: Execution, _: u8| -> Result<usize, Failure> {
                execution.write(write)?;
                assert!(!panics, "in the function");
                Err(io::Error::other("no answer"))?
            });
        let failed = failed.await.expect_err("no result");
        let RunError::NotExecuted(source) = &failed else { panic!("{failed:?}") };
        assert_eq!(source.is_none(), panics, "{failed:?}");
        assert_eq!(state(&guarded, KEY).await, "failed_retryable");
        assert!(matches!(ship(&guard, KEY, &table, "p-1", &runs).await, Ok(1)));
    }
}

/// Knows what became of every shipment.
struct Carrier(Finding);

#[async_trait]
impl Reconciler for Carrier {
    async fn ask(&self, _: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>> {
        Ok(self.0.clone())
    }
}

// T1, T3: two callers would get two results of one effect.
#[apply(on_each_store)]
async fn a_late_function_gets_the_result_that_each_call_gets(endpoint: &str) {
    let (guarded, gate) = (Guarded::on(endpoint).await, Gate::closed());
    let guard = guard_of(&guarded, Operation::new(SHIP));
    let (slow, held) = (guard.clone(), gate.clone());
    let late = tokio::spawn(async move {
        let function = async move |_, _: u8| {
            held.pass().await;
            Ok::<_, Failure>("what the late one says".to_owned())
        };
        slow.returns(KEY, 1, function).await
    });
    gate.reached(1).await;
    guarded.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    let call = || guard.returns(KEY, 1, async |_, _: u8| -> Result<String, Failure> { panic!("it ran") });
    let unknown = call().await;
    assert!(matches!(unknown, Err(RunError::Unknown { .. })), "{unknown:?}");
    let found = Finding::Executed(Answer::payload(&"what the carrier says").expect("JSON"));
    let reconciliation =
        Reconciliation::new(guarded.store(), MemoryQueue::new()).world(guarded.clock.clone());
    let reconciliation = reconciliation.operation(Operation::new(SHIP), Carrier(found));
    reconciliation.ask(&record_key(KEY)).await.expect("it is settled");
    gate.open();
    for result in [late.await.expect("it ends"), call().await] {
        assert!(matches!(&result, Ok(found) if found == "what the carrier says"), "{result:?}");
    }
}

// T39: others may have settled its record, and another call may run.
#[apply(on_each_store)]
async fn a_function_that_stood_still_past_its_lease_goes_no_further(endpoint: &str) {
    for (operation, state_after) in [
        (Operation::new(SHIP), "unknown"),
        // With rows alone, it certainly did nothing.
        (Operation::new(SHIP).effects_in_transaction(), "failed_retryable"),
    ] {
        let (guarded, gate, effects) = (Guarded::on(endpoint).await, Gate::closed(), Counter::default());
        let guard = guard_of(&guarded, operation);
        let (held, counted) = (gate.clone(), effects.clone());
        let late = tokio::spawn(async move {
            let function = async move |_, _: u8| {
                held.pass().await;
                Ok::<_, Failure>(counted.add())
            };
            guard.returns(KEY, 1, function).await
        });
        gate.reached(1).await;
        guarded.clock.advance(LEASE);
        gate.open();
        let late = late.await.expect("it ends");
        assert!(matches!(late, Err(RunError::Unknown { .. } | RunError::NotExecuted(_))), "{late:?}");
        assert_eq!((state(&guarded, KEY).await, effects.count()), (state_after, 0));
    }
}

/// A text that is too large to be kept, also compressed.
fn endless() -> String {
    BASE64_STANDARD.encode(random(1_500_000))
}

// T28: without its text, it must not look like an effect.
#[apply(on_each_store)]
async fn a_refusal_that_is_too_large_to_be_kept_is_a_refusal(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let guard = guard_of(&guarded, Operation::new(SHIP));
    let call = async || {
        let counted = runs.clone();
        let function = async move |_, _: Value| {
            counted.add();
            Err::<u8, _>(Failure::permanent(endless()))
        };
        guard.returns(KEY, json!({ "id": "order-1" }), function).await
    };
    let first = call().await;
    assert!(matches!(&first, Err(RunError::Refused(why)) if *why == endless()));
    let again = call().await;
    let gone = "it was too large to be kept, or is gone";
    assert!(matches!(&again, Err(RunError::Refused(why)) if why == gone), "{again:?}");
    assert_eq!((runs.count(), state(&guarded, KEY).await), (1, "completed"));
    // A queue must not acknowledge it: nothing was shipped.
    let queue = MemorySource::new(QUEUE);
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).world(guarded.clock.clone());
    let consumer =
        consumer.each(guard.clone(), async |_, _: Value| -> Result<u8, Failure> { panic!("it ran") });
    let order = message("m-1", json!({ "id": "order-1" }));
    assert!(deliver(&consumer, &[order]).await.expect("an answer").is_empty());
    let reasons: Vec<_> = queue.take_dead().into_iter().map(|dead| dead.reason).collect();
    assert_eq!(reasons, [gone]);
}

// A caller got what an operator deletes: nothing runs in its place, and a refusal stays one.
#[apply(on_each_store)]
async fn a_forgotten_answer_runs_nothing_and_ends_its_message(endpoint: &str) {
    for refuses in [true, false] {
        let (guarded, runs, queue) =
            (Guarded::on(endpoint).await, Counter::default(), MemorySource::new(QUEUE));
        let guard = guard_of(&guarded, Operation::new(SHIP));
        let counted = runs.clone();
        let function = move |_: Execution, _: Value| {
            counted.add();
            async move {
                if refuses {
                    Err(Failure::permanent("Jane does not live there"))
                } else {
                    Ok("to Jane".to_owned())
                }
            }
        };
        let input = || json!({ "id": "order-1" });
        drop(guard.returns(KEY, input(), function.clone()).await);
        let seen = guarded.record(&record_key(KEY)).await.expect("a record");
        let operator = Operator::new(guarded.undisturbed_store()).world(guarded.clock.clone());
        operator
            .correct(&seen, &Correction::ForgetAnswer, "olga", "Jane asked")
            .await
            .expect("it is forgotten");
        let again = guard.returns(KEY, input(), function.clone()).await;
        let gone = "it was too large to be kept, or is gone";
        match &again {
            Err(RunError::Refused(why)) if refuses => assert_eq!(why, gone),
            Err(RunError::ResultUnreadable(why)) if !refuses => {
                assert_eq!(why, "it was not kept, or is gone")
            }
            other => panic!("{other:?}"),
        }
        let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).world(guarded.clock.clone());
        let consumer = consumer.each(guard, function);
        assert!(deliver(&consumer, &[message("m-1", input())]).await.expect("an answer").is_empty());
        assert_eq!((queue.take_dead().len(), runs.count()), (usize::from(refuses), 1));
    }
}
