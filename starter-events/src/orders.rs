//! `POST /orders` places an order: a row and a message, in one transaction with the answer. `GET /orders/{id}` reads the row.

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use lambda_idempotency::{
    Answer, Idempotency, JwtClaim, NotBegun, Operation, SingleTransaction, Store,
    domain::{DomainWrite, Table},
    http::{OrNotBegun, TenantResolver},
    outbox::Topic,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The topic of orders that are placed.
pub const PLACED: &str = "order.placed";

/// The claim of a token, which API Gateway has verified, that names the caller.
const CALLER: JwtClaim = JwtClaim("sub");

/// What is guarded. Its only effects are a row and a message, so its outcome is never unknown, and it needs no reconciler.
pub fn operation() -> Operation {
    Operation::new("place-order")
}

/// The router.
pub fn app(store: impl Store, orders: Orders) -> Router {
    let guard = Idempotency::new(store, operation()).tenant(CALLER);
    Router::new()
        .route("/orders", post(place).route_layer(guard.single_transaction()))
        .route("/orders/{id}", get(read))
        .with_state(orders)
}

/// The table of orders, and the topic of those that are placed.
#[derive(Clone)]
pub struct Orders {
    pub rows: Rows,
    pub client: Client,
    pub placed: Topic,
}

/// The rows of the table of orders.
#[derive(Clone)]
pub struct Rows(pub Table);

impl Rows {
    /// In the table of this name.
    pub fn new(table: &str) -> Self {
        Self(Table::new(table, "tenant").sort_key("id"))
    }

    /// An order that is placed.
    fn placed(&self, tenant: &str, placed: &Placed) -> DomainWrite {
        let Placed { order_id, amount_cents, currency, .. } = placed;
        let row = json!({ "tenant": tenant, "id": order_id, "amountCents": amount_cents, "currency": currency, "payment": "open" });
        // The key was used before: its record has expired, and its row is still here.
        let exists = Answer::json(409, json!({ "error": "exists" }).to_string());
        self.0.put(row).if_absent().or_answer(exists)
    }

    /// What became of the payment of an order. Only the outbox sends its message, so the row is there: an update would make one that is not.
    pub fn payment(&self, tenant: &str, order_id: &str, payment: &str) -> DomainWrite {
        let key = json!({ "tenant": tenant, "id": order_id });
        self.0.update(key, "SET payment = :payment").value(":payment", payment)
    }
}

/// The body of a request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    amount_cents: u64,
    currency: String,
    payment_method: String,
}

/// The message of an order that is placed. Consumers are deployed at other times: add members, and remove none.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// The client's idempotency key: the same in each try.
    pub order_id: String,
    pub amount_cents: u64,
    pub currency: String,
    /// The provider's id of a saved method. A message lies in tables and queues for days: no number of a card belongs in it.
    pub payment_method: String,
}

async fn place(
    State(orders): State<Orders>,
    transaction: SingleTransaction,
    // A body that cannot be read begins nothing: the caller may correct it under the same key.
    OrNotBegun(Json(order)): OrNotBegun<Json<Order>>,
) -> Response {
    let Order { amount_cents, currency, payment_method } = order;
    let order_id = transaction.idempotency_key().as_str().to_owned();
    // It is a segment of a path, by which the order is read.
    let is_segment = order_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    if !is_segment || [".", ".."].contains(&&*order_id) {
        let error = json!({ "error": "the Idempotency-Key has other characters than letters, digits, -, ., _ and ~" });
        return NotBegun((StatusCode::BAD_REQUEST, Json(error))).into_response();
    }
    let placed = Placed { order_id, amount_cents, currency, payment_method };
    let row = orders.rows.placed(transaction.tenant().as_str(), &placed);
    // This function may run more than once for a key. What it writes commits once, and only with its answer.
    match transaction.write(row).and_then(|()| transaction.publish(&orders.placed, &placed)) {
        Ok(()) => (StatusCode::CREATED, Json(json!({ "id": placed.order_id }))).into_response(),
        // A mistake of the program: nothing is written.
        Err(error) => failed("an order cannot be written", &error),
    }
}

async fn read(State(orders): State<Orders>, Path(id): Path<String>, request: Parts) -> Response {
    let Some(tenant) = CALLER.tenant(&request) else { return StatusCode::UNAUTHORIZED.into_response() };
    let key = [("tenant", tenant.as_str()), ("id", &id)];
    let key: HashMap<_, _> =
        key.into_iter().map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned()))).collect();
    let table = orders.rows.0.name();
    match orders.client.get_item().table_name(table).set_key(Some(key)).consistent_read(true).send().await {
        Ok(found) => match found.item {
            Some(row) => {
                let text = |name: &str| row.get(name).and_then(|value| value.as_s().ok());
                let cents = row.get("amountCents").and_then(|value| value.as_n().ok()?.parse::<u64>().ok());
                Json(json!({ "id": id, "amountCents": cents, "currency": text("currency"), "payment": text("payment") }))
                    .into_response()
            }
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Err(error) => failed("the table of orders does not answer", &error),
    }
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> Response {
    tracing::error!(error, "{what}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
