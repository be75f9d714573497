//! A client of the orders API in the local cloud, the check that everything happened once, and the API in this process.

use super::{
    books::Books,
    client::client,
    guarded::item_key,
    http,
    local_cloud::{Charge, LocalCloud},
    payments::Answer,
    payments_api::{provider, sealing_keys, send_as},
    tables,
};
use aws_sdk_dynamodb::Client;
use axum::{Router, body::Body, http::Request};
use lambda_idempotency::{
    bounds::Bounds, http::IDEMPOTENCY_KEY, outbox::Topics, queue::MemoryQueue, store::dynamodb::DynamoDbStore,
};
use orders::{
    OPENING, Shop,
    policy::{CREATE_ORDER, ORDER_PLACED, Services, create_order},
    routes,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// A settled order has an answer at once. Only a failure takes this long.
const ANSWERED_WITHIN: Duration = Duration::from_secs(240);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// An order that a test places.
#[derive(Clone, Debug)]
pub struct Placed {
    pub key: String,
    pub card: String,
    pub sku: String,
    pub quantity: u64,
    /// Unique to this order, so that it identifies the provider's charges for it.
    pub cents: u64,
}

impl Placed {
    pub fn new(number: usize, card: &str, sku: &str, quantity: u64) -> Self {
        let (card, sku) = (card.to_owned(), sku.to_owned());
        Self { key: format!("order-{number:06}"), card, sku, quantity, cents: 100_000 + number as u64 }
    }

    /// The body of its request.
    pub fn body(&self) -> Value {
        json!({
            "customerId": "c-1", "sku": self.sku, "quantity": self.quantity, "amountCents": self.cents,
            "currency": "EUR", "source": self.card,
        })
    }

    pub async fn send(&self, cloud: &LocalCloud) -> Answer {
        let request = cloud.post("/orders").bearer_auth("acme").header("Idempotency-Key", &self.key);
        Answer::of(request.json(&self.body()).send().await.expect("the front answers")).await
    }

    /// Sends it until the answer is final.
    pub async fn answer(&self, cloud: &LocalCloud) -> Answer {
        let deadline = Instant::now() + ANSWERED_WITHIN;
        loop {
            let answer = self.send(cloud).await;
            if is_final(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{self:?} has no answer: {answer:?}");
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
    }

    fn charges<'a>(&self, charges: &'a [Charge]) -> Vec<&'a Charge> {
        charges.iter().filter(|charge| charge.amount_cents == self.cents).collect()
    }
}

/// Whether it is the order's final answer. After any other, the client sends the same request again: no order is ever unknown, because the
/// provider remembers its keys.
pub fn is_final(answer: &Answer) -> bool {
    match answer.problem() {
        (201, _) | (402, "card-declined") | (409, "sold-out") => true,
        (409, "in-flight") | (503, "interrupted" | "store-unavailable" | "") | (502 | 504, "") => false,
        _ => panic!("of no use to a client: {answer:?}"),
    }
}

impl LocalCloud {
    /// How much is left of an article.
    pub async fn available(&self, sku: &str) -> u64 {
        let answer =
            self.get(&format!("/stock/{sku}")).bearer_auth("acme").send().await.expect("the front answers");
        let stock: Value = answer.json().await.expect("JSON");
        assert_eq!(stock["sku"], sku);
        stock["available"].as_u64().expect("a number")
    }

    /// The charges that were given back, with how often.
    pub async fn refunds(&self) -> HashMap<String, usize> {
        let answer = self.get("/provider/refunds").send().await.expect("the front answers");
        let refunds: Value = answer.json().await.expect("JSON");
        let mut by_charge = HashMap::new();
        for refund in refunds["refunds"].as_array().expect("a list") {
            *by_charge.entry(refund["chargeId"].as_str().expect("a charge").to_owned()).or_default() += 1;
        }
        by_charge
    }
}

/// Fails unless each of these orders happened once, as its answer says: one charge, one row, its articles taken; and one refund if it was
/// sold out. Nothing else happened.
pub async fn assert_once(cloud: &LocalCloud, books: &Books, answered: &[(Placed, Answer)]) {
    let (charges, refunds, rows) = (cloud.charges().await, cloud.refunds().await, books.orders().await);
    let mut left = BTreeMap::new();
    for (order, answer) in answered {
        let charged = order.charges(&charges);
        let refunded: Vec<_> = charged.iter().filter_map(|charge| refunds.get(&charge.id).copied()).collect();
        let (status, charged_times, refunded_times): (_, usize, &[usize]) = match answer.status {
            201 => ("confirmed", 1, &[]),
            402 => ("declined", 0, &[]),
            _ => ("sold_out", 1, &[1]),
        };
        assert_eq!((charged.len(), &*refunded), (charged_times, refunded_times), "{order:?}: {answer:?}");
        let row =
            rows.iter().find(|row| row["amountCents"] == order.cents).unwrap_or_else(|| panic!("{order:?}"));
        assert_eq!(row["status"], status, "{order:?}: {row}");
        assert_eq!(row["chargeId"].as_str(), charged.first().map(|charge| &*charge.id), "{row}");
        if answer.status == 201 {
            let (mut body, location): (Value, _) =
                (serde_json::from_slice(&answer.body).expect("JSON"), &answer.location);
            assert_eq!(
                location.as_deref(),
                Some(&*format!("/orders/{}", body["id"].as_str().expect("an id")))
            );
            (body["pk"], body["sk"]) = (row["pk"].clone(), row["sk"].clone());
            assert_eq!(body, *row);
            *left.entry(&*order.sku).or_insert(OPENING) -= order.quantity;
        }
    }
    for (sku, expected) in &left {
        assert_eq!(cloud.available(sku).await, *expected, "{sku}");
    }
    // Stock only falls: what is left at the end was there.
    for (order, _) in answered.iter().filter(|(_, answer)| answer.status == 409) {
        assert!(
            order.quantity > left.get(&*order.sku).copied().unwrap_or(OPENING),
            "{order:?} was not sold out"
        );
    }
    let number =
        |expected: &[u16]| answered.iter().filter(|(_, answer)| expected.contains(&answer.status)).count();
    assert_eq!(
        (rows.len(), charges.len(), refunds.len()),
        (answered.len(), number(&[201, 409]), number(&[409]))
    );
}

/// The orders function's API in this process, with separate tables.
pub struct OrdersApi {
    pub app: Router,
    client: Client,
    /// The table of records.
    records: String,
    store: DynamoDbStore,
    services: Services,
}

impl OrdersApi {
    /// Without a provider.
    pub async fn on(endpoint: &str) -> Self {
        Self::before(endpoint, "http://127.0.0.1:1").await
    }

    /// Before the provider at this URL.
    pub async fn before(endpoint: &str, provider_url: &str) -> Self {
        let client = client(endpoint);
        let records = tables::idempotency_table(&client).await;
        let store = DynamoDbStore::from_client(client.clone(), records.as_str());
        let table = tables::ledger_table(endpoint).await;
        let (shop, provider) = (Shop::new(client.clone(), &table), provider(provider_url));
        let placed = Topics::parse("order.placed=own").and_then(|topics| topics.topic(ORDER_PLACED));
        let placed = placed.expect("a topic");
        let services = Services { shop, provider, sealing_keys: sealing_keys(), placed };
        let bounds = Bounds::of(store.clone());
        let app = routes::router(store.clone(), services.clone(), create_order(), MemoryQueue::new(), bounds);
        Self { app, client, records, store, services }
    }

    /// Its orders.
    pub fn shop(&self) -> Shop {
        self.services.shop.clone()
    }

    /// The store of its records.
    pub fn store(&self) -> DynamoDbStore {
        self.store.clone()
    }

    /// Deletes the record of an order, as time to live does.
    pub async fn expire(&self, key: &str) {
        let delete = self.client.delete_item().table_name(&self.records);
        let key = item_key(&http::record_key("acme", CREATE_ORDER, key));
        delete.set_key(Some(key)).send().await.expect("the table answers");
    }

    /// Every route.
    pub fn routes(&self) -> Vec<routes::Route> {
        let (store, bounds) = (self.store.clone(), Bounds::of(self.store.clone()));
        routes::routes(store, self.services.clone(), create_order(), MemoryQueue::new(), bounds)
    }

    pub async fn order(&self, key: &str, body: impl Into<Body>) -> http::Answer {
        let request = Request::post("/orders").header("content-type", "application/json");
        let request = request.header(IDEMPOTENCY_KEY, key).body(body.into()).expect("a request");
        send_as(&self.app, "acme", request).await
    }

    pub async fn get(&self, tenant: &str, path: &str) -> http::Answer {
        send_as(&self.app, tenant, Request::get(path).body(Body::empty()).expect("a request")).await
    }
}
