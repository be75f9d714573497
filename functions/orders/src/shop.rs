//! The table of orders, stock and bookings: partition key tenant, sort key `order#` and an order's id, `stock#` and a sku, or `booking#` and
//! the provider's id of a charge or a refund. Each tenant has [`OPENING`] of each article; an article is in the table once it was ordered. The
//! index `days` finds a day's bookings of all tenants.

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use lambda_idempotency::{
    domain::{DomainWrite, Table},
    time::Timestamp,
};
use ledgers::Day;
use payments::{After, DayPage};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Booking,
    order::{MAX_QUANTITY, Order},
};

/// How much there is of each article at first: enough for any one order, so that the first one needs no condition.
pub const OPENING: u64 = MAX_QUANTITY;

/// How much of an article is left.
#[derive(Serialize)]
pub(crate) struct Stock<'a> {
    pub(crate) sku: &'a str,
    pub(crate) available: u64,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The orders and the stock of all tenants. Each tenant has its partition.
#[derive(Clone, Debug)]
pub struct Shop {
    client: Client,
    table: Table,
}

#[derive(Serialize)]
struct Row<'a> {
    pk: &'a str,
    sk: String,
    #[serde(flatten)]
    order: &'a Order,
}

impl Shop {
    /// The table of this name.
    pub fn new(client: Client, table: &str) -> Self {
        Self { client, table: Table::new(table, "pk").sort_key("sk") }
    }

    /// Puts an order into its row.
    pub(crate) fn recording(&self, tenant: &str, order: &Order) -> DomainWrite {
        self.table.put(Row { pk: tenant, sk: order_key(&order.id), order })
    }

    /// Books what the provider did at `made_at`, by its clock, so that both ledgers have it on the same day.
    pub fn booking(&self, tenant: &str, booking: &Booking, made_at: Timestamp) -> DomainWrite {
        #[derive(Serialize)]
        struct Row<'a> {
            pk: &'a str,
            sk: String,
            day: String,
            #[serde(flatten)]
            booking: &'a Booking,
        }
        let (sk, day) = (format!("booking#{}", booking.id), Day::of(made_at).to_string());
        self.table.put(Row { pk: tenant, sk, day, booking })
    }

    /// A page of all tenants' bookings of what the provider did on this day.
    ///
    /// # Errors
    /// If the table does not answer.
    pub async fn of_day(&self, day: Day, after: Option<After>) -> Result<DayPage<Booking>, BoxError> {
        payments::of_day(&self.client, self.table.name(), day, after).await
    }

    /// Takes the articles of an order from the stock, or is refused if there are not enough.
    pub(crate) fn taking(&self, tenant: &str, order: &Order) -> DomainWrite {
        let expression = "SET available = if_not_exists(available, :opening) - :n";
        let update = self.table.update(json!({ "pk": tenant, "sk": stock_key(&order.sku) }), expression);
        let update = update.condition("attribute_not_exists(available) OR available >= :n");
        update.value(":opening", OPENING).value(":n", order.quantity)
    }

    pub(crate) async fn order(&self, tenant: &str, id: &str) -> Result<Option<Order>, BoxError> {
        self.get(tenant, order_key(id)).await?.map(|item| Ok(serde_dynamo::from_item(item)?)).transpose()
    }

    pub(crate) async fn available(&self, tenant: &str, sku: &str) -> Result<u64, BoxError> {
        #[derive(Deserialize)]
        struct Row {
            available: u64,
        }
        Ok(match self.get(tenant, stock_key(sku)).await? {
            Some(item) => serde_dynamo::from_item::<_, Row>(item)?.available,
            None => OPENING,
        })
    }

    async fn get(
        &self,
        tenant: &str,
        sort_key: String,
    ) -> Result<Option<HashMap<String, AttributeValue>>, BoxError> {
        let get = self.client.get_item().table_name(self.table.name()).consistent_read(true);
        let get = get.key("pk", AttributeValue::S(tenant.to_owned()));
        Ok(get.key("sk", AttributeValue::S(sort_key)).send().await?.item)
    }
}

fn order_key(id: &str) -> String {
    format!("order#{id}")
}

fn stock_key(sku: &str) -> String {
    format!("stock#{sku}")
}
