//! The consumer of a queue.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use futures_util::future::BoxFuture;
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};
use serde::{Serialize, de::DeserializeOwned};
use tower_service::Service;

#[cfg(feature = "s3")]
use super::payload::Payloads;
use super::{
    Envelope, KeyFrom, Message, Source, cloud_event,
    feed::{Feed, Has},
    parked::Parked,
};
use crate::{
    engine::Execution,
    error_chain::json_error,
    function::{Failure, Guard, RunError},
    key::{FoundKey, Tenant},
    lambda::trigger::{BatchFailures, Event},
    time::Timestamp,
    world::{SystemWorld, World},
};

/// How many messages run at once.
const AT_ONCE: usize = 10;

/// How many executions of a message there are.
const MAX_ATTEMPTS: u32 = 10;

/// Runs a function for each message of a queue, once for its key. See the [module](super) for what the queue sees.
///
/// ```no_run
/// use lambda_idempotency::{DynamoDbStore, Execution, Failure, Guard, Operation, lambda};
/// use lambda_idempotency::{event::{Consumer, KeyFrom, SqsSource}, key::Tenant};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Order {
///     id: String,
/// }
///
/// async fn ship(execution: Execution, order: Order) -> Result<(), Failure> {
///     let key = execution.downstream_key("carrier"); // the carrier's idempotency key
///     println!("{} {key}", order.id);
///     Ok(())
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), lambda::Error> {
///     lambda::logs();
///     let guard = Guard::new(DynamoDbStore::from_env().await?, Operation::new("ship"), Tenant::parse("shop")?);
///     let queue = SqsSource::from_env(&lambda::aws().await, "ORDERS_QUEUE_URL", "ORDERS_DEAD_LETTERS_QUEUE_URL")?;
///     lambda::run(Consumer::new(queue, KeyFrom::body("/id")).each(guard, ship)).await
/// }
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Consumer {{ name: {name:?}, key: {key:?}, .. }}")]
#[must_use]
pub struct Consumer {
    pub(super) source: Arc<dyn Source>,
    /// What its source does in its own way.
    pub(super) feed: Arc<dyn Feed>,
    /// The source's name.
    pub(super) name: Arc<str>,
    pub(super) key: KeyFrom,
    /// From outside in.
    pub(super) envelopes: Arc<[Envelope]>,
    #[cfg(feature = "s3")]
    pub(super) payloads: Option<Payloads>,
    /// Whom a message is for, if its consumer has several tenants and knows it before the message is run.
    pub(super) tenant: Option<Arc<TenantOf>>,
    pub(super) at_once: usize,
    pub(super) max_attempts: u32,
    pub(super) parked: Arc<Parked>,
    pub(super) world: Arc<dyn World>,
}

/// A message that is run.
pub(super) struct Job {
    pub(super) key: FoundKey,
    pub(super) message: Arc<Message>,
    /// Of the invocation.
    pub(super) context: Arc<Context>,
    /// Where the message is from, for operators.
    pub(super) origin: String,
    /// How many executions there may have been for another one to begin, if there is an end to that.
    pub(super) at_most: Option<u32>,
}

/// What became of a job.
pub(super) struct Done {
    pub(super) ended: Result<(), RunError>,
    /// How many executions there were, if a record counts them.
    pub(super) attempts: Option<u32>,
}

/// Finds the tenant of a message.
pub(super) type TenantOf = dyn Fn(&Message) -> Option<Tenant> + Send + Sync;

/// Runs one message.
pub(super) type Work = Arc<dyn Fn(Job) -> BoxFuture<'static, Done> + Send + Sync>;

impl Consumer {
    /// A consumer of this queue, whose messages have their keys where `key` says.
    pub fn new(source: impl Source, key: KeyFrom) -> Self {
        let feed: Arc<dyn Feed> = source.kind().feed(source.name()).into();
        Self {
            max_attempts: MAX_ATTEMPTS,
            parked: Arc::default(),
            feed,
            name: source.name().into(),
            source: Arc::new(source),
            key,
            envelopes: Arc::default(),
            #[cfg(feature = "s3")]
            payloads: None,
            tenant: None,
            at_once: AT_ONCE,
            world: Arc::new(SystemWorld),
        }
    }

    /// Opens what other services wrapped around each message, from outside in: `[Envelope::Sns, Envelope::S3]` for notifications of S3 that
    /// SNS delivers to the queue. Default: nothing.
    ///
    /// # Panics
    /// If no message can be in these.
    pub fn envelopes(self, envelopes: impl IntoIterator<Item = Envelope>) -> Self {
        let envelopes: Arc<[_]> = envelopes.into_iter().collect();
        Envelope::assert_nested(&envelopes);
        Self { envelopes, ..self }
    }

    /// Loads the payloads that Amazon's extended clients of SQS and SNS keep in these buckets, of 8 MiB each at most, before anything else is
    /// done. The body of such a message is the payload; its key and its fingerprint are of that. Without this, the message goes to the dead
    /// letters, as does one whose payload is in another bucket, is not there, is longer, or is not text.
    ///
    /// Whoever sends a message chooses the object: keep nothing else in these buckets. Needs `s3:GetObject` on their objects, and
    /// `s3:ListBucket` on the buckets: without it, S3 does not say that an object is missing. Give the client time-outs. Objects are not
    /// deleted: a lifecycle rule may do that, a day or more after a message can come for the last time.
    ///
    /// # Panics
    /// If there are no buckets.
    #[cfg(feature = "s3")]
    pub fn payloads_in(
        self,
        client: aws_sdk_s3::Client,
        buckets: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self { payloads: Some(Payloads::new(client, buckets)), ..self }
    }

    /// How many messages of a batch run at once. Default: 10.
    ///
    /// # Panics
    /// If it is 0.
    pub fn at_once(self, at_once: usize) -> Self {
        assert!(at_once > 0, "at_once(0) would run no message");
        Self { at_once, ..self }
    }

    /// After how many executions that certainly did nothing, or were interrupted, a message goes to the dead letters. Default: 10, which are
    /// over after about 9 minutes of a queue, and after about 2 of a stream. Each time that it is sent back from there, it is tried once more.
    ///
    /// The queue's `maxReceiveCount` counts more than executions: each receive while a message is in flight, held or behind another of its
    /// group. Let it be 1,000, the most that SQS allows.
    ///
    /// # Panics
    /// If it is 0.
    pub fn max_attempts(self, attempts: u32) -> Self {
        assert!(attempts > 0, "max_attempts(0) would run no message");
        Self { max_attempts: attempts, ..self }
    }

    /// Takes the clock and randomness from `world`: for tests.
    pub fn world(self, world: impl World) -> Self {
        Self { world: Arc::new(world), ..self }
    }

    /// The function that Lambda runs for the queue's batches: for [`lambda::run`](crate::lambda::run). `guard` keeps the records. The event
    /// source mapping needs `FunctionResponseTypes: [ReportBatchItemFailures]`: without it, Lambda deletes messages that are handed back.
    ///
    /// `function` takes each message's body, which must be JSON of `I`. Another goes to the dead letters. Its result is kept.
    ///
    /// A second message with the same key must have the same body, else it goes to the dead letters. Of a [CloudEvent](https://cloudevents.io),
    /// `id`, `source`, `type`, `subject` and data are compared: a proxy may add members. A [custom rule](crate::fingerprint::FingerprintRule::custom)
    /// sees these alone.
    ///
    /// # Panics
    /// If the messages cannot have such a key: of an envelope that is not opened, or a deduplication id in a standard queue. If the key is a hash, and
    /// the operation [refuses old keys](crate::Operation::refuse_older_than).
    pub fn each<I, T, F, H>(self, guard: Guard, function: F) -> impl BatchFunction
    where
        I: DeserializeOwned + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(Execution, I) -> H + Clone + Send + Sync + 'static,
        H: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        guard.operation().assert_dates(&self.key);
        self.function(Arc::new(move |job| Box::pin(run(job, guard.clone(), function.clone()))))
    }

    /// The same for messages of several tenants. One for which `tenant` finds none goes to the dead letters.
    ///
    /// Everything in a message can be set by its sender. So use this only if the queue's policy lets none but verified producers send
    /// messages, which say truly whom each is for.
    pub fn each_of_tenants<I, T, F, H>(
        self,
        tenant: impl Fn(&Message) -> Option<Tenant> + Send + Sync + 'static,
        guard: Guard,
        function: F,
    ) -> impl BatchFunction
    where
        I: DeserializeOwned + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(Execution, I) -> H + Clone + Send + Sync + 'static,
        H: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        guard.operation().assert_dates(&self.key);
        let tenant: Arc<TenantOf> = Arc::new(tenant);
        let consumer = Self { tenant: Some(tenant.clone()), ..self };
        consumer.function(Arc::new(move |job| match tenant(&job.message) {
            Some(tenant) => Box::pin(run(job, guard.clone().tenant(tenant), function.clone())),
            None => Box::pin(async { Done::refused("the message names no tenant") }),
        }))
    }

    /// A function that does this work for each message.
    pub(super) fn function(self, work: Work) -> impl BatchFunction {
        let has = self.feed.has();
        let attributes = self.envelopes.last().map_or(has.attributes, |innermost| innermost.has_attributes());
        self.key.assert_found(!self.envelopes.is_empty(), Has { attributes, ..has });
        service_fn(move |event: LambdaEvent<Event>| -> BoxFuture<'static, _> {
            let (consumer, work) = (self.clone(), work.clone());
            Box::pin(async move { consumer.batch(&event.payload, event.context, &work).await })
        })
    }
}

/// A function for the batches of a queue.
pub trait BatchFunction:
    Service<
        LambdaEvent<Event>,
        Response = BatchFailures,
        Error = Error,
        Future = BoxFuture<'static, Result<BatchFailures, Error>>,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> BatchFunction for S where
    S: Service<
            LambdaEvent<Event>,
            Response = BatchFailures,
            Error = Error,
            Future = BoxFuture<'static, Result<BatchFailures, Error>>,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

impl Done {
    /// It cannot be run.
    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self { ended: Err(RunError::Refused(reason.into())), attempts: None }
    }

    /// What is around its function panicked. Nothing was done, as far as is known here.
    pub(super) fn panicked() -> Self {
        tracing::error!("what is around a message's function panicked: its tenant, its request, or a layer");
        let error = "what is around its function panicked";
        Self { ended: Err(RunError::NotExecuted(Some(error.into()))), attempts: None }
    }
}

/// Runs the function for one message.
async fn run<I, T, F, H>(job: Job, guard: Guard, function: F) -> Done
where
    I: DeserializeOwned + Send + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(Execution, I) -> H + Send + 'static,
    H: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let Job { key, message, context, origin, at_most } = job;
    let guard = guard.until(Timestamp::from_millis(context.deadline)).origin(&origin);
    let input: I = match serde_json::from_str(&message.body) {
        Ok(input) => input,
        Err(error) => {
            let what = json_error(&error);
            return Done::refused(format!("the body is not what the function takes: {what}"));
        }
    };
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let intent = cloud_event::intent(&message.body);
    let ended = guard.run_body::<T, _, _>(key, intent.as_bytes(), move |execution: Execution| {
        counted.store(execution.attempts(), Ordering::Relaxed);
        let is_over = at_most.is_some_and(|most| execution.attempts() > most);
        async move {
            // What was parked comes again with its batch. It runs no more, because what is behind it has run.
            if is_over {
                Err(Failure::not_executed("its tries were over"))
            } else {
                function(execution, input).await
            }
        }
    });
    let ended = ended.await.map(|_| ());
    let attempts = Some(attempts.load(Ordering::Relaxed)).filter(|attempts| *attempts > 0);
    Done { ended, attempts }
}
