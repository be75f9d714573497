//! Start-up: a wrong configuration is reported by name. A fault that may be transient does not stop the start.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use aws_credential_types::provider::{SharedCredentialsProvider, error::CredentialsError, future};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, ProvideCredentials},
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use lambda_idempotency::{
    config::{ConfigError, TABLE_VARIABLE},
    key::RecordKey,
    operator::Operator,
    record::{State, UnknownCause},
    store::{
        Store, Tenants, Unsettled, WriteOutcome,
        conformance::samples,
        dynamodb::{DynamoDbStore, table},
    },
    time::Timestamp,
};
use macro_rules_attribute::apply;
use payments::SealingKeys;
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    client::connect,
    embedded,
    faults::{ANY, Fault},
    guarded::{Guarded, fingerprints},
    http::{record_key, tenant},
    on_each_store,
    payments_api::{TestProvider, order},
    sample::{Sample, payment, status},
    tables::ledger_table,
};

#[track_caller]
fn names_table_and_variable(checked: Result<(), ConfigError>, table: &str) -> String {
    let message = checked.expect_err("start-up should have failed").to_string();
    assert!(message.contains(table) && message.contains(TABLE_VARIABLE), "{message}");
    message
}

#[apply(on_each_store)]
async fn a_table_as_the_template_deploys_it_passes(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    guarded.store().check().await.expect("nothing is wrong");
    assert_eq!((guarded.faults.sent("GetItem"), guarded.faults.sent(ANY)), (1, 1));
}

#[apply(on_each_store)]
async fn a_missing_table_is_named_with_its_variable(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let store = DynamoDbStore::from_client(guarded.client.clone(), "no-such-table");
    let message = names_table_and_variable(store.check().await, "no-such-table");
    assert!(message.contains("there is no such table in this account and Region"), "{message}");
}

#[apply(on_each_store)]
async fn a_table_with_other_keys_is_named_with_its_variable(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let table = format!("{}-other", guarded.table);
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create = guarded.client.create_table().table_name(&table).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(id.build().unwrap()).key_schema(key.build().unwrap());
    create.send().await.expect("another table");

    let store = DynamoDbStore::from_client(guarded.client.clone(), table.as_str());
    let message = names_table_and_variable(store.check().await, &table);
    assert!(message.contains("the partition key `pk` and the sort key `sk`"), "{message}");
}

#[apply(on_each_store)]
async fn a_function_names_the_index_that_it_misses(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let table = format!("{}-plain", guarded.table);
    let whole = table::create(&guarded.client, &table);
    let attributes = whole.get_attribute_definitions().clone().unwrap_or_default();
    let keys = attributes.into_iter().filter(|each| matches!(each.attribute_name(), "pk" | "sk"));
    let plain = whole.set_global_secondary_indexes(None).set_attribute_definitions(Some(keys.collect()));
    plain.send().await.expect("a table without the index");

    let store = DynamoDbStore::from_client(guarded.client.clone(), table.as_str());
    let refused = store.unresolved(None, None).await.expect_err("there is no index");
    let message = refused.source().expect("DynamoDB's answer").to_string();
    assert!(message.contains("add the index `reconcile` (partition key `reconcile_shard`"), "{message}");
}

#[apply(on_each_store)]
async fn refused_credentials_name_table_and_variable(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    guarded.faults.for_all(ANY, Fault::AccessDenied);
    let message = names_table_and_variable(guarded.store().check().await, &guarded.table);
    assert!(message.contains("not authorized"), "{message}");
}

#[apply(on_each_store)]
async fn a_store_that_is_only_slow_or_failing_passes(endpoint: &str) {
    let guarded =
        Guarded::through(endpoint, |connect| connect.attempt_timeout(Duration::from_millis(30))).await;
    for fault in [Fault::BlackHole, Fault::Status(500), Fault::Throttle, Fault::DropRequest] {
        guarded.faults.for_all(ANY, fault.clone());
        guarded.store().check().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    }
    assert_eq!(guarded.faults.sent(ANY), 0);
}

/// As on a machine without credentials.
#[derive(Debug)]
struct NoCredentials;

impl ProvideCredentials for NoCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("no provider has any")))
    }
}

#[tokio::test]
async fn missing_credentials_name_table_and_variable() {
    let config = connect(embedded::endpoint()).sdk_config();
    let config =
        Builder::from(&config).credentials_provider(SharedCredentialsProvider::new(NoCredentials)).build();
    let store = DynamoDbStore::from_client(Client::from_conf(config), "payments");
    let checked = store.check().await;
    assert!(matches!(checked, Err(ConfigError::NoCredentials { .. })), "{checked:?}");
    let message = names_table_and_variable(checked, "payments");
    assert!(message.contains("no provider has any"), "{message}");
}

#[tokio::test]
async fn a_missing_variable_is_named() {
    assert!(
        std::env::var(TABLE_VARIABLE).is_err(),
        "these tests need an environment without {TABLE_VARIABLE}"
    );
    let error = DynamoDbStore::from_env().await.expect_err("no table is named");
    assert!(
        matches!(error, ConfigError::Missing(TABLE_VARIABLE)) && error.to_string().contains(TABLE_VARIABLE),
        "{error}"
    );
}

#[test]
fn missing_sealing_keys_are_named() {
    assert!(std::env::var("SEALING_KEYS").is_err(), "these tests need an environment without SEALING_KEYS");
    let error = SealingKeys::from_env().expect_err("they are missing");
    assert_eq!(error.to_string(), "the environment variable SEALING_KEYS must be set");
}

/// A record that has been unknown for this long, and whose outcome was never asked about.
async fn unknown(sample: &Sample, for_so_long: Duration) -> RecordKey {
    let since = Timestamp::from(SystemTime::now()).minus(for_so_long);
    let key = record_key("acme", "create-payment", &Uuid::new_v4().to_string());
    let began = samples::in_progress(key.clone(), fingerprints("{}"), since, since);
    let record = samples::unknown(&began, UnknownCause::LeaseExpired, since);
    assert_eq!(sample.store().put(None, &record, &[]).await.unwrap(), WriteOutcome::Written);
    key
}

// T50: an operator who switches releases off during a provider's incident must be sure that they are off.
#[tokio::test]
async fn environment_and_switch_configure_questions() {
    let provider = TestProvider::start().await;
    const HOUR: Duration = Duration::from_secs(3_600);
    for (switched, variables, for_so_long, becomes) in [
        (&[][..], &[][..], HOUR, "failed_retryable"),
        (&[false, true], &[], HOUR, "failed_retryable"),
        (&[false], &[], HOUR, "asked again"),
        (&[], &[("NOT_FOUND_GRACE_MS", "7200000")], HOUR, "asked again"),
        (&[false], &[], 25 * HOUR, "for an operator"),
        (&[false], &[("MAX_UNKNOWN_AGE_MS", "60000")], Duration::from_secs(61), "for an operator"),
        (&[false], &[("RECONCILE_ASKS", "1")], HOUR, "for an operator"),
    ] {
        let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
        let operator = Operator::new(sample.store());
        for releases in switched {
            let (seen, _) = operator.not_found().await.unwrap();
            operator
                .switch_not_found(seen.as_ref(), *releases, "olga", "INC-17")
                .await
                .unwrap()
                .expect("seen");
        }
        let key = unknown(&sample, for_so_long).await;
        sample.start("reconcile", variables).await.invoke(&json!({ "job": "poll" })).await.unwrap();
        let record = sample.store().load(&key).await.unwrap().expect("the record exists");
        let became = match record.state {
            State::Unknown { reconcile_at: Timestamp::MAX, .. } => "for an operator",
            State::Unknown { .. } => "asked again",
            state => state.name(),
        };
        assert_eq!(became, becomes, "{switched:?}, {variables:?}, {for_so_long:?}");
    }
}

#[tokio::test]
async fn a_function_that_is_configured_wrongly_names_the_variable_and_ends() {
    let sample = Sample::new("payments", "http://localhost:9").await;
    let (millis, queue) = ("a number of milliseconds above 0", "the URL of an SQS queue");
    let (keys, open) = ("a number from 1 to 1000000000", "a number from 1 to 100000");
    for (function, name, value, must_be) in [
        ("reconcile", "MAX_UNKNOWN_AGE_MS", "0", millis),
        ("reconcile", "MAX_UNKNOWN_AGE_MS", "24h", millis),
        ("reconcile", "NOT_FOUND_GRACE_MS", "-1", millis),
        ("reconcile", "RECONCILE_FIRST_BACKOFF_MS", "1.5", millis),
        ("reconcile", "RECONCILE_ASKS", "0", "a number above 0"),
        ("reconcile", "RECONCILE_ASKS", "4294967296", "a number above 0"),
        ("reconcile", "CONTRADICTIONS_QUEUE_URL", "", "set"),
        ("reconcile", "RECONCILE_QUEUE_URL", "reconcile", queue),
        ("reconcile", "DEFERRED_REPORTS_QUEUE_URL", "", "set"),
        ("reconcile", "DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL", "", "set"),
        ("webhook", "WEBHOOK_SECRETS", "", "set"),
        ("stale", "SWEEP_QUEUE_URL", "", "set"),
        ("stale", "CHECKS_QUEUE_URL", "", "set"),
        ("stale", "CONTRADICTIONS_QUEUE_URL", "contradictions", queue),
        ("stale", "SWEEP_UNITS_PER_SECOND", "many", "a number above 0"),
        ("webhook", "RECONCILE_QUEUE_URL", "", "set"),
        ("webhook", "SEALING_KEYS", "", "set"),
        ("payments", "ACCOUNTS_TABLE", "", "set"),
        ("payments", "DEFERRED_REPORTS_QUEUE_URL", "", "set"),
        ("payments", "TENANT_NEW_KEYS_PER_SECOND", "0", keys),
        ("payments", "TENANT_NEW_KEYS_PER_SECOND", "-1", keys),
        ("payments", "TENANT_NEW_KEYS_PER_SECOND", "1.5", keys),
        ("payments", "TENANT_NEW_KEYS_PER_SECOND", "10/s", keys),
        ("payments", "TENANT_NEW_KEYS_PER_SECOND", " ", keys),
        ("payments", "TENANT_NEW_KEYS_PER_SECOND", "1000000001", keys),
        ("payments", "TENANT_NEW_KEYS_PER_SECOND", "99999999999999999999", keys),
        ("payments", "TENANT_OPEN_RECORDS", "0", open),
        ("payments", "TENANT_OPEN_RECORDS", "-1", open),
        ("payments", "TENANT_OPEN_RECORDS", "1.5", open),
        ("payments", "TENANT_OPEN_RECORDS", "many", open),
        ("payments", "TENANT_OPEN_RECORDS", " ", open),
        ("payments", "TENANT_OPEN_RECORDS", "100001", open),
        ("payments", "TENANT_OPEN_RECORDS", "99999999999999999999", open),
        ("orders", "ORDERS_TABLE", "", "set"),
        ("orders", "PROVIDER_URL", "nowhere", "an http or https URL"),
        ("orders", "OUTBOX_TOPICS", "", "set"),
        ("outbox", "OUTBOX_TOPICS", "", "set"),
        ("outbox", "OUTBOX_QUEUE_URL", "", "set"),
        ("outbox", "OUTBOX_DEAD_LETTERS_QUEUE_URL", "", "set"),
        ("outbox", "OUTBOX_DEAD_LETTERS_QUEUE_URL", "dead", queue),
        ("outbox", "WORK_QUEUE_URL", "work", queue),
        ("stale", "OUTBOX_QUEUE_URL", "outbox", queue),
        ("stale", "WORK_QUEUE_URL", "work", queue),
        ("reports", "ORDERS_TABLE", "", "set"),
        ("reports", "DEFERRED_REPORTS_QUEUE_URL", "", "set"),
        ("reports", "LEASE_GRACE_MS", "0", millis),
        ("report-worker", "ORDERS_TABLE", "", "set"),
        ("report-worker", "WORK_QUEUE_URL", "", "set"),
        ("report-worker", "WORK_DEAD_LETTERS_QUEUE_URL", "", "set"),
        ("report-worker", "WORK_DEAD_LETTERS_QUEUE_URL", "dead", queue),
        ("shipping", "ORDERS_TABLE", "", "set"),
        ("shipping", "SHIPMENTS_QUEUE_URL", "", "set"),
        ("shipping", "SHIPMENTS_QUEUE_URL", "shipments", queue),
    ] {
        // The other variables are right. The last one counts.
        let right = [
            "OUTBOX_QUEUE_URL",
            "OUTBOX_DEAD_LETTERS_QUEUE_URL",
            "WORK_QUEUE_URL",
            "WORK_DEAD_LETTERS_QUEUE_URL",
        ];
        let right = right.map(|variable| (variable, "http://localhost:9/queue.fifo"));
        let topics = ("OUTBOX_TOPICS", "order.placed=http://localhost:9/queue");
        let variables: Vec<_> = right.into_iter().chain([topics, (name, value)]).collect();
        let log = sample.refuses_to_start(function, &variables).await;
        let message = format!("the environment variable {name} must be {must_be}");
        assert!(log.contains(&message), "{function}, {name}={value}: {log}");
    }
}

#[tokio::test]
async fn the_bounds_of_payments_are_those_of_its_environment() {
    let provider = TestProvider::start().await;
    let (keys, open) = ("TENANT_NEW_KEYS_PER_SECOND", "TENANT_OPEN_RECORDS");
    for (variables, bucket, last_status) in [
        (&[][..], None, 201),
        (&[(keys, ""), (open, "")], None, 201),
        (&[(keys, "1"), (open, "100000")], Some("new_keys:1/s+120"), 201),
        (&[(keys, " 7 ")], Some("new_keys:7/s+840"), 201),
        (&[(keys, "1000000000")], Some("new_keys:1000000000/s+1000000000"), 201),
        (&[(open, "2")], None, 201),
        (&[(open, "1")], None, 429),
    ] {
        let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
        unknown(&sample, Duration::from_secs(1)).await;
        let mut function = sample.start("payments", variables).await;
        let mut last = 0;
        // At most each tenth key is counted, and the first one looks at the open records.
        for number in 0..10 {
            let key = format!("k-{number}");
            let paid = function.invoke(&payment("acme", &key, &order("tok"))).await;
            last = status(&paid).as_u16();
        }
        assert_eq!(last, last_status, "{variables:?}");
        let used = sample.store().used(&tenant("acme")).await.expect("the store answers");
        let names: Vec<_> = used.iter().map(|bucket| &*bucket.name).collect();
        assert_eq!(names, Vec::from_iter(bucket), "{variables:?}");
    }
}

// T56: a message without a target would never be delivered.
#[tokio::test]
async fn orders_do_not_start_without_the_topic_that_they_publish() {
    let sample = Sample::new("orders", "http://localhost:9").await;
    let queue = "http://localhost:9/queue.fifo";
    for function in ["orders", "order-queue"] {
        let log = sample
            .refuses_to_start(
                function,
                &[
                    ("OUTBOX_TOPICS", "order.paid=own"),
                    ("ORDERS_TENANT", "acme"),
                    ("ORDERS_QUEUE_URL", queue),
                    ("ORDERS_DEAD_LETTERS_QUEUE_URL", queue),
                ],
            )
            .await;
        let message = "the environment variable OUTBOX_TOPICS: the list of topics has no order.placed: it has order.paid";
        assert!(log.contains(message), "{function}: {log}");
    }
}
