//! The outbox, the event bus and the shipments of a local cloud.

use super::{books::Books, local_cloud::LocalCloud, orders::Placed, payments::Answer};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A message that the bus was handed.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Delivered {
    pub id: String,
    pub operation: String,
    pub key: String,
    pub sequence: u64,
    pub topic: String,
    pub body: Value,
}

/// What was shipped of an order, and how often.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Shipment {
    pub order_id: String,
    pub tenant: String,
    pub sku: String,
    pub quantity: u64,
    pub times: u64,
}

impl LocalCloud {
    /// What the bus was handed, with duplicates, in its order.
    pub async fn delivered(&self) -> Vec<Delivered> {
        self.list("/outbox/delivered", "messages").await
    }

    pub async fn shipments(&self) -> Vec<Shipment> {
        self.list("/shipments", "shipments").await
    }

    /// Waits until so many orders are shipped.
    pub async fn shipped(&self, number: usize) -> Vec<Shipment> {
        self.until(async || self.shipments().await.len() >= number, "orders are shipped").await;
        self.shipments().await
    }

    /// Puts an event on the bus, as somebody else would. Returns the answer's status.
    pub async fn put_event(&self, event: &Value) -> u16 {
        let put = self.post("/bus").json(event).send().await.expect("the front answers");
        put.status().as_u16()
    }

    /// Waits until nothing is in the outbox, nor in the queue of shipments. Returns the dead letters of that queue.
    pub async fn all_delivered(&self, books: &Books) -> Vec<Value> {
        self.until(async || books.undelivered().await == 0, "the outbox is empty").await;
        let queue = async || -> Value {
            let shown = self.get("/queues/shipments").send().await.expect("the front answers");
            shown.json().await.expect("JSON")
        };
        let is_empty = async || {
            let queue = queue().await;
            (&queue["ready"], &queue["inFlight"]) == (&json!(0), &json!(0))
        };
        self.until(is_empty, "the queue of shipments is empty").await;
        queue().await["deadLetters"].as_array().expect("a list").clone()
    }

    async fn list<T: for<'a> Deserialize<'a>>(&self, path: &str, name: &str) -> Vec<T> {
        let answer = self.get(path).send().await.expect("the front answers");
        assert_eq!(answer.status(), 200, "{path}");
        let mut lists: BTreeMap<String, Vec<T>> = answer.json().await.expect("its documented form");
        lists.remove(name).expect("the list")
    }
}

/// Fails unless each confirmed order was published once, and shipped once, and nothing else was. Returns how often a message was delivered
/// again.
pub async fn assert_shipped_once(cloud: &LocalCloud, books: &Books, answered: &[(Placed, Answer)]) -> usize {
    let confirmed = answered.iter().filter(|(_, answer)| answer.status == 201);
    let confirmed: BTreeSet<_> = confirmed.map(|(order, _)| &*order.key).collect();
    let delivered = cloud.delivered().await;
    let keys: BTreeSet<_> = delivered.iter().map(|message| &*message.key).collect();
    assert_eq!(keys, confirmed, "each confirmed order is delivered, and nothing else");
    // One id for each order, however often it was delivered.
    let ids: BTreeSet<_> = delivered.iter().map(|message| &message.id).collect();
    assert_eq!(ids.len(), confirmed.len());
    assert!(delivered.iter().all(|message| message.sequence == 0), "an order has one message");
    let shipments = cloud.shipments().await;
    let rows = books.orders().await;
    let of_rows = rows.iter().filter(|row| row["status"] == "confirmed");
    let of_rows: BTreeSet<_> = of_rows.map(|row| row["id"].as_str().expect("an id")).collect();
    let shipped: BTreeSet<_> = shipments.iter().map(|shipment| &*shipment.order_id).collect();
    assert_eq!(shipped, of_rows);
    let twice = shipments.iter().filter(|shipment| shipment.times != 1);
    assert_eq!(twice.collect::<Vec<_>>(), [&shipments[0]; 0], "each is shipped once");
    delivered.len() - confirmed.len()
}
