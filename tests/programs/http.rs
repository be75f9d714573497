//! A function as the suite runs it, on the Runtime API: of HTTP, with headers in its answers that no front takes as they are; or, so that there is no
//! program more to be linked, of a table's changes, or of a table of records alone.

mod changes;

use axum::{
    Router,
    http::{HeaderMap, HeaderName, HeaderValue},
    routing::{get, post},
};
use lambda_idempotency::{
    DynamoDbStore, Idempotency, JwtClaim, MemoryStore, Operation, SingleTenant, lambda,
};

/// Names and values. One is ISO 8859-1, as file names of older clients are.
const HEADERS: [(&str, &[u8]); 9] = [
    ("content-type", b"text/plain"),
    ("content-disposition", b"attachment; filename=\"caf\xe9.txt\""),
    ("link", b"</1>; rel=\"self\""),
    ("link", b"</2>; rel=\"next\""),
    ("set-cookie", b"a=1"),
    ("set-cookie", b"b=2"),
    ("set-cookie", b"c=caf\xe9"),
    ("vary", b"accept"),
    ("trailer", b"x-checksum"),
];

async fn answer() -> (HeaderMap, &'static str) {
    let mut headers = HeaderMap::new();
    for (name, value) in HEADERS {
        let value = HeaderValue::from_bytes(value).expect("a value");
        headers.append(HeaderName::from_static(name), value);
    }
    (headers, "done")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    lambda::logs();
    if std::env::var("RUN_BY").as_deref() == Ok("changes") {
        return changes::run().await;
    }
    if std::env::var("RUN_BY").as_deref() == Ok("table") {
        let store = DynamoDbStore::from_env().await.inspect_err(lambda::report)?;
        let guard = Idempotency::new(store, Operation::new("pay")).tenant(JwtClaim("sub"));
        return lambda::run_http(Router::new().route("/payments", post(answer).route_layer(guard))).await;
    }
    let guard = Idempotency::new(MemoryStore::new(), Operation::new("pay")).tenant(SingleTenant::new("all"));
    let payments = post(answer).route_layer(guard).get(answer);
    let router = Router::new().route("/payments", payments).route("/plain", get(answer));
    match std::env::var("RUN_BY").as_deref() {
        Ok("lambda_http") => lambda_http::run(router).await,
        _ => lambda::run_http(router).await,
    }
}
