//! A provider that lists its charges and refunds two to a page, and fails at the page of charges that the test chooses.

use std::sync::{Arc, Mutex, MutexGuard};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::payments_api::CHARGED_AT;

const PAGE: usize = 2;

/// The day of [`CHARGED_AT`].
const DAY: &str = "2026-11-20";

/// The provider's server, which runs until the test ends.
pub struct Provider {
    pub url: String,
    books: Books,
}

type Books = Arc<Mutex<Book>>;

#[derive(Default)]
struct Book {
    charges: Vec<Value>,
    refunds: Vec<Value>,
    /// The orders: idempotency key, the answer to a question about it, and metadata.
    ordered: Vec<(String, Value, Value)>,
    /// The day of each page of charges that was served.
    answered: Vec<String>,
    /// Which page fails, counted from 1, and how many more times.
    failing: (usize, usize),
    /// Refunds are not listed.
    without_refunds: bool,
    /// Each page of charges behind the last one leads back to this many pages before it.
    cycle: Option<usize>,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let books = Books::default();
        let app = Router::new()
            .route("/charges", post(charge).get(page))
            .route("/charges/{key}", get(show))
            .route("/refunds", get(page_of_refunds))
            .with_state(books.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, books }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.books.lock().unwrap()
    }

    /// Adds a charge to the list.
    pub fn list(&self, charge: Value) {
        self.book().charges.push(charge);
    }

    /// Adds a refund to the list.
    pub fn give_back(&self, refund: Value) {
        self.book().refunds.push(refund);
    }

    /// Makes this page fail this many times.
    pub fn fail_at(&self, page: usize, times: usize) {
        self.book().failing = (page, times);
    }

    /// From now on it does not list its refunds.
    pub fn hide_refunds(&self) {
        self.book().without_refunds = true;
    }

    /// From now on the last page of charges leads back over this many pages, without end: 1 leads to itself.
    pub fn repeat_for_ever(&self, pages: usize) {
        self.book().cycle = Some(pages);
    }

    /// How many pages of the day were served.
    pub fn pages_of(&self, day: &str) -> usize {
        self.book().answered.iter().filter(|answered| *answered == day).count()
    }

    /// The idempotency keys and metadata of the orders.
    pub fn orders(&self) -> Vec<(String, Value)> {
        let book = self.book();
        book.ordered.iter().map(|(key, _, metadata)| (key.clone(), metadata.clone())).collect()
    }
}

#[derive(Deserialize)]
struct Which {
    day: String,
    after: Option<String>,
    limit: usize,
}

async fn page(State(books): State<Books>, Query(which): Query<Which>) -> Response {
    let mut book = books.lock().unwrap();
    let (first, charges, more) = cut(&book.charges, &which);
    let (failing, times) = book.failing;
    if failing == first / PAGE + 1 && times > 0 {
        book.failing.1 -= 1;
        return (StatusCode::INTERNAL_SERVER_ERROR, "CHECKPOINT").into_response();
    }
    let next = match book.cycle {
        Some(pages) if !more && which.day == DAY => {
            book.charges[first - 1 - PAGE * (pages - 1)]["id"].clone()
        }
        _ => next(&charges, more),
    };
    book.answered.push(which.day);
    Json(json!({ "charges": charges, "next": next })).into_response()
}

async fn page_of_refunds(State(books): State<Books>, Query(which): Query<Which>) -> Response {
    let book = books.lock().unwrap();
    if book.without_refunds {
        return StatusCode::NOT_FOUND.into_response();
    }
    let (_, refunds, more) = cut(&book.refunds, &which);
    Json(json!({ "refunds": refunds, "next": next(&refunds, more) })).into_response()
}

/// The place of a page's first entry, its entries, and whether there are more.
fn cut(listed: &[Value], which: &Which) -> (usize, Vec<Value>, bool) {
    assert!((1..=10_000).contains(&which.limit), "a limit that the provider takes");
    let listed: &[Value] = if which.day == DAY { listed } else { &[] };
    let first = match &which.after {
        Some(after) => 1 + listed.iter().position(|entry| entry["id"] == **after).expect("an entry's id"),
        None => 0,
    };
    let entries: Vec<Value> = listed[first..].iter().take(PAGE).cloned().collect();
    let more = first + entries.len() < listed.len();
    (first, entries, more)
}

fn next(entries: &[Value], more: bool) -> Value {
    entries.last().filter(|_| more).map_or(Value::Null, |entry| entry["id"].clone())
}

async fn charge(State(books): State<Books>, headers: HeaderMap, Json(order): Json<Value>) -> Response {
    let mut book = books.lock().unwrap();
    let key = headers["idempotency-key"].to_str().expect("a key").to_owned();
    let metadata = order["metadata"].clone();
    if order["source"] == "declined" {
        book.ordered.push((key, json!({ "status": "declined", "metadata": metadata }), metadata));
        return StatusCode::PAYMENT_REQUIRED.into_response();
    }
    let charge = json!({
        "id": format!("ch_{}", book.ordered.len()),
        "amountCents": order["amountCents"],
        "currency": order["currency"],
        "createdAt": CHARGED_AT,
        "metadata": metadata,
    });
    book.ordered.push((key, json!({ "status": "succeeded", "charge": charge }), metadata));
    (StatusCode::CREATED, Json(charge)).into_response()
}

async fn show(State(books): State<Books>, Path(key): Path<String>) -> Response {
    if let Some(status) = key.strip_prefix("answer-").and_then(|status| status.parse::<u16>().ok()) {
        return (StatusCode::from_u16(status).expect("a status"), Json(json!({ "error": "CHECKPOINT" })))
            .into_response();
    }
    match books.lock().unwrap().ordered.iter().find(|(ordered, ..)| *ordered == key) {
        Some((_, answer, _)) => Json(answer).into_response(),
        None => (StatusCode::NOT_FOUND, Json(json!({ "error": "no_such_charge" }))).into_response(),
    }
}
