//! What a request leaves in the log: a line if it was executed or replayed, and a span around everything that is logged meanwhile.

use axum::{Extension, http::StatusCode};
use lambda_idempotency::{http::Outcome, store::memory::MemoryStore};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    http::{PAY, TENANT, api, execution, guard, pay, record_key, send},
    logs::Logs,
};

/// The lines that contain `needle`, without those that open a span.
fn lines(logs: Logs, needle: &str) -> Vec<Value> {
    let lines = logs.lines_with(needle).into_iter();
    let lines = lines.map(|line| serde_json::from_str(&line.text).expect("a line is JSON"));
    lines.filter(|line: &Value| line["fields"]["message"] != "new").collect()
}

/// The attempt and the outcome in each line with this message.
fn attempts(lines: &[Value], message: &str) -> Vec<Value> {
    let those = lines.iter().filter(|line| line["fields"]["message"] == message);
    those
        .map(|line| {
            assert_eq!(line["level"], "INFO");
            assert_eq!(line["spans"][0]["operation"], PAY);
            json!([line["fields"]["attempts"], line["fields"]["outcome"]])
        })
        .collect()
}

/// The lines at which the spans of requests closed.
fn spans(lines: &[Value]) -> Vec<Value> {
    let closed = lines.iter().filter(|line| line["fields"]["message"] == "close");
    let spans = closed.map(|line| &line["span"]).filter(|span| span["name"] == "idempotency");
    spans
        .map(|span| {
            assert_eq!(span["operation"], PAY);
            json!([span["attempts"], span["outcome"]])
        })
        .collect()
}

#[tokio::test]
async fn an_execution_and_a_replay_leave_one_line_each() {
    let (logs, key) = (Logs::capture(), Uuid::new_v4().to_string());
    let hash = record_key(TENANT, PAY, &key).hash().to_string();
    let app = api(guard(MemoryStore::new()), |parts, _| async move {
        match execution(&parts).attempts() {
            1 => (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)),
            _ => (StatusCode::CREATED, Extension(Outcome::Completed)),
        }
    });
    for status in [503, 201, 201] {
        assert_eq!(send(&app, pay(&key)).await.status, status);
    }
    let lines = lines(logs, &hash);
    assert_eq!(attempts(&lines, "executed"), [json!([1, "not_executed"]), json!([2, "completed"])]);
    assert_eq!(attempts(&lines, "replayed"), [json!([2, null])]);
    assert_eq!(spans(&lines), [json!([1, "not_executed"]), json!([2, "completed"]), json!([2, "replay"])]);
    assert!(!logs.contains(&key));
}

#[tokio::test]
async fn a_handlers_log_line_is_in_the_span_of_its_request() {
    let (logs, key) = (Logs::capture(), Uuid::new_v4().to_string());
    let marker = Uuid::new_v4().to_string();
    let logged = marker.clone();
    let app = api(guard(MemoryStore::new()), move |_, _| {
        let logged = logged.clone();
        async move { tracing::info!(logged, "a handler's own line") }
    });
    send(&app, pay(&key)).await;
    let [line] = &lines(logs, &marker)[..] else { panic!("not one line") };
    let hash = record_key(TENANT, PAY, &key).hash().to_string();
    let around = line["spans"].as_array().unwrap().iter().any(|span| {
        (&span["name"], &span["operation"], &span["key"])
            == (&json!("idempotency"), &json!(PAY), &json!(hash))
    });
    assert!(around, "{line}");
}
