//! The worker of asynchronous operations.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use lambda_http::{Body, RequestExt};
use lambda_runtime::Context;
use tower_service::Service;
use tracing::Instrument;

use super::{
    BatchFunction, Consumer, KeyFrom, Source,
    consumer::{Done, Job, Work},
    route::done,
};
use crate::{
    engine::Engine,
    function::RunError,
    http::read_accepted,
    key::RecordKey,
    message::Message,
    record::{BodyId, Place},
    store::{Store, StoreError},
    telemetry,
};

impl Consumer {
    /// The consumer of the queue to which the [outbox function](super::outbox) sends accepted work: see [`work`](Self::work).
    pub fn worker(source: impl Source) -> Self {
        Self::new(source, KeyFrom::body("/request"))
    }

    /// The function that executes what was accepted by [asynchronous](crate::Operation::asynchronous) operations: for
    /// [`lambda::run`](crate::lambda::run). `service` is the guarded router that accepted it, `store` the store of its records. Leave out layers
    /// around it that verify callers or bound their time: a request is verified when it is accepted, and no client waits for its answer.
    ///
    /// A handler gets method, URI, body, what the request says of its media types and languages, and what the authorizer of API Gateway
    /// verified; of `lambda_http`'s extensions, query and path parameters, and the request context with the authorizer alone.
    ///
    /// The guard of the route takes the record over, runs its handler with the accepted request, and keeps the answer. A message stays in the
    /// queue until its record is settled:
    ///
    /// | the record | what the queue sees |
    /// | --- | --- |
    /// | pending, or waiting between workers | the handler runs |
    /// | settled, now or before | the request is deleted, the message is acknowledged |
    /// | in progress | it is handed back until the lease is over |
    /// | certainly not executed now, so pending again | it is handed back, each time for longer |
    /// | interrupted between phases | the same; after [some attempts](Self::max_attempts) it goes to the dead letters |
    /// | unknown | it is held until reconciliation asks next, but half an hour at most |
    ///
    /// A message whose route is gone goes to the dead letters: nothing is run, and the record ends with 408 in time. Pass the guarded router: a
    /// handler without its guard is run, and only then does the message go to the dead letters.
    pub fn work<S, R>(self, store: impl Store, service: S) -> impl BatchFunction
    where
        S: Service<Request<Body>, Response = Response<R>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: fmt::Display + Send,
        R: Send + 'static,
    {
        let engine = Engine { store: Arc::new(store), world: self.world.clone() };
        let max_attempts = self.max_attempts;
        let work: Work = Arc::new(move |job| {
            let (engine, service) = (engine.clone(), service.clone());
            Box::pin(async move { executed(&engine, service, job, max_attempts).await })
        });
        // The record counts executions that did nothing, and ends after the last one.
        self.max_attempts(u32::MAX).function(work)
    }
}

async fn executed<S, R>(engine: &Engine, service: S, job: Job, max_attempts: u32) -> Done
where
    S: Service<Request<Body>, Response = Response<R>>,
    S::Error: fmt::Display,
{
    let Job { message, context, .. } = job;
    let Some((key, id)) = asked_for(&message.body) else {
        return Done::refused("the message asks for no accepted work");
    };
    let span = telemetry::record_span(&key);
    claimed(engine, service, (key, id), &context, max_attempts).instrument(span).await
}

async fn claimed<S, R>(
    engine: &Engine,
    mut service: S,
    (key, id): (RecordKey, BodyId),
    context: &Context,
    max_attempts: u32,
) -> Done
where
    S: Service<Request<Body>, Response = Response<R>>,
    S::Error: fmt::Display,
{
    let kept = match engine.bounded(None, engine.store.load_body(&key, id, Place::BodyItem)).await {
        Ok(Some(kept)) => kept,
        Ok(None) => {
            return match waits(engine, &key, id).await {
                // Written together, and not read together. If it is lost, the record ends when its time to wait is over.
                Ok(true) => {
                    tracing::error!("the request of accepted work is missing: the message comes again");
                    Done { ended: Err(RunError::Unavailable), attempts: None }
                }
                Ok(false) => Done { ended: Ok(()), attempts: None },
                Err(error) => unavailable(&error),
            };
        }
        Err(error) => return unavailable(&error),
    };
    let Some(request) = read_accepted(key.clone(), id, &kept) else {
        return Done::refused("the accepted request is not as this version keeps it");
    };
    let request = request.map(|body: Bytes| match String::from_utf8(body.into()) {
        Ok(text) if text.is_empty() => Body::Empty,
        Ok(text) => Body::Text(text),
        Err(bytes) => Body::Binary(bytes.into_bytes()),
    });
    let request = request.with_lambda_context(context.clone());
    let ready = std::future::poll_fn(|cx| service.poll_ready(cx)).await;
    let answered = match ready {
        Ok(()) => service.call(request).await,
        Err(error) => Err(error),
    };
    let response = match answered {
        Ok(response) => response,
        Err(error) => {
            // It is outside of the guard: what is inside keeps its answer.
            tracing::error!(%error, "the service of accepted work failed");
            return Done { ended: Err(RunError::NotExecuted(None)), attempts: None };
        }
    };
    let Done { ended, attempts } = done(response.extensions(), response.status());
    match ended {
        // Its report may still be in a queue, and may be refused: then the request is needed again.
        Ok(()) => match waits(engine, &key, id).await {
            Ok(false) => {
                // If this fails, a sweep deletes it.
                if let Err(error) = engine.sent_again(|| engine.store.delete_body(&key, id)).await {
                    let cause = error.cause();
                    tracing::warn!(cause, "the request of accepted work could not be deleted yet");
                }
                Done { ended: Ok(()), attempts }
            }
            Ok(true) => Done { ended: Err(RunError::Unavailable), attempts },
            Err(error) => unavailable(&error),
        },
        Err(RunError::Interrupted(error)) if attempts.is_some_and(|attempts| attempts >= max_attempts) => {
            match waits(engine, &key, id).await {
                Ok(true) => {}
                // Its last execution ended it.
                Ok(false) => return Done { ended: Ok(()), attempts },
                Err(error) => return unavailable(&error),
            }
            let why = error.map(|error| format!(": {error}")).unwrap_or_default();
            Done::refused(format!(
                "it was interrupted {max_attempts} times, and parts of it may be done{why}"
            ))
        }
        ended => Done { ended, attempts },
    }
}

/// The record and the request that a message asks to execute.
fn asked_for(body: &str) -> Option<(RecordKey, BodyId)> {
    let Ok(Message::Work { key, request }) = Message::read(body) else { return None };
    Some((RecordKey::from_partition_key(&key)?, request.parse().ok()?))
}

/// Whether what was accepted with this request is not settled yet.
async fn waits(engine: &Engine, key: &RecordKey, id: BodyId) -> Result<bool, StoreError> {
    let record = engine.bounded(None, engine.store.load(key)).await?;
    Ok(record.is_some_and(|record| record.needs_request(id)))
}

fn unavailable(error: &StoreError) -> Done {
    tracing::error!(cause = error.cause(), "accepted work could not be read");
    Done { ended: Err(RunError::Unavailable), attempts: None }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use async_trait::async_trait;
    use lambda_runtime::{LambdaEvent, service_fn};
    use serde_json::json;

    use super::*;
    use crate::{
        event::MemorySource,
        record::{Record, Revision, tests::reservation},
        store::{AuditLine, Companion, WriteOutcome},
        time::Timestamp,
        time_budget::STORE_TIMEOUT,
        world::{ManualWorld, World},
    };

    type Stored<T> = Result<T, StoreError>;

    /// A store that never answers, except that it has no bodies if it says so.
    struct Silent {
        has_no_bodies: bool,
    }

    #[async_trait]
    impl Store for Silent {
        async fn put(&self, _: Option<Revision>, _: &Record, _: &[Companion]) -> Stored<WriteOutcome> {
            pending().await
        }

        fn retry_budget(&self) -> Option<&crate::store::RetryBudget> {
            None
        }

        fn records_table(&self) -> Option<&str> {
            None
        }

        async fn load(&self, _: &RecordKey) -> Stored<Option<Record>> {
            pending().await
        }

        fn body_capacity(&self, _: &Record) -> usize {
            0
        }

        async fn keep_body(&self, _: &RecordKey, _: BodyId, _: Bytes, _: Timestamp) -> Stored<Option<Place>> {
            pending().await
        }

        async fn load_body(&self, _: &RecordKey, _: BodyId, _: Place) -> Stored<Option<Bytes>> {
            if self.has_no_bodies { Ok(None) } else { pending().await }
        }

        async fn audit(&self, _: &RecordKey, _: Revision, _: &AuditLine) -> Stored<()> {
            pending().await
        }

        async fn audit_lines(&self, _: &RecordKey) -> Stored<Vec<AuditLine>> {
            pending().await
        }
    }

    // A worker that is killed hands nothing back, and all messages of its batch come again.
    #[tokio::test]
    async fn work_comes_again_though_its_store_never_answers() {
        for has_no_bodies in [false, true] {
            let world = ManualWorld::at(Timestamp::from_secs(1_000));
            let service = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(())) });
            let consumer = Consumer::worker(MemorySource::new("work")).world(world.clone());
            let mut worker = consumer.work(Silent { has_no_bodies }, service);
            let key = reservation("k").key.partition_key();
            let asked = Message::Work { key, request: BodyId::from(world.nonce()).to_string() };
            let message = json!({
                "messageId": "m-1",
                "receiptHandle": "r-1",
                "body": asked.to_json(),
                "attributes": { "ApproximateReceiveCount": "1" },
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:work",
            });
            let event = serde_json::from_value(json!({ "Records": [message] })).expect("an event");
            let worked = world.passing(worker.call(LambdaEvent::new(event, Context::default()))).await;
            assert_eq!(worked.expect("an answer").identifiers(), ["m-1"]);
            assert_eq!(world.running(), STORE_TIMEOUT);
        }
    }
}
