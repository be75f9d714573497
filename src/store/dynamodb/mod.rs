//! Keeps records in a DynamoDB table.
//!
//! 1. Each change of a record is one conditional `PutItem`: if there is no record, or if its revision is still the one seen. A
//!    failed condition returns the current record.
//! 2. A write with [companions](super::Companion) is one `TransactWriteItems`, with the revision as its request token.
//! 3. A record is read strongly consistent. The index and scans are not, so their records are read again before a change.
//! 4. A body goes into its record, else into a body item, else into S3 if a bucket is set, else it is left out.
//! 5. The engine alone retries writes: their client has no retries and no time-outs. That of reads and bodies has the SDK's.
//! 6. A sparse index finds unknown outcomes and operations between workers. Time to live deletes settled records and body items.
//!
//! It does not work across Regions: two Regions of an asynchronous global table can both reserve a key (T30).

mod attributes;
mod audit;
mod body_item;
mod canonical_order;
mod capacity;
mod checkpoint;
mod conditions;
mod domain;
mod due;
mod error;
mod index;
mod not_found;
mod outbox;
mod reference;
mod settings;
mod shard;
pub mod table;
mod tenants;
mod transaction;
mod writes;

use std::sync::Arc;

use async_trait::async_trait;
use aws_config::{BehaviorVersion, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, retry::RetryPartition},
    types::AttributeValue,
};
use bytes::Bytes;

use super::{
    AuditLine, Companion, Result, RetryBudget, Store, StoreError, WriteOutcome,
    item::{Item, PK, RECORD, SK, from_attributes},
};
use crate::{
    config::{ConfigError, TABLE_VARIABLE, text},
    key::RecordKey,
    record::{BodyId, Place, Record, Reference, Revision},
    time::Timestamp,
    time_budget::{CLIENT_BACKOFF, STORE_CALL_TIMEOUT, STORE_CONNECT_TIMEOUT, STORE_TRY},
};
use attributes::form;
use conditions::Attributes;

/// Keeps records in a DynamoDB table with partition key `pk` and sort key `sk`, both strings, and time to live on
/// `expires_at`.
///
/// It works in one Region: in a global table with asynchronous replication the last writer wins, and two Regions can both reserve a key
/// (T30). Pin each key to one Region.
///
/// A guard needs `dynamodb:PutItem` and `dynamodb:GetItem` on the table, nothing else. Functions that find unsettled records
/// need `dynamodb:Query` on the index `reconcile`, and `dynamodb:Scan` to sweep. Operators also need `dynamodb:Query` and
/// `dynamodb:DeleteItem` on the table.
///
/// # Credentials of one tenant
///
/// The template `infra/tenant-role.yaml` has a role that reaches the records of one tenant. Open a store for each tenant, with a guard of
/// its own, and keep both.
///
/// ```
/// use aws_config::{SdkConfig, sts::AssumeRoleProvider};
/// use aws_sdk_dynamodb::config::SharedCredentialsProvider;
/// use lambda_idempotency::{DynamoDbStore, Guard, Operation, key::Tenant};
///
/// async fn guard(config: SdkConfig, table: &str, role_arn: &str, tenant: Tenant) -> Guard {
///     let role = AssumeRoleProvider::builder(role_arn).configure(&config).session_name("guard");
///     let role = role.tags([("tenant", tenant.as_str())]).build().await;
///     let config = config.into_builder().credentials_provider(SharedCredentialsProvider::new(role)).build();
///     Guard::new(DynamoDbStore::new(&config, table), Operation::new("ship"), tenant)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct DynamoDbStore {
    /// For reads, and for bodies, which are written by one call whether they go to an item or to S3.
    client: Client,
    /// For all other writes.
    writes: Client,
    retry_budget: Option<RetryBudget>,
    table: Arc<str>,
    #[cfg(feature = "s3")]
    large_bodies: Option<super::s3::S3Bodies>,
}

impl DynamoDbStore {
    /// Opens the table that the environment variable `IDEMPOTENCY_TABLE` names, with the account and Region of the
    /// environment, and [checks](Self::check) it.
    ///
    /// # Errors
    /// If the variable is missing, there is no such table, it has other keys, or the credentials are missing or
    /// refused. It does not fail if the store is only slow or unavailable: requests fail closed until the store is back.
    pub async fn from_env() -> Result<Self, ConfigError> {
        let table = text(TABLE_VARIABLE)?;
        let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
        let store = Self::new(&config, table);
        store.check().await?;
        Ok(store)
    }

    /// Opens the table `table`, with time-outs and a backoff that suit requests, and with budgets of retries that no other client
    /// of this process shares. Open it once, and clone it: clones share connections and budgets.
    pub fn new(config: &SdkConfig, table: impl Into<Arc<str>>) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(STORE_CONNECT_TIMEOUT)
            .operation_attempt_timeout(STORE_TRY)
            .operation_timeout(STORE_CALL_TIMEOUT)
            .build();
        let config = Builder::from(config)
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_initial_backoff(CLIENT_BACKOFF))
            .retry_partition(RetryPartition::new("lambda-idempotency"))
            .build();
        Self::from_client(Client::from_conf(config), table)
    }

    /// Opens the table `table` through a client of your own, whose connections it shares. Give it time-outs for reads: the SDK sets none
    /// by default, and `operation_status` would wait until the function ends. The engine bounds and retries the writes itself. But a
    /// client that is set to one attempt keeps its time-outs for writes too, and none is sent again at once.
    pub fn from_client(client: Client, table: impl Into<Arc<str>>) -> Self {
        let has_one_try = client.config().retry_config().is_some_and(|retries| !retries.has_retry());
        Self {
            writes: if has_one_try { client.clone() } else { writes::client_of_writes(&client) },
            client,
            retry_budget: (!has_one_try).then(RetryBudget::default),
            table: table.into(),
            #[cfg(feature = "s3")]
            large_bodies: None,
        }
    }

    /// Keeps bodies that are too large for an item in S3. Without it they are left out, and replays of such an answer return its
    /// status and headers only.
    #[cfg(feature = "s3")]
    #[must_use]
    pub fn with_large_bodies(mut self, bodies: super::s3::S3Bodies) -> Self {
        self.large_bodies = Some(bodies);
        self
    }

    /// Reads one item that does not exist, to find mistakes at start-up that would fail requests later. This also opens the
    /// connection that the first request uses.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub async fn check(&self) -> Result<(), ConfigError> {
        let Err(error) = self.item("start-up check", RECORD).await else { return Ok(()) };
        if let Some(error) = ConfigError::of(&self.table, &error) {
            return Err(error);
        }
        let error: &dyn std::error::Error = &error;
        tracing::warn!(table = %self.table, error, "the table did not answer at start-up");
        Ok(())
    }

    async fn item(&self, pk: &str, sk: &str) -> Result<Option<Attributes>> {
        let key = |text: &str| AttributeValue::S(text.to_owned());
        let request = self.client.get_item().table_name(&*self.table).consistent_read(true);
        Ok(request.key(PK, key(pk)).key(SK, key(sk)).send().await?.item)
    }

    /// Deletes an item whose key names its content.
    async fn delete(&self, pk: &str, sk: String) -> Result<()> {
        let request = self.writes.delete_item().table_name(&*self.table);
        request.key(PK, AttributeValue::S(pk.to_owned())).key(SK, AttributeValue::S(sk)).send().await?;
        Ok(())
    }

    /// Puts an item whose key is unique to its writer. So an existing item is the same one, written by a request whose answer was
    /// lost.
    async fn put_new(&self, client: &Client, item: Attributes) -> Result<()> {
        conditions::put(client, &self.table, None, item).await.map(|_| ())
    }
}

/// The outcome of a refused write, with the current item if there is one.
fn refused(current: Option<Attributes>) -> Result<WriteOutcome> {
    Ok(WriteOutcome::Refused(current.map(from_attributes).transpose()?.map(Box::new)))
}

fn to_item(record: &Record) -> Result<Attributes> {
    form(&Item::from(record))
}

#[async_trait]
impl Store for DynamoDbStore {
    async fn put(&self, seen: Option<Revision>, record: &Record, with: &[Companion]) -> Result<WriteOutcome> {
        let outcome = match with.is_empty() {
            true => match conditions::put(&self.writes, &self.table, seen, to_item(record)?).await? {
                Ok(()) => WriteOutcome::Written,
                Err(current) => refused(current)?,
            },
            false => self.transact(seen, record, with).await?,
        };
        Ok(match outcome {
            // An insert is refused because of an item. Old emulators do not return it.
            WriteOutcome::Refused(None) if seen.is_none() => {
                WriteOutcome::Refused(self.load(&record.key).await?.map(Box::new))
            }
            outcome => outcome,
        })
    }

    async fn load(&self, key: &RecordKey) -> Result<Option<Record>> {
        self.item(&key.partition_key(), RECORD).await?.map(from_attributes).transpose()
    }

    fn retry_budget(&self) -> Option<&RetryBudget> {
        self.retry_budget.as_ref()
    }

    fn records_table(&self) -> Option<&str> {
        Some(&self.table)
    }

    fn body_capacity(&self, record: &Record) -> usize {
        capacity::for_body(record)
    }

    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        expires_at: Timestamp,
    ) -> Result<Option<Place>> {
        if body.len() <= capacity::MAX_BODY_BYTES {
            self.put_new(&self.client, body_item::to_item(key, id, &body, expires_at)).await?;
            return Ok(Some(Place::BodyItem));
        }
        #[cfg(feature = "s3")]
        if let Some(bodies) = &self.large_bodies {
            bodies.keep(key, id, body).await?;
            return Ok(Some(Place::S3));
        }
        Ok(None)
    }

    async fn load_body(&self, key: &RecordKey, id: BodyId, place: Place) -> Result<Option<Bytes>> {
        if place == Place::BodyItem {
            let item = self.item(&key.partition_key(), &body_item::sort_key(id)).await?;
            return item.map(body_item::body).transpose();
        }
        #[cfg(feature = "s3")]
        if let Some(bodies) = &self.large_bodies {
            return bodies.load(key, id).await;
        }
        Err(StoreError::refused("the body is in S3: set a bucket (feature `s3`)"))
    }

    async fn delete_body(&self, key: &RecordKey, id: BodyId) -> Result<()> {
        self.delete(&key.partition_key(), body_item::sort_key(id)).await
    }

    async fn refer(&self, reference: &Reference, key: &RecordKey, expires_at: Timestamp) -> Result<()> {
        self.put_reference(reference, key, expires_at).await
    }

    async fn referred(&self, reference: &Reference) -> Result<Option<RecordKey>> {
        self.get_reference(reference).await
    }

    async fn audit(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Result<()> {
        self.put_new(&self.writes, audit::to_item(&key.partition_key(), id, line)?).await
    }

    async fn audit_lines(&self, key: &RecordKey) -> Result<Vec<AuditLine>> {
        audit::lines(&self.client, &self.table, &key.partition_key()).await
    }
}
