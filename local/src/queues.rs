//! SQS: the queues, in this process's memory, at an address of their own.
//!
//! `rustack-sqs-core` keeps the messages: delays, visibility, receive counts, groups, deduplication, dead letters. It differs from SQS:
//!
//! 1. It allows any delay. This module adds SQS's limit, 15 minutes.
//! 2. It hands out one message of a FIFO group at a time. SQS may hand out several in one batch. So a consumer's own order within a batch
//!    is not seen here.

use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig},
    types::QueueAttributeName,
};
use axum::{Router, body::Body, extract::State, http::HeaderMap, response::Response};
use bytes::Bytes;
use lambda_idempotency::internal::error_chain;
use rustack_sqs_core::{config::SqsConfig, handler::RustackSqsHandler, provider::RustackSqs};
use rustack_sqs_http::{
    dispatch::dispatch_operation, response::error_to_response, router::resolve_operation,
};
use rustack_sqs_model::error::SqsError;
use serde::Deserialize;
use serde_json::json;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use uuid::Uuid;

/// The account of everything here.
pub const ACCOUNT: &str = "123456789012";
/// How many times a message is received before it goes to the dead-letter queue.
const MAX_RECEIVES: u32 = 5;
/// The same for deferred reports, which may be the only trace of an effect.
const MAX_RECEIVES_OF_REPORTS: u32 = 400;
/// The same for a queue whose consumer decides by itself: the most that SQS allows.
const MOST_RECEIVES: u32 = 1_000;
/// How the name of a FIFO queue ends.
pub const FIFO: &str = ".fifo";
/// Whose orders are in the queue. By HTTP, they come with `Authorization: Bearer acme`.
const ORDERS_TENANT: &str = "acme";
/// SQS's limit on a delay, in seconds.
const MAX_DELAY: i64 = 900;

/// The queues, with a client.
pub struct Queues {
    pub endpoint: String,
    pub client: Client,
    pub checks: Queue,
    pub sweeps: Queue,
    pub reconcile: Queue,
    /// Reports that workers could not write, with dead letters of their own.
    pub deferred_reports: Queue,
    pub deferred_reports_dead_letters: Queue,
    pub dead_letters: Queue,
    /// Orders from another front than HTTP: a FIFO queue, with dead letters of its own.
    pub orders: Queue,
    pub orders_dead_letters: Queue,
    /// Which records have messages to be delivered: a FIFO queue.
    pub outbox: Queue,
    pub outbox_dead_letters: Queue,
    /// What the event bus sends: orders to be shipped.
    pub shipments: Queue,
    pub shipments_dead_letters: Queue,
    /// Accepted work, for the worker.
    pub work: Queue,
    pub work_dead_letters: Queue,
}

#[derive(Clone)]
pub struct Queue {
    pub url: String,
    pub arn: String,
}

impl Queues {
    /// Serves empty queues, whose names begin with `prefix`, on a loopback port of their own. A received message is visible again after
    /// `visibility`, unless its consumer says otherwise.
    pub async fn start(prefix: &str, region: &str, visibility: Duration) -> Result<Self, String> {
        let endpoint = serve(region).await.map_err(|error| error.to_string())?;
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .endpoint_url(&endpoint)
            .credentials_provider(Credentials::new("local", "local", None, None, "local"))
            .retry_config(RetryConfig::disabled())
            .build();
        let client = Client::from_conf(config);
        let visibility = (visibility.as_secs() + 1).to_string();
        let create = async |name: &str, dead_letters: Option<(&Queue, u32)>| {
            let name = format!("{prefix}{name}");
            let mut attributes = HashMap::from([(QueueAttributeName::VisibilityTimeout, visibility.clone())]);
            if name.ends_with(FIFO) {
                attributes.insert(QueueAttributeName::FifoQueue, "true".to_owned());
            }
            if let Some((queue, max_receives)) = dead_letters {
                let policy = json!({ "deadLetterTargetArn": queue.arn, "maxReceiveCount": max_receives });
                attributes.insert(QueueAttributeName::RedrivePolicy, policy.to_string());
            }
            let created =
                client.create_queue().queue_name(&name).set_attributes(Some(attributes)).send().await;
            let created = created.map_err(|error| format!("queue {name}: {}", error_chain(&error)))?;
            let arn = format!("arn:aws:sqs:{region}:{ACCOUNT}:{name}");
            Ok::<_, String>(Queue { url: created.queue_url.unwrap_or_default(), arn })
        };
        let dead_letters = create("dead-letters", None).await?;
        let checks = create("checks", Some((&dead_letters, MAX_RECEIVES))).await?;
        let sweeps = create("sweep", Some((&dead_letters, MAX_RECEIVES))).await?;
        let reconcile = create("reconcile", Some((&dead_letters, MAX_RECEIVES))).await?;
        let deferred_reports_dead_letters = create("deferred-reports-dead-letters", None).await?;
        let deferred_reports =
            create("deferred-reports", Some((&deferred_reports_dead_letters, MAX_RECEIVES_OF_REPORTS)))
                .await?;
        let orders_dead_letters = create("orders-dead-letters.fifo", None).await?;
        let orders = create("orders.fifo", Some((&orders_dead_letters, MOST_RECEIVES))).await?;
        let outbox_dead_letters = create("outbox-dead-letters.fifo", None).await?;
        let outbox = create("outbox.fifo", Some((&outbox_dead_letters, MOST_RECEIVES))).await?;
        let shipments_dead_letters = create("shipments-dead-letters", None).await?;
        let shipments = create("shipments", Some((&shipments_dead_letters, MOST_RECEIVES))).await?;
        let work_dead_letters = create("work-dead-letters", None).await?;
        let work = create("work", Some((&work_dead_letters, MOST_RECEIVES))).await?;
        Ok(Self {
            endpoint,
            client,
            checks,
            sweeps,
            reconcile,
            deferred_reports,
            deferred_reports_dead_letters,
            dead_letters,
            orders,
            orders_dead_letters,
            outbox,
            outbox_dead_letters,
            shipments,
            shipments_dead_letters,
            work,
            work_dead_letters,
        })
    }

    /// The environment variables by which a function finds these queues.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_SQS", self.endpoint.clone()),
            ("CHECKS_QUEUE_URL", self.checks.url.clone()),
            ("SWEEP_QUEUE_URL", self.sweeps.url.clone()),
            ("RECONCILE_QUEUE_URL", self.reconcile.url.clone()),
            ("DEFERRED_REPORTS_QUEUE_URL", self.deferred_reports.url.clone()),
            ("DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL", self.deferred_reports_dead_letters.url.clone()),
            ("DEAD_LETTERS_QUEUE_URL", self.dead_letters.url.clone()),
            ("ORDERS_QUEUE_URL", self.orders.url.clone()),
            ("ORDERS_DEAD_LETTERS_QUEUE_URL", self.orders_dead_letters.url.clone()),
            ("OUTBOX_QUEUE_URL", self.outbox.url.clone()),
            ("OUTBOX_DEAD_LETTERS_QUEUE_URL", self.outbox_dead_letters.url.clone()),
            ("WORK_QUEUE_URL", self.work.url.clone()),
            ("WORK_DEAD_LETTERS_QUEUE_URL", self.work_dead_letters.url.clone()),
            ("SHIPMENTS_QUEUE_URL", self.shipments.url.clone()),
            ("SHIPMENTS_DEAD_LETTERS_QUEUE_URL", self.shipments_dead_letters.url.clone()),
            ("ORDERS_TENANT", ORDERS_TENANT.to_owned()),
        ]
    }
}

async fn serve(region: &str) -> std::io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let config = SqsConfig {
        default_region: region.to_owned(),
        account_id: ACCOUNT.to_owned(),
        host: address.ip().to_string(),
        port: address.port(),
        ..SqsConfig::default()
    };
    let handler = Arc::new(RustackSqsHandler::new(Arc::new(RustackSqs::new(config))));
    let router = Router::new().fallback(answer).with_state(handler);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

async fn answer(State(handler): State<Arc<RustackSqsHandler>>, headers: HeaderMap, body: Bytes) -> Response {
    let answered = async {
        let operation = resolve_operation(&headers)?;
        check_delays(&body)?;
        dispatch_operation(&*handler, operation, body).await
    };
    let refuse = |error: SqsError| error_to_response(&error, &Uuid::new_v4().to_string());
    answered.await.unwrap_or_else(refuse).map(Body::new)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Delays {
    delay_seconds: Option<i64>,
    entries: Vec<Delays>,
}

/// Refuses delays beyond the limit. It refuses a whole batch; SQS would refuse the one entry.
fn check_delays(body: &[u8]) -> Result<(), SqsError> {
    // The operation refuses other JSON.
    let delays: Delays = serde_json::from_slice(body).unwrap_or_default();
    let mut all = delays.entries.iter().chain([&delays]).filter_map(|delays| delays.delay_seconds);
    match all.find(|delay| !(0..=MAX_DELAY).contains(delay)) {
        None => Ok(()),
        Some(delay) => Err(SqsError::invalid_parameter_value(format!(
            "Value {delay} for parameter DelaySeconds is invalid. \
             Reason: DelaySeconds must be >= 0 and <= {MAX_DELAY}."
        ))),
    }
}
