//! The sample's reports, whose worker leaves the pages that it has no time for to the next one.

use std::time::{Duration, SystemTime};

use axum::{body::Body, http::Request};
use lambda_idempotency::{
    bounds::Bounds,
    domain::Table,
    event::{Consumer, MemorySource},
    http::IDEMPOTENCY_KEY,
    queue::MemoryQueue,
    store::{Store, memory::MemoryStore},
};
use reports::{
    policy::{CREATE_REPORT, create_report},
    routes::router,
};
use serde_json::json;

use crate::support::{
    http::record_key,
    messages::{QUEUE, deliver_within, message},
    payments_api::send_as,
};

// In a clock that runs by itself: what sleeps too long is seen at once.
#[tokio::test(start_paused = true)]
async fn a_worker_begins_no_page_that_outlasts_it() {
    let (store, table) = (MemoryStore::new(), Table::new("orders", "pk").sort_key("sk"));
    let bounds = Bounds::of(store.clone());
    let app = router(store.clone(), create_report(), table, MemoryQueue::new(), bounds);
    let request = Request::post("/reports").header("content-type", "application/json");
    let request = request.header(IDEMPOTENCY_KEY, "r-1").body(Body::from(r#"{"seconds":600}"#));
    let accepted = send_as(&app, "acme", request.expect("a request")).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let key = record_key("acme", CREATE_REPORT, "r-1");
    let record = store.load(&key).await.expect("the store answers").expect("a record");
    let work = record.accepted.expect("it is accepted").request.to_string();
    let asked = json!({ "version": 1, "kind": "work", "key": key.partition_key(), "request": work });
    let worker = Consumer::worker(MemorySource::new(QUEUE)).work(store.clone(), app);
    // A page takes a minute.
    let half = Duration::from_secs(30);
    let back = deliver_within(&worker, &[message("m-1", asked)], SystemTime::now(), half).await;
    assert_eq!(back.expect("an answer"), ["m-1"]);
    let record = store.load(&key).await.expect("the store answers").expect("a record");
    assert_eq!((record.state.name(), record.attempts), ("pending", 1));
}
