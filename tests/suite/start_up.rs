//! Start-up: what is wrong with the configuration is found then, by name; what may pass by itself is not.

use std::time::Duration;

use aws_credential_types::provider::{SharedCredentialsProvider, error::CredentialsError, future};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, ProvideCredentials},
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use lambda_idempotency::{
    config::{ConfigError, TABLE_VARIABLE},
    store::dynamodb::DynamoDbStore,
};
use payments::SealingKeys;

use crate::support::{
    client::connect,
    embedded,
    faults::{ANY, Fault},
    guarded::Guarded,
    on_each_store,
};

on_each_store!(
    a_table_as_the_template_deploys_it_passes,
    a_missing_table_is_named_with_its_variable,
    a_table_with_other_keys_is_named_with_its_variable,
    refused_credentials_name_table_and_variable,
    a_store_that_is_only_slow_or_failing_passes,
);

#[track_caller]
fn names_table_and_variable(checked: Result<(), ConfigError>, table: &str) -> String {
    let message = checked.expect_err("start-up should have failed").to_string();
    assert!(message.contains(table) && message.contains(TABLE_VARIABLE), "{message}");
    message
}

async fn a_table_as_the_template_deploys_it_passes(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    guarded.store().check().await.expect("nothing is wrong");
    assert_eq!((guarded.faults.sent("GetItem"), guarded.faults.sent(ANY)), (1, 1));
}

async fn a_missing_table_is_named_with_its_variable(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let store = DynamoDbStore::from_client(guarded.client.clone(), "no-such-table");
    let message = names_table_and_variable(store.check().await, "no-such-table");
    assert!(message.contains("ResourceNotFound") || message.contains("not found"), "{message}");
}

async fn a_table_with_other_keys_is_named_with_its_variable(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let table = format!("{}-other", guarded.table);
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create = guarded.client.create_table().table_name(&table).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(id.build().unwrap()).key_schema(key.build().unwrap());
    create.send().await.expect("another table");

    let store = DynamoDbStore::from_client(guarded.client.clone(), table.as_str());
    names_table_and_variable(store.check().await, &table);
}

async fn refused_credentials_name_table_and_variable(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    guarded.faults.for_all(ANY, Fault::AccessDenied);
    let message = names_table_and_variable(guarded.store().check().await, &guarded.table);
    assert!(message.contains("not authorized"), "{message}");
}

// R16
async fn a_store_that_is_only_slow_or_failing_passes(endpoint: &str) {
    let guarded =
        Guarded::through(endpoint, |connect| connect.attempt_timeout(Duration::from_millis(30))).await;
    for fault in [Fault::BlackHole, Fault::Status(500), Fault::Throttle, Fault::DropRequest] {
        guarded.faults.for_all(ANY, fault.clone());
        guarded.store().check().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    }
    assert_eq!(guarded.faults.sent(ANY), 0);
}

/// As on a machine that was never given any.
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
        matches!(error, ConfigError::NoTableNamed) && error.to_string().contains(TABLE_VARIABLE),
        "{error}"
    );
}

// R36
#[test]
fn missing_sealing_keys_are_named() {
    assert!(std::env::var("SEALING_KEYS").is_err(), "these tests need an environment without SEALING_KEYS");
    let error = SealingKeys::from_env().expect_err("there are none");
    assert_eq!(error.to_string(), "the environment variable SEALING_KEYS must be set");
}
