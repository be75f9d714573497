//! A provider that lists its charges two a page, and fails where the test says.

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

/// Up until the test ends.
pub struct Provider {
    pub url: String,
    books: Books,
}

type Books = Arc<Mutex<Book>>;

#[derive(Default)]
struct Book {
    listed: Vec<Value>,
    /// What was ordered: the idempotency key, the answer to a question for it, and the metadata.
    ordered: Vec<(String, Value, Value)>,
    /// The days of all pages that were answered.
    answered: Vec<String>,
    /// Which page fails, from 1, and how often it still does.
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

    /// Puts a charge on the list.
    pub fn list(&self, charge: Value) {
        self.book().listed.push(charge);
    }

    /// From now on this page fails so many times.
    pub fn fail_at(&self, page: usize, times: usize) {
        self.book().failing = (page, times);
    }

    /// From now on the second page is followed by itself.
    pub fn repeat_for_ever(&self) {
        self.book().endless = true;
    }

    /// How many pages of the day were answered.
    pub fn pages_of(&self, day: &str) -> usize {
        self.book().answered.iter().filter(|answered| *answered == day).count()
    }

    /// The idempotency keys and metadata of what was ordered.
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
        return (StatusCode::INTERNAL_SERVER_ERROR, "MARK").into_response();
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
        return (StatusCode::from_u16(status).expect("a status"), Json(json!({ "error": "MARK" })))
            .into_response();
    }
    match books.lock().unwrap().ordered.iter().find(|(ordered, ..)| *ordered == key) {
        Some((_, answer, _)) => Json(answer).into_response(),
        None => (StatusCode::NOT_FOUND, Json(json!({ "error": "no_such_charge" }))).into_response(),
    }
}
