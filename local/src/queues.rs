//! SQS: the queues, in this process's memory, at an address of their own.
//!
//! `rustack-sqs-core` keeps the messages: delays, visibility, receive counts, groups, deduplication, dead letters. It differs from SQS:
//!
//! 1. It allows any delay. This module adds SQS's limit, 15 minutes.
//! 2. It refuses the group of a message for a standard queue. This module leaves that out, so no queue here passes over a tenant.
//! 3. It hands out one message of a FIFO group at a time. SQS may hand out several in one batch. So a consumer's own order within a batch
//!    is not seen here.

use crate::{
    alarms::aws,
    changes::{self, QueueChanges},
    faults::Faults,
    metrics::Metrics,
    template::{Function, Queue},
    visitors::guarded,
};
use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig},
    types::QueueAttributeName,
};
use axum::{Router, body::Body, extract::State, http::HeaderMap, response::Response};
use bytes::Bytes;
use lambda_idempotency::telemetry::error_chain;
use rustack_sqs_core::{config::SqsConfig, handler::RustackSqsHandler, provider::RustackSqs};
use rustack_sqs_http::{
    dispatch::dispatch_operation, response::error_to_response, router::resolve_operation,
};
use rustack_sqs_model::{error::SqsError, operations::SqsOperation};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use uuid::Uuid;

/// The account of everything here.
pub const ACCOUNT: &str = "123456789012";
/// How the name of a FIFO queue ends.
pub const FIFO: &str = ".fifo";
/// Operations after which there is nothing more to receive.
const READS: [SqsOperation; 4] = [
    SqsOperation::GetQueueAttributes,
    SqsOperation::GetQueueUrl,
    SqsOperation::ListQueues,
    SqsOperation::ReceiveMessage,
];
/// SQS's limit on a delay, in seconds.
const MAX_DELAY: i64 = 900;

/// The queues, with a client.
pub struct Queues {
    pub endpoint: String,
    pub client: Client,
    pub all: Vec<Queue>,
    pub faults: Arc<Faults>,
    pub changes: QueueChanges,
    /// For how long a received message is hidden from others.
    pub visibility: Duration,
}

impl Queues {
    /// Serves no queue yet, on a loopback port of its own.
    pub async fn start(region: &str, faults: Arc<Faults>, metrics: Arc<Metrics>) -> Result<Self, String> {
        let changes = QueueChanges::default();
        let endpoint = serve(region, faults.clone(), metrics, changes.clone()).await;
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .endpoint_url(&endpoint)
            .credentials_provider(Credentials::new("local", "local", None, None, "local"))
            .retry_config(RetryConfig::disabled())
            .build();
        let (client, visibility) = (Client::from_conf(config), Duration::ZERO);
        Ok(Self { endpoint, client, all: Vec::new(), faults, changes, visibility })
    }

    /// Makes these queues. A received message is visible again after `visibility`, unless its consumer says otherwise.
    pub async fn create(&mut self, mut queues: Vec<Queue>, visibility: Duration) -> Result<(), String> {
        self.visibility = Duration::from_secs(visibility.as_secs() + 1);
        let visibility = self.visibility.as_secs().to_string();
        // Dead letters first: others name them.
        queues.sort_by_key(|queue| queue.dead_letters.is_some());
        for queue in &queues {
            let mut attributes = HashMap::from([(QueueAttributeName::VisibilityTimeout, visibility.clone())]);
            if queue.is_fifo {
                attributes.insert(QueueAttributeName::FifoQueue, "true".to_owned());
            }
            if queue.deduplicates_by_content {
                attributes.insert(QueueAttributeName::ContentBasedDeduplication, "true".to_owned());
            }
            if let Some((arn, max_receives)) = &queue.dead_letters {
                let policy = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": max_receives });
                attributes.insert(QueueAttributeName::RedrivePolicy, policy.to_string());
            }
            let create = self.client.create_queue().queue_name(&queue.full_name);
            let created = create.set_attributes(Some(attributes)).send().await;
            created.map_err(|error| format!("queue {}: {}", queue.full_name, error_chain(&error)))?;
        }
        self.all = queues;
        Ok(())
    }

    /// Where scheduled runs of this function go that fail.
    pub fn failed_runs(&self, function: &Function) -> Option<(Client, String)> {
        let queue = self.with_arn(function.failed_runs.as_ref()?)?;
        Some((self.client.clone(), queue.url.clone()))
    }

    /// The queue with this ARN.
    pub fn with_arn(&self, arn: &str) -> Option<&Queue> {
        self.all.iter().find(|queue| queue.arn == arn)
    }
}

async fn serve(
    region: &str,
    faults: Arc<Faults>,
    metrics: Arc<Metrics>,
    changes: QueueChanges,
) -> std::io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let config = SqsConfig {
        default_region: region.to_owned(),
        account_id: ACCOUNT.to_owned(),
        host: address.ip().to_string(),
        port: address.port(),
        ..SqsConfig::default()
    };
    let handler = RustackSqsHandler::new(Arc::new(RustackSqs::new(config)));
    let served = Arc::new(Served { handler, faults, metrics, changes });
    let router = guarded(Router::new().fallback(answer).with_state(served));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

struct Served {
    handler: RustackSqsHandler,
    faults: Arc<Faults>,
    metrics: Arc<Metrics>,
    changes: QueueChanges,
}

async fn answer(State(served): State<Arc<Served>>, headers: HeaderMap, body: Bytes) -> Response {
    let answered = async {
        let operation = resolve_operation(&headers)?;
        let sent: Sent = serde_json::from_slice(&body).unwrap_or_default();
        check_delays(&sent)?;
        if sent.messages() > 0 {
            if served.faults.is_closed(sent.queue()) {
                return Err(SqsError::internal_error("a drill"));
            }
            let metric = aws::of_queue(sent.queue(), "NumberOfMessagesSent");
            served.metrics.note(metric, sent.messages() as f64);
        }
        let answer = dispatch_operation(&served.handler, operation, without_groups(body)).await;
        if !READS.contains(&operation) {
            changes::happened(&served.changes.of(sent.queue()), sent.waits());
        }
        answer
    };
    let refuse = |error: SqsError| error_to_response(&error, &Uuid::new_v4().to_string());
    answered.await.unwrap_or_else(refuse).map(Body::new)
}

/// What is read of a request. Most of it is missing in a request that sends no message.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Sent {
    queue_url: String,
    message_body: Option<IgnoredAny>,
    delay_seconds: Option<i64>,
    visibility_timeout: Option<i64>,
    entries: Vec<Sent>,
}

impl Sent {
    fn messages(&self) -> usize {
        usize::from(self.message_body.is_some()) + self.entries.iter().map(Self::messages).sum::<usize>()
    }

    /// How long until the messages that it is about can be received.
    fn waits(&self) -> impl Iterator<Item = Duration> {
        let all = self.entries.iter().chain([self]);
        let seconds = all.flat_map(|sent| [sent.delay_seconds, sent.visibility_timeout]).flatten();
        seconds.filter_map(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
    }

    /// The queue's name.
    fn queue(&self) -> &str {
        self.queue_url.rsplit('/').next().unwrap_or_default()
    }
}

/// The same request without groups, if it is about a standard queue.
fn without_groups(body: Bytes) -> Bytes {
    const GROUP: &str = "MessageGroupId";
    // The operation refuses other JSON.
    let Ok(Value::Object(mut request)) = serde_json::from_slice(&body) else { return body };
    if request.get("QueueUrl").and_then(Value::as_str).is_none_or(|url| url.ends_with(FIFO)) {
        return body;
    }
    let mut removed = request.remove(GROUP).is_some();
    let entries = request.get_mut("Entries").and_then(Value::as_array_mut).into_iter().flatten();
    for entry in entries.filter_map(Value::as_object_mut) {
        removed |= entry.remove(GROUP).is_some();
    }
    if removed { Value::Object(request).to_string().into() } else { body }
}

/// Refuses delays beyond the limit. It refuses a whole batch; SQS would refuse the one entry.
fn check_delays(sent: &Sent) -> Result<(), SqsError> {
    let mut all = sent.entries.iter().chain([sent]).filter_map(|sent| sent.delay_seconds);
    match all.find(|delay| !(0..=MAX_DELAY).contains(delay)) {
        None => Ok(()),
        Some(delay) => Err(SqsError::invalid_parameter_value(format!(
            "Value {delay} for parameter DelaySeconds is invalid. \
             Reason: DelaySeconds must be >= 0 and <= {MAX_DELAY}."
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sent_message_is_a_change_and_an_empty_receive_is_none() {
        let queues = Queues::start("eu-central-1", Arc::default(), Arc::default()).await;
        let mut queues = queues.expect("they are served");
        let url = format!("{}/{ACCOUNT}/local-checks", queues.endpoint);
        let queue = Queue {
            name: "checks".to_owned(),
            full_name: "local-checks".to_owned(),
            url: url.clone(),
            arn: format!("arn:aws:sqs:eu-central-1:{ACCOUNT}:local-checks"),
            dead_letters: None,
            is_fifo: false,
            deduplicates_by_content: false,
        };
        queues.create(vec![queue], Duration::from_secs(10)).await.expect("it is made");
        let mut changes = queues.changes.of("local-checks").subscribe();
        let receive = || queues.client.receive_message().queue_url(&url).send();
        receive().await.expect("it is received");
        assert!(!changes.has_changed().expect("they are kept"));
        queues.client.send_message().queue_url(&url).message_body("m").send().await.expect("it is sent");
        assert!(changes.has_changed().expect("they are kept"));
        changes.mark_unchanged();
        let received = receive().await.expect("it is received").messages.unwrap_or_default();
        assert!(!changes.has_changed().expect("they are kept"));
        let receipt = received[0].receipt_handle().expect("a receipt");
        let hide = queues.client.change_message_visibility().queue_url(&url).receipt_handle(receipt);
        hide.visibility_timeout(1).send().await.expect("it is hidden");
        changes.changed().await.expect("at once");
        changes.changed().await.expect("when it can be received again");
        assert_eq!(receive().await.expect("it is received").messages.unwrap_or_default().len(), 1);
    }
}
