//! Publishing: a message commits with its operation, or not at all, by every way that completes one.

use std::time::Duration;

use lambda_idempotency::{
    Answer, Execution, Failure, Finding, Guard, Operation, Question, Reconciler, RunError, async_trait,
    domain::{DomainWrite, DomainWriteError, Table},
    engine::{Report, SingleTransaction},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    queue::MemoryQueue,
    reconcile::Reconciliation,
    record::Says,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{bodies, topic, undelivered};
use crate::support::{
    BoxError,
    faults::{ANY, Fault},
    guarded::{Guarded, completed, operation, owned, request, written},
    on_each_store,
    returns::Returns,
    tables,
};

const KEY: &[&str] = &["order-1"];

fn guard(guarded: &Guarded, operation: Operation) -> Guard {
    let tenant = Tenant::parse("acme").expect("a tenant");
    Guard::new(guarded.store(), operation, tenant).world(guarded.clock.clone())
}

fn key() -> RecordKey {
    let [tenant, operation] = ["acme", "order"];
    RecordKey::new(
        Tenant::parse(tenant).expect("a tenant"),
        OperationName::parse(operation).expect("a name"),
        IdempotencyKey::of(KEY).expect("a key"),
    )
}

#[apply(on_each_store)]
async fn messages_commit_with_the_result_and_are_published_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard(&guarded, Operation::new("order"));
    let place = |fails: Option<Failure>| {
        async move |execution: Execution, _: u8| {
            for n in 0..3 {
                execution.publish(&topic(), &json!({ "n": n }))?;
            }
            fails.map_or(Ok("placed".to_owned()), Err)
        }
    };
    let failed = guard.returns(KEY, 1, place(Some(Failure::not_executed("no connection")))).await;
    assert!(matches!(failed, Err(RunError::NotExecuted(_))), "{failed:?}");
    assert_eq!(bodies(&guarded, &key()).await, [""; 0]);
    guarded.meter.reset();
    for _ in 0..2 {
        assert_eq!(guard.returns(KEY, 1, place(None)).await.expect("a result"), "placed");
    }
    // The take-over costs two, the completion one, the replay one: as without messages.
    assert_eq!(guarded.meter.reading().total().round_trips, 4);
    let messages = undelivered(&guarded, &key()).await;
    let numbers: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    assert_eq!((numbers, &*messages[1].body), (vec![0, 1, 2], r#"{"n":1}"#));
    let record = guarded.record(&key()).await.expect("a record");
    assert_eq!((record.messages, messages[0].created_at), (3, record.created_at));
    // None of them may be deleted before it is delivered.
    let items = guarded.collection(&key()).await;
    let with_expiry = items.iter().filter(|item| item.contains_key("expires_at")).count();
    assert_eq!((items.len(), with_expiry), (4, 1));
}

#[apply(on_each_store)]
async fn a_phase_publishes_with_its_recovery_point_and_never_again(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let resumes = Operation::new("order").resumes(["accept"], Duration::from_secs(3600));
    let guard = guard(&guarded, resumes);
    let run = |ends: bool| {
        async move |execution: Execution, _: u8| {
            execution.commit("accept", vec![topic().message(&"accepted")]).await?;
            execution.publish(&topic(), &"placed")?;
            match ends {
                true => Ok(()),
                false => Err(Failure::not_executed("no connection")),
            }
        }
    };
    assert!(guard.returns(KEY, 1, run(false)).await.is_err());
    assert_eq!(bodies(&guarded, &key()).await, [r#""accepted""#]);
    guard.returns(KEY, 1, run(true)).await.expect("a result");
    assert_eq!(bodies(&guarded, &key()).await, [r#""accepted""#, r#""placed""#]);
    let sequences: Vec<_> = undelivered(&guarded, &key()).await.iter().map(|it| it.sequence).collect();
    assert_eq!(sequences, [0, 1]);
}

#[apply(on_each_store)]
async fn a_refused_row_publishes_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let table = tables::domain_table(&guarded.undisturbed).await;
    let guard = guard(&guarded, Operation::new("order"));
    let refused = guard.returns(KEY, 1, async move |execution: Execution, _: u8| {
        execution.publish(&topic(), &"placed")?;
        execution.write(refusing(&table).or_answer(Answer::refusal("sold out")))?;
        Ok(())
    });
    assert!(matches!(refused.await, Err(RunError::Refused(_))));
    assert_eq!(bodies(&guarded, &key()).await, [""; 0]);
    assert_eq!(guarded.record(&key()).await.expect("a record").messages, 0);
}

fn refusing(table: &Table) -> DomainWrite {
    table.delete(json!({ "id": "none" })).if_present()
}

#[apply(on_each_store)]
async fn a_single_transaction_publishes_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard(&guarded, Operation::new("order"));
    let place = |transaction: SingleTransaction, _: u8| async move {
        transaction.publish(&topic(), &"placed")?;
        Ok::<_, Failure>(())
    };
    for _ in 0..2 {
        guard.transacts(KEY, 1, place).await.expect("a result");
    }
    assert_eq!(bodies(&guarded, &key()).await, [r#""placed""#]);
}

struct Confirms;

#[async_trait]
impl Reconciler for Confirms {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Ok(Finding::ExecutedWith(Answer::json(201, "{}"), vec![topic().message(&"found")]))
    }
}

fn reconciliation(guarded: &Guarded) -> Reconciliation {
    Reconciliation::new(guarded.store(), MemoryQueue::new())
        .world(guarded.clock.clone())
        .operation(operation(), Confirms)
}

#[apply(on_each_store)]
async fn a_finding_publishes_with_the_completion(endpoint: &str) {
    let (guarded, request) = (Guarded::on(endpoint).await, request());
    let ours = owned(guarded.executor().reserve(&request).await);
    ours.execution().publish(&topic(), &"placed").expect("it is a message");
    written(guarded.executor().finish(ours, Report::perhaps("handler_failed")).await);
    assert_eq!(bodies(&guarded, &request.key).await, [""; 0]);
    for _ in 0..2 {
        reconciliation(&guarded).ask(&request.key).await.expect("an outcome");
    }
    assert_eq!(bodies(&guarded, &request.key).await, [r#""found""#]);
}

#[apply(on_each_store)]
async fn a_deferred_report_publishes_once_it_is_applied(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    let (queue, request) = (MemoryQueue::new(), request());
    let executor = guarded.executor_of(operation().completion_timeout(Duration::ZERO));
    let executor = executor.defer_reports_to(queue.clone());
    let ours = owned(executor.reserve(&request).await);
    ours.execution().publish(&topic(), &"placed").expect("it is a message");
    guarded.faults.for_all(ANY, Fault::DropRequest);
    let ended = guarded.clock.passing(executor.finish(ours, completed("done"))).await;
    assert!(matches!(ended, Says::Own { expires_at: None }), "{ended:?}");
    guarded.faults.clear();
    let [(report, _)] = &queue.take()[..] else { panic!("not one report") };
    assert_eq!(bodies(&guarded, &request.key).await, [""; 0]);
    for _ in 0..2 {
        reconciliation(&guarded).receive(report).await.expect("it is applied");
    }
    assert_eq!(bodies(&guarded, &request.key).await, [r#""placed""#]);
}

// The answer to the completion is lost, and the transaction is sent again: it is one publication.
#[apply(on_each_store)]
async fn a_completion_whose_answer_was_lost_publishes_once(endpoint: &str) {
    let (guarded, request) = (Guarded::on(endpoint).await, request());
    let executor = guarded.executor();
    let ours = owned(executor.reserve(&request).await);
    ours.execution().publish(&topic(), &"placed").expect("it is a message");
    guarded.faults.script("TransactWriteItems", [Fault::DropAnswer, Fault::TwiceUnderAnotherToken]);
    written(guarded.clock.passing(executor.finish(ours, completed("done"))).await);
    assert_eq!(bodies(&guarded, &request.key).await, [r#""placed""#]);
}

// Two hundred kilobytes are a message, three hundred are not: its handler hears of it before it answers.
#[apply(on_each_store)]
async fn a_message_that_cannot_be_published_is_refused_at_once(endpoint: &str) {
    let (guarded, request) = (Guarded::on(endpoint).await, request());
    let executor = guarded.executor();
    let ours = owned(executor.reserve(&request).await);
    let execution = ours.execution().clone();
    execution.publish(&topic(), &"x".repeat(200 * 1024)).expect("it fits");
    let refused = |message: DomainWrite| match execution.write(message) {
        Err(DomainWriteError::Message { topic, reason }) => format!("{topic}: {reason}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(topic().message(&"x".repeat(300 * 1024))), "order.placed: it is longer than 240 KiB");
    assert_eq!(refused(topic().message(&1).condition("a = a")), "order.placed: a message has no condition");
    let deep = (0..120).fold(json!(1), |inner, _| json!([inner]));
    let huge: Box<serde_json::value::RawValue> = serde_json::from_str("1E400").expect("JSON");
    for unreadable in [topic().message(&deep), topic().message(&huge)] {
        assert!(refused(unreadable).contains("nested too deeply, or has a number"));
    }
    execution.publish(&topic(), &(0..80).fold(json!(1), |inner, _| json!([inner]))).expect("it is readable");
    let not_json: std::collections::HashMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    assert!(refused(topic().message(&not_json)).contains("key must be a string"));
    // Nothing of what its handler wants is committed.
    let ended = executor.finish(ours, completed("done")).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    assert_eq!(bodies(&guarded, &request.key).await, [""; 0]);
    let late = execution.publish(&topic(), &Value::Null);
    assert_eq!(late, Err(DomainWriteError::Ended));
}
