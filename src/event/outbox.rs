//! The function that delivers what operations publish.

use std::sync::Arc;

use lambda_runtime::{Error, LambdaEvent, service_fn};

use super::{
    BatchFunction, Consumer, KeyFrom, Source, SqsSource,
    consumer::{Done, Job, Work},
};
use crate::{
    config,
    function::RunError,
    key::RecordKey,
    lambda::{
        self,
        trigger::{BatchFailures, Event, Trigger, refuse, time},
    },
    message::Message,
    outbox::{Deliverer, Destination, SqsTarget, Topics},
    queue::SqsQueue,
    store::dynamodb::DynamoDbStore,
};

/// After how many failures a delivery goes to the dead letters, with the reason. They are over after about three hours. The sweep asks
/// for it again.
const MAX_TRIES: u32 = 20;

/// The function has no schedule.
const NO_JOB: &str = "";

/// A deliverer of the messages in the table that `IDEMPOTENCY_TABLE` names, to the targets that `OUTBOX_TOPICS` lists. A topic whose target is
/// `own` needs [`Deliverer::target`].
///
/// Environment: `IDEMPOTENCY_TABLE`, `OUTBOX_TOPICS` (see [`Topics`]), `OUTBOX_QUEUE_URL`: the FIFO queue of wakes. `WORK_QUEUE_URL`: the
/// queue of accepted work, if there are asynchronous operations.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn deliverer() -> Result<Deliverer, Error> {
    configured().await.inspect_err(lambda::report)
}

async fn configured() -> Result<Deliverer, Error> {
    let aws = lambda::aws().await;
    let has_work = config::text("WORK_QUEUE_URL").is_ok();
    let topics = Topics::from_env()?;
    let wakes = SqsQueue::from_env(&aws, "OUTBOX_QUEUE_URL")?;
    let store = DynamoDbStore::from_env().await?;
    let mut deliverer = Deliverer::new(store, wakes, topics.clone());
    if has_work {
        deliverer = deliverer.work_to(SqsQueue::from_env(&aws, "WORK_QUEUE_URL")?);
    }
    for (topic, destination) in topics.destinations() {
        deliverer = match destination {
            Destination::Queue(url) => deliverer.target(topic, SqsTarget::new(&aws, url.clone())),
            #[cfg(feature = "eventbridge")]
            Destination::EventBus(name) => {
                let bus = crate::outbox::EventBus::new(&aws, name.clone());
                // Other topics are delivered all the same, and accepted work is queued. Each delivery to this one fails.
                if let Err(error) = bus.check().await {
                    tracing::error!(topic, %error, "what is published to this topic cannot be delivered");
                }
                deliverer.target(topic, bus)
            }
            #[cfg(not(feature = "eventbridge"))]
            Destination::EventBus(_) => {
                return Err(format!(
                    "{}: {topic}: an event bus needs the feature `eventbridge`",
                    Topics::VARIABLE
                )
                .into());
            }
            Destination::Own => deliverer,
        };
    }
    Ok(deliverer)
}

/// Runs the function that delivers what operations publish, until Lambda ends it.
///
/// | trigger | what it does |
/// | --- | --- |
/// | the table's stream | asks for a delivery for each record that published, through the FIFO queue of wakes; queues accepted work |
/// | the queue of wakes | delivers a record's messages in order, and removes them |
///
/// Environment: that of [`deliverer`], and `OUTBOX_DEAD_LETTERS_QUEUE_URL`: the FIFO queue of wakes that failed too often.
///
/// ```no_run
/// use lambda_idempotency::{event, lambda};
///
/// #[tokio::main]
/// async fn main() -> Result<(), lambda::Error> {
///     lambda::logs();
///     event::outbox(event::deliverer().await?).await
/// }
/// ```
///
/// # Errors
/// If the configuration is wrong, a topic has no target, or the runtime fails.
pub async fn outbox(deliverer: Deliverer) -> Result<(), Error> {
    deliverer.check().inspect_err(lambda::report)?;
    let aws = lambda::aws().await;
    let source = SqsSource::from_env(&aws, "OUTBOX_QUEUE_URL", "OUTBOX_DEAD_LETTERS_QUEUE_URL");
    let source = source.inspect_err(lambda::report)?;
    let deliveries = deliveries(deliverer.clone(), source);
    let handle = async |event: LambdaEvent<Event>| outbox_event(&deliverer, &deliveries, event).await;
    lambda::run(service_fn(handle)).await
}

/// Handles one event: of the stream, or of the queue of wakes.
async fn outbox_event(
    deliverer: &Deliverer,
    deliveries: &impl BatchFunction,
    event: LambdaEvent<Event>,
) -> Result<BatchFailures, Error> {
    match event.payload.trigger(NO_JOB)? {
        Trigger::Stream(records) => {
            let time = time(&*deliverer.engine.world, &event.context);
            BatchFailures::of(deliverer.stream(&records, time).await)
        }
        Trigger::Messages(_) => deliveries.clone().call(event).await,
        Trigger::Job => Err(refuse("this function has no job")),
    }
}

/// The function that does what the messages of the queue of wakes ask for.
pub fn deliveries(deliverer: Deliverer, source: impl Source) -> impl BatchFunction {
    let world = deliverer.engine.world.clone();
    let work: Work = Arc::new(move |job| {
        let deliverer = deliverer.clone();
        Box::pin(async move { delivered(&deliverer, &job).await })
    });
    Consumer { world, ..Consumer::new(source, KeyFrom::body("/key")) }.max_attempts(MAX_TRIES).function(work)
}

async fn delivered(deliverer: &Deliverer, Job { message, context, .. }: &Job) -> Done {
    let Some(key) = asked_for(&message.body) else {
        return Done::refused("the message asks for no delivery");
    };
    let time = time(&*deliverer.engine.world, context);
    let ended = deliverer.deliver(&key, time).await;
    let ended = ended.map_err(|error| RunError::NotExecuted(Some(Box::new(error))));
    Done { ended, attempts: Some(message.receives) }
}

/// The record whose messages a message of the queue of wakes asks to deliver.
fn asked_for(body: &str) -> Option<RecordKey> {
    match Message::read(body) {
        Ok(Message::Deliver { key }) => RecordKey::from_partition_key(&key),
        _ => None,
    }
}
