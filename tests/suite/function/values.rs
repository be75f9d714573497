//! What is kept comes back as it was. What JSON cannot carry is a mistake of the program: it is completed without its value.

use std::{collections::HashMap, f64::consts::PI, fmt::Debug, time::Duration};

use lambda_http::{Context, LambdaEvent};
use lambda_idempotency::{
    Answer, Execution, Failure, Finding, Guard, JsonError, Operation, RunError,
    domain::{DomainWriteError, Topic},
    engine::{CallError, PhaseError, SingleTransaction},
    event::{Consumer, KeyFrom, MemorySource, invocation},
    function::UnkeptResult,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    outbox::Topics,
    queue::MemoryQueue,
    reconcile::Reconciliation,
    store::Outbox,
};
use macro_rules_attribute::apply;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Value, json, value::to_raw_value};
use tower::ServiceExt;

use crate::support::{
    faults::{ANY, Fault},
    guarded::Guarded,
    http::Counter,
    messages::{QUEUE, deliver, message},
    on_each_store,
    returns::Returns,
    tables,
};

const SHIP: &str = "ship";
const KEY: &[&str] = &["order-1"];
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What a retry gets whose result was not kept.
const NOT_KEPT: &str = "it was not kept, or is gone";

fn guard_of(guarded: &Guarded, operation: Operation) -> Guard {
    let tenant = Tenant::parse("acme").expect("a tenant");
    Guard::new(guarded.store(), operation, tenant).world(guarded.clock.clone())
}

fn guard(guarded: &Guarded) -> Guard {
    guard_of(guarded, Operation::new(SHIP))
}

fn record_key(key: &[&str]) -> RecordKey {
    let (tenant, operation) = (Tenant::parse("acme"), OperationName::parse(SHIP));
    let key = IdempotencyKey::of(key).expect("a key");
    RecordKey::new(tenant.expect("a tenant"), operation.expect("a name"), key)
}

async fn state(guarded: &Guarded, key: &[&str]) -> &'static str {
    guarded.record(&record_key(key)).await.map_or("absent", |record| record.state.name())
}

fn topic() -> Topic {
    Topics::parse("parcel.shipped=own").expect("a list").topic("parcel.shipped").expect("it is listed")
}

/// The bodies of what waits for delivery.
async fn published(guarded: &Guarded) -> Vec<String> {
    let messages = guarded.undisturbed_store().undelivered(&record_key(KEY)).await;
    messages.expect("the store answers").into_iter().map(|message| message.body).collect()
}

/// It is written as something that it is not read from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct OneWay {
    number: String,
}

impl Serialize for OneWay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.number)
    }
}

/// The value that the error of the first caller carries.
#[track_caller]
fn carried<T: Debug + 'static>(result: Result<T, RunError>) -> T {
    let error = result.expect_err("no result");
    let text = error.to_string();
    let RunError::ResultNotKept(unkept) = error else { panic!("{error:?}") };
    assert_eq!(unkept.type_name(), std::any::type_name::<T>());
    assert!(text.contains(unkept.type_name()) && text.contains(&unkept.why().to_string()), "{text}");
    let unkept = unkept.downcast::<Counter>().err();
    unkept.expect("another type").downcast().expect("its own type")
}

/// Asserts what the callers of a function get that returns this value.
async fn assert_completed_without<T>(guarded: &Guarded, key: &[&str], value: T)
where
    T: Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let (guard, runs) = (guard(guarded), Counter::default());
    let call = async || {
        let (value, runs) = (value.clone(), runs.clone());
        let function = async move |_, _: u8| {
            runs.add();
            Ok::<_, Failure>(value)
        };
        guard.returns(key, 1, function).await
    };
    let error = call().await.expect_err("no result");
    let RunError::ResultNotKept(unkept) = error else { panic!("{error:?}") };
    assert_eq!(format!("{:?}", unkept.downcast::<T>().expect("its value")), format!("{value:?}"));
    assert_eq!(state(guarded, key).await, "completed", "{value:?}");
    let again = call().await;
    assert!(matches!(&again, Err(RunError::ResultUnreadable(why)) if why == NOT_KEPT), "{again:?}");
    assert_eq!(runs.count(), 1);
}

// T69
#[apply(on_each_store)]
async fn a_result_that_json_cannot_carry_completes_without_it(endpoint: &str) {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Rates {
        by: HashMap<String, Option<f64>>,
    }
    let guarded = Guarded::on(endpoint).await;
    assert_completed_without(&guarded, &["nan"], f64::NAN).await;
    let by = HashMap::from([("EUR".to_owned(), Some(f64::INFINITY))]);
    assert_completed_without(&guarded, &["inside"], Rates { by }).await;
    assert_completed_without(&guarded, &["unit"], Some(())).await;
    assert_completed_without(&guarded, &["none"], vec![Some(None::<u8>)]).await;
    assert_completed_without(&guarded, &["null"], (1, Some(Value::Null))).await;
    assert_completed_without(&guarded, &["pairs"], HashMap::from([((1, 2), 3)])).await;
    let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
    assert_completed_without(&guarded, &["deep"], deep).await;
}

// T69, T16: nothing but the value is lost.
#[apply(on_each_store)]
async fn rows_and_messages_commit_without_the_result(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let table = tables::domain_table(&guarded.undisturbed).await;
    let row = table.put(json!({ "id": "p-1" })).if_absent();
    let guard = guard(&guarded);
    let shipped = guard.returns(KEY, 1, async move |execution: Execution, _: u8| {
        execution.write(row)?;
        execution.publish(&topic(), &"p-1")?;
        Ok::<_, Failure>(OneWay { number: "4242".to_owned() })
    });
    assert_eq!(carried(shipped.await).number, "4242");
    assert_eq!(state(&guarded, KEY).await, "completed");
    assert_eq!(published(&guarded).await, [r#""p-1""#]);
    let row = table.put(json!({ "id": "p-1" })).if_absent().or_answer(Answer::refusal("shipped already"));
    let again = guard.returns(&["order-2"], 1, async move |execution: Execution, _: u8| {
        execution.write(row)?;
        Ok::<_, Failure>(())
    });
    assert!(matches!(again.await, Err(RunError::Refused(_))), "its row is there");
}

// T69: nothing is done yet.
#[apply(on_each_store)]
async fn a_single_transaction_without_its_result_commits_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let ship = |transaction: SingleTransaction, _: u8| async move {
        transaction.publish(&topic(), &"p-1")?;
        Ok::<_, Failure>((PI, f64::NAN))
    };
    for _ in 0..2 {
        let error = guard(&guarded).transacts(KEY, 1, ship).await.expect_err("it is not kept");
        let RunError::NotExecuted(Some(source)) = error else { panic!("{error:?}") };
        let unkept = source.downcast::<UnkeptResult>().expect("it says why");
        assert!(unkept.downcast::<(f64, f64)>().expect("the value").1.is_nan());
        assert_eq!((guarded.number_of_items().await, published(&guarded).await.len()), (0, 0));
    }
    let mended = |transaction: SingleTransaction, _: u8| async move {
        transaction.publish(&topic(), &"p-1")?;
        Ok::<_, Failure>(PI)
    };
    assert_eq!(guard(&guarded).transacts(KEY, 1, mended).await.expect("a result"), PI);
    assert_eq!((state(&guarded, KEY).await, published(&guarded).await.len()), ("completed", 1));
}

// T69: the store does not take the report, which waits in a queue.
#[apply(on_each_store)]
async fn a_deferred_report_completes_without_the_result(endpoint: &str) {
    let (guarded, queue) = (Guarded::on(endpoint).await, MemoryQueue::new());
    let deferring = guard(&guarded).defer_reports_to(queue.clone());
    let faults = guarded.faults.clone();
    let function = async move |_, _: u8| {
        faults.for_all(ANY, Fault::DropRequest);
        Ok::<_, Failure>(Some(()))
    };
    assert_eq!(carried(guarded.clock.passing(deferring.returns(KEY, 1, function)).await), Some(()));
    guarded.faults.clear();
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new());
    let reconciliation = reconciliation.operation(Operation::new(SHIP), Nobody).world(guarded.clock.clone());
    for (report, _) in queue.take() {
        reconciliation.receive(&report).await.expect("it is applied");
    }
    assert_eq!(state(&guarded, KEY).await, "completed");
    let again = deferring.returns(KEY, 1, async |_, _: u8| -> Result<(), Failure> { panic!("it ran") }).await;
    assert!(matches!(&again, Err(RunError::ResultUnreadable(why)) if why == NOT_KEPT), "{again:?}");
}

/// Nobody is asked.
struct Nobody;

#[lambda_idempotency::async_trait]
impl lambda_idempotency::Reconciler for Nobody {
    async fn ask(
        &self,
        _: &lambda_idempotency::Question,
    ) -> Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
        panic!("a question")
    }
}

// T69: the effect is done, and a queue needs no result.
#[apply(on_each_store)]
async fn a_queue_acknowledges_what_is_done_without_its_result(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, MemorySource::new(QUEUE), Counter::default());
    let counted = runs.clone();
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).world(guarded.clock.clone());
    let consumer = consumer.each(guard(&guarded), move |_, _: Value| {
        counted.add();
        async { Ok(f64::NAN) }
    });
    for id in ["m-1", "m-2"] {
        let order = message(id, json!({ "id": "order-1" }));
        assert!(deliver(&consumer, &[order]).await.expect("an answer").is_empty());
    }
    assert_eq!((queue.take_dead().len(), runs.count()), (0, 1));
    assert_eq!(state(&guarded, KEY).await, "completed");
}

// T69
#[apply(on_each_store)]
async fn an_invocation_says_that_its_result_is_not_kept(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let nan = |_: Execution, _: Value| async { Ok(f64::NAN) };
    let function = invocation(guard(&guarded), KeyFrom::body("/id"), nan);
    for expected in ["ResultNotKept", "ResultUnreadable"] {
        let mut context = Context::default();
        context.deadline = guarded.now().plus(Duration::from_secs(20)).as_millis();
        let payload = to_raw_value(&json!({ "id": "order-1" })).expect("JSON");
        let ended = function.clone().oneshot(LambdaEvent::new(payload, context)).await;
        assert_eq!(ended.expect_err("no result").error_type, expected);
    }
    assert_eq!(state(&guarded, KEY).await, "completed");
}

/// A name that is read in lower case.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.to_lowercase()))
    }
}

// T69
#[apply(on_each_store)]
async fn the_first_caller_gets_what_each_retry_reads(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let resuming = guard_of(&guarded, Operation::new(SHIP).resumes(["name", "ship"], DAY));
    let call = async |fails: bool| {
        let function = async move |execution: Execution, _: u8| {
            let name = execution.phase("name").call(async |_| Ok(Name("Tea".to_owned()))).await?;
            assert_eq!(name, Name("tea".to_owned()), "each execution");
            let ship = execution.phase("ship").keys_live(DAY).call(async |_| match fails {
                true => Err(CallError::not_executed("no connection")),
                false => Ok(()),
            });
            ship.await?;
            Ok::<_, Failure>((name, Name("Coffee".to_owned())))
        };
        resuming.returns(KEY, 1, function).await
    };
    assert!(matches!(call(true).await, Err(RunError::Interrupted(_))));
    for _ in 0..2 {
        let names = call(false).await.expect("a result");
        assert_eq!(names, (Name("tea".to_owned()), Name("coffee".to_owned())));
    }
    let ship = |_: SingleTransaction, _: u8| async { Ok::<_, Failure>(Name("Tea".to_owned())) };
    for _ in 0..2 {
        let name = guard(&guarded).transacts(&["order-2"], 1, ship).await;
        assert_eq!(name.expect("a result"), Name("tea".to_owned()));
    }
}

// T69: the call was made. A program with a type that can be kept goes on, once it has asked.
#[apply(on_each_store)]
async fn a_phase_is_kept_without_a_result_that_json_cannot_carry(endpoint: &str) {
    let (guarded, calls) = (Guarded::on(endpoint).await, Counter::default());
    let guard = guard_of(&guarded, Operation::new(SHIP).resumes(["quote", "book"], DAY));
    let counted = calls.clone();
    let wrong = guard.returns(KEY, 1, async move |execution: Execution, _: u8| {
        let rate = execution.phase("quote").call(async |_| {
            counted.add();
            Ok((PI, f64::NAN))
        });
        Ok::<_, Failure>(rate.await?.0)
    });
    let error = wrong.await.expect_err("no result");
    let RunError::Interrupted(Some(source)) = &error else { panic!("{error:?}") };
    let Some(PhaseError::ResultNotKept { type_name: "(f64, f64)", why: JsonError::NotFinite }) =
        source.downcast_ref()
    else {
        panic!("{error:?}")
    };
    let record = guarded.record(&record_key(KEY)).await.expect("a record");
    let kept: Vec<_> =
        record.phases().expect("phases").kept.iter().map(|phase| phase.result.clone()).collect();
    assert_eq!((record.state.name(), kept), ("between_workers", vec![None]));
    // A retry comes before the program is mended. It was made, so that is not unknown.
    let early = guard.returns(KEY, 1, async |execution: Execution, _: u8| {
        let quote =
            execution.phase::<(f64, f64)>("quote").keys_live(DAY).call(async |_| panic!("it was made"));
        Ok::<_, Failure>(quote.await?.0)
    });
    let error = early.await.expect_err("no result");
    let RunError::Interrupted(Some(source)) = &error else { panic!("{error:?}") };
    assert!(matches!(source.downcast_ref(), Some(PhaseError::ResultMissing)), "{error:?}");
    assert_eq!(state(&guarded, KEY).await, "between_workers");
    // What it asks for is kept: a later execution does not ask again, and sees the same.
    for asks in [true, false] {
        let mended = guard.returns(KEY, 1, async move |execution: Execution, _: u8| {
            let quote = execution.phase("quote").ask(async |_| match asks {
                true => Ok(Some((PI, None::<f64>))),
                false => panic!("it is asked again"),
            });
            let (pi, _) = quote.call(async |_| panic!("it was made")).await?;
            execution
                .phase("book")
                .call(async |_| if asks { Err(CallError::not_executed("no connection")) } else { Ok(()) })
                .await?;
            Ok::<_, Failure>(pi)
        });
        let mended = mended.await;
        match asks {
            true => assert!(matches!(mended, Err(RunError::Interrupted(_))), "{mended:?}"),
            false => assert_eq!((mended.expect("a result"), calls.count()), (PI, 1)),
        }
    }
}

// T69: nothing is committed, and its author learns which message it is.
#[apply(on_each_store)]
async fn a_message_that_json_cannot_carry_is_refused_at_once(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let guard = guard(&guarded);
    let refused = guard.returns(KEY, 1, async |execution: Execution, _: u8| {
        execution.publish(&topic(), &"p-1")?;
        let error = execution.publish(&topic(), &[Some(PI), Some(f64::NAN)]).expect_err("it is refused");
        let DomainWriteError::Message { topic, reason } = &error else { panic!("{error:?}") };
        assert_eq!(topic, "parcel.shipped");
        assert_eq!(
            reason,
            "JSON cannot carry its [core::option::Option<f64>; 2]: a number in it is NaN or infinite"
        );
        Err::<u8, _>(Failure::not_executed(error))
    });
    assert!(matches!(refused.await, Err(RunError::NotExecuted(Some(_)))));
    assert_eq!((state(&guarded, KEY).await, published(&guarded).await.len()), ("failed_retryable", 0));
}

// T69: two inputs that look the same must not be one.
#[apply(on_each_store)]
async fn an_input_that_json_cannot_carry_begins_nothing(endpoint: &str) {
    async fn assert_refused<I: Serialize + Clone + Send + 'static>(guarded: &Guarded, input: I) {
        let (guard, never) = (guard(guarded), |_, _| async { panic!("it ran") });
        let refused: Result<u8, _> =
            guard.returns(KEY, input.clone(), |_, _| async { panic!("it ran") }).await;
        assert!(matches!(refused, Err(RunError::Input(_))), "{refused:?}");
        let refused: Result<u8, _> = guard.transacts(KEY, input, never).await;
        assert!(matches!(refused, Err(RunError::Input(_))), "{refused:?}");
        assert_eq!(guarded.number_of_items().await, 0);
    }
    let guarded = Guarded::on(endpoint).await;
    assert_refused(&guarded, f64::NAN).await;
    assert_refused(&guarded, vec![Some(f64::NEG_INFINITY)]).await;
    assert_refused(&guarded, Some(())).await;
    assert_refused(&guarded, HashMap::from([("to", Some(None::<u8>))])).await;
    assert_refused(&guarded, HashMap::from([((1, 2), 3)])).await;
}

// T25
#[apply(on_each_store)]
async fn a_map_is_one_input_in_every_order(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let names = || (0..32).map(|number| format!("sku-{number}"));
    let call = async |key: &'static [&'static str], input: Value| {
        guard(&guarded).returns(key, input, async |_, _| Ok::<_, Failure>(())).await
    };
    let map = || names().zip(1..).collect::<HashMap<String, u8>>();
    let orders = [map(), map()];
    assert!(!orders[0].keys().eq(orders[1].keys()), "two maps have one order");
    for map in orders {
        guard(&guarded).returns(KEY, map, async |_, _| Ok::<_, Failure>(())).await.expect("one input");
    }
    call(&["order-3"], json!(["a", "b"])).await.expect("a result");
    let other_order = call(&["order-3"], json!(["b", "a"])).await;
    assert!(matches!(other_order, Err(RunError::Mismatch)), "{other_order:?}");
}

// T69: what others find out is kept like a result.
#[test]
fn a_finding_that_json_cannot_carry_is_an_error() {
    assert!(matches!(Answer::payload(&Some(())), Err(JsonError::SomeNull)));
    assert!(matches!(Finding::phase_executed("charge", &f64::NAN), Err(JsonError::NotFinite)));
    let found = Finding::phase_executed("charge", &0.1).expect("JSON");
    assert!(
        matches!(found, Finding::PhaseExecuted { phase, result } if phase == "charge" && result == "0.1")
    );
}
