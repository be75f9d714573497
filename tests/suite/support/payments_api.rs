//! The payments function's API and the webhook in this process, and a payment provider for them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, Method, Request, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_http::{RequestExt, request::RequestContext};
use lambda_idempotency::{
    bounds::{Bounds, Rate},
    http::{IDEMPOTENCY_KEY, LookUps},
    key::signature::Secrets,
    lambda::webhook_service,
    queue::MemoryQueue,
    reconcile::Reconciliation,
    store::dynamodb::DynamoDbStore,
};
use payments::{
    Accounts, Config, Ledger, Provider, SealingKeys,
    policy::{Services, create_payment},
    routes::{self, Route},
};
use reconcile::{PaymentEvents, PaymentReconciler};
use serde_json::{Value, json};

use super::{
    client::client,
    http::{Answer, Gate, send},
    tables,
};

/// Short, because a test waits for it. Yet much longer than an answer takes on this machine.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(2);

/// The API, with separate tables.
pub struct PaymentsApi {
    pub app: Router,
    store: DynamoDbStore,
    ledger: Ledger,
    accounts: Accounts,
}

impl PaymentsApi {
    pub async fn on(endpoint: &str, provider_url: &str) -> Self {
        let payments = tables::idempotency_table(&client(endpoint)).await;
        Self::with_ledger(endpoint, provider_url, &payments).await
    }

    /// With payments in this table.
    pub async fn with_ledger(endpoint: &str, provider_url: &str, payments: &str) -> Self {
        let client = client(endpoint);
        let records = tables::idempotency_table(&client).await;
        let store = DynamoDbStore::from_client(client.clone(), records);
        let accounts = Accounts::new(client.clone(), &tables::idempotency_table(&client).await);
        let ledger = Ledger::new(client, payments);
        Self::of(store, ledger, accounts, provider_url)
    }

    fn of(store: DynamoDbStore, ledger: Ledger, accounts: Accounts, provider_url: &str) -> Self {
        let services = services(&ledger, &accounts, provider_url);
        let app = routes::router(
            store.clone(),
            services,
            create_payment(),
            MemoryQueue::new(),
            Bounds::of(store.clone()),
        );
        Self { app, store, ledger, accounts }
    }

    /// The same API and tables with another provider.
    pub fn behind(&self, provider_url: &str) -> Self {
        Self::of(self.store.clone(), self.ledger.clone(), self.accounts.clone(), provider_url)
    }

    /// The store of its records.
    pub fn store(&self) -> DynamoDbStore {
        self.store.clone()
    }

    /// Every route.
    pub fn routes(&self) -> Vec<Route> {
        let services = services(&self.ledger, &self.accounts, "http://127.0.0.1:1");
        routes::routes(
            self.store.clone(),
            services,
            create_payment(),
            MemoryQueue::new(),
            Bounds::of(self.store.clone()),
        )
    }

    /// The webhook over the same tables, for a provider that signs with these secrets. It asks no provider.
    pub fn webhook(&self, secrets: Secrets) -> Router {
        self.webhook_of(Reconciliation::new(self.store.clone(), MemoryQueue::new()), secrets)
    }

    /// The same, with a reconciliation that has no operations yet.
    pub fn webhook_of(&self, reconciliation: Reconciliation, secrets: Secrets) -> Router {
        let payments = PaymentReconciler::new(provider("http://127.0.0.1:1"), self.ledger.clone());
        let reconciliation = reconciliation.operation(create_payment(), payments);
        let events = PaymentEvents { secrets, sealing_keys: sealing_keys(), ledger: self.ledger.clone() };
        Router::new().route_service("/webhooks/provider", webhook_service(reconciliation, events))
    }

    pub async fn pay(&self, tenant: &str, key: &str, order: impl Into<Body>) -> Answer {
        let request = Request::post("/payments").header("content-type", "application/json");
        self.send(tenant, request.header(IDEMPOTENCY_KEY, key).body(order.into()).unwrap()).await
    }

    pub async fn get(&self, tenant: &str, path: &str) -> Answer {
        self.send(tenant, Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Sends it as API Gateway does after its JWT authorizer has verified that subject.
    pub async fn send(&self, tenant: &str, request: Request<Body>) -> Answer {
        send_as(&self.app, tenant, request).await
    }
}

/// Sends it to this API as API Gateway does after its JWT authorizer has verified that subject.
pub async fn send_as(app: &Router, tenant: &str, request: Request<Body>) -> Answer {
    let mut event: Value = serde_json::from_str(include_str!("../fixtures/http_api_jwt.json")).unwrap();
    event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = tenant.into();
    let path = percent_encoding::percent_decode_str(request.uri().path()).decode_utf8_lossy();
    event["requestContext"]["http"]["path"] = path.into();
    let event = lambda_http::request::from_str(&event.to_string()).expect("an event");
    let context: RequestContext = event.request_context_ref().expect("its context").clone();
    send(app, request.with_request_context(context)).await
}

/// Fails unless each route of this API refuses an unverified caller, and each one that changes something is guarded.
pub async fn assert_guarded(app: &Router, routes: &[Route], body: &str) {
    let changes = |route: &Route| ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&route.method);
    assert!(routes.iter().any(changes), "the list of routes is not the router's");
    for route in routes {
        let called = format!("{} {}", route.method, route.path);
        let steps = route.path.split('/').map(|step| if step.starts_with('{') { "id-1" } else { step });
        let path = steps.collect::<Vec<_>>().join("/");
        let request = || {
            let request = Request::builder().method(&route.method).uri(&path);
            request.header("content-type", "application/json")
        };
        let keyed = || request().header(IDEMPOTENCY_KEY, "k");
        let unverified = keyed().header("authorization", "Bearer acme").body(body.to_owned().into()).unwrap();
        send(app, unverified).await.assert_problem(401, "tenant-missing");
        if changes(route) {
            assert!(route.operation.is_some(), "{called} changes something and is not guarded");
            for (request, refused) in
                [(request(), "key-missing"), (keyed().header(IDEMPOTENCY_KEY, "l"), "key-malformed")]
            {
                let request = request.body(body.to_owned().into()).unwrap();
                send_as(app, "acme", request).await.assert_problem(400, refused);
            }
        }
    }
}

fn services(ledger: &Ledger, accounts: &Accounts, provider_url: &str) -> Services {
    let accounts = accounts.clone();
    Services {
        ledger: ledger.clone(),
        accounts,
        provider: provider(provider_url),
        sealing_keys: sealing_keys(),
        look_ups: LookUps::at_most(Rate::per_second(10).burst(100)),
    }
}

/// A client of the provider at this URL.
pub fn provider(url: &str) -> Provider {
    let config = Config {
        provider_url: url.parse().expect("a URL"),
        provider_timeout: PROVIDER_TIMEOUT,
        lease_grace: Duration::from_secs(1),
    };
    Provider::new(&config).expect("a client of the provider")
}

/// The keys with which the API seals and its webhook opens.
pub fn sealing_keys() -> SealingKeys {
    SealingKeys::parse(&BASE64_STANDARD.encode([7; 64])).expect("a key")
}

/// An order paid with this card.
pub fn order(source: &str) -> String {
    json!({ "customerId": "c-1", "amountCents": 1999, "currency": "EUR", "source": source }).to_string()
}

/// The time of all the provider's charges: the last millisecond of 2026-11-20.
pub const CHARGED_AT: u64 = 1_795_219_199_999;

/// A provider that answers by the last part of the card's token. It runs until the test ends.
pub struct TestProvider {
    pub url: String,
    /// Holds back its answers about cards that are `held`.
    pub gate: Gate,
    books: Books,
}

type Books = Arc<Mutex<Book>>;

#[derive(Default)]
struct Book {
    /// The charges, by idempotency key.
    charges: HashMap<String, usize>,
    /// Every order received, with its idempotency key.
    orders: Vec<(String, Value)>,
}

impl TestProvider {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (books, gate) = (Books::default(), Gate::closed());
        let app = Router::new()
            .route("/charges", post(charge))
            .route("/charges/{key}", get(known))
            .with_state((books.clone(), gate.clone()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, gate, books }
    }

    /// How many charges were made.
    pub fn charged(&self) -> usize {
        self.books.lock().unwrap().charges.len()
    }

    /// The idempotency key and the body of every request for a charge.
    pub fn orders(&self) -> Vec<(String, Value)> {
        self.books.lock().unwrap().orders.clone()
    }
}

async fn charge(
    State((books, gate)): State<(Books, Gate)>,
    headers: HeaderMap,
    Json(order): Json<Value>,
) -> Response {
    let source = order["source"].as_str().expect("a source");
    let id = {
        let key = headers["idempotency-key"].to_str().expect("a key").to_owned();
        let mut book = books.lock().unwrap();
        book.orders.push((key.clone(), order.clone()));
        let next = book.charges.len() + 1;
        *book.charges.entry(key).or_insert(next)
    };
    let case = source.rsplit('-').next().expect("the last part");
    if case == "held" {
        gate.pass().await;
    }
    match case {
        "declined" => StatusCode::PAYMENT_REQUIRED.into_response(),
        "rejected" | "changed" | "refused" | "unsure" => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        "500" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "hang" => std::future::pending().await,
        "echo" => (StatusCode::CREATED, Json(json!(source))).into_response(),
        _ => {
            let charge = json!({
                "id": format!("ch_{id}"),
                "amountCents": order["amountCents"],
                "currency": order["currency"],
                "createdAt": CHARGED_AT,
                "metadata": order["metadata"],
            });
            (StatusCode::CREATED, Json(charge)).into_response()
        }
    }
}

/// The provider's answer to a question about a key.
async fn known(State((books, _)): State<(Books, Gate)>, Path(key): Path<String>) -> Response {
    let book = books.lock().unwrap();
    let order = book.orders.iter().rev().find(|(known, _)| *known == key).map(|(_, order)| order);
    let case = order.and_then(|order| order["source"].as_str()?.rsplit('-').next()).unwrap_or_default();
    match (case, order) {
        ("changed", Some(order)) => {
            let charge = json!({
                "id": "ch_earlier", "amountCents": order["amountCents"], "currency": order["currency"],
                "createdAt": CHARGED_AT, "metadata": order["metadata"],
            });
            Json(json!({ "status": "succeeded", "charge": charge })).into_response()
        }
        ("refused", _) => Json(json!({ "status": "declined" })).into_response(),
        ("echo", Some(order)) => Json(order["source"].clone()).into_response(),
        ("unsure", _) => (StatusCode::INTERNAL_SERVER_ERROR, Json(order.cloned())).into_response(),
        _ => (StatusCode::NOT_FOUND, Json(json!({ "error": "no_such_charge" }))).into_response(),
    }
}
