//! DynamoDB: embedded in this process, or wherever `DYNAMODB_ENDPOINT` points.

use crate::{
    embedded,
    settings::Settings,
    tables::{self, REACH},
};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodbstreams as streams;
use std::env;

/// A DynamoDB with its tables.
pub struct Store {
    pub endpoint: String,
    pub embedded: bool,
    pub idempotency_table: String,
    pub payments_table: String,
    pub accounts_table: String,
    pub orders_table: String,
    /// The idempotency table's stream.
    pub stream: String,
    pub region: String,
    /// Whether made-up credentials are used: an embedded store must never see real ones.
    local_credentials: bool,
}

impl Store {
    pub async fn start(settings: &Settings) -> Result<Self, String> {
        let mut store = Self {
            endpoint: String::new(),
            embedded: settings.dynamodb_endpoint.is_none(),
            idempotency_table: format!("{}idempotency", settings.table_prefix),
            payments_table: format!("{}payments", settings.table_prefix),
            accounts_table: format!("{}accounts", settings.table_prefix),
            orders_table: format!("{}orders", settings.table_prefix),
            stream: String::new(),
            region: env::var("AWS_REGION").unwrap_or_else(|_| "eu-central-1".to_owned()),
            local_credentials: settings.dynamodb_endpoint.is_none()
                || (env::var_os("AWS_ACCESS_KEY_ID").is_none() && env::var_os("AWS_PROFILE").is_none()),
        };
        store.endpoint = match &settings.dynamodb_endpoint {
            Some(endpoint) => endpoint.clone(),
            None => embedded::start().await.map_err(|error| format!("embedded DynamoDB: {error}"))?,
        };
        store.stream = store.create_tables().await.map_err(|error| match &settings.dynamodb_endpoint {
            Some(endpoint) => format!("DYNAMODB_ENDPOINT={endpoint}: {error}"),
            None => format!("embedded DynamoDB: {error}"),
        })?;
        Ok(store)
    }

    /// The environment variables by which a program finds this store at `endpoint`.
    pub fn environment(&self, endpoint: &str) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", endpoint.to_owned()),
            ("AWS_REGION", self.region.clone()),
            ("AWS_DEFAULT_REGION", self.region.clone()),
            ("IDEMPOTENCY_TABLE", self.idempotency_table.clone()),
            ("PAYMENTS_TABLE", self.payments_table.clone()),
            ("ACCOUNTS_TABLE", self.accounts_table.clone()),
            ("ORDERS_TABLE", self.orders_table.clone()),
        ];
        if self.local_credentials {
            variables.push(("AWS_ACCESS_KEY_ID", "local".to_owned()));
            variables.push(("AWS_SECRET_ACCESS_KEY", "local".to_owned()));
            variables.push(("AWS_SESSION_TOKEN", String::new()));
        }
        variables
    }

    /// A client of the tables' streams.
    pub async fn streams(&self) -> streams::Client {
        let mut config = streams::config::Builder::from(&self.config().await);
        // On AWS the streams have an address of their own, which the client knows.
        if !self.endpoint.contains(".amazonaws.com") {
            config = config.endpoint_url(&self.endpoint);
        }
        streams::Client::from_conf(config.build())
    }

    /// A client of the tables.
    pub async fn client(&self) -> aws_sdk_dynamodb::Client {
        let config = self.config().await;
        let config = aws_sdk_dynamodb::config::Builder::from(&config).endpoint_url(&self.endpoint).build();
        aws_sdk_dynamodb::Client::from_conf(config)
    }

    async fn create_tables(&self) -> Result<String, String> {
        let client = self.client().await;
        tables::create_payments(&client, &self.payments_table).await?;
        tables::create_plain(&client, &self.accounts_table).await?;
        tables::create_plain(&client, &self.orders_table).await?;
        tables::create_idempotency(&client, &self.idempotency_table).await
    }

    async fn config(&self) -> SdkConfig {
        let mut config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(self.region.clone()))
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
        config.load().await
    }
}
