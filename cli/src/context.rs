//! The context of a command: the store, and the screen to print on.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::config::Builder;
use lambda_idempotency::{
    config::ConfigError,
    key::RecordKey,
    operator::{Operator, TenantOperator},
    record::Record,
    store::{Store, dynamodb::DynamoDbStore},
    time::Timestamp,
    world::World,
};

use crate::{args::Global, clock::ServersClock, failure::Failure, output::Screen};

pub struct Context {
    pub store: DynamoDbStore,
    /// Changes records of the store.
    pub operator: Operator,
    pub screen: Screen,
    /// For DynamoDB.
    pub config: SdkConfig,
    pub table: String,
    /// The store's: a lease must not be judged by the clock of this machine.
    clock: ServersClock,
}

impl Context {
    /// Opens the table, and checks that it answers.
    pub async fn open(global: &Global) -> Result<Self, Failure> {
        let table = Self::table(global)?;
        let config = aws(global, global.endpoint_url.as_deref()).await?;
        tracing::debug!(table, region = config.region().map(tracing::field::display), "opens the table");
        let store = DynamoDbStore::new(&config, table.clone());
        let client = Builder::from(&config).timeout_config(timeouts());
        let (checked, clock) = tokio::join!(store.check(), ServersClock::of(client, &table));
        checked.map_err(refused)?;
        if let Some(differs) = clock.differs() {
            eprintln!("the clock of this machine is {differs}: DynamoDB's time is used");
        }
        let operator = Operator::new(store.clone()).world(clock);
        Ok(Self { store, operator, screen: Screen::new(global.output), config, table, clock })
    }

    /// The table's name.
    pub fn table(global: &Global) -> Result<String, Failure> {
        let named = global.table.clone().filter(|table| !table.trim().is_empty());
        named.ok_or_else(|| Failure::Usage("which table? Give --table, or set IDEMPOTENCY_TABLE".into()))
    }

    /// Loads the record. A missing one is a failure.
    pub async fn load(&self, key: &RecordKey) -> Result<Record, Failure> {
        tracing::debug!(key = %key.hash(), operation = %key.operation(), "reads the record");
        self.store.load(key).await?.ok_or_else(|| {
            let (tenant, operation) = (key.tenant().as_str(), key.operation().as_str());
            let (key, scope) = (key.idempotency_key().as_str(), key.scope());
            let scope = scope.map_or_else(String::new, |scope| format!(", in the scope {scope}"));
            Failure::NotAsExpected(format!(
                "the table `{}` has no record of tenant {tenant:?}, operation {operation:?} and key {key:?}{scope}",
                self.table
            ))
        })
    }

    /// Stops and limits tenants.
    pub fn tenants(&self) -> TenantOperator {
        TenantOperator::new(self.store.clone()).world(self.clock)
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Explains a refused table by the options that name it.
fn refused(error: ConfigError) -> Failure {
    let line = match &error {
        ConfigError::Refused { table, reason } => {
            format!("DynamoDB refuses the idempotency table `{table}`: {reason}")
        }
        ConfigError::NoCredentials { reason, .. } => format!("no AWS credentials: {reason}"),
        _ => error.to_string(),
    };
    Failure::from_error(&Failure::Error(line))
}

/// Time-outs for the command line's own clients: the SDK sets none for a whole operation.
pub fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(3))
        .operation_attempt_timeout(Duration::from_secs(10))
        .operation_timeout(Duration::from_secs(30))
        .build()
}

/// The AWS configuration, with account and Region found as the AWS CLI finds them.
pub async fn aws(global: &Global, endpoint_url: Option<&str>) -> Result<SdkConfig, Failure> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if let Some(profile) = &global.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(region) = &global.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = endpoint_url {
        loader = loader.endpoint_url(url);
    }
    let config = loader.load().await;
    if config.region().is_none() {
        return Err(Failure::Usage("which Region? Give --region, or set AWS_REGION".into()));
    }
    Ok(config)
}
