//! Accepted work: the guarded route that accepts a request, and that a worker runs later; and the table's stream.

use std::{convert::Infallible, future::Future, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use lambda_idempotency::{
    Execution, Idempotency, Operation, Outcome, SingleTenant,
    engine::Report,
    http::{
        IDEMPOTENCY_KEY, IDEMPOTENCY_TIMESTAMP, IDEMPOTENT_REPLAYED,
        lambda_http::{
            Body,
            http::{Request, Response, StatusCode, header::CONTENT_TYPE},
        },
    },
    key::signature::Secrets,
    record::Answer,
    time::Timestamp,
    world::World,
};
use lambda_runtime::{Service, service_fn, tower::Layer};
use serde_json::{Value, value::RawValue};

use super::{
    answers::{GivesUp, Received},
    call::{Call, Reply, Source},
    handler::handle,
    ids::{BEGINNING, KEYS, TENANT, THE_KEY},
    services::{GatedQueue, GatedStore, Machine},
    universe::Universe,
};
use crate::kernel::violation::Violation;

/// Until when a worker may claim what is accepted: longer than the sweep needs to find what is lost.
pub const BOUND: Duration = Duration::from_secs(3600);
/// How old a key may be.
pub const OLDEST: Duration = Duration::from_secs(23 * 3600);
/// The body of a request that its handler does not take.
const INVALID: &[u8] = b"invalid";
/// How often its client sends it, and how long it waits in between.
const MAX_TRIES: u8 = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(5);
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
    let mut guard = Idempotency::new(GatedStore(machine.clone()), machine.operation())
        .tenant(SingleTenant::new(TENANT))
        .world(machine.clone())
        .defer_reports_to(GatedQueue(machine.clone(), Source::Reconcile));
    let machine = machine.clone();
    let scenario = machine.universe.lock().scenario;
    if scenario.accepts.is_some() && scenario.input.is_some() {
        let machine = machine.clone();
        guard = guard.accept(move |_, _, _| {
            let machine = machine.clone();
            async move {
                let accepts = matches!(machine.call(Call::Check).await, Reply::Sent(true));
                let mut response = Response::new(Bytes::new());
                *response.status_mut() =
                    if accepts { StatusCode::ACCEPTED } else { StatusCode::SERVICE_UNAVAILABLE };
                response
            }
        });
    }
    guard.layer(service_fn(move |request: Request<Body>| {
        let machine = machine.clone();
        async move {
            let Some(execution) = request.extensions().get::<Execution>() else {
                unreachable!("the guard runs it")
            };
            machine.universe.lock().begins(machine.process, THE_KEY, execution.attempt());
            if request.body().as_ref() == INVALID {
                return Ok(refusal());
            }
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
        Report::NotExecuted(None) => (503, Outcome::NotExecuted, Bytes::new()),
        _ => (500, Outcome::PerhapsExecuted, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response.extensions_mut().insert(outcome);
    response
}

/// The answer to an invalid request, before anything is done.
fn refusal() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    response.extensions_mut().insert(Outcome::NotBegun);
    response
}

/// A client sends its request. What it learns from an invalid one, it corrects.
pub async fn request(machine: &Machine) -> Received {
    let corrects = machine.universe.lock().scenario.corrects && machine.process == 0;
    for _ in 0..if corrects { MAX_TRIES } else { 0 } {
        if send(machine, INVALID).await != Received::GivesUp(GivesUp::NotBegun) {
            machine.sleep(BETWEEN_TRIES).await;
            continue;
        }
        let received = send(machine, b"").await;
        if received == Received::GivesUp(GivesUp::Reused) {
            machine.universe.lock().violate(Violation::KeyNotFree);
        }
        return received;
    }
    if corrects { Received::Again } else { send(machine, b"").await }
}

/// Sends a request with this body. Its client gets 202 until there is an answer.
async fn send(machine: &Machine, body: &'static [u8]) -> Received {
    let made_at = machine.universe.lock().key_made_at();
    let request = Request::post("/")
        .header(IDEMPOTENCY_KEY, KEYS[0])
        .header(IDEMPOTENCY_TIMESTAMP, secrets().sign(made_at, KEYS[0].as_bytes()))
        .body(Body::from(body));
    let Ok(answered) = router(machine).call(request.expect("a request")).await;
    let (parts, body) = answered.into_parts();
    let body = body.collect().await.expect("it is in memory").to_bytes();
    let is_problem = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if is_problem {
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        return match problem["type"].as_str().and_then(|kind| kind.rsplit(':').next()) {
            Some("key-too-old") => Received::GivesUp(GivesUp::TooOld),
            Some("key-reused") => Received::GivesUp(GivesUp::Reused),
            _ => Received::Again,
        };
    }
    match parts.status.as_u16() {
        202 => Received::Accepted,
        422 => Received::GivesUp(GivesUp::NotBegun),
        status if parts.headers.contains_key(IDEMPOTENT_REPLAYED) || status < 500 => {
            Received::Answer(status, body.len() as u64)
        }
        _ => Received::Again,
    }
}

/// What the clients' keys are signed with, if they have an age.
pub fn secrets() -> Secrets {
    Secrets::new(["a secret of the model"]).expect("it is long enough")
}

/// The operation, if its requests are accepted.
pub fn asynchronous(operation: Operation, accepts: Option<u32>) -> Operation {
    match accepts {
        Some(attempts) => operation.asynchronous(BOUND).max_attempts(attempts),
        None => operation,
    }
}

/// Whether the outbox function has queued all that a batch of the stream shows.
pub async fn stream(machine: &Machine, batch: &str, time: Duration) -> bool {
    let records: Vec<Box<RawValue>> = serde_json::from_str(batch).expect("a batch");
    machine.deliverer().stream(&records, time).await.is_empty()
}

impl Universe {
    /// When the clients' key was made.
    fn key_made_at(&self) -> Timestamp {
        let young = Duration::from_secs(self.scenario.key_lives.unwrap_or_default());
        Timestamp::from_millis(BEGINNING - u64::try_from((OLDEST - young).as_millis()).unwrap_or_default())
    }

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
