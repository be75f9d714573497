//! Guarded services, requests to them and their answers, without sockets.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Request, Response, request},
    response::IntoResponse,
    routing::any,
};
use http_body_util::BodyExt;
use lambda_idempotency::{
    engine::Execution,
    http::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, Idempotency, TenantResolver},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    operation::Operation,
    record::Record,
    store::{Store, dynamodb::DynamoDbStore},
    time::Timestamp,
    world::ManualWorld,
};
use serde_json::Value;
use tokio::sync::watch;
use tower::{Service, ServiceExt};

use super::{client::client, tables};

/// The operation of [`guard`].
pub const PAY: &str = "create-payment";

/// The caller of [`order`].
pub const TENANT: &str = "acme";

/// The body of [`pay`].
pub const ORDER: &str = r#"{"customerId":"c-1","amountCents":1999}"#;

/// How long a test waits for an event. Only a failure takes this long.
const TIMEOUT: Duration = Duration::from_secs(180);

pub type Resolver = fn(&request::Parts) -> Option<Tenant>;
pub type Guard = Idempotency<Arc<dyn TenantResolver>>;

/// Finds the tenant that [`order`] put into the request's extensions, where no client can write.
pub fn caller(parts: &request::Parts) -> Option<Tenant> {
    parts.extensions.get().cloned()
}

/// A guard of [`PAY`] with the defaults.
pub fn guard(store: impl Store) -> Guard {
    guard_of(store, Operation::new(PAY))
}

/// A guard whose clock stands still, so that nothing times out because this machine is busy.
pub fn guard_of(store: impl Store, operation: Operation) -> Guard {
    Idempotency::new(store, operation).tenant(caller as Resolver).world(clock())
}

/// An API of one route, `/payments`, that passes every method to `handler`.
pub fn api<F, Fut, R>(guard: Guard, handler: F) -> Router
where
    F: Fn(request::Parts, Bytes) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoResponse + 'static,
{
    let handler = move |request: Request<Body>| {
        let handler = handler.clone();
        async move {
            let (parts, body) = request.into_parts();
            handler(parts, body.collect().await.expect("a body in memory").to_bytes()).await
        }
    };
    Router::new().route("/payments", any(handler).layer(guard))
}

/// The execution that the guard passed to a handler.
pub fn execution(parts: &request::Parts) -> &Execution {
    parts.extensions.get().expect("a guarded handler finds its execution")
}

pub fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).expect("a tenant")
}

/// A request of [`TENANT`] under `key`, to be completed.
pub fn order(key: &str) -> request::Builder {
    unkeyed().header(IDEMPOTENCY_KEY, key)
}

pub fn unkeyed() -> request::Builder {
    Request::post("/payments").header("content-type", "application/json").extension(tenant(TENANT))
}

/// The same payment every time.
pub fn pay(key: &str) -> Request<Body> {
    order(key).body(ORDER.into()).expect("a request")
}

/// A payment other than [`pay`].
pub fn pay_other(key: &str) -> Request<Body> {
    order(key).body(r#"{"customerId":"c-1","amountCents":2000}"#.into()).expect("a request")
}

/// Calls a clone of `service`, as a server does, and reads the answer to its end.
pub async fn send<S, B>(service: &S, request: Request<Body>) -> Answer
where
    S: Service<Request<Body>, Response = Response<B>> + Clone,
    S::Error: Debug,
    B: http_body::Body<Data = Bytes>,
    B::Error: Debug,
{
    Answer::of(service.clone().oneshot(request).await.expect("the service answers")).await
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub async fn of<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Debug,
    {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("the answer comes whole").to_bytes();
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of text"))
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The status, and the name of the library's problem. Empty if the answer is not a problem.
    pub fn problem(&self) -> (u16, String) {
        let document: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let name = document["type"].as_str().and_then(|uri| uri.strip_prefix("urn:lambda-idempotency:"));
        (self.status, name.unwrap_or_default().to_owned())
    }

    /// The code of a problem, in the shape of each profile.
    pub fn code(&self) -> String {
        let document = self.json();
        let error = document.get("error").unwrap_or(&document);
        error["code"].as_str().unwrap_or_else(|| panic!("no code: {document}")).to_owned()
    }

    /// Fails unless this is a problem of this status and code, in the shape of some profile.
    #[track_caller]
    pub fn assert_code(&self, status: u16, code: &str) {
        assert_eq!((self.status, &*self.code()), (status, code), "{self:?}");
        let shape = if self.problem().1.is_empty() { "application/json" } else { "application/problem+json" };
        assert_eq!(self.header("content-type"), Some(shape));
    }

    /// Fails unless this is that problem.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, name: &str) {
        assert_eq!(self.problem(), (status, name.to_owned()), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = String::from_utf8_lossy(&self.body);
        assert!(!body.contains(".. ") && !body.contains("  "), "sentences: {body}");
    }

    pub fn replayed(&self) -> bool {
        self.header(IDEMPOTENT_REPLAYED.as_str()) == Some("true")
    }

    /// Fails unless this is a replay of `first`, byte for byte.
    #[track_caller]
    pub fn assert_replay_of(&self, first: &Self) {
        assert!(self.replayed() && !first.replayed(), "{self:?} is no replay of {first:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
        for name in ["content-type", "location", "idempotency-expires"] {
            assert_eq!(self.headers.get(name), first.headers.get(name), "{name}");
        }
    }
}

/// How often something happened.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// Adds one, and returns the new count.
    pub fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Holds handlers back until the test releases them.
#[derive(Clone, Debug)]
pub struct Gate {
    entered: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gate {
    pub fn closed() -> Self {
        Self { entered: watch::Sender::new(0), open: watch::Sender::new(false) }
    }

    /// For the handler: waits here.
    pub async fn pass(&self) {
        self.entered.send_modify(|number| *number += 1);
        self.open.subscribe().wait_for(|open| *open).await.expect("the gate lives as long as this");
    }

    /// Returns once this many handlers have reached the gate.
    pub async fn reached(&self, number: usize) {
        let mut entered = self.entered.subscribe();
        let reached = tokio::time::timeout(TIMEOUT, entered.wait_for(|entered| *entered >= number)).await;
        assert!(reached.is_ok(), "{number} handlers should have come to the gate by now");
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub fn is_closed(&self) -> bool {
        !*self.open.borrow()
    }
}

/// A clock at the present time, because DynamoDB Local deletes expired items by its own clock.
pub fn clock() -> ManualWorld {
    ManualWorld::at(Timestamp::from(SystemTime::now()))
}

/// Lets other tasks run until the condition is true.
pub async fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "what was waited for did not happen");
        tokio::task::yield_now().await;
    }
}

/// A store in a new table.
pub async fn dynamodb(endpoint: &str) -> DynamoDbStore {
    let client = client(endpoint);
    let table = tables::idempotency_table(&client).await;
    DynamoDbStore::from_client(client, table)
}

pub fn record_key(tenant_name: &str, operation: &str, key: &str) -> RecordKey {
    let operation = OperationName::parse(operation).expect("an operation");
    RecordKey::new(tenant(tenant_name), operation, IdempotencyKey::parse(key).expect("a key"))
}

/// The record of [`pay`] under `key`.
pub async fn record(store: &impl Store, key: &str) -> Option<Record> {
    store.load(&record_key(TENANT, PAY, key)).await.expect("the store answers")
}

/// The state of that record. Empty if it does not exist.
pub async fn state(store: &impl Store, key: &str) -> &'static str {
    record(store, key).await.map_or("", |record| record.state.name())
}

/// Reads the record of [`pay`] until it is in this state.
pub async fn until_state(store: &impl Store, key: &str, wanted: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let state = state(store, key).await;
        if state == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "the record is `{state}` and not `{wanted}`");
        tokio::task::yield_now().await;
    }
}
