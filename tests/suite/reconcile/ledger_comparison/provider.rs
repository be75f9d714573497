//! A provider that lists its charges two to a page, and fails at the page that the test chooses.

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
    listed: Vec<Value>,
    /// The orders: idempotency key, the answer to a question about it, and metadata.
    ordered: Vec<(String, Value, Value)>,
    /// The day of each page that was served.
    answered: Vec<String>,
    /// Which page fails, counted from 1, and how many more times.
    failing: (usize, usize),
    endless: bool,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let books = Books::default();
        let app = Router::new()
            .route("/charges", post(charge).get(page))
            .route("/charges/{key}", get(show))
            .with_state(books.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, books }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.books.lock().unwrap()
    }

    /// Adds a charge to the list.
    pub fn list(&self, charge: Value) {
        self.book().listed.push(charge);
    }

    /// Makes this page fail this many times.
    pub fn fail_at(&self, page: usize, times: usize) {
        self.book().failing = (page, times);
    }

    /// From now on the second page is followed by itself, without end.
    pub fn repeat_for_ever(&self) {
        self.book().endless = true;
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
    assert!((1..=10_000).contains(&which.limit), "a limit that the provider takes");
    let listed: &[Value] = if which.day == DAY { &book.listed } else { &[] };
    let first = match &which.after {
        Some(after) => 1 + listed.iter().position(|charge| charge["id"] == **after).expect("a charge's id"),
        None => 0,
    };
    let charges: Vec<Value> = listed[first..].iter().take(PAGE).cloned().collect();
    let more = first + charges.len() < listed.len();
    let (failing, times) = book.failing;
    if failing == first / PAGE + 1 && times > 0 {
        book.failing.1 -= 1;
        return (StatusCode::INTERNAL_SERVER_ERROR, "CHECKPOINT").into_response();
    }
    let next = match (&which.after, book.endless) {
        (Some(after), true) => json!(after),
        _ if more => charges.last().expect("a page has charges")["id"].clone(),
        _ => Value::Null,
    };
    book.answered.push(which.day);
    Json(json!({ "charges": charges, "next": next })).into_response()
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
