//! The embedded DynamoDB's address for functions and operators: it passes calls on, and tells the journal about those that are about
//! records. Each answers with its capacity units, as if its caller had asked for them.

use crate::{
    changes::TableChanges,
    faults::{Faults, TableFault},
    journal::{Call, Shared},
    runtime_api::read,
    visitors::guarded,
};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::{Value, json};
use std::{io, sync::Arc};
use tokio::{net::TcpListener, time::Instant};

/// The operations that are recorded. Others are passed on as they are.
const RECORDED: [&str; 5] = ["DeleteItem", "GetItem", "PutItem", "TransactWriteItems", "UpdateItem"];
/// How the names of operations begin that change nothing.
const READS: [&str; 7] = ["BatchGet", "Describe", "GetItem", "List", "Query", "Scan", "TransactGet"];
/// DynamoDB's own limit is 16 MB.
const LIMIT: usize = 17 * 1024 * 1024;

struct Recorder {
    endpoint: String,
    client: reqwest::Client,
    journal: Shared,
    faults: Arc<Faults>,
    changes: TableChanges,
}

/// Serves on a loopback port of its own, in front of the DynamoDB at `endpoint`. Returns its URL.
pub async fn start(
    endpoint: &str,
    journal: Shared,
    faults: Arc<Faults>,
    changes: TableChanges,
) -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (endpoint, client) = (endpoint.to_owned(), reqwest::Client::new());
    let recorder = Recorder { endpoint, client, journal, faults, changes };
    let router = guarded(Router::new().fallback(pass).with_state(Arc::new(recorder)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

async fn pass(State(recorder): State<Arc<Recorder>>, request: Request) -> Response {
    let target = text(request.headers(), "x-amz-target");
    if let Some(fault) = recorder.faults.table().filter(|fault| fault.hits(target)) {
        return failed(fault);
    }
    let (parts, body) = request.into_parts();
    let body = match read(body, LIMIT).await {
        Ok(body) => body,
        Err(status) => return status.into_response(),
    };
    let operation =
        text(&parts.headers, "x-amz-target").and_then(|target| target.strip_prefix("DynamoDB_20120810."));
    let changes = operation.is_none_or(changes);
    let known = operation.filter(|operation| RECORDED.contains(operation)).and_then(|operation| {
        let request = serde_json::from_slice::<Value>(&body).ok().filter(Value::is_object)?;
        Some((operation.to_owned(), request))
    });
    let body = match &known {
        Some((_, request)) => with_capacity(request),
        None => body,
    };
    let mut headers = parts.headers.clone();
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    let url = format!("{}{}", recorder.endpoint, parts.uri);
    let request = recorder.client.request(parts.method, url).headers(headers).body(body);
    // In a task of its own: as with DynamoDB, a call that has begun ends, even if its caller dies.
    let passed = tokio::spawn(async move {
        let (status, headers, body) = sent(request).await?;
        if changes {
            recorder.changes.all.send_replace(());
        }
        if let Some((operation, request)) = known {
            recorder.record(&parts.headers, &operation, &request, status, &body);
        }
        Ok::<_, reqwest::Error>((status, headers, body))
    });
    match passed.await {
        Ok(Ok((status, headers, body))) => {
            let mut response = Response::new(Body::from(body));
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            response
        }
        _ => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Whether this operation may change a table.
fn changes(operation: &str) -> bool {
    !READS.iter().any(|read| operation.starts_with(read))
}

/// DynamoDB's answer under this fault.
fn failed(fault: TableFault) -> Response {
    let (status, kind) = fault.answer();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind_of_body = [(header::CONTENT_TYPE, "application/x-amz-json-1.0")];
    let message = "a fault: a drill, or POST /dynamodb/away until /dynamodb/back";
    (status, kind_of_body, json!({ "__type": kind, "message": message }).to_string()).into_response()
}

async fn sent(request: reqwest::RequestBuilder) -> reqwest::Result<(StatusCode, HeaderMap, Bytes)> {
    let answer = request.send().await?;
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    Ok((status, headers, answer.bytes().await?))
}

/// The request, which asks for its capacity units.
fn with_capacity(request: &Value) -> Bytes {
    let mut request = request.clone();
    if request["ReturnConsumedCapacity"].as_str().is_none_or(|asked| asked == "NONE") {
        request["ReturnConsumedCapacity"] = json!("TOTAL");
    }
    request.to_string().into()
}

impl Recorder {
    fn record(&self, headers: &HeaderMap, operation: &str, request: &Value, status: StatusCode, body: &[u8]) {
        let answer = serde_json::from_slice(body).unwrap_or_default();
        let Some(table) = self.journal.table() else { return };
        if let Some(call) = Call::of(table, operation, request, status.is_success(), &answer) {
            if call.item.is_some() {
                self.changes.records.send_replace(Some(Instant::now()));
            }
            let request_id = text(headers, "x-amzn-trace-id").and_then(request_id);
            self.journal.stored(request_id.as_deref(), program(headers).unwrap_or("operator"), &call);
        }
    }
}

/// The id of the invocation: `Root=1-0123abcd-…` begins with the digits that the runtime API gave it.
fn request_id(trace: &str) -> Option<String> {
    let root = trace.split(';').find_map(|part| part.trim().strip_prefix("Root=1-"))?;
    uuid::Uuid::parse_str(&root.replace('-', "")).ok().map(|id| id.to_string())
}

/// The program, as the SDK names it.
fn program(headers: &HeaderMap) -> Option<&str> {
    let agent = text(headers, "x-amz-user-agent").or_else(|| text(headers, "user-agent"))?;
    agent.split(' ').find_map(|part| part.strip_prefix("app/"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_read_leaves_the_tables_as_they_are() {
        let all = [
            "GetItem",
            "PutItem",
            "Query",
            "Scan",
            "UpdateItem",
            "TransactGetItems",
            "TransactWriteItems",
            "BatchGetItem",
            "BatchWriteItem",
            "DescribeTable",
            "ListTables",
            "ExecuteStatement",
        ];
        let changing: Vec<_> = all.into_iter().filter(|operation| changes(operation)).collect();
        assert_eq!(
            changing,
            ["PutItem", "UpdateItem", "TransactWriteItems", "BatchWriteItem", "ExecuteStatement"]
        );
    }

    #[test]
    fn a_request_asks_for_its_units_and_a_call_names_its_invocation() {
        let asked = |request: Value| {
            let request: Value = serde_json::from_slice(&with_capacity(&request)).unwrap();
            request["ReturnConsumedCapacity"].clone()
        };
        assert_eq!(asked(json!({})), "TOTAL");
        assert_eq!(asked(json!({ "ReturnConsumedCapacity": "NONE" })), "TOTAL");
        assert_eq!(asked(json!({ "ReturnConsumedCapacity": "INDEXES" })), "INDEXES");
        let id = "0123abcd-4567-4abc-8def-0123456789ab";
        let trace = "Root=1-0123abcd-45674abc8def0123456789ab;Sampled=0";
        assert_eq!(request_id(trace).as_deref(), Some(id));
        assert_eq!(request_id("Root=1-x;Sampled=0"), None);
    }
}
