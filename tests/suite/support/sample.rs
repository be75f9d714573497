//! The sample's functions as processes, with separate tables, queues and a provider for each test.

use std::time::SystemTime;

use axum::http::StatusCode;
use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::{key::signature::Secrets, store::dynamodb::DynamoDbStore};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    client::client,
    embedded,
    function::{Function, Queues},
    tables,
};

/// The secret with which the provider signs.
const WEBHOOK_SECRET: &str = "a-secret-of-the-provider";

/// The queue of orders.
pub const ORDERS: &str = "orders.fifo";

/// The resources that the functions use.
pub struct Sample {
    pub queues: Queues,
    pub reports: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Sample {
    /// With payments in this table, and the provider at this URL.
    pub async fn new(payments: &str, provider: &str) -> Self {
        let (endpoint, queues) = (embedded::endpoint(), Queues::default());
        let reports = tempfile::tempdir().expect("a folder for reports");
        let sqs = queues.start().await;
        let queue = |name| format!("{sqs}/123456789012/{name}");
        let variables = vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", endpoint.to_owned()),
            ("AWS_ENDPOINT_URL_SQS", sqs.clone()),
            ("IDEMPOTENCY_TABLE", tables::idempotency_table(&client(endpoint)).await),
            ("PAYMENTS_TABLE", payments.to_owned()),
            ("ACCOUNTS_TABLE", payments.to_owned()),
            ("ORDERS_TABLE", tables::ledger_table(endpoint).await),
            ("PROVIDER_URL", provider.to_owned()),
            ("CHECKS_QUEUE_URL", queue("checks")),
            ("SWEEP_QUEUE_URL", queue("sweep")),
            ("RECONCILE_QUEUE_URL", queue("reconcile")),
            ("DEFERRED_REPORTS_QUEUE_URL", queue("deferred-reports")),
            ("DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL", queue("deferred-reports-dead-letters")),
            ("CONTRADICTIONS_QUEUE_URL", queue("contradictions")),
            ("ORDERS_QUEUE_URL", queue(ORDERS)),
            ("ORDERS_DEAD_LETTERS_QUEUE_URL", queue("orders-dead-letters.fifo")),
            ("ORDERS_TENANT", "acme".to_owned()),
            ("WEBHOOK_SECRETS", WEBHOOK_SECRET.to_owned()),
            ("SEALING_KEYS", BASE64_STANDARD.encode([7; 64])),
            ("OUTBOX_TOPICS", "order.placed=bus:shop".to_owned()),
            ("REPORTS", reports.path().to_str().expect("a path").to_owned()),
        ];
        Self { queues, reports, variables }
    }

    /// The store of its records.
    pub fn store(&self) -> DynamoDbStore {
        let table = self.variables.iter().find(|(name, _)| *name == "IDEMPOTENCY_TABLE");
        let (_, table) = table.expect("it has a table of records");
        DynamoDbStore::from_client(client(embedded::endpoint()), table.as_str())
    }

    /// Starts a function, with these additional variables.
    pub async fn start(&self, function: &str, more: &[(&str, &str)]) -> Function {
        Function::start(function, &self.variables(more)).await
    }

    /// The log of a function that refuses to start with these additional variables.
    pub async fn refuses_to_start(&self, function: &str, more: &[(&str, &str)]) -> String {
        Function::refuses_to_start(function, &self.variables(more)).await
    }

    /// The values of the variables that it gives to every function.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, &**value))
    }

    fn variables<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let variables = self.variables.iter().map(|(name, value)| (*name, &**value));
        variables.chain(more.iter().copied()).collect()
    }
}

/// A request as an HTTP API delivers it after its authorizer has verified the tenant.
pub fn request(method: &str, path: &str, tenant: &str, headers: &[(&str, &str)], body: &str) -> Value {
    let mut event: Value = serde_json::from_str(include_str!("../fixtures/http_api_jwt.json")).unwrap();
    event["rawPath"] = path.into();
    event["requestContext"]["http"]["path"] = path.into();
    event["requestContext"]["http"]["method"] = method.into();
    event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = tenant.into();
    event["headers"] = json!({ "content-type": "application/json" });
    for (name, value) in headers {
        event["headers"][*name] = (*value).into();
    }
    event["body"] = body.into();
    event
}

/// An order of this tenant, under this key.
pub fn payment(tenant: &str, key: &str, order: &str) -> Value {
    request("POST", "/payments", tenant, &[("idempotency-key", key)], order)
}

/// The provider's signed report of a charge that it made for this order.
pub fn charged((key, order): &(String, Value)) -> Value {
    let now = lambda_idempotency::time::Timestamp::from(SystemTime::now());
    let event = json!({
        "type": "charge.succeeded",
        "key": key,
        "charge": {
            "id": "ch_1", "amountCents": order["amountCents"], "currency": order["currency"],
            "createdAt": now.as_millis(), "metadata": order["metadata"],
        },
        "metadata": order["metadata"],
    });
    signed(&event.to_string())
}

/// A body that the provider has signed.
pub fn signed(body: &str) -> Value {
    let secrets = Secrets::new([WEBHOOK_SECRET]).unwrap();
    let signature = secrets.sign(SystemTime::now().into(), body.as_bytes());
    request("POST", "/webhooks/provider", "anonymous", &[("provider-signature", &signature)], body)
}

/// A batch of a queue's messages.
pub fn messages(bodies: &[String]) -> Value {
    let messages: Vec<_> = bodies
        .iter()
        .enumerate()
        .map(|(id, body)| json!({ "eventSource": "aws:sqs", "messageId": id.to_string(), "body": body }))
        .collect();
    json!({ "Records": messages })
}

/// The stream record of a record that time to live has deleted.
pub fn pruned(partition_key: &str, number: u64) -> Value {
    json!({
        "eventName": "REMOVE",
        "eventSource": "aws:dynamodb",
        "userIdentity": { "type": "Service", "principalId": "dynamodb.amazonaws.com" },
        "dynamodb": {
            "Keys": { "pk": { "S": partition_key }, "sk": { "S": "record" } },
            "SequenceNumber": number.to_string(),
        },
    })
}

/// The status of an HTTP function's answer.
#[track_caller]
pub fn status(answer: &Result<Value, Value>) -> StatusCode {
    let status = answer.as_ref().expect("an answer")["statusCode"].as_u64().expect("a status");
    StatusCode::from_u16(status.try_into().expect("a small number")).expect("a status")
}
