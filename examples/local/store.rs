//! DynamoDB: embedded in this process, or wherever `DYNAMODB_ENDPOINT` points; and the tables that the functions need.

use crate::settings::Settings;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::{
    Client,
    config::{Credentials, retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
        StreamSpecification, StreamViewType, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
    },
};
use dynoxide::Database;
use std::{env, error::Error, future, time::Duration};
use tokio::{net::TcpListener, time};

/// DynamoDB promises days; a developer who watches wants seconds.
const TTL_SWEEP: Duration = Duration::from_secs(5);
/// A DynamoDB that does not answer within this time is taken for unreachable.
const REACH: Duration = Duration::from_secs(5);
/// A table is there at once locally, and within seconds on AWS.
const TABLE_ACTIVE: Duration = Duration::from_secs(60);

/// A DynamoDB with its tables.
pub struct Store {
    pub endpoint: String,
    pub embedded: bool,
    pub idempotency_table: String,
    pub payments_table: String,
    region: String,
    /// Whether made-up credentials are to be used; an embedded store must never see real ones.
    local_credentials: bool,
}

impl Store {
    pub async fn start(settings: &Settings) -> Result<Self, String> {
        let mut store = Self {
            endpoint: String::new(),
            embedded: settings.dynamodb_endpoint.is_none(),
            idempotency_table: format!("{}idempotency", settings.table_prefix),
            payments_table: format!("{}payments", settings.table_prefix),
            region: env::var("AWS_REGION").unwrap_or_else(|_| "eu-central-1".to_owned()),
            local_credentials: settings.dynamodb_endpoint.is_none()
                || (env::var_os("AWS_ACCESS_KEY_ID").is_none() && env::var_os("AWS_PROFILE").is_none()),
        };
        store.endpoint = match &settings.dynamodb_endpoint {
            Some(endpoint) => endpoint.clone(),
            None => embed().await.map_err(|error| format!("embedded DynamoDB: {error}"))?,
        };
        store.create_tables().await.map_err(|error| match &settings.dynamodb_endpoint {
            Some(endpoint) => format!("DYNAMODB_ENDPOINT={endpoint}: {error}"),
            None => format!("embedded DynamoDB: {error}"),
        })?;
        Ok(store)
    }

    /// What a function's environment must say for it to find this store.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", self.endpoint.clone()),
            ("AWS_REGION", self.region.clone()),
            ("AWS_DEFAULT_REGION", self.region.clone()),
            ("IDEMPOTENCY_TABLE", self.idempotency_table.clone()),
            ("PAYMENTS_TABLE", self.payments_table.clone()),
        ];
        if self.local_credentials {
            variables.push(("AWS_ACCESS_KEY_ID", "local".to_owned()));
            variables.push(("AWS_SECRET_ACCESS_KEY", "local".to_owned()));
            variables.push(("AWS_SESSION_TOKEN", String::new()));
        }
        variables
    }

    async fn create_tables(&self) -> Result<(), String> {
        let client = self.client().await;
        create_table(&client, &self.idempotency_table, true).await?;
        create_table(&client, &self.payments_table, false).await?;
        expire_records(&client, &self.idempotency_table).await
    }

    async fn client(&self) -> Client {
        let mut config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(self.region.clone()))
            .endpoint_url(&self.endpoint)
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(REACH).operation_timeout(REACH).build());
        if self.local_credentials {
            let local = Credentials::builder()
                .access_key_id("local")
                .secret_access_key("local")
                .provider_name("local")
                .build();
            config = config.credentials_provider(local);
        }
        Client::new(&config.load().await)
    }
}

/// Serves an empty database on a loopback port of its own.
async fn embed() -> Result<String, String> {
    let database = Database::memory().map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    tokio::spawn(sweep(database.clone()));
    tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database, future::pending()));
    Ok(format!("http://{address}"))
}

async fn sweep(database: Database) {
    let mut ticks = time::interval(TTL_SWEEP);
    loop {
        ticks.tick().await;
        let database = database.clone();
        match tokio::task::spawn_blocking(move || database.sweep_ttl()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => eprintln!("embedded DynamoDB: cannot delete what has expired: {error}"),
            // The process is ending.
            Err(_) => return,
        }
    }
}

async fn create_table(client: &Client, name: &str, with_stream: bool) -> Result<(), String> {
    let stream = with_stream.then(|| {
        StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::NewAndOldImages)
            .build()
            .expect("a stream specification is complete")
    });
    let created = client
        .create_table()
        .table_name(name)
        .attribute_definitions(string_attribute("pk"))
        .attribute_definitions(string_attribute("sk"))
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .billing_mode(BillingMode::PayPerRequest)
        .set_stream_specification(stream)
        .send()
        .await;
    match created {
        Ok(_) => {}
        // It is there from an earlier run, or from another one at this moment.
        Err(error) if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => {}
        Err(error) => return Err(format!("cannot create table {name}: {}", describe(&error))),
    }
    time::timeout(TABLE_ACTIVE, active(client, name))
        .await
        .map_err(|_| format!("table {name} is not active after {} s", TABLE_ACTIVE.as_secs()))?
}

async fn active(client: &Client, name: &str) -> Result<(), String> {
    loop {
        let description = client
            .describe_table()
            .table_name(name)
            .send()
            .await
            .map_err(|error| format!("cannot describe table {name}: {}", describe(&error)))?;
        if description.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) {
            return Ok(());
        }
        time::sleep(Duration::from_millis(200)).await;
    }
}

/// Asks first, because enabling TTL a second time is an error.
async fn expire_records(client: &Client, table: &str) -> Result<(), String> {
    let described = client
        .describe_time_to_live()
        .table_name(table)
        .send()
        .await
        .map_err(|error| format!("cannot read the TTL of table {table}: {}", describe(&error)))?;
    let status = described.time_to_live_description().and_then(|ttl| ttl.time_to_live_status());
    if matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
        return Ok(());
    }
    let specification = TimeToLiveSpecification::builder()
        .enabled(true)
        .attribute_name("expires_at")
        .build()
        .expect("a TTL specification is complete");
    client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(specification)
        .send()
        .await
        .map_err(|error| format!("cannot set the TTL of table {table}: {}", describe(&error)))?;
    Ok(())
}

fn string_attribute(name: &str) -> AttributeDefinition {
    AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .expect("an attribute definition is complete")
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("a key is complete")
}

/// One line; the SDK's own words run to pages.
fn describe<E: ProvideErrorMetadata + Error + 'static>(error: &SdkError<E>) -> String {
    match error {
        SdkError::TimeoutError(_) => format!("no answer within {} s", REACH.as_secs()),
        SdkError::ServiceError(answer) => match answer.err().code() {
            Some(code) => format!("{code}: {}", answer.err().message().unwrap_or_default()),
            None => format!("HTTP {}, which is not DynamoDB's way to answer", answer.raw().status()),
        },
        _ => {
            let mut cause: &dyn Error = error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            cause.to_string()
        }
    }
}
