//! Accepted work: the guarded route that accepts a request, and that a worker runs later; and the table's stream.

use std::{convert::Infallible, future::Future, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use lambda_idempotency::{
    Execution, Idempotency, Operation, Outcome, SingleTenant,
    http::{
        IDEMPOTENT_REPLAYED,
        lambda_http::{
            Body,
            http::{Request, Response, StatusCode},
        },
    },
    internal::Report,
    record::{Answer, Record, State},
    store::{Companion, Item},
};
use lambda_runtime::{Service, service_fn, tower::Layer};
use serde_json::{Value, json, value::RawValue};

use super::{
    call::Source,
    processes::handle,
    properties::Received,
    scenario::THE_KEY,
    services::{GatedQueue, GatedStore, Machine},
    shelf::{KEYS, TENANT},
    universe::Universe,
};

/// Until when a worker may claim what is accepted: longer than the sweep needs to find what is lost.
pub const BOUND: Duration = Duration::from_secs(3600);
/// How often a sweep begins, and how often at most.
const SWEEP_EVERY: u64 = 1_200_000;
const MAX_SWEEPS: u8 = 8;

/// The guarded route.
pub fn router(
    machine: &Machine,
) -> impl Service<
    Request<Body>,
    Response = Response<Either<Full<Bytes>, Full<Bytes>>>,
    Error = Infallible,
    Future: Future + Send,
> + Clone
+ Send
+ Sync
+ use<> {
    let guard = Idempotency::new(GatedStore(machine.clone()), machine.operation())
        .tenant(SingleTenant::new(TENANT))
        .world(machine.clone())
        .defer_reports_to(GatedQueue(machine.clone(), Source::Reconcile));
    let machine = machine.clone();
    guard.layer(service_fn(move |request: Request<Body>| {
        let machine = machine.clone();
        async move {
            let Some(execution) = request.extensions().get::<Execution>() else {
                unreachable!("the guard runs it")
            };
            machine.universe.lock().begins(machine.process, THE_KEY, execution.attempt());
            let (report, _) = handle(&machine, execution).await;
            Ok::<_, Infallible>(response(report))
        }
    }))
}

/// What a handler answers.
fn response(report: Report) -> Response<Full<Bytes>> {
    let (status, outcome, body) = match report {
        Report::Completed(Answer { head, body }) => {
            (head.status().unwrap_or_default(), Outcome::Completed, body)
        }
        Report::NotExecuted => (503, Outcome::NotExecuted, Bytes::new()),
        _ => (500, Outcome::PerhapsExecuted, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response.extensions_mut().insert(outcome);
    response
}

/// A client sends its request, and gets 202 until there is an answer.
pub async fn request(machine: &Machine) -> Received {
    let request = Request::post("/").header("idempotency-key", KEYS[0]).body(Body::Empty);
    let Ok(answered) = router(machine).call(request.expect("a request")).await;
    let (parts, body) = answered.into_parts();
    let body = body.collect().await.expect("it is in memory");
    match parts.status.as_u16() {
        202 => Received::Accepted,
        status if parts.headers.contains_key(IDEMPOTENT_REPLAYED) => {
            Received::Answer(status, body.to_bytes().len() as u64)
        }
        _ => Received::Again,
    }
}

/// The operation, if its requests are accepted.
pub fn asynchronous(operation: Operation, accepts: Option<u32>) -> Operation {
    match accepts {
        Some(attempts) => operation.asynchronous(BOUND).max_attempts(attempts),
        None => operation,
    }
}

/// What the table's stream shows of a write: the record, and each message.
pub fn batch(number: u64, before: Option<&Record>, after: &Record, with: &[Companion]) -> String {
    let image = |record: &Record| -> serde_dynamo::Item {
        serde_dynamo::to_item(Item::from(record)).expect("an item")
    };
    let change = |sk: Value, image: Value| {
        json!({
            "Keys": { "pk": { "S": after.key.partition_key() }, "sk": sk },
            "NewImage": image,
            "SequenceNumber": number.to_string(),
        })
    };
    let mut record = change(json!({ "S": "record" }), json!(image(after)));
    if let Some(before) = before {
        record["OldImage"] = json!(image(before));
    }
    let messages = with.iter().filter_map(|companion| match companion {
        Companion::Message(message) => {
            let sk = format!("message#{:013}#{:010}", message.created_at.as_millis(), message.sequence);
            Some(change(json!({ "S": sk }), json!({})))
        }
        _ => None,
    });
    let changes: Vec<_> =
        [record].into_iter().chain(messages).map(|change| json!({ "dynamodb": change })).collect();
    json!(changes).to_string()
}

/// Whether the outbox function has queued all that a batch of the stream shows.
pub async fn stream(machine: &Machine, batch: &str, time: Duration) -> bool {
    let records: Vec<Box<RawValue>> = serde_json::from_str(batch).expect("a batch");
    machine.deliverer().stream(&records, time).await.is_empty()
}

impl Universe {
    /// When the next sweep begins, if it is needed: to delete a request after a fault, or for what a lost batch of the stream has shown.
    pub fn sweep_at(&self) -> Option<u64> {
        if !self.scenario.has_stream() || self.sweeps == MAX_SWEEPS {
            return None;
        }
        let (shelf, at) = (self.shelf(THE_KEY), self.swept_at + SWEEP_EVERY);
        let is_left = (self.faults > 0 || self.scenario.workers == 0) && shelf.has_request_left();
        let is_needed = is_left || self.losses > 0 && shelf.waits_since(at.max(self.clock));
        let is_on = || self.processes.iter().any(|process| process.name == "sweep" && !process.over);
        (is_needed && !is_on()).then_some(at)
    }

    /// Whether a sweep can begin.
    pub fn is_swept(&self) -> bool {
        self.sweep_at().is_some_and(|at| at <= self.clock)
    }
}

/// Whether this execution of accepted work may begin: it is not one too many, or it resumes behind what is kept.
pub fn may_begin(record: &Record) -> bool {
    let is_over = record.accepted.is_some_and(|accepted| record.attempts > accepted.max_attempts);
    !is_over || record.phases.as_ref().is_some_and(|phases| !phases.kept.is_empty())
}

/// Whether this is accepted work that has not ended.
pub fn is_pending(record: &Record) -> bool {
    record.accepted.is_some() && !matches!(record.state, State::Completed { .. })
}
