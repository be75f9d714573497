//! An order on its way, from its request to its charge: on the memory store and on a real DynamoDB, with a provider that counts.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client, Config,
    config::{BehaviorVersion, Credentials, Region},
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use dynoxide::{Database, server};
use lambda_idempotency::{
    DynamoDbStore, MemoryStore, Store,
    event::{BatchFunction, MemorySource},
    http::lambda_http::{Context, LambdaEvent, request},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    outbox::Topics,
    queue::MemoryQueue,
    reconcile::Reconciliation,
    store::{Outbox, Unsettled, dynamodb::table},
};
use serde_json::{Value, json};
use shop::{
    Provider,
    billing::{self, Billing, consumer},
    orders::{self, Orders, Rows, app},
};
use tokio::net::TcpListener;
use tower::ServiceExt;

const TABLE: &str = "orders";

/// Serves on a free port, and returns its URL.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A provider that answers each order so, and knows this of it. Also how often it was asked to charge.
async fn provider(charge: StatusCode, known: (StatusCode, Value)) -> (Provider, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let charge = async move |State(calls): State<Arc<AtomicU32>>| {
        let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
        (charge, Json(json!({ "id": format!("ch_{number}") })))
    };
    let known = async move || (known.0, Json(known.1.clone()));
    let router = Router::new().route("/charges", post(charge)).route("/charges/{key}", get(known));
    (Provider::new(&serve(router.with_state(calls.clone())).await).unwrap(), calls)
}

/// One that charges.
async fn good() -> (Provider, Arc<AtomicU32>) {
    provider(StatusCode::CREATED, unknown()).await
}

fn unknown() -> (StatusCode, Value) {
    (StatusCode::NOT_FOUND, json!({ "error": "no_such_charge" }))
}

fn charged() -> (StatusCode, Value) {
    (StatusCode::OK, json!({ "status": "succeeded", "charge": { "id": "ch_1" } }))
}

/// A client of a DynamoDB; of none, for tests that read no row by it.
fn client(url: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .endpoint_url(url);
    Client::from_conf(config.build())
}

fn routes(store: impl Store, client: Client) -> Router {
    let placed = Topics::parse("order.placed=own").unwrap().topic(orders::PLACED).unwrap();
    app(store, Orders { rows: Rows::new(TABLE), client, placed })
}

/// Sends a request as API Gateway does, and returns status and body.
async fn send(app: &Router, method: &str, path: &str, key: &str, body: Value) -> (u16, Value) {
    let event = json!({
        "version": "2.0",
        "rawPath": path,
        "headers": { "idempotency-key": key, "content-type": "application/json" },
        "body": body.to_string(),
        "requestContext": {
            "http": { "method": method, "path": path },
            "authorizer": { "jwt": { "claims": { "sub": "jane" } } },
        },
    });
    let request = request::from_str(&event.to_string()).unwrap().map(Body::new);
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn order(app: &Router, key: &str) -> (u16, Value) {
    let order = json!({ "amountCents": 1999, "currency": "EUR", "paymentMethod": "pm_1" });
    send(app, "POST", "/orders", key, order).await
}

/// The messages of an order, as the outbox delivers them.
async fn messages(store: &impl Outbox, key: &str) -> Vec<String> {
    let (tenant, operation) = (Tenant::parse("jane").unwrap(), OperationName::parse("place-order").unwrap());
    let key = RecordKey::new(tenant, operation, IdempotencyKey::parse(key).unwrap());
    store.undelivered(&key).await.unwrap().iter().map(|message| message.to_cloud_event()).collect()
}

fn billing_function(store: impl Store, provider: &Provider) -> impl BatchFunction {
    let billing = Billing { provider: provider.clone(), rows: Rows::new(TABLE) };
    consumer(store, MemorySource::new("billing"), billing, MemoryQueue::new()).unwrap()
}

/// Hands a message to the consumer, as Lambda does. Returns whether it is handed back.
async fn deliver(consumer: &impl BatchFunction, message: &str) -> bool {
    let record = json!({
        "messageId": "m-1",
        "receiptHandle": "r-1",
        "body": message,
        "attributes": { "ApproximateReceiveCount": "1" },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:billing",
    });
    let event = serde_json::from_value(json!({ "Records": [record] })).unwrap();
    let mut context = Context::default();
    // The clock is the system's.
    let in_half_a_minute = std::time::SystemTime::now() + Duration::from_secs(30);
    let since_1970 = in_half_a_minute.duration_since(std::time::UNIX_EPOCH).unwrap();
    context.deadline = since_1970.as_millis() as u64;
    let answer = consumer.clone().oneshot(LambdaEvent::new(event, context)).await.unwrap();
    !answer.identifiers().is_empty()
}

/// Asks the provider about what is unknown.
async fn poll(store: impl Unsettled, provider: &Provider) {
    let billing = Billing { provider: provider.clone(), rows: Rows::new(TABLE) };
    let reconciliation = Reconciliation::new(store, MemoryQueue::new()).not_found_grace(Duration::ZERO);
    let reconciliation = reconciliation.operation(billing::operation(), billing);
    reconciliation.poll(Duration::from_secs(5)).await.unwrap();
}

async fn placed_once_and_charged_once(store: impl Outbox + Clone, client: Client) {
    let app = routes(store.clone(), client);
    for _ in 0..3 {
        assert_eq!(order(&app, "order-1").await, (201, json!({ "id": "order-1" })));
    }
    let messages = messages(&store, "order-1").await;
    let [message] = &messages[..] else { panic!("one message: {messages:?}") };
    let (provider, calls) = good().await;
    let consumer = billing_function(store, &provider);
    for _ in 0..3 {
        assert!(!deliver(&consumer, message).await, "it is done");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// The row of an order in memory.
fn payment(store: &MemoryStore, key: &str) -> Value {
    let row: Option<Value> = store.item(&Rows::new(TABLE).0, json!({ "tenant": "jane", "id": key })).unwrap();
    row.unwrap_or_default()["payment"].clone()
}

#[tokio::test]
async fn an_order_is_placed_once_and_charged_once() {
    let store = MemoryStore::new();
    placed_once_and_charged_once(store.clone(), client("http://127.0.0.1:1")).await;
    assert_eq!(payment(&store, "order-1"), "paid");
}

#[tokio::test]
async fn an_order_is_placed_once_and_charged_once_on_dynamodb() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", listener.local_addr().unwrap()));
    tokio::spawn(server::serve_with_shutdown(listener, Database::memory().unwrap(), future::pending()));
    table::create(&client, "records").send().await.unwrap();
    create_orders(&client).await;
    let store = DynamoDbStore::from_client(client.clone(), "records");
    placed_once_and_charged_once(store.clone(), client.clone()).await;

    let app = routes(store, client);
    let row = json!({ "id": "order-1", "amountCents": 1999, "currency": "EUR", "payment": "paid" });
    assert_eq!(send(&app, "GET", "/orders/order-1", "", json!({})).await, (200, row));
    assert_eq!(send(&app, "GET", "/orders/order-2", "", json!({})).await.0, 404);
}

/// The table of orders, as the template makes it.
async fn create_orders(client: &Client) {
    let mut create = client.create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
    for (name, kind) in [("tenant", KeyType::Hash), ("id", KeyType::Range)] {
        let attribute = AttributeDefinition::builder().attribute_name(name);
        let attribute = attribute.attribute_type(ScalarAttributeType::S).build().unwrap();
        let key = KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
        create = create.attribute_definitions(attribute).key_schema(key);
    }
    create.send().await.unwrap();
}

#[tokio::test]
async fn a_key_that_no_path_can_have_begins_nothing() {
    let store = MemoryStore::new();
    let app = routes(store.clone(), client("http://127.0.0.1:1"));
    for key in ["a/b", "..", "."] {
        assert_eq!(order(&app, key).await.0, 400, "{key}");
        assert_eq!(messages(&store, key).await, [""; 0], "{key}");
    }
    assert_eq!(order(&app, "a-b").await.0, 201);
}

#[tokio::test]
async fn an_order_whose_record_has_expired_is_not_placed_again() {
    // Only the row is left.
    let store = MemoryStore::new();
    store.put_item(&Rows::new(TABLE).0, json!({ "tenant": "jane", "id": "order-1", "payment": "paid" }));
    let app = routes(store.clone(), client("http://127.0.0.1:1"));
    assert_eq!(order(&app, "order-1").await, (409, json!({ "error": "exists" })));
    assert!(messages(&store, "order-1").await.is_empty());
}

/// An order that is placed, and its message.
async fn placed(store: &MemoryStore) -> String {
    assert_eq!(order(&routes(store.clone(), client("http://127.0.0.1:1")), "order-1").await.0, 201);
    messages(store, "order-1").await.remove(0)
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_found() {
    let store = MemoryStore::new();
    let message = placed(&store).await;
    let (silent, calls) = provider(StatusCode::INTERNAL_SERVER_ERROR, charged()).await;
    let consumer = billing_function(store.clone(), &silent);
    assert!(deliver(&consumer, &message).await, "the provider is asked first");
    assert!(deliver(&consumer, &message).await, "and nothing is charged before");
    assert_eq!(payment(&store, "order-1"), "open");
    poll(store.clone(), &silent).await;
    assert_eq!(payment(&store, "order-1"), "paid", "as if the answer had not been lost");
    assert!(!deliver(&consumer, &message).await);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_the_provider_did_not_charge_is_charged_by_the_next_delivery() {
    let store = MemoryStore::new();
    let message = placed(&store).await;
    let (silent, _) = provider(StatusCode::INTERNAL_SERVER_ERROR, unknown()).await;
    assert!(deliver(&billing_function(store.clone(), &silent), &message).await);
    poll(store.clone(), &silent).await;
    let (good, calls) = good().await;
    assert!(!deliver(&billing_function(store.clone(), &good), &message).await);
    assert_eq!((calls.load(Ordering::SeqCst), payment(&store, "order-1")), (1, json!("paid")));
}

#[tokio::test]
async fn a_declined_order_is_declined_for_good() {
    let store = MemoryStore::new();
    let message = placed(&store).await;
    let (declining, calls) = provider(StatusCode::PAYMENT_REQUIRED, unknown()).await;
    let consumer = billing_function(store.clone(), &declining);
    for _ in 0..2 {
        assert!(!deliver(&consumer, &message).await);
    }
    assert_eq!((calls.load(Ordering::SeqCst), payment(&store, "order-1")), (1, json!("declined")));
}

#[tokio::test]
async fn an_order_that_the_provider_refuses_is_refused_for_good() {
    let store = MemoryStore::new();
    let message = placed(&store).await;
    let (refusing, calls) = provider(StatusCode::UNPROCESSABLE_ENTITY, unknown()).await;
    let consumer = billing_function(store.clone(), &refusing);
    for _ in 0..2 {
        assert!(!deliver(&consumer, &message).await);
    }
    assert_eq!((calls.load(Ordering::SeqCst), payment(&store, "order-1")), (1, json!("refused")));
}

#[tokio::test]
async fn a_message_comes_again_while_the_provider_is_away() {
    let store = MemoryStore::new();
    let message = placed(&store).await;
    let away = Provider::new("http://127.0.0.1:1").unwrap();
    assert!(deliver(&billing_function(store.clone(), &away), &message).await);
    let (good, _) = good().await;
    assert!(
        !deliver(&billing_function(store.clone(), &good), &message).await,
        "the provider need not be asked"
    );
}
