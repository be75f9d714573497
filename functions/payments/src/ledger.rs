//! The table of payments: partition key tenant, sort key payment id; the index `days` finds a day's payments of all
//! tenants.

use std::collections::HashMap;

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, retry::RetryConfig, timeout::TimeoutConfig},
    types::AttributeValue,
};
use lambda_idempotency::{
    domain::{DomainWrite, Table},
    time::Timestamp,
};
use ledgers::Day;
use serde::{Serialize, de::DeserializeOwned};

use crate::Payment;

/// How many payments one page lists.
const PAGE: i32 = 100;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where a page of a day ended.
#[derive(Clone, Debug)]
pub struct After(HashMap<String, AttributeValue>);

/// A part of a day's rows.
#[derive(Debug)]
pub struct DayPage<T> {
    /// The rows, each with its tenant.
    pub rows: Vec<(String, T)>,
    /// Where the next page begins, if there is one.
    pub next: Option<After>,
}

/// A client of our tables, with the account and Region of the environment.
pub async fn client() -> Client {
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(std::time::Duration::from_secs(1))
        .operation_timeout(std::time::Duration::from_secs(4))
        .build();
    let retries = RetryConfig::standard().with_initial_backoff(std::time::Duration::from_millis(25));
    let config = Builder::from(&config).timeout_config(timeouts).retry_config(retries).build();
    Client::from_conf(config)
}

/// The payments of all tenants. Each tenant has its partition.
#[derive(Clone, Debug)]
pub struct Ledger {
    client: Client,
    table: String,
}

impl Ledger {
    /// The table, with the account and Region of the environment.
    pub async fn from_env(table: String) -> Self {
        Self::new(client().await, table)
    }

    /// The table, through a client of your own.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Records a payment whose charge the provider made at `charged_at`, in the transaction that completes its operation. Its id is
    /// made of its operation. So if there is such a payment, it must be of this charge: another one is refused.
    pub fn recording(&self, tenant: &str, payment: &Payment, charged_at: Timestamp) -> DomainWrite {
        #[derive(Serialize)]
        struct Row<'a> {
            pk: &'a str,
            sk: &'a str,
            day: String,
            charged_at: u64,
            #[serde(flatten)]
            payment: &'a Payment,
        }
        let row = Row {
            pk: tenant,
            sk: &payment.id,
            // By the provider's clock, so that both ledgers have the payment on the same day.
            day: Day::of(charged_at).to_string(),
            charged_at: charged_at.as_millis(),
            payment,
        };
        let table = Table::new(self.table.as_str(), "pk").sort_key("sk");
        let same = "attribute_not_exists(pk) OR chargeId = :charge";
        table.put(row).condition(same).value(":charge", &payment.charge_id)
    }

    pub(crate) async fn payment(&self, tenant: &str, id: &str) -> Result<Option<Payment>, BoxError> {
        let key = |text: &str| AttributeValue::S(text.to_owned());
        let get = self.client.get_item().table_name(&self.table).key("pk", key(tenant)).key("sk", key(id));
        match get.consistent_read(true).send().await?.item {
            Some(item) => Ok(Some(serde_dynamo::from_item(item)?)),
            None => Ok(None),
        }
    }

    /// A page of the tenant's payments after the one with the id `after`.
    pub(crate) async fn payments(&self, tenant: &str, after: Option<&str>) -> Result<Vec<Payment>, BoxError> {
        let key = |text: &str| AttributeValue::S(text.to_owned());
        let start =
            after.map(|id| HashMap::from([("pk".to_owned(), key(tenant)), ("sk".to_owned(), key(id))]));
        let query = self.client.query().table_name(&self.table).key_condition_expression("pk = :tenant");
        let query = query.expression_attribute_values(":tenant", key(tenant)).set_exclusive_start_key(start);
        let items = query.limit(PAGE).consistent_read(true).send().await?.items.unwrap_or_default();
        Ok(serde_dynamo::from_items(items)?)
    }

    /// A page of all tenants' payments whose charges the provider made on this day.
    ///
    /// # Errors
    /// If the table does not answer.
    pub async fn of_day(&self, day: Day, after: Option<After>) -> Result<DayPage<Payment>, BoxError> {
        of_day(&self.client, &self.table, day, after).await
    }
}

/// A page of all tenants' rows of this day, as large as DynamoDB allows, by the index `days` of a table whose partition key is the tenant. The
/// index lags behind the table by a moment.
///
/// # Errors
/// If the table does not answer, or a row cannot be read: none is skipped.
pub async fn of_day<T: DeserializeOwned>(
    client: &Client,
    table: &str,
    day: Day,
    after: Option<After>,
) -> Result<DayPage<T>, BoxError> {
    let query = client.query().table_name(table).index_name("days");
    // `day` is a reserved word in expressions.
    let query = query.key_condition_expression("#day = :day").expression_attribute_names("#day", "day");
    let query = query.expression_attribute_values(":day", AttributeValue::S(day.to_string()));
    let page = query.set_exclusive_start_key(after.map(|After(key)| key)).send().await?;
    let next = page.last_evaluated_key.filter(|key| !key.is_empty()).map(After);
    let rows = page.items.unwrap_or_default().into_iter().map(|item| {
        let tenant = item.get("pk").and_then(|pk| pk.as_s().ok()).cloned().unwrap_or_default();
        Ok((tenant, serde_dynamo::from_item(item)?))
    });
    Ok(DayPage { rows: rows.collect::<Result<_, BoxError>>()?, next })
}
