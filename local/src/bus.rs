//! EventBridge: an event bus in this process's memory, at an address of its own.
//!
//! It answers `PutEvents` and `DescribeEventBus`, and has the rules of the template. It differs from EventBridge:
//!
//! 1. It refuses an event for a bus of another name. EventBridge accepts it, and drops it.
//! 2. It refuses an event that it cannot send to a queue. EventBridge accepts it, and tries for a day.
//! 3. It ignores an entry's time and resources.
//!
//! It kills the function that delivers an event with the member `"test": "crash_outbox"`, before that function hears that the bus has it.
//! So the event comes a second time.

use crate::{
    functions::Function,
    queues::{ACCOUNT, Queues},
    template::{Rule, matches},
    visitors::guarded,
};
use aws_smithy_types::{DateTime, date_time::Format};
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use lambda_idempotency::telemetry::error_chain;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{
    future, io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::SystemTime,
};
use tokio::net::TcpListener;
use uuid::Uuid;

/// The member of a message that asks for the death of its deliverer.
const CRASH: &str = "crash_outbox";
/// The most entries of one call.
const MAX_ENTRIES: usize = 10;

/// The event bus.
pub struct Bus {
    pub endpoint: String,
    pub name: String,
    region: String,
    queues: Arc<Queues>,
    rules: Vec<Rule>,
    delivered: Mutex<Vec<Delivered>>,
    /// The function that delivers.
    deliverer: OnceLock<Arc<Function>>,
}

/// An event, as it is put.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Event {
    source: String,
    detail_type: String,
    detail: Box<RawValue>,
}

/// Why an event is not accepted, with EventBridge's code.
pub struct Refused {
    code: &'static str,
    pub message: String,
}

/// A message of the outbox that the bus was handed.
#[derive(Clone, Serialize)]
pub struct Delivered {
    id: String,
    operation: String,
    key: String,
    sequence: u64,
    topic: String,
    body: Box<RawValue>,
    /// How long after its commit, in milliseconds.
    age_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutEvents {
    entries: Vec<Entry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Entry {
    source: String,
    detail_type: String,
    detail: String,
    event_bus_name: String,
}

/// What is in the queue.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Envelope<'a> {
    version: &'static str,
    id: &'a str,
    detail_type: &'a str,
    source: &'a str,
    account: &'static str,
    time: String,
    region: &'a str,
    resources: [&'static str; 0],
    detail: &'a RawValue,
}

impl Bus {
    /// Serves the bus of this name on a loopback port of its own.
    pub async fn start(
        name: String,
        rules: Vec<Rule>,
        region: &str,
        queues: Arc<Queues>,
    ) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let bus = Arc::new(Self {
            endpoint: format!("http://{}", listener.local_addr()?),
            name,
            region: region.to_owned(),
            queues,
            rules,
            delivered: Mutex::default(),
            deliverer: OnceLock::new(),
        });
        let router = guarded(Router::new().route("/", post(answer)).with_state(bus.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(bus)
    }

    /// The function that dies of a test's event.
    pub fn deliverer(&self, function: Arc<Function>) {
        self.deliverer.get_or_init(|| function);
    }

    /// What the bus was handed from the outbox, in its order, with duplicates.
    pub fn delivered(&self) -> Vec<Delivered> {
        self.handed().clone()
    }

    /// Puts an event on the bus, and returns its id.
    pub async fn put(&self, event: &Event) -> Result<String, Refused> {
        let Event { source, detail_type, detail } = event;
        if source.is_empty() || detail_type.is_empty() {
            return Err(refused("InvalidArgument", "source and detail-type must not be empty"));
        }
        if !detail.get().starts_with('{') {
            return Err(refused("MalformedDetail", "detail must be an object"));
        }
        let id = Uuid::new_v4().to_string();
        let time = DateTime::from(SystemTime::now()).secs();
        let envelope = Envelope {
            version: "0",
            id: &id,
            detail_type,
            source,
            account: ACCOUNT,
            time: DateTime::from_secs(time).fmt(Format::DateTime).unwrap_or_default(),
            region: &self.region,
            resources: [],
            detail,
        };
        let body = serde_json::to_string(&envelope).expect("its keys are text");
        let seen = serde_json::from_str::<Value>(&body).ok();
        let rules = self.rules.iter().filter(|rule| matches(&rule.pattern, seen.as_ref()));
        for queue in rules.flat_map(|rule| &rule.queue_arns).filter_map(|arn| self.queues.with_arn(arn)) {
            let send = self.queues.client.send_message().queue_url(&queue.url);
            let failed = |error| refused("InternalFailure", &format!("SQS: {}", error_chain(&error)));
            send.message_body(&body).send().await.map_err(failed)?;
        }
        Ok(id)
    }

    /// Whether this is its name, or an ARN that ends with it.
    fn is_called(&self, name: &str) -> bool {
        name.rsplit('/').next() == Some(&self.name)
    }

    /// Accepts an entry of a call.
    async fn accept(&self, entry: Entry) -> Result<String, Refused> {
        if self.queues.faults.is_bus_away() {
            return Err(refused("InternalFailure", "a drill"));
        }
        let Entry { source, detail_type, detail, event_bus_name } = entry;
        if !self.is_called(&event_bus_name) {
            return Err(refused("InvalidArgument", &format!("there is no event bus {event_bus_name:?}")));
        }
        let detail = RawValue::from_string(detail);
        let detail = detail.map_err(|error| refused("MalformedDetail", &error.to_string()))?;
        let event = Event { source, detail_type, detail };
        let id = self.put(&event).await?;
        if let Some(message) = Delivered::of(&event) {
            let crashes = message.is_of_crash_test();
            let is_first = {
                let mut handed = self.handed();
                let is_first = handed.iter().all(|earlier| earlier.id != message.id);
                handed.push(message);
                is_first
            };
            if let Some(deliverer) = self.deliverer.get().filter(|_| crashes && is_first) {
                deliverer.kill();
                // The caller is dying. It must not hear of this.
                future::pending::<()>().await;
            }
        }
        Ok(id)
    }

    fn handed(&self) -> MutexGuard<'_, Vec<Delivered>> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Delivered {
    /// The message in an event; `None` if it is not from the outbox.
    fn of(event: &Event) -> Option<Self> {
        #[derive(Deserialize)]
        struct CloudEvent {
            id: String,
            source: String,
            r#type: String,
            time: String,
            idempotencykey: String,
            sequence: String,
            data: Box<RawValue>,
        }
        let event: CloudEvent = serde_json::from_str(event.detail.get()).ok()?;
        let committed = DateTime::from_str(&event.time, Format::DateTime).ok()?.to_millis().ok()?;
        let now = DateTime::from(SystemTime::now()).to_millis().ok()?;
        Some(Self {
            id: event.id,
            operation: event.source,
            key: event.idempotencykey,
            sequence: event.sequence.parse().ok()?,
            topic: event.r#type,
            body: event.data,
            // Its function's clock is this one.
            age_ms: u64::try_from(now - committed).unwrap_or_default(),
        })
    }

    fn is_of_crash_test(&self) -> bool {
        #[derive(Deserialize)]
        struct Test {
            test: String,
        }
        serde_json::from_str::<Test>(self.body.get()).is_ok_and(|body| body.test == CRASH)
    }
}

/// The API: `PutEvents` and `DescribeEventBus`.
async fn answer(State(bus): State<Arc<Bus>>, headers: HeaderMap, body: Bytes) -> Response {
    match headers.get("x-amz-target").and_then(|target| target.to_str().ok()) {
        Some("AWSEvents.PutEvents") => put_events(&bus, &body).await,
        Some("AWSEvents.DescribeEventBus") => describe(&bus, &body),
        _ => failure("UnknownOperationException", "this event bus answers PutEvents and DescribeEventBus"),
    }
}

fn describe(bus: &Bus, body: &[u8]) -> Response {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct DescribeEventBus {
        name: String,
    }
    match serde_json::from_slice(body) {
        Ok(DescribeEventBus { name }) if bus.is_called(&name) => {
            json_1_1(StatusCode::OK, json!({ "Name": bus.name }))
        }
        Ok(DescribeEventBus { name }) => {
            failure("ResourceNotFoundException", &format!("there is no event bus {name}"))
        }
        Err(_) => failure("SerializationException", "the request is not one of DescribeEventBus"),
    }
}

async fn put_events(bus: &Bus, body: &[u8]) -> Response {
    let Ok(PutEvents { entries }) = serde_json::from_slice(body) else {
        return failure("SerializationException", "the request is not one of PutEvents");
    };
    if !(1..=MAX_ENTRIES).contains(&entries.len()) {
        return failure("ValidationException", "a call has 1 to 10 entries");
    }
    let (mut results, mut failed) = (Vec::new(), 0);
    for entry in entries {
        results.push(match bus.accept(entry).await {
            Ok(id) => json!({ "EventId": id }),
            Err(Refused { code, message }) => {
                failed += 1;
                json!({ "ErrorCode": code, "ErrorMessage": message })
            }
        });
    }
    json_1_1(StatusCode::OK, json!({ "FailedEntryCount": failed, "Entries": results }))
}

fn refused(code: &'static str, message: &str) -> Refused {
    Refused { code, message: message.to_owned() }
}

fn failure(kind: &str, message: &str) -> Response {
    json_1_1(StatusCode::BAD_REQUEST, json!({ "__type": kind, "message": message }))
}

fn json_1_1(status: StatusCode, body: Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.1")], Json(body)).into_response()
}
