//! Asynchronous operations: what is accepted is executed once by a worker, or ends with 408.

mod accepted;
mod bounds;
mod executed;
mod key_elsewhere;
mod pages;
mod requests;
mod stopped;
mod swept;

use std::time::Duration;

use axum::{
    Extension, Router,
    body::Bytes,
    http::{Request, StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use lambda_idempotency::{
    Execution, Operation,
    event::{BatchFunction, Consumer, MemorySource},
    http::{NotBegun, Outcome, Profile, operation_status},
    key::RecordKey,
    queue::MemoryQueue,
    record::Record,
    time::Timestamp,
    world::World,
};
use serde_json::{Value, json};

use crate::support::{
    guarded::Guarded,
    http::{self, Answer, Counter, Gate, PAY, TENANT, api, guard_of, record_key, send},
    messages::{QUEUE, deliver_within, received},
};

/// For how long accepted work waits for a worker.
const BOUND: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// An API that accepts requests, and its worker.
struct Reports {
    guarded: Guarded,
    operation: Operation,
    queue: MemorySource,
    /// How often the handler ran.
    runs: Counter,
    app: Router,
}

fn operation() -> Operation {
    Operation::new(PAY).asynchronous(BOUND).max_attempts(3)
}

/// Does what the body asks for.
async fn report(parts: Parts, body: Bytes) -> Response {
    let execution: &Execution = parts.extensions.get().expect("it is guarded");
    match &*body {
        b"\"nothing\"" => (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response(),
        b"\"perhaps\"" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        b"\"invalid\"" => NotBegun((StatusCode::UNPROCESSABLE_ENTITY, "no such report")).into_response(),
        _ => {
            let seen = json!({
                "tenant": execution.tenant().as_str(),
                "attempts": execution.attempts(),
                "uri": parts.uri.to_string(),
                "headers": parts.headers.keys().map(ToString::to_string).collect::<Vec<_>>(),
                "body": String::from_utf8_lossy(&body),
            });
            (StatusCode::CREATED, [("location", "/reports/1")], seen.to_string()).into_response()
        }
    }
}

impl Reports {
    async fn on(endpoint: &str) -> Self {
        Self::of(Guarded::on(endpoint).await, operation())
    }

    fn of(guarded: Guarded, operation: Operation) -> Self {
        let runs = Counter::default();
        let guard = guard_of(guarded.store(), operation.clone()).world(guarded.clock.clone());
        let counted = runs.clone();
        let app = api(guard, move |parts, body| {
            counted.add();
            report(parts, body)
        });
        Self { guarded, operation, queue: MemorySource::new(QUEUE), runs, app }
    }

    /// The same records, behind another handler.
    fn with<F, Fut, R>(&self, handler: F) -> Self
    where
        F: Fn(Parts, Bytes) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = R> + Send,
        R: IntoResponse + 'static,
    {
        self.guarded_by(guard_of(self.guarded.store(), self.operation.clone()), handler)
    }

    fn guarded_by<F, Fut, R>(&self, guard: http::Guard, handler: F) -> Self
    where
        F: Fn(Parts, Bytes) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = R> + Send,
        R: IntoResponse + 'static,
    {
        Self {
            guarded: self.guarded.clone(),
            operation: self.operation.clone(),
            queue: self.queue.clone(),
            runs: self.runs.clone(),
            app: api(guard.world(self.guarded.clock.clone()), handler),
        }
    }

    /// A worker whose handler certainly does nothing.
    fn nothing(&self) -> Self {
        self.with(|_, _| async { (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)) })
    }

    /// A worker that gets no further than its claim.
    fn hanging(&self) -> (Self, Gate) {
        let gate = Gate::closed();
        let held = gate.clone();
        let hanging = self.with(move |_, _| {
            let held = held.clone();
            async move { held.pass().await }
        });
        (hanging, gate)
    }

    /// A worker whose reports go to this queue if they cannot be written.
    fn deferring(&self, queue: MemoryQueue) -> Self {
        let guard = guard_of(self.guarded.store(), self.operation.clone()).defer_reports_to(queue);
        self.guarded_by(guard, report)
    }

    async fn post(&self, key: &str, body: &str) -> Answer {
        let request: Request<axum::body::Body> =
            http::order(key).body(body.to_owned().into()).expect("a request");
        send(&self.app, request).await
    }

    fn key(&self, key: &str) -> RecordKey {
        record_key(TENANT, PAY, key)
    }

    async fn record(&self, key: &str) -> Record {
        self.guarded.record(&self.key(key)).await.expect("a record")
    }

    async fn state(&self, key: &str) -> &'static str {
        self.record(key).await.state.name()
    }

    fn worker(&self) -> impl BatchFunction + use<> {
        let consumer = Consumer::worker(self.queue.clone());
        consumer.world(self.guarded.clock.clone()).work(self.guarded.store(), self.app.clone())
    }

    /// The message that asks for this work.
    async fn asked(&self, key: &str) -> Value {
        let record = self.record(key).await;
        let request = record.accepted.expect("it was accepted").request.to_string();
        json!({ "version": 1, "kind": "work", "key": record.key.partition_key(), "request": request })
    }

    /// Hands this message to a worker. Returns whether it was acknowledged.
    async fn work(&self, asked: &Value) -> bool {
        self.received(asked, 1).await
    }

    /// The same, with a message that was received this often.
    async fn received(&self, asked: &Value, times: u32) -> bool {
        let now = std::time::UNIX_EPOCH + Duration::from_millis(self.guarded.clock.now().as_millis());
        let message = received("m-1", asked, times);
        let back = deliver_within(&self.worker(), &[message], now, MINUTE).await;
        back.expect("an answer").is_empty()
    }

    /// What a client that polls sees.
    async fn polled(&self, key: &str) -> Answer {
        let (store, now): (_, Timestamp) = (self.guarded.undisturbed_store(), self.guarded.now());
        let profile = Profile::ietf_draft();
        Answer::of(operation_status(&store, &self.key(key), now, &profile).await).await
    }

    /// How many items the record's collection has: the record and its request.
    async fn items(&self, key: &str) -> usize {
        self.guarded.collection(&self.key(key)).await.len()
    }
}
