//! The simulated payment provider: an HTTP server with a ledger of its own, so that answers can really be refused, lost
//! or slow.
//!
//! 1. It honours `Idempotency-Key`: the same key with the same parameters gets the first answer again, with other
//!    parameters 409. Metadata is not a parameter.
//! 2. A charge that has begun is made, even if the caller has gone away.
//! 3. Its query API returns the truth, even if the answer to the charge was lost.
//! 4. Each decision and each refund has a webhook. It is held until its delivery is requested and the receiver acknowledges it.
//! 5. The local cloud's page makes it answer late. A charge that has begun is made all the same.
//! 6. A charge is given back once for each key, and not only once, so that a caller who changes keys is seen.

mod books;
mod callers;
mod cards;
mod server;
mod webhooks;

use crate::{journal, visitors::guarded};
use axum::{
    Json, Router,
    extract::{Path, Query, RawQuery, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
pub(crate) use books::Charge;
use books::{Books, Order, RefundOrder, Verdict};
pub(crate) use callers::{Slowness, from};
use cards::Card;
use serde::Deserialize;
use serde_json::json;
pub use server::Server;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time;
use webhooks::Receiver;

/// How long a `tok_timeout_…` call gets no answer: longer than any caller should wait.
const SILENCE: Duration = Duration::from_secs(60);
const MAX_KEY: usize = 255;
const PAGE: usize = 1_000;
const MAX_PAGE: usize = 10_000;

/// Starts the provider on a loopback port of its own. Webhooks go to `front`, signed with `secret`.
pub async fn start(front: &str, secret: &str) -> io::Result<Server> {
    start_with(front, secret, journal::Shared::default()).await
}

/// The same, with a journal of its callers.
pub(crate) async fn start_with(front: &str, secret: &str, journal: journal::Shared) -> io::Result<Server> {
    let books = Arc::<Mutex<Books>>::default();
    let receiver = Arc::new(Receiver::new(format!("{front}/webhooks/provider"), secret));
    let router = Router::new()
        .route("/charges", post(charge).get(list))
        .route("/charges/{key}", get(show))
        .route("/refunds", post(refund).get(list_refunds))
        .route("/refunds/{key}", get(show_refund))
        .route("/deliver", post(deliver))
        .with_state(Provider { books: books.clone(), receiver: receiver.clone() });
    let slowness = Slowness::default();
    let router = guarded(callers::recorded(router, journal, slowness.clone()));
    Server::start(router, slowness, books, receiver).await
}

#[derive(Clone)]
struct Provider {
    books: Arc<Mutex<Books>>,
    receiver: Arc<Receiver>,
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
    if let Some(earlier) = provider.books().earlier(&key, &order) {
        return answer(earlier);
    }
    match card {
        Card::Good | Card::Declined => answer(provider.books().settle(key, order, card)),
        Card::Slow(delay) => {
            // In a separate task: this future is dropped when the caller goes away, but the charge must still be made.
            let settled = tokio::spawn(async move {
                time::sleep(delay).await;
                provider.books().settle(key, order, card)
            });
            let failed = |_| failure(StatusCode::INTERNAL_SERVER_ERROR, "internal");
            settled.await.map_or_else(failed, answer)
        }
        Card::SilentCharged => {
            provider.books().settle(key, order, card);
            silence().await
        }
        Card::SilentNotCharged => silence().await,
    }
}

#[derive(Deserialize)]
struct Wanted {
    day: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// All charges, or a page of them.
async fn list(State(provider): State<Provider>, RawQuery(query): RawQuery, uri: Uri) -> Response {
    if query.is_none_or(|query| query.is_empty()) {
        return Json(json!({ "charges": provider.books().charges() })).into_response();
    }
    let Some((Wanted { day, after, .. }, limit)) = wanted(&uri) else { return invalid() };
    let books = provider.books();
    let Some((charges, more)) = books.page(day.as_deref(), after.as_deref(), limit) else { return invalid() };
    let next = charges.last().filter(|_| more).map(|charge| &charge.id);
    Json(json!({ "charges": charges, "next": next })).into_response()
}

/// The page that a query asks for, and its size.
fn wanted(uri: &Uri) -> Option<(Wanted, usize)> {
    let Query(wanted) = Query::<Wanted>::try_from_uri(uri).ok()?;
    let limit = wanted.limit.unwrap_or(PAGE);
    (1..=MAX_PAGE).contains(&limit).then_some((wanted, limit))
}

/// The decision for a key.
async fn show(State(provider): State<Provider>, Path(key): Path<String>) -> Response {
    let books = provider.books();
    let Some(decision) = books.decision(&key) else {
        return failure(StatusCode::NOT_FOUND, "no_such_charge");
    };
    let shown = match &decision.verdict {
        Verdict::Charged(charge) => json!({ "key": key, "status": "succeeded", "charge": charge }),
        Verdict::Declined => {
            json!({ "key": key, "status": "declined", "metadata": decision.order.metadata })
        }
    };
    Json(shown).into_response()
}

/// Gives a charge back, once for each key.
async fn refund(
    State(provider): State<Provider>,
    headers: HeaderMap,
    order: Result<Json<RefundOrder>, JsonRejection>,
) -> Response {
    let Some(key) = idempotency_key(&headers) else {
        return failure(StatusCode::BAD_REQUEST, "idempotency_key_required");
    };
    let Ok(Json(order)) = order else { return failure(StatusCode::BAD_REQUEST, "invalid_request") };
    match provider.books().give_back(key, order) {
        Some(refund) => (StatusCode::CREATED, Json(refund)).into_response(),
        None => failure(StatusCode::UNPROCESSABLE_ENTITY, "no_such_charge"),
    }
}

/// The refund for a key.
async fn show_refund(State(provider): State<Provider>, Path(key): Path<String>) -> Response {
    match provider.books().refund(&key) {
        Some(refund) => Json(refund).into_response(),
        None => failure(StatusCode::NOT_FOUND, "no_such_refund"),
    }
}

/// All refunds, or a page of them.
async fn list_refunds(State(provider): State<Provider>, RawQuery(query): RawQuery, uri: Uri) -> Response {
    if query.is_none_or(|query| query.is_empty()) {
        return Json(json!({ "refunds": provider.books().refunds() })).into_response();
    }
    let Some((Wanted { day, after, .. }, limit)) = wanted(&uri) else { return invalid() };
    let books = provider.books();
    let page = books.page_of_refunds(day.as_deref(), after.as_deref(), limit);
    let Some((refunds, more)) = page else { return invalid() };
    let next = refunds.last().filter(|_| more).map(|refund| &refund.id);
    Json(json!({ "refunds": refunds, "next": next })).into_response()
}

/// Sends every webhook that is held.
async fn deliver(State(provider): State<Provider>) -> Response {
    let held = provider.books().held();
    let acknowledged = provider.receiver.send(held).await;
    let mut books = provider.books();
    let delivered = acknowledged.iter().filter(|id| books.release(id)).count();
    Json(json!({ "delivered": delivered, "held": books.held().len() })).into_response()
}

/// Never answers. If the caller leaves, the future is dropped.
async fn silence() -> Response {
    time::sleep(SILENCE).await;
    StatusCode::GATEWAY_TIMEOUT.into_response()
}

impl Provider {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer for a verdict; `None` if the key was used for another order.
fn answer(decided: Option<Verdict>) -> Response {
    match decided {
        Some(Verdict::Charged(charge)) => (StatusCode::CREATED, Json(charge)).into_response(),
        Some(Verdict::Declined) => failure(StatusCode::PAYMENT_REQUIRED, "card_declined"),
        None => failure(StatusCode::CONFLICT, "idempotency_key_reused"),
    }
}

fn idempotency_key(headers: &HeaderMap) -> Option<String> {
    let key = headers.get("idempotency-key")?.to_str().ok()?;
    (1..=MAX_KEY).contains(&key.len()).then(|| key.to_owned())
}

fn invalid() -> Response {
    failure(StatusCode::BAD_REQUEST, "invalid_request")
}

fn failure(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}
