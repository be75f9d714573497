//! The simulated payment provider: an HTTP server with a ledger of its own, so that answers can really be refused, lost
//! or slow.
//!
//! 1. It honours `Idempotency-Key`: the same key with the same parameters gets the first answer again, with others 409.
//! 2. A charge, once begun, is made even if the caller has gone away.
//! 3. Its query API tells the truth, whatever the answer to the charge was.

use axum::{
    Json, Router,
    extract::{Path, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{net::TcpListener, time};
use uuid::Uuid;

/// How long a `tok_timeout_…` call is left without an answer. Longer than any caller should wait.
const SILENCE: Duration = Duration::from_secs(60);
const SLOWEST: Duration = Duration::from_secs(600);
const LARGEST_AMOUNT: u64 = 99_999_999;
const LONGEST_KEY: usize = 255;

/// Starts the provider on a loopback port of its own and returns its URL.
pub async fn start() -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/charges", post(charge).get(list))
        .route("/charges/{key}", get(show))
        .route("/deliver", post(deliver))
        .with_state(Provider::default());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

#[derive(Clone, Default)]
struct Provider {
    books: Arc<Mutex<Books>>,
}

#[derive(Default)]
struct Books {
    charges: Vec<Charge>,
    /// What was decided for each idempotency key.
    decisions: HashMap<String, Decision>,
}

struct Decision {
    order: Order,
    verdict: Verdict,
}

#[derive(Clone)]
enum Verdict {
    Charged(Charge),
    Declined,
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Order {
    amount_cents: u64,
    currency: String,
    source: String,
    tenant: String,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Charge {
    id: String,
    key: String,
    amount_cents: u64,
    currency: String,
    source: String,
    tenant: String,
}

/// What a test card makes the provider do.
enum Card {
    Good,
    Declined,
    Slow(Duration),
    SilentCharged,
    SilentNotCharged,
}

async fn charge(
    State(provider): State<Provider>,
    headers: HeaderMap,
    order: Result<Json<Order>, JsonRejection>,
) -> Response {
    let Some(key) = idempotency_key(&headers) else {
        return failure(StatusCode::BAD_REQUEST, "idempotency_key_required");
    };
    let Ok(Json(order)) = order else { return failure(StatusCode::BAD_REQUEST, "invalid_request") };
    if let Err(error) = order.check() {
        return failure(StatusCode::BAD_REQUEST, error);
    }
    let Some(card) = Card::parse(&order.source) else {
        return failure(StatusCode::BAD_REQUEST, "unknown_source");
    };
    if let Some(answer) = provider.books().earlier_answer(&key, &order) {
        return answer;
    }
    match card {
        Card::Good | Card::Declined => provider.books().settle(key, order, card),
        Card::Slow(delay) => {
            // A task of its own: this future is dropped when the caller goes away, and the charge is made all the same.
            let settled = tokio::spawn(async move {
                time::sleep(delay).await;
                provider.books().settle(key, order, card)
            });
            settled.await.unwrap_or_else(|_| failure(StatusCode::INTERNAL_SERVER_ERROR, "internal"))
        }
        Card::SilentCharged => {
            provider.books().settle(key, order, card);
            silence().await
        }
        Card::SilentNotCharged => silence().await,
    }
}

async fn list(State(provider): State<Provider>) -> Response {
    Json(BTreeMap::from([("charges", &provider.books().charges)])).into_response()
}

async fn show(State(provider): State<Provider>, Path(key): Path<String>) -> Response {
    match provider.books().charges.iter().find(|charge| charge.key == key) {
        Some(charge) => Json(charge).into_response(),
        None => failure(StatusCode::NOT_FOUND, "no_such_charge"),
    }
}

/// Every decision has one webhook, held back until somebody acknowledges it. Nobody receives them yet.
async fn deliver(State(provider): State<Provider>) -> Response {
    Json(json!({ "delivered": 0, "held": provider.books().decisions.len() })).into_response()
}

/// Ends early when the caller leaves: its future is dropped then.
async fn silence() -> Response {
    time::sleep(SILENCE).await;
    StatusCode::GATEWAY_TIMEOUT.into_response()
}

impl Provider {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn earlier_answer(&self, key: &str, order: &Order) -> Option<Response> {
        let decision = self.decisions.get(key)?;
        if decision.order == *order {
            Some(decision.verdict.clone().into_response())
        } else {
            Some(failure(StatusCode::CONFLICT, "idempotency_key_reused"))
        }
    }

    /// Decides once for each key; whoever comes second, after a slow first, gets the first's answer.
    fn settle(&mut self, key: String, order: Order, card: Card) -> Response {
        if let Some(answer) = self.earlier_answer(&key, &order) {
            return answer;
        }
        let verdict = match card {
            Card::Declined => Verdict::Declined,
            _ => Verdict::Charged(Charge::new(&key, &order)),
        };
        if let Verdict::Charged(charge) = &verdict {
            self.charges.push(charge.clone());
        }
        let answer = verdict.clone().into_response();
        self.decisions.insert(key, Decision { order, verdict });
        answer
    }
}

impl Order {
    fn check(&self) -> Result<(), &'static str> {
        if !(1..=LARGEST_AMOUNT).contains(&self.amount_cents) {
            return Err("invalid_amount");
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err("invalid_currency");
        }
        if self.tenant.is_empty() {
            return Err("invalid_tenant");
        }
        Ok(())
    }
}

impl Charge {
    fn new(key: &str, order: &Order) -> Self {
        Self {
            id: format!("ch_{}", Uuid::new_v4().simple()),
            key: key.to_owned(),
            amount_cents: order.amount_cents,
            currency: order.currency.clone(),
            source: order.source.clone(),
            tenant: order.tenant.clone(),
        }
    }
}

impl Card {
    fn parse(source: &str) -> Option<Self> {
        Some(match source {
            "tok_ok" => Self::Good,
            // What is special about these happens in the function.
            "tok_error" | "tok_panic_before" | "tok_panic_after" | "tok_crash_before" | "tok_crash_after" => {
                Self::Good
            }
            "tok_declined" => Self::Declined,
            "tok_timeout_charged" => Self::SilentCharged,
            "tok_timeout_not_charged" => Self::SilentNotCharged,
            _ => {
                let delay = Duration::from_millis(source.strip_prefix("tok_slow_")?.parse().ok()?);
                (delay <= SLOWEST).then_some(Self::Slow(delay))?
            }
        })
    }
}

impl IntoResponse for Verdict {
    fn into_response(self) -> Response {
        match self {
            Self::Charged(charge) => (StatusCode::CREATED, Json(charge)).into_response(),
            Self::Declined => failure(StatusCode::PAYMENT_REQUIRED, "card_declined"),
        }
    }
}

fn idempotency_key(headers: &HeaderMap) -> Option<String> {
    let key = headers.get("idempotency-key")?.to_str().ok()?;
    (1..=LONGEST_KEY).contains(&key.len()).then(|| key.to_owned())
}

fn failure(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}
