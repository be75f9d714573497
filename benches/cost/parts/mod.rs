//! The parts of the library that are measured, each as one guarded call: from what arrives to what is answered.

mod batch;
mod executor;
mod function;
mod http;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use lambda_http::Context;
use lambda_idempotency::{
    bounds::Rate,
    domain::{DomainWrite, Table},
    key::{IdempotencyKey, Tenant},
    store::Tenants,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::meter::Spent;

/// The table into which a single transaction books.
pub const PAYMENTS: &str = "payments";

const TENANT: &str = "8f14e45f-ceea-467f-a0e6-7f1f2d3c4b5a";
const OPERATION: &str = "create-payment";
const ORDER: &str = r#"{"customerId":"c-20391","amountCents":1999,"currency":"EUR","source":"tok_ok",
    "items":[{"sku":"A-1001","quantity":2},{"sku":"B-2002","quantity":1}]}"#;

/// So many new keys that no call is refused.
const BOUND: Rate = Rate::per_second(1_000_000);

/// How long an invocation may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A guarded call. Each number is a fresh key, or a batch of them.
pub type Guarded = Box<dyn Fn(u64) -> LocalBoxFuture<'static, Ran>>;

/// A call that ended as it should.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    pub spent: Spent,
    pub is_replay: bool,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Reserve and finish: the request is parsed already.
    Executor,
    /// `Guard::run`.
    Function,
    /// The `tower` layer around a handler for `lambda_http`, whose answer has the given body.
    Layer,
    /// The same with a body of 1 KB.
    LongBody,
    /// The same with its key in that body.
    KeyInBody,
    /// The layer with bounds of each tenant, of which each tenth key is counted.
    Bounded,
    /// The same with a burst so small that each key is counted.
    Counted,
    /// The event of an HTTP API, a router of axum, the answer's text.
    Event,
    /// The same without a guard.
    Unguarded,
    /// Ten messages of a queue in one event.
    Batch,
    /// `Guard::run` with one phase.
    Phase,
    /// `Guard::run_single_transaction` with one row.
    SingleTransaction,
}

impl Part {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Function => "function",
            Self::Layer => "HTTP layer",
            Self::LongBody => "HTTP layer, 1 KB sent",
            Self::KeyInBody => "HTTP layer, key in 1 KB",
            Self::Bounded => "HTTP layer, bounds",
            Self::Counted => "HTTP layer, each counted",
            Self::Event => "HTTP event",
            Self::Unguarded => "HTTP event, no guard",
            Self::Batch => "batch of ten",
            Self::Phase => "function, one phase",
            Self::SingleTransaction => "single transaction",
        }
    }

    /// How many keys a call has.
    pub const fn keys(self) -> u64 {
        if matches!(self, Self::Batch) { batch::MESSAGES } else { 1 }
    }

    pub fn on(self, store: impl Tenants + Clone, body: &Bytes) -> Guarded {
        match self {
            Self::Executor => executor::reserve_and_finish(store, body.clone()),
            Self::Function => function::run(store),
            Self::Layer => http::layer(store, body.clone()),
            Self::LongBody => http::long_body(store, body.clone()),
            Self::KeyInBody => http::key_in_body(store, body.clone()),
            Self::Bounded => http::bounded(store, body.clone(), BOUND),
            Self::Counted => http::bounded(store, body.clone(), BOUND.burst(30)),
            Self::Event => http::event(store),
            Self::Unguarded => http::event_unguarded(),
            Self::Batch => batch::deliver(store),
            Self::Phase => function::run_phase(store),
            Self::SingleTransaction => function::run_single_transaction(store),
        }
    }
}

/// As many characters as a UUID has.
pub fn key(number: u64) -> String {
    format!("{number:036}")
}

/// What handlers and functions get.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Order {
    customer_id: String,
    amount_cents: u64,
    currency: String,
    source: String,
}

impl Order {
    fn new() -> Self {
        serde_json::from_str(ORDER).expect("an order")
    }

    fn paid(self) -> Payment {
        let Self { customer_id, amount_cents, currency, .. } = self;
        let (id, receipt) =
            ("pay_910a2dec89025cc1".to_owned(), "https://pay.example.com/r/910a2dec89025cc1".to_owned());
        Payment { id, customer_id, amount_cents, currency, receipt, status: "settled".to_owned() }
    }
}

/// What they return: some 200 bytes of JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Payment {
    id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
    receipt: String,
    status: String,
}

/// The row that a single transaction books.
fn row(key: &IdempotencyKey) -> DomainWrite {
    let payments = Table::new(PAYMENTS, "pk").sort_key("sk");
    payments
        .put(json!({ "pk": key.as_str(), "sk": "payment", "amountCents": 1999, "currency": "EUR" }))
        .if_absent()
}

fn tenant() -> Tenant {
    Tenant::parse(TENANT).expect("a tenant")
}

/// The context of an invocation that begins now.
fn context() -> Context {
    let mut context = Context::default();
    let deadline = (SystemTime::now() + TIMEOUT).duration_since(SystemTime::UNIX_EPOCH);
    context.deadline = deadline.expect("after 1970").as_millis() as u64;
    context
}
