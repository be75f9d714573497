//! The HTTP address's routes for events: what the event bus was handed, an event of somebody else, what was shipped.

use crate::{
    bus::{Bus, Event},
    gateway,
};
use aws_sdk_dynamodb::{Client, types::AttributeValue};
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use lambda_idempotency::telemetry::error_chain;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// What the routes read.
#[derive(Clone)]
pub struct Events {
    pub bus: Arc<Bus>,
    pub client: Client,
    /// The table with the shipments, in the sample.
    pub orders_table: Option<String>,
}

pub fn router<S>(events: Events) -> Router<S> {
    Router::new()
        .route("/outbox/delivered", get(delivered))
        .route("/bus", post(put))
        .route("/shipments", get(shipments))
        .with_state(events)
}

async fn delivered(State(events): State<Events>) -> Response {
    Json(BTreeMap::from([("messages", events.bus.delivered())])).into_response()
}

/// Puts an event on the bus, as somebody else would.
async fn put(State(events): State<Events>, event: Bytes) -> Response {
    let refuse = |error: &str| gateway::message(StatusCode::BAD_REQUEST, &format!("the event: {error}"));
    if !event.trim_ascii_start().starts_with(b"{") {
        return refuse("it must be an object");
    }
    let event: Event = match serde_json::from_slice(&event) {
        Ok(event) => event,
        Err(error) => return refuse(&error.to_string()),
    };
    match events.bus.put(&event).await {
        Ok(id) => (StatusCode::ACCEPTED, Json(json!({ "id": id }))).into_response(),
        Err(refused) => refuse(&refused.message),
    }
}

/// The shipments of all tenants, by their orders.
async fn shipments(State(events): State<Events>) -> Response {
    let Some(table) = &events.orders_table else {
        return gateway::message(StatusCode::NOT_FOUND, "there is no table of orders");
    };
    let scan = events.client.scan().table_name(table).consistent_read(true);
    let scan = scan.filter_expression("begins_with(sk, :shipment)");
    let scan = scan.expression_attribute_values(":shipment", AttributeValue::S("shipment#".to_owned()));
    let items = scan.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
    match items {
        Ok(mut items) => {
            items.sort_by_cached_key(|item| (text(item, "pk"), text(item, "orderId")));
            let shipments: Vec<_> = items.iter().map(shown).collect();
            Json(json!({ "shipments": shipments })).into_response()
        }
        Err(error) => {
            gateway::message(StatusCode::BAD_GATEWAY, &format!("DynamoDB: {}", error_chain(&error)))
        }
    }
}

type Item = HashMap<String, AttributeValue>;

fn shown(item: &Item) -> Value {
    json!({
        "orderId": text(item, "orderId"),
        "tenant": text(item, "pk"),
        "sku": text(item, "sku"),
        "quantity": number(item, "quantity"),
        "times": number(item, "times"),
    })
}

fn text(item: &Item, name: &str) -> Option<String> {
    item.get(name)?.as_s().ok().cloned()
}

fn number(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}
