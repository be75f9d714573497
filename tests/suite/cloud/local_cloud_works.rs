//! The local cloud's parts behave like AWS and like a provider, as far as the functions rely on it.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use aws_sdk_sqs::{
    Client,
    error::ProvideErrorMetadata,
    types::{Message, MessageSystemAttributeName, QueueAttributeName},
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    client::{client, connect},
    embedded,
    local_cloud::{self, LocalCloud},
    on_each_store,
    tables::create_idempotency_table,
};

/// How long a test waits for an event in another process. Success takes a fraction of this. Only a failure takes as long.
const TIMEOUT: Duration = Duration::from_secs(180);
const PREFIX: &str = "local-";

/// A cloud that finds records through the stream alone: without sweeps and polls.
fn on_the_stream_alone<'a>(endpoint: &'a str, prefix: &'a str) -> [(&'static str, &'a str); 7] {
    [
        ("DYNAMODB_ENDPOINT", endpoint),
        ("TABLE_PREFIX", prefix),
        ("SWEEP_MS", "86400000"),
        ("POLL_MS", "86400000"),
        ("WINDOW_MS", "100"),
        ("FUNCTION_TIMEOUT_MS", "6000"),
        ("LEASE_GRACE_MS", "500"),
    ]
}

/// A queue of a local cloud.
struct Queue {
    client: Client,
    url: String,
}

impl Queue {
    async fn of(cloud: &LocalCloud, prefix: &str, name: &str) -> Self {
        let client = Client::new(&connect(cloud.queues()).sdk_config());
        let found = client.get_queue_url().queue_name(format!("{prefix}{name}")).send().await;
        let url = found.expect("the queue exists").queue_url.unwrap();
        Self { client, url }
    }

    async fn send(&self, body: &str, delay: i32) {
        let send = self.client.send_message().queue_url(&self.url).message_body(body);
        send.delay_seconds(delay).send().await.expect("the queue takes the message");
    }

    async fn receive(&self, hidden: i32) -> Vec<Message> {
        let receive = self.client.receive_message().queue_url(&self.url).visibility_timeout(hidden);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        receive.send().await.expect("the queue answers").messages.unwrap_or_default()
    }

    /// The first message that arrives.
    async fn next(&self, hidden: i32) -> Message {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(message) = self.receive(hidden).await.pop() {
                return message;
            }
            assert!(Instant::now() < deadline, "no message in {}", self.url);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn count(&self, attribute: QueueAttributeName) -> String {
        let get = self.client.get_queue_attributes().queue_url(&self.url).attribute_names(attribute.clone());
        get.send().await.expect("the queue answers").attributes.unwrap()[&attribute].clone()
    }
}

#[tokio::test]
async fn a_message_is_delayed_and_redelivered_until_deleted_and_its_receipts_counted() {
    let cloud = LocalCloud::start(&[]).await;
    // The only queue that no function empties.
    let queue = Queue::of(&cloud, PREFIX, "dead-letters").await;
    let sent = Instant::now();
    queue.send("later", 1).await;
    assert!(queue.receive(1).await.is_empty());
    assert_eq!(queue.count(QueueAttributeName::ApproximateNumberOfMessagesDelayed).await, "1");
    let message = queue.next(1).await;
    assert!(sent.elapsed() >= Duration::from_secs(1), "{:?}", sent.elapsed());

    let received = Instant::now();
    assert!(queue.receive(1).await.is_empty());
    assert_eq!(queue.count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible).await, "1");
    let again = queue.next(30).await;
    assert!(received.elapsed() >= Duration::from_millis(900), "{:?}", received.elapsed());
    assert_eq!((again.message_id(), again.body()), (message.message_id(), Some("later")));
    assert_eq!(again.attributes().unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount], "2");

    let change = queue.client.change_message_visibility().queue_url(&queue.url).visibility_timeout(0);
    change.receipt_handle(again.receipt_handle().unwrap()).send().await.unwrap();
    let last = queue.next(30).await;
    let delete = queue.client.delete_message().queue_url(&queue.url);
    delete.receipt_handle(last.receipt_handle().unwrap()).send().await.unwrap();
    assert_eq!(queue.count(QueueAttributeName::ApproximateNumberOfMessages).await, "0");
    assert_eq!(queue.count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible).await, "0");

    let names = queue.client.list_queues().send().await.unwrap().queue_urls.unwrap();
    assert_eq!(names.len(), 16, "{names:?}");
    let late = queue.client.send_message().queue_url(&queue.url).message_body("x").delay_seconds(901);
    let refused = late.send().await.expect_err("15 minutes are the bound");
    assert_eq!(refused.code(), Some("InvalidParameterValue"), "{refused:?}");
}

#[tokio::test]
async fn a_message_that_no_function_can_handle_becomes_a_dead_letter() {
    let cloud = LocalCloud::start(&[]).await;
    let dead_letters = Queue::of(&cloud, PREFIX, "dead-letters").await;
    let queues = [Queue::of(&cloud, PREFIX, "checks").await, Queue::of(&cloud, PREFIX, "reconcile").await];
    // Both at once, because a message is delivered several times, each time after a while.
    for (number, queue) in queues.iter().enumerate() {
        queue.send(&format!("no function reads {number}"), 0).await;
    }
    // Looking at them leaves them there, for the command line.
    let looked = async || {
        let shown: Value = cloud.get("/queues/checks").send().await.unwrap().json().await.unwrap();
        shown["deadLetters"].as_array().is_some_and(|letters| letters.len() == 2)
    };
    cloud.until(looked, "two dead letters").await;
    assert_eq!(dead_letters.count(QueueAttributeName::ApproximateNumberOfMessages).await, "2");
    let mut bodies = [dead_letters.next(300).await, dead_letters.next(300).await]
        .map(|dead_letter| dead_letter.body().unwrap().to_owned());
    bodies.sort();
    assert_eq!(bodies, ["no function reads 0", "no function reads 1"]);
    for queue in &queues {
        assert_eq!(queue.count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible).await, "0");
    }
}

#[tokio::test]
async fn the_local_reconcile_function_takes_the_queue_of_deferred_reports() {
    let cloud = LocalCloud::start(&[]).await;
    let reports = Queue::of(&cloud, PREFIX, "deferred-reports").await;
    reports.send("no function reads it", 0).await;
    let dead_letter = Queue::of(&cloud, PREFIX, "deferred-reports-dead-letters").await.next(300).await;
    assert_eq!(dead_letter.body(), Some("no function reads it"));
}

// T19
#[apply(on_each_store)]
async fn a_change_is_retried_until_its_queue_is_back(endpoint: &str) {
    let prefix = format!("t{}-", uuid::Uuid::new_v4().simple());
    let cloud = LocalCloud::start(&on_the_stream_alone(endpoint, &prefix)).await;
    let checks = Queue::of(&cloud, &prefix, "checks").await;
    checks.client.delete_queue().queue_url(&checks.url).send().await.unwrap();
    cloud.pay("order-1", "tok_crash_before").await;
    let failures = || cloud.printed().matches("a batch of 1 stream records failed").count();
    cloud.until(async || failures() > 10, "the change is retried").await;
    checks.client.create_queue().queue_name(format!("{prefix}checks")).send().await.unwrap();
    cloud.until(async || cloud.state("order-1").await == "unknown", "order-1 is found").await;
    let dead_letters = Queue::of(&cloud, &prefix, "dead-letters").await;
    assert!(dead_letters.receive(0).await.is_empty());
}

// T19
#[apply(on_each_store)]
async fn a_poison_stream_record_is_dead_lettered_and_its_shard_continues(endpoint: &str) {
    let prefix = format!("t{}-", uuid::Uuid::new_v4().simple());
    let variables = [&on_the_stream_alone(endpoint, &prefix)[..], &[("RECORD_AGE_MS", "3000")]].concat();
    let cloud = LocalCloud::start(&variables).await;
    let checks = Queue::of(&cloud, &prefix, "checks").await;
    let dead_letters = Queue::of(&cloud, &prefix, "dead-letters").await;
    // Checks of open records can no longer be scheduled.
    checks.client.delete_queue().queue_url(&checks.url).send().await.unwrap();
    cloud.pay("order-1", "tok_crash_before").await;
    let dead_letter = dead_letters.next(300).await;
    let body = dead_letter.body().unwrap();
    let parsed: Value = serde_json::from_str(body).unwrap();
    assert_eq!(parsed["requestContext"]["condition"], "RecordAgeExceeded", "{body}");
    let batch = &parsed["DDBStreamBatchInfo"];
    assert_eq!(
        (&batch["batchSize"], &batch["startSequenceNumber"]),
        (&json!(1), &batch["endSequenceNumber"])
    );
    assert!(batch["streamArn"].as_str().unwrap().contains(&format!("{prefix}idempotency/stream/")), "{body}");
    assert!(!body.contains("order-1"), "{body}");

    checks.client.create_queue().queue_name(format!("{prefix}checks")).send().await.unwrap();
    cloud.pay("order-2", "tok_crash_before").await;
    let deadline = Instant::now() + TIMEOUT;
    while cloud.state("order-2").await != "unknown" {
        assert!(Instant::now() < deadline, "order-2 is not found");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(cloud.state("order-1").await, "in_progress");
}

#[tokio::test]
async fn the_provider_answers_about_each_key_and_pages_through_a_day() {
    let cloud = LocalCloud::start(&[]).await;
    let http = reqwest::Client::new();
    let get = async |path: String| -> (u16, Value) {
        let answer =
            http.get(format!("{}{path}", cloud.provider())).send().await.expect("the provider answers");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    };
    let charge = async |key: &str, source: &str, metadata: Value| -> (u16, Value) {
        let order = json!({
            "amountCents": 1, "currency": "EUR", "source": source, "tenant": "acme", "metadata": metadata,
        });
        let request = http.post(format!("{}/charges", cloud.provider())).header("Idempotency-Key", key);
        let answer = request.json(&order).send().await.expect("the provider answers");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    };
    let (_, first) = charge("k1", "tok_ok", json!({ "record": "r1" })).await;
    assert_eq!(first["metadata"], json!({ "record": "r1" }));
    assert_eq!(charge("k1", "tok_ok", json!({})).await, (201, first.clone()));
    assert_eq!(charge("k2", "tok_declined", json!({ "record": "r2" })).await.0, 402);
    let (_, second) = charge("k3", "tok_ok", json!({})).await;
    assert_eq!(charge("k3", "tok_slow_1", json!({})).await.0, 409);

    let succeeded = json!({ "key": "k1", "status": "succeeded", "charge": first });
    assert_eq!(get("/charges/k1".to_owned()).await, (200, succeeded));
    let declined = json!({ "key": "k2", "status": "declined", "metadata": { "record": "r2" } });
    assert_eq!(get("/charges/k2".to_owned()).await, (200, declined));
    assert_eq!(get("/charges/k4".to_owned()).await, (404, json!({ "error": "no_such_charge" })));

    let milliseconds = first["createdAt"].as_i64().expect("milliseconds");
    let created = aws_smithy_types::DateTime::from_millis(milliseconds);
    let day = created.fmt(aws_smithy_types::date_time::Format::DateTime).unwrap()[..10].to_owned();
    let page = get(format!("/charges?day={day}&limit=1")).await;
    assert_eq!(page, (200, json!({ "charges": [first], "next": first["id"] })));
    let page = get(format!("/charges?after={}&limit=1", first["id"].as_str().unwrap())).await;
    assert_eq!(page, (200, json!({ "charges": [second], "next": null })));
    let page = get("/charges?day=2001-01-01".to_owned()).await;
    assert_eq!(page, (200, json!({ "charges": [], "next": null })));
    for bad in ["day=today", "limit=0", "limit=10001", "after=ch_none"] {
        assert_eq!(get(format!("/charges?{bad}")).await.0, 400, "{bad}");
    }
    assert_eq!(get("/charges".to_owned()).await.1, json!({ "charges": [first, second] }));

    // Each decision sends one webhook, which is kept until it is acknowledged.
    let deliver = async || -> (u64, u64) {
        let answer = cloud.post("/provider/deliver").send().await.expect("the front answers");
        let parsed: Value = answer.json().await.expect("JSON");
        (parsed["delivered"].as_u64().unwrap(), parsed["held"].as_u64().unwrap())
    };
    let (delivered, held) = deliver().await;
    assert_eq!(delivered + held, 3);
    let (delivered, still_held) = deliver().await;
    assert_eq!(delivered + still_held, held);
}

#[tokio::test]
async fn the_provider_refuses_connections_until_it_comes_back() {
    let cloud = LocalCloud::start(&[]).await;
    let asked =
        async |path: &str| cloud.post(path).send().await.expect("the front answers").status().as_u16();
    assert_eq!(asked("/provider/back").await, 200, "it is not away");
    assert_eq!(cloud.pay("order-1", "tok_ok").await.status, 201);
    for _ in 0..2 {
        assert_eq!(asked("/provider/away").await, 200);
        assert_eq!(cloud.pay("order-2", "tok_ok").await.problem(), (503, "provider-away"));
        assert_eq!(asked("/provider/deliver").await, 502);
    }
    for _ in 0..2 {
        assert_eq!(asked("/provider/back").await, 200);
    }
    assert_eq!(cloud.pay("order-2", "tok_ok").await.status, 201);
    // What it knew is still known.
    assert_eq!(cloud.charges().await.len(), 2);
}

#[tokio::test]
async fn dynamodb_fails_for_functions_until_it_comes_back() {
    let cloud = LocalCloud::start(&[]).await;
    let asked =
        async |path: &str| cloud.post(path).send().await.expect("the front answers").status().as_u16();
    for _ in 0..2 {
        assert_eq!(asked("/dynamodb/away").await, 200);
        assert_eq!(cloud.pay("order-1", "tok_ok").await.problem(), (503, "store-unavailable"));
    }
    assert_eq!(cloud.charges().await, []);
    for _ in 0..2 {
        assert_eq!(asked("/dynamodb/back").await, 200);
    }
    // After failures, the process leaves it alone for a while.
    cloud.until(async || cloud.pay("order-1", "tok_ok").await.status == 201, "it is back").await;
    assert_eq!(cloud.charges().await.len(), 1);
    // Another DynamoDB cannot be taken away.
    let prefix = format!("t{}-", uuid::Uuid::new_v4().simple());
    let cloud = LocalCloud::start(&on_the_stream_alone(embedded::endpoint(), &prefix)).await;
    for path in ["/dynamodb/away", "/dynamodb/back"] {
        assert_eq!(cloud.post(path).send().await.expect("the front answers").status(), 409, "{path}");
    }
}

#[tokio::test]
async fn functions_accept_addresses_other_than_the_real_ones() {
    let away = "http://127.0.0.1:1";
    let cloud = LocalCloud::start(&[("FUNCTION_PROVIDER_URL", away)]).await;
    assert_eq!(cloud.pay("order-1", "tok_ok").await.problem(), (503, "provider-away"));
    assert_eq!(cloud.charges().await, []);
    let cloud = LocalCloud::start(&[("FUNCTION_DYNAMODB_ENDPOINT", away)]).await;
    assert_eq!(cloud.pay("order-1", "tok_ok").await.problem(), (503, "store-unavailable"));
    assert_eq!(cloud.charges().await, []);
}

#[tokio::test]
async fn a_missing_index_is_one_line_at_start_up() {
    let prefix = format!("t{}-", uuid::Uuid::new_v4().simple());
    let store = client(embedded::endpoint());
    create_idempotency_table(&store, &format!("{prefix}payments")).await;
    let mut program = tokio::process::Command::new(local_cloud::PROGRAM);
    program.env("PORT", "0").env("DYNAMODB_ENDPOINT", embedded::endpoint()).env("TABLE_PREFIX", &prefix);
    let started = program.stdin(Stdio::null()).kill_on_drop(true).output();
    let ended = tokio::time::timeout(TIMEOUT, started).await.expect("it ends").unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && error.lines().count() == 1, "{error}");
    assert!(error.contains(&format!("table {prefix}payments lacks the index days")), "{error}");
}

// T45: the gateway passes paths on decoded, as an HTTP API does.
#[tokio::test]
async fn each_key_has_its_own_status_behind_a_decoding_gateway() {
    let cloud = LocalCloud::start(&[]).await;
    for (key, amount) in [("order-1", 1), ("\"order-1#2\"", 2), ("\"a/b\"", 3), ("\"50% off\"", 4)] {
        let order =
            json!({ "customerId": "c-1", "amountCents": amount, "currency": "EUR", "source": "tok_ok" });
        let request = cloud.post("/payments").bearer_auth("acme").header("idempotency-key", key).json(&order);
        assert_eq!(request.send().await.unwrap().status(), 201, "{key}");
    }
    for (path, status) in [
        ("/operations/order-1", 200),
        ("/operations/order-1%232", 200),
        ("/operations/order-1%233", 404),
        ("/operations/a%2Fb", 200),
        ("/operations/a%2Fc", 404),
        ("/operations/50%25%20off", 200),
        ("/operations?key=order-1%232", 200),
        ("/operations?key=order-1%233", 404),
    ] {
        assert_eq!(cloud.get(path).bearer_auth("acme").send().await.unwrap().status(), status, "{path}");
    }
}
