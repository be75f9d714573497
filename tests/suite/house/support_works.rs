//! The support modules do what the other tests rely on.

use crate::support::client::{client, connect};
use crate::support::faults::{ANY, Fault, Faults, Late};
use crate::support::logs::Logs;
use crate::support::meter::Meter;
use crate::support::process::Process;
use crate::support::tables::idempotency_table;
use crate::support::{embedded, on_each_store};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::types::{
    AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TimeToLiveStatus, TransactWriteItem,
};
use macro_rules_attribute::apply;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

type Item = HashMap<String, AttributeValue>;
type PutResult = Result<PutItemOutput, SdkError<PutItemError>>;

#[apply(on_each_store)]
async fn a_table_has_time_to_live_and_a_stream(endpoint: &str) {
    let client = client(endpoint);
    let table = idempotency_table(&client).await;

    let description = client.describe_table().table_name(&table).send().await.unwrap().table.unwrap();
    assert!(description.latest_stream_arn.is_some());
    let ttl = client.describe_time_to_live().table_name(&table).send().await.unwrap();
    let ttl = ttl.time_to_live_description.unwrap();
    assert_eq!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled));
    assert_eq!(ttl.attribute_name.as_deref(), Some("expires_at"));
}

#[apply(on_each_store)]
async fn a_lost_answer_lets_the_retry_meet_its_own_write(endpoint: &str) {
    let store = Store::new(endpoint).await;
    store.faults.script("PutItem", [Fault::DropAnswer]);

    let refused = store.insert("ours").await.unwrap_err().into_service_error();
    let PutItemError::ConditionalCheckFailedException(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.item().unwrap()["value"], string("ours"));
    assert_eq!((store.faults.asked("PutItem"), store.faults.sent("PutItem")), (2, 2));
    assert_eq!(store.faults.left(), 0);
}

#[apply(on_each_store)]
async fn a_lost_request_is_sent_again(endpoint: &str) {
    let store = Store::new(endpoint).await;
    store.faults.script("PutItem", [Fault::DropRequest]);

    store.insert("ours").await.unwrap();
    assert_eq!((store.faults.asked("PutItem"), store.faults.sent("PutItem")), (2, 1));
}

#[apply(on_each_store)]
async fn a_request_sent_twice_is_answered_by_the_second(endpoint: &str) {
    let store = Store::new(endpoint).await;
    store.faults.script("PutItem", [Fault::Pass, Fault::Twice]);

    store.put("first").await.unwrap();
    store.delete().await;
    assert_eq!(code(store.insert("ours").await), "ConditionalCheckFailedException");
    assert_eq!(store.faults.sent("PutItem"), 3);
}

#[apply(on_each_store)]
async fn a_late_write_lands_when_it_is_released(endpoint: &str) {
    let store = Store::new(endpoint).await;
    let late = Late::hanging();
    store.faults.script("PutItem", [late.fault()]);

    let (client, table) = (store.client.clone(), store.table.clone());
    let dead_worker = tokio::spawn(async move { insert(&client, &table, "late").await });
    late.held(1).await;
    dead_worker.abort();
    assert!(dead_worker.await.unwrap_err().is_cancelled());
    assert_eq!(store.value().await, None);

    assert_eq!(late.release().await.status, 200);
    assert_eq!(store.value().await, Some(string("late")));
}

#[apply(on_each_store)]
async fn a_late_write_is_refused_after_another_write(endpoint: &str) {
    let store = Store::new(endpoint).await;
    let late = Late::timing_out();
    store.faults.script("PutItem", [late.fault(), Fault::Pass]);

    store.insert("retry").await.expect("the retry of a request that timed out");
    let answer = late.release().await;
    assert_eq!(answer.status, 400);
    let kind = answer.body["__type"].as_str().unwrap();
    assert!(kind.ends_with("#ConditionalCheckFailedException"), "{kind}");
    assert_eq!(store.value().await, Some(string("retry")));
}

#[apply(on_each_store)]
async fn a_store_that_was_taken_away_can_be_restored(endpoint: &str) {
    let store = Store::new(endpoint).await;
    let before = store.faults.sent(ANY);

    store.faults.for_all(ANY, Fault::DropRequest);
    assert!(matches!(store.insert("lost").await, Err(SdkError::DispatchFailure(failure)) if failure.is_io()));
    assert_eq!(store.faults.sent(ANY), before);

    store.faults.clear();
    store.insert("kept").await.unwrap();
    assert_eq!(store.value().await, Some(string("kept")));
}

#[apply(on_each_store)]
async fn the_meter_reads_what_each_operation_costs(endpoint: &str) {
    let store = Store::new(endpoint).await;
    let big = "x".repeat(3 * 1024);
    store.meter.reset();

    store.insert(&big).await.unwrap();
    assert_eq!(code(store.insert("late").await), "ConditionalCheckFailedException");
    assert_eq!(store.value().await, Some(string(&big)));
    store.transact_insert().await.unwrap_err();
    store.delete().await;
    store.transact_insert().await.unwrap();

    let reading = store.meter.reading();
    let put = reading.of("PutItem");
    assert_eq!((put.round_trips, put.failed_conditional_writes), (2, 1));
    assert_eq!((put.write_units, put.failed_write_units, put.billed_write_units()), (4.0, 4.0, 8.0));
    let got = reading.of("GetItem");
    assert_eq!((got.round_trips, got.read_units, got.write_units), (1, 1.0, 0.0));
    assert_eq!(reading.of("DeleteItem").write_units, 4.0);
    let transaction = reading.of("TransactWriteItems");
    assert_eq!((transaction.round_trips, transaction.failed_conditional_writes), (2, 1));
    assert_eq!(transaction.write_units, 2.0);
    assert_eq!(reading.total().round_trips, 6);
}

#[tokio::test]
async fn a_black_hole_ends_with_the_timeouts() {
    let store = Store::new(embedded::endpoint()).await;
    store.faults.for_all("PutItem", Fault::BlackHole);

    let impatient = connect(embedded::endpoint())
        .http_client(store.faults.clone())
        .attempt_timeout(Duration::from_millis(20))
        .operation_timeout(Duration::from_secs(10))
        .max_attempts(2)
        .client();
    assert!(matches!(insert(&impatient, &store.table, "lost").await, Err(SdkError::TimeoutError(_))));
    assert_eq!((store.faults.asked("PutItem"), store.faults.sent("PutItem")), (2, 0));
}

#[tokio::test]
async fn injected_errors_are_those_of_dynamodb() {
    let store = Store::new(embedded::endpoint()).await;
    let attempts = |fault: &Fault| match fault {
        Fault::TransactionConflict | Fault::AccessDenied => 1,
        _ => 3,
    };
    for (fault, expected) in [
        (Fault::Status(500), "InternalServerError"),
        (Fault::Status(503), "InternalServerError"),
        (Fault::Throttle, "ProvisionedThroughputExceededException"),
        (Fault::TransactionConflict, "TransactionConflictException"),
        (Fault::AccessDenied, "AccessDeniedException"),
    ] {
        let before = store.faults.asked("PutItem");
        let attempts = attempts(&fault);
        store.faults.for_all("PutItem", fault);
        assert_eq!(code(store.insert("refused").await), expected);
        assert_eq!(store.faults.asked("PutItem") - before, attempts, "{expected}");
    }
    assert_eq!(store.faults.sent("PutItem"), 0);
}

#[tokio::test]
async fn the_log_holds_what_was_logged_and_nothing_else() {
    let (earlier, before) = (Logs::capture(), needle());
    tracing::info!(field = %before, "an event before the capture");
    let logs = Logs::capture();
    let (logged, escaped, spanned, unlogged) = (needle(), needle(), needle(), needle());
    let _logged_in = tracing::trace_span!("outer", field = %spanned).entered();
    tracing::trace!(field = %logged, "an event");
    tracing::info!(field = ?format!("{{\"card\":\"{escaped}\"}}"), "a body");

    let lines = logs.lines_with(&logged);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].text.contains("an event"), "{lines:?}");
    assert_eq!((lines[0].level(), lines[0].target()), ("TRACE", module_path!()));
    assert!(logs.contains(&spanned));
    assert!(logs.contains(&format!("\"card\":\"{escaped}\"")));
    assert!(!logs.contains(&unlogged));
    assert!(earlier.contains(&before) && !logs.contains(&before));
}

#[test]
fn a_process_ends_when_its_lifeline_does() {
    let mut process = Process::start("sh", |shell| {
        shell.args(["-c", "echo up; exec sleep 600"]).stdout(Stdio::piped());
    })
    .unwrap();
    let mut line = String::new();
    BufReader::new(process.output().next().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    assert_eq!(process.ended(), None);

    let entry = format!("/proc/{}", process.id());
    drop(process);
    assert!(!Path::new(&entry).exists());
}

#[tokio::test]
async fn a_separate_embedded_store_can_be_swept() {
    let embedded = embedded::start();
    let store = Store::new(&embedded.endpoint).await;
    let past = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 60;
    let expired = AttributeValue::N(past.to_string());
    store
        .client
        .put_item()
        .table_name(&store.table)
        .set_item(Some(item("expired")))
        .item("expires_at", expired)
        .send()
        .await
        .unwrap();
    assert_eq!(store.value().await, Some(string("expired")));
    embedded.database.sweep_ttl().unwrap();
    assert_eq!(store.value().await, None);
}

/// A table with a client that is metered and whose network can fail.
struct Store {
    client: Client,
    table: String,
    faults: Faults,
    meter: Meter,
}

impl Store {
    async fn new(endpoint: &str) -> Self {
        let (faults, meter) = (Faults::new(), Meter::new());
        let client = connect(endpoint).http_client(faults.clone()).meter(&meter).client();
        let table = idempotency_table(&client).await;
        Self { client, table, faults, meter }
    }

    async fn insert(&self, value: &str) -> PutResult {
        insert(&self.client, &self.table, value).await
    }

    async fn put(&self, value: &str) -> PutResult {
        self.client.put_item().table_name(&self.table).set_item(Some(item(value))).send().await
    }

    async fn transact_insert(&self) -> Result<(), impl std::fmt::Debug + use<>> {
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(item("transacted")))
            .condition_expression("attribute_not_exists(pk)")
            .build()
            .unwrap();
        let write = TransactWriteItem::builder().put(put).build();
        self.client.transact_write_items().transact_items(write).send().await.map(drop)
    }

    async fn value(&self) -> Option<AttributeValue> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key())).consistent_read(true);
        get.send().await.unwrap().item?.remove("value")
    }

    async fn delete(&self) {
        self.client.delete_item().table_name(&self.table).set_key(Some(key())).send().await.unwrap();
    }
}

async fn insert(client: &Client, table: &str, value: &str) -> PutResult {
    client
        .put_item()
        .table_name(table)
        .set_item(Some(item(value)))
        .condition_expression("attribute_not_exists(pk)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
}

fn item(value: &str) -> Item {
    let mut item = key();
    item.insert("value".into(), string(value));
    item
}

fn key() -> Item {
    Item::from([("pk".into(), string("partition")), ("sk".into(), string("sort"))])
}

fn string(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn code(result: PutResult) -> String {
    let error = result.expect_err("the write should have been refused");
    error.code().unwrap_or_else(|| panic!("not an answer of the store: {error:?}")).to_owned()
}

fn needle() -> String {
    Uuid::new_v4().to_string()
}
