//! A consumer of messages, or of the records of a shard: the library's own, for one batch.

use std::{io, time::Duration};

use lambda_idempotency::{
    Execution, Failure, Guard, async_trait,
    event::{self, Consumer, DeadMessage, KeyFrom, Message},
    http::lambda_http::{Body as HttpBody, http::Request},
    key::Tenant,
    lambda::Event,
    queue::QueueError,
    world::World,
};
use lambda_runtime::{Context, LambdaEvent, Service};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    accepted,
    call::{Call, Effect, Source},
    ids::{KEYS, KeyId, Receipt, TENANT},
    input::InputMessage,
    scenario::InputKind,
    services::{GatedQueue, GatedStore, Machine},
    shard,
};

/// The queue's name.
const QUEUE: &str = "input.fifo";
/// How long an invocation may take.
const TIME: Duration = Duration::from_secs(60);

/// The body of a message.
#[derive(Deserialize)]
struct Body {
    id: String,
}

impl Body {
    fn key(&self) -> KeyId {
        KEYS.iter().zip(0..).find(|(key, _)| **key == self.id).map_or(0, |(_, id)| id)
    }
}

/// A queue or a shard behind gates.
struct GatedSource(Machine, Source);

impl GatedSource {
    fn is_shard(&self) -> bool {
        self.0.universe.lock().scenario.shard().is_some()
    }
}

#[async_trait]
impl event::Source for GatedSource {
    fn name(&self) -> &str {
        if self.is_shard() { shard::STREAM } else { QUEUE }
    }

    fn kind(&self) -> event::SourceKind {
        if self.is_shard() { shard::kind() } else { event::SourceKind::Sqs }
    }

    async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        let valid = "it is from our batch";
        let hidden = receipts.iter().map(|(receipt, time)| (Receipt::parse(receipt).expect(valid), *time));
        self.0.sends(Call::Hide(hidden.collect())).await
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        self.0.sends(Call::Bury(self.1, message.body)).await
    }
}

/// A message as Lambda hands it over.
fn record(message: &InputMessage, is_fifo: bool) -> Value {
    let mut attributes = json!({ "ApproximateReceiveCount": message.receives.to_string() });
    if is_fifo {
        attributes["MessageGroupId"] = json!("group");
    }
    json!({
        "messageId": message.id.to_string(),
        "receiptHandle": message.receipt().to_string(),
        "body": message.body,
        "attributes": attributes,
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:eu-central-1:123456789012:{QUEUE}"),
        "awsRegion": "eu-central-1"
    })
}

/// A consumer takes a batch.
pub async fn consume(machine: Machine, batch: Vec<InputMessage>) {
    let input = machine.universe.lock().scenario.input;
    let Some(source) = batch.first().map(|message| message.source) else { return };
    let shard = input.and_then(|input| input.shard());
    let is_fifo = source == Source::Wakes || input.is_some_and(|input| input.kind == InputKind::Fifo);
    let record = |message: &InputMessage| match shard {
        Some(shard) => shard::record(message, shard),
        None => record(message, is_fifo),
    };
    let event = match (source, &*batch) {
        (Source::Parked, [letter, ..]) => letter.body.clone(),
        _ => json!({ "Records": batch.iter().map(record).collect::<Vec<_>>() }).to_string(),
    };
    let event: Event = serde_json::from_str(&event).expect("JSON");
    let mut context = Context::default();
    let time = if shard.is_some() { shard::TIME } else { TIME };
    context.deadline = machine.now().plus(time).as_millis();

    let (event, queue) = (LambdaEvent::new(event, context), GatedSource(machine.clone(), source));
    let ended = match (source, input) {
        (Source::Work, _) => {
            let consumer = Consumer::worker(queue).world(machine.clone());
            consumer.work(GatedStore(machine.clone()), accepted::router(&machine)).call(event).await
        }
        (Source::Wakes, _) => event::deliveries(machine.deliverer(), queue).call(event).await,
        (_, Some(input)) if machine.universe.lock().scenario.accepts.is_some() => {
            let consumer = Consumer::new(queue, KeyFrom::body("/id"))
                .max_attempts(input.max_attempts)
                .world(machine.clone());
            let request = |_: &Message| Ok(Request::post("/").body(HttpBody::Empty).expect("a request"));
            consumer.route(accepted::router(&machine), request).call(event).await
        }
        (_, Some(input)) => {
            let guard = Guard::new(
                GatedStore(machine.clone()),
                machine.operation(),
                Tenant::parse(TENANT).expect("a tenant"),
            )
            .world(machine.clone())
            .defer_reports_to(GatedQueue(machine.clone(), Source::Reconcile));
            let consumer = Consumer::new(queue, KeyFrom::body("/id"))
                .max_attempts(input.max_attempts)
                .world(machine.clone());
            let worker = machine.clone();
            let work = move |execution, body: Body| work(worker.clone(), execution, body.key());
            consumer.each(guard, work).call(event).await
        }
        _ => return,
    };
    // If it fails, all messages come again.
    let Ok(failures) = ended else { return };
    let back = failures.identifiers();
    if shard.is_some() && source == Source::Input {
        let again = back.iter().map(|place| place.parse().expect("it is from our batch")).min();
        machine.call(Call::EndRecords(batch.iter().map(InputMessage::receipt).collect(), again)).await;
        return;
    }
    // A letter is its event's only record.
    let back =
        if source == Source::Parked && !back.is_empty() { vec![batch[0].id.to_string()] } else { back };
    let is_done = |message: &&InputMessage| !back.contains(&message.id.to_string());
    let done: Vec<_> = batch.iter().filter(is_done).map(InputMessage::receipt).collect();
    if !done.is_empty() {
        machine.call(Call::EndBatch(done)).await;
    }
}

/// The function: asks the provider for the effect of this key.
async fn work(machine: Machine, execution: Execution, key: KeyId) -> Result<u8, Failure> {
    machine.universe.lock().begins(machine.process, key, execution.attempt());
    machine.call(Call::Handler).await;
    let looks = machine.universe.lock().scenario.looks;
    if looks && execution.is_lost() {
        return Err(Failure::not_executed("the lease is over"));
    }
    match machine.effect(key).await {
        Effect::Executed => {
            machine.universe.lock().input.progress[usize::from(key)].is_done = true;
            Ok(machine.process + 1)
        }
        Effect::Refused => {
            machine.universe.lock().input.progress[usize::from(key)].is_refused = true;
            Err(Failure::permanent("the provider refuses it"))
        }
        Effect::NotSent => Err(Failure::not_executed("nothing was sent")),
        Effect::NoAnswer => Err(io::Error::other("no answer").into()),
    }
}
