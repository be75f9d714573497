//! The shipments, in the table of orders: partition key tenant, sort key `shipment#` and the order's id.

use lambda_idempotency::domain::{DomainWrite, Table};
use serde_json::json;

use crate::event::OrderPlaced;

/// The shipments of all tenants.
#[derive(Clone)]
pub(crate) struct Shipments(Table);

impl Shipments {
    /// In the table of orders of this name.
    pub(crate) fn new(table: &str) -> Self {
        Self(Table::new(table, "pk").sort_key("sk"))
    }

    /// Ships an order. The row counts how often that was done: a second time would show.
    pub(crate) fn shipping(&self, tenant: &str, placed: &OrderPlaced) -> DomainWrite {
        let OrderPlaced { order_id, sku, quantity } = placed;
        let key = json!({ "pk": tenant, "sk": format!("shipment#{order_id}") });
        let expression = "SET orderId = :order, sku = :sku, quantity = :quantity ADD times :once";
        let update = self.0.update(key, expression).value(":order", order_id).value(":sku", sku);
        update.value(":quantity", quantity).value(":once", 1)
    }
}
