//! What each function of the sample calls in DynamoDB, S3 and SQS, recorded between its SDK and the wire while the local cloud runs its
//! paths.
//!
//! Not all that may happen to a function happens here: which queues it may send to follows from the variables that name them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use lambda_idempotency::{
    DynamoDbStore,
    bounds::{Limits, Rate},
    key::{OperationName, Tenant},
    operator::{TenantChange, TenantOperator},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::members;
use crate::support::{
    client::client,
    embedded,
    local_cloud::LocalCloud,
    orders::Placed,
    proxy::{Proxy, Then},
    reports::Report,
    s3::LocalS3,
};

/// Each call as the permission that it needs, by the function's name in the local cloud.
pub type Calls = BTreeMap<String, BTreeSet<String>>;

/// Only a call that does not come takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The sample's bucket, and the prefix that the template gives `compare`.
const BUCKET: &str = "reports-bucket";
const REPORTS: &str = "s3://reports-bucket/comparisons";

/// How the SDK names a function to the service.
const FUNCTION: &str = "app/";

const DYNAMODB: &str = "DynamoDB_20120810.";
const SQS: &str = "AmazonSQS.";

/// A cloud, and what its functions call.
struct Recorded {
    cloud: LocalCloud,
    prefix: String,
    dynamodb: Proxy,
    s3: Proxy,
    sqs: Proxy,
}

impl Recorded {
    fn calls(&self) -> Calls {
        let mut calls = Calls::new();
        for (head, body) in self.dynamodb.requests() {
            calls.entry(function_of(&head)).or_default().extend(self.permissions(&head, &body));
        }
        for (head, body) in self.sqs.requests() {
            let action = header(&head, "x-amz-target").and_then(|target| target.strip_prefix(SQS));
            let action = action.expect("a call of SQS").trim_end_matches("Batch");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let queue = body["QueueUrl"].as_str().and_then(|url| url.rsplit('/').next()).expect("a queue");
            let queue = queue.trim_start_matches(&self.prefix).trim_end_matches(".fifo");
            calls
                .entry(function_of(&head))
                .or_default()
                .insert(format!("sqs:{action} {}Queue", pascal(queue)));
        }
        for (head, _) in self.s3.requests() {
            let path = head.split_whitespace().nth(1).expect("a path").trim_start_matches('/');
            let action = head.split_whitespace().next().expect("a method");
            let action = if action == "PUT" { "PutObject" } else { action };
            let (folder, _) = path.rsplit_once('/').expect("a key with a prefix");
            let folder = folder.replace(BUCKET, "ReportsBucket");
            calls.entry(function_of(&head)).or_default().insert(format!("s3:{action} {folder}/*"));
        }
        calls
    }

    /// A transaction needs the permission of each of its parts.
    fn permissions(&self, head: &str, body: &[u8]) -> Vec<String> {
        let action = header(head, "x-amz-target").and_then(|target| target.strip_prefix(DYNAMODB));
        let action = action.expect("a call of DynamoDB");
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let parts = match action {
            "TransactWriteItems" => {
                let parts = body["TransactItems"].as_array().expect("parts").iter().flat_map(members);
                parts.map(|(part, of)| (format!("{part}Item"), of)).collect()
            }
            action => vec![(action.to_owned(), &body)],
        };
        parts.into_iter().map(|(action, of)| format!("dynamodb:{action} {}", self.resource(of))).collect()
    }

    fn resource(&self, request: &Value) -> String {
        let name = request["TableName"].as_str().expect("a table").trim_start_matches(&self.prefix);
        let table = format!("{}Table", pascal(name));
        match request["IndexName"].as_str() {
            Some(index) => format!("{table}/index/{index}"),
            None => table,
        }
    }

    /// Waits until a function has called this.
    async fn called(&self, function: &str, call: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.calls().get(function).is_some_and(|calls| calls.contains(call)) {
            assert!(Instant::now() < deadline, "{function} never calls {call}:\n{:#?}", self.calls());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sets limits with a burst so small that each new key is counted.
    async fn count_each_new_key(&self) {
        let table = format!("{}idempotency", self.prefix);
        let operator = TenantOperator::new(DynamoDbStore::from_client(client(embedded::endpoint()), table));
        let new_keys = Some(Rate::per_second(1_000).burst(20));
        let limits = Limits { new_keys, accepted_bytes: None, open_records: Some(1_000) };
        let tenant = Tenant::parse("acme").expect("a tenant");
        for operation in ["create-payment", "transfer", "create-order", "ship", "create-report"] {
            let operation = OperationName::parse(operation).expect("an operation");
            let change = TenantChange::Limit(operation, limits);
            let seen = operator.rules().await.expect("the store answers");
            let changed = operator.change(seen.as_ref(), &tenant, &change, "a test", "to count").await;
            changed.expect("it is written");
        }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.cloud.get(path).bearer_auth("acme").send().await.expect("the front answers");
        assert!(answer.status().is_success(), "{path}: {answer:?}");
        answer.json().await.expect("JSON")
    }

    async fn invoke(&self, function: &str, event: Value) {
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let answer = self.cloud.post(&path).json(&event).send().await.expect("the front answers");
        assert!(answer.status().is_success(), "{function}: {answer:?}");
    }
}

/// The calls of every function, each on all its paths: its routes, its triggers and its jobs; retries and what they find; a payment that
/// the provider's webhook settles, and one that a question does; deferred reports with rows; a worker that dies; accepted work to its end, and a
/// request of it that was left behind.
pub async fn recorded() -> Calls {
    let (dynamodb, s3) = (Proxy::before(embedded::endpoint()).await, LocalS3::with_bucket(BUCKET).await);
    let (s3, sqs) = (Proxy::before(&s3.endpoint).await, Proxy::start().await);
    let prefix = format!("t{}-", Uuid::new_v4().simple());
    let cloud = LocalCloud::start(&[
        ("DYNAMODB_ENDPOINT", embedded::endpoint()),
        ("FUNCTION_DYNAMODB_ENDPOINT", dynamodb.url()),
        ("FUNCTION_SQS_ENDPOINT", sqs.url()),
        ("TABLE_PREFIX", &prefix),
        ("AWS_ENDPOINT_URL_S3", s3.url()),
        // Of the store in the test process.
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "tests"),
        ("REPORTS", REPORTS),
        ("FUNCTION_TIMEOUT_MS", "8000"),
        ("PROVIDER_TIMEOUT_MS", "3000"),
        ("LEASE_GRACE_MS", "200"),
        ("WINDOW_MS", "200"),
        // The jobs are begun below.
        ("POLL_MS", "86400000"),
        ("SWEEP_MS", "86400000"),
    ])
    .await;
    sqs.leads_to(cloud.queues());
    let recorded = Recorded { cloud, prefix, dynamodb, s3, sqs };
    let cloud = &recorded.cloud;
    recorded.count_each_new_key().await;

    // Payments, of which one is settled by the webhook, one by a question, and one was of a process that died.
    let paid = cloud.pay("paid", "tok_ok").await;
    assert_eq!((paid.status, cloud.pay("paid", "tok_ok").await.replayed), (201, true));
    recorded.get("/payments").await;
    recorded.get(paid.location.as_deref().expect("where it is")).await;
    recorded.get("/operations/paid?operation=create-payment").await;
    cloud.pay("by-webhook", "tok_timeout_charged").await;
    assert!(cloud.post("/provider/deliver").send().await.expect("the front answers").status().is_success());
    recorded.called("webhook", "dynamodb:PutItem PaymentsTable").await;
    cloud.pay("by-question", "tok_timeout_charged").await;
    cloud.pay("dead", "tok_crash_after").await;
    recorded.called("stale", "dynamodb:PutItem IdempotencyTable").await;
    recorded.invoke("reconcile", json!({ "job": "poll" })).await;

    // Transfers, in one transaction.
    let transfer = cloud.post("/transfers").bearer_auth("acme").header("Idempotency-Key", "moved");
    let transfer = transfer.json(&json!({ "from": "a-0", "to": "a-1", "amountCents": 5 }));
    assert_eq!(transfer.send().await.expect("the front answers").status(), 201);
    recorded.get("/accounts").await;

    // Orders by HTTP and by the queue, their messages, and one whose report is deferred, because its rows could not be written.
    let placed = Placed::new(1, "tok_ok", "sku-1", 1).send(cloud).await;
    assert_eq!(placed.status, 201);
    recorded.get(placed.location.as_deref().expect("where it is")).await;
    recorded.get("/stock/sku-1").await;
    recorded.called("shipping", "dynamodb:UpdateItem OrdersTable").await;
    recorded.called("outbox", "dynamodb:DeleteItem IdempotencyTable").await;
    let mut message = Placed::new(2, "tok_ok", "sku-1", 1).body();
    message["orderId"] = json!("order-000002");
    let message = json!({ "body": message.to_string(), "groupId": "c-1" });
    assert!(cloud.post("/queues/orders").json(&message).send().await.unwrap().status().is_success());
    recorded.called("order-queue", "dynamodb:PutItem OrdersTable").await;
    let rows_away = recorded.dynamodb.away(&["TransactWriteItems", "sku-2", "order.placed"], Then::Closed);
    Placed::new(3, "tok_ok", "sku-2", 1).send(cloud).await;
    assert!(recorded.dynamodb.used(rows_away) > 0, "its rows could be written");
    recorded.dynamodb.pass();
    recorded.called("orders", "sqs:SendMessage DeferredReportsQueue").await;
    recorded.called("reconcile", "dynamodb:PutItem OrdersTable").await;

    // Accepted work, whose report is deferred too, and a request that a worker left behind when it died.
    let report = Report::new(1);
    assert_eq!(report.answer(cloud).await.status, 201);
    recorded.called("report-worker", "dynamodb:DeleteItem IdempotencyTable").await;
    let worker_away = recorded.dynamodb.away(&["TransactWriteItems", "app/report-worker"], Then::Closed);
    assert_eq!(Report::new(2).send(cloud).await.status, 202);
    recorded.called("reconcile", "dynamodb:UpdateItem OrdersTable").await;
    assert!(recorded.dynamodb.used(worker_away) > 0, "its rows could be written");
    recorded.dynamodb.pass();
    let left_behind = [
        ("pk", AttributeValue::S(format!("acme#create-report#{}", report.key))),
        ("sk", AttributeValue::S(format!("body#{}", Uuid::new_v4().simple()))),
        ("schema", AttributeValue::N("2".to_owned())),
        ("body", AttributeValue::B(Blob::new("{}"))),
        ("kept_at", AttributeValue::N("0".to_owned())),
    ];
    let put = client(embedded::endpoint()).put_item().table_name(format!("{}idempotency", recorded.prefix));
    let left_behind = left_behind.map(|(name, value)| (name.to_owned(), value));
    put.set_item(Some(left_behind.into())).send().await.expect("the store answers");
    recorded.invoke("stale", json!({ "job": "sweep" })).await;
    recorded.called("stale", "dynamodb:DeleteItem IdempotencyTable").await;

    recorded.invoke("compare", json!({ "job": "compare" })).await;
    recorded.called("compare", "s3:PutObject ReportsBucket/comparisons/*").await;
    recorded.calls()
}

/// `dead-letters` as `DeadLetters`.
fn pascal(name: &str) -> String {
    name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// The value of a header.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn function_of(head: &str) -> String {
    let agent = header(head, "user-agent").into_iter().chain(header(head, "x-amz-user-agent"));
    let mut words = agent.flat_map(str::split_whitespace);
    words
        .find_map(|word| word.strip_prefix(FUNCTION))
        .unwrap_or_else(|| panic!("of nobody: {head}"))
        .to_owned()
}
