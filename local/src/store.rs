//! DynamoDB: embedded in this process, or wherever `DYNAMODB_ENDPOINT` points.

use crate::{
    changes::TableChanges,
    embedded,
    faults::Faults,
    journal, recorder,
    settings::Settings,
    tables::{self, REACH},
    template::Table,
};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodbstreams as streams;
use std::{collections::HashMap, env, sync::Arc};

/// A DynamoDB.
pub struct Store {
    pub endpoint: String,
    /// The endpoint for functions and operators: that of the embedded store records their calls.
    pub recorded: String,
    pub embedded: bool,
    /// Changes of the tables, if it is embedded.
    pub changes: TableChanges,
    pub region: String,
    /// Whether made-up credentials are used: an embedded store must never see real ones.
    local_credentials: bool,
}

impl Store {
    pub async fn start(
        settings: &Settings,
        journal: &journal::Shared,
        faults: &Arc<Faults>,
    ) -> Result<Self, String> {
        let mut store = Self {
            endpoint: String::new(),
            recorded: String::new(),
            embedded: settings.dynamodb_endpoint.is_none(),
            changes: TableChanges::default(),
            region: env::var("AWS_REGION").unwrap_or_else(|_| "eu-central-1".to_owned()),
            local_credentials: settings.dynamodb_endpoint.is_none()
                || (env::var_os("AWS_ACCESS_KEY_ID").is_none() && env::var_os("AWS_PROFILE").is_none()),
        };
        store.endpoint = match &settings.dynamodb_endpoint {
            Some(endpoint) => endpoint.clone(),
            None => embedded::start(store.changes.all.clone())
                .await
                .map_err(|error| format!("embedded DynamoDB: {error}"))?,
        };
        store.recorded = match store.embedded {
            true => {
                let changes = store.changes.clone();
                let started =
                    recorder::start(&store.endpoint, journal.clone(), faults.clone(), changes).await;
                started.map_err(|error| format!("embedded DynamoDB: {error}"))?
            }
            // Requests to AWS are signed for its own address.
            false => store.endpoint.clone(),
        };
        Ok(store)
    }

    /// The environment variables by which a program finds this store at `endpoint`.
    pub fn environment(&self, endpoint: &str) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", endpoint.to_owned()),
            ("AWS_REGION", self.region.clone()),
            ("AWS_DEFAULT_REGION", self.region.clone()),
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
        self.client_of(&self.endpoint).await
    }

    /// A client whose calls are recorded.
    pub async fn recorded_client(&self) -> aws_sdk_dynamodb::Client {
        self.client_of(&self.recorded).await
    }

    async fn client_of(&self, endpoint: &str) -> aws_sdk_dynamodb::Client {
        let config = self.config().await;
        let config = aws_sdk_dynamodb::config::Builder::from(&config).endpoint_url(endpoint).build();
        aws_sdk_dynamodb::Client::from_conf(config)
    }

    /// Makes these tables, if they are not there. Returns the ARNs of their streams, by their names with the prefix.
    pub async fn create(&self, tables: &[Table]) -> Result<HashMap<String, String>, String> {
        let (client, mut streams) = (self.client().await, HashMap::new());
        for table in tables {
            let stream = tables::create(&client, table).await.map_err(|error| match self.embedded {
                false => format!("DYNAMODB_ENDPOINT={}: {error}", self.endpoint),
                true => format!("embedded DynamoDB: {error}"),
            })?;
            streams.extend(stream.map(|stream| (table.full_name.clone(), stream)));
        }
        Ok(streams)
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
