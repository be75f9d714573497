//! Events at the functions that no client calls. Nothing is lost, the rest of the batch is processed, and one log line says what was wrong
//! and where.

use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, SdkConfig};
use lambda_http::Context;
use lambda_idempotency::{
    async_trait,
    lambda::{DeferredReports, reconcile_event, stale_event},
    operation::Operation,
    queue::{FairQueue, MemoryQueue, QueueError},
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    stale::Stale,
    store::memory::MemoryStore,
    time::Timestamp,
    world::ManualWorld,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{BoxError, guarded::OPERATION, logs::Logs, sample::Sample};

const MESSAGES: &str = include_str!("../fixtures/formats/messages.json");

/// The functions, with separate stores and queues.
struct Functions {
    stale: Stale,
    checks: MemoryQueue,
    dead_letters: MemoryQueue,
    reconciliation: Reconciliation,
    escalated: MemoryQueue,
}

struct Unavailable;

#[async_trait]
impl Reconciler for Unavailable {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        Err("away".into())
    }
}

impl Functions {
    fn new() -> Self {
        let [checks, dead_letters, escalated] = [(); 3].map(|()| MemoryQueue::new());
        let queues = (checks.clone(), MemoryQueue::new(), dead_letters.clone());
        Self {
            stale: Stale::new(MemoryStore::new(), queues.0, queues.1, queues.2),
            checks,
            dead_letters,
            reconciliation: Reconciliation::new(MemoryStore::new(), escalated.clone())
                .operation(Operation::new(OPERATION), Unavailable),
            escalated,
        }
    }

    /// Per function: the messages to be delivered again, or its error.
    async fn deliver(&self, event: &Value) -> [Result<Vec<String>, String>; 2] {
        // Enough time for the largest batch on the slowest machine.
        let context = &with_left(Duration::from_secs(900));
        // Parsed as the runtime parses it.
        let read = || serde_json::from_str(&event.to_string()).expect("every event reaches the function");
        let stale = stale_event(&self.stale, read(), context).await;
        // None of these events is from its queue.
        let config = SdkConfig::builder().behavior_version(BehaviorVersion::latest()).build();
        let reports = DeferredReports::new(&config, "http://127.0.0.1:9/reports", "http://127.0.0.1:9/dead");
        let reconcile = reconcile_event(&self.reconciliation, &reports, read(), context).await;
        [stale, reconcile].map(|answer| match answer {
            Ok(failures) => Ok(failures.identifiers()),
            Err(error) => Err(error.to_string()),
        })
    }

    fn sent(&self) -> usize {
        self.checks.take().len() + self.dead_letters.take().len() + self.escalated.take().len()
    }
}

/// The context of an invocation with this much time left.
fn with_left(left: Duration) -> Context {
    let mut context = Context::default();
    context.deadline = Timestamp::from(SystemTime::now()).plus(left).as_millis();
    context
}

/// A queue that takes this long to accept a message.
struct Slow(MemoryQueue, ManualWorld, Duration);

#[async_trait]
impl FairQueue for Slow {
    async fn send_fairly(&self, message: &str, group: &str, delay: Duration) -> Result<(), QueueError> {
        self.1.advance(self.2);
        self.0.send_fairly(message, group, delay).await
    }
}

fn message(id: &str, body: &str) -> Value {
    json!({ "eventSource": "aws:sqs", "eventSourceARN": "arn:checks", "messageId": id, "body": body })
}

/// Valid work for each function: a check of a record that does not exist, and a question about such a record.
fn work(id: &str) -> [Value; 2] {
    let key = format!("acme#{OPERATION}#{}", Uuid::new_v4());
    let check = json!({ "version": 1, "kind": "check", "key": key, "look_at": 0 });
    [
        message(id, &check.to_string()),
        message(id, &json!({ "version": 1, "kind": "ask", "key": key }).to_string()),
    ]
}

// T19
#[tokio::test]
async fn a_foreign_event_is_refused_in_one_line() {
    let (functions, logs) = (Functions::new(), Logs::capture());
    let long = "x".repeat(6_000_000);
    let records = |records: Value| json!({ "Records": records });
    for event in [
        json!({}),
        json!(null),
        json!([]),
        json!("job"),
        json!(7),
        json!({ "records": [] }),
        records(json!([])),
        records(json!({})),
        records(json!(null)),
        records(json!("a list")),
        records(json!([null, 1, "x", [], {}])),
        records(json!([{ "eventSource": "aws:kinesis", "kinesis": { "data": "e30=" } }])),
        records(json!([{ "EventSource": "aws:sns", "Sns": { "Message": "{}" } }])),
        records(json!([{ "eventSource": "aws:s3", "s3": {} }])),
        records(json!([{ "eventSource": ["aws:sqs"], "messageId": "1", "body": "{}" }])),
        json!({ "job": "vacuum" }),
        json!({ "job": 5 }),
        json!({ "job": { "sweep": true } }),
        json!({ "job": "sweep", "Records": [] }),
        json!({ "version": "2.0", "rawPath": "/payments", "body": "{}" }),
        records(json!([{ "eventSource": "aws:kinesis", "kinesis": { "data": long } }])),
        json!({ "job": long }),
    ] {
        let (shown, before) = (event.to_string(), logs.lines_with("an event is refused").len());
        let answers = functions.deliver(&event).await;
        for answer in answers {
            let error = answer.expect_err(&shown[..shown.len().min(200)]);
            assert!(error.starts_with("the event is refused: ") && error.len() < 200, "{error}");
        }
        // Other tests refuse events too.
        let lines = logs.lines_with("an event is refused").len() - before;
        assert!(lines >= 2, "{lines} lines about {}", &shown[..shown.len().min(200)]);
        assert_eq!(functions.sent(), 0);
    }
    let stream = json!({ "Records": [{ "eventSource": "aws:dynamodb", "dynamodb": {} }] });
    let [poison, refused] = functions.deliver(&stream).await;
    assert!(poison.is_ok() && refused.is_err(), "a stream is nothing to `reconcile`");
    assert_eq!(functions.dead_letters.take().len(), 1);
}

// T19
#[tokio::test]
async fn only_failed_items_of_a_batch_are_reported() {
    let (functions, logs) = (Functions::new(), Logs::capture());
    let id = |name: &str| format!("{name}-{}", Uuid::new_v4());
    let ids = ["no-body", "number", "nonsense", "list", "unknown", "no-key", "huge", "kinesis"].map(id);
    let [no_body, number, nonsense, list, unknown, no_key, huge, kinesis] = ids.each_ref();
    let foreign = |key: &str| json!({ "version": 1, "kind": "check", "key": key, "look_at": 0 }).to_string();
    let failing = [
        json!({ "eventSource": "aws:sqs", "messageId": no_body }),
        json!({ "eventSource": "aws:sqs", "messageId": number, "body": 7 }),
        message(nonsense, "nonsense"),
        message(list, "[]"),
        message(unknown, r#"{"kind":"of tomorrow"}"#),
        message(no_key, &foreign("no key of ours")),
        message(huge, &"{".repeat(1_000_000)),
    ];
    for (function, name) in ["stale", "reconcile"].into_iter().enumerate() {
        // Only its source is wrong.
        let mut of_another_source = work(kinesis)[function].clone();
        of_another_source["eventSource"] = json!("aws:kinesis");
        let healthy = ["a", "b", "c"].map(|id| work(id)[function].clone());
        let batch: Vec<_> =
            healthy.iter().take(1).chain(&failing).chain([&of_another_source]).chain(&healthy[1..]).collect();
        let answers = functions.deliver(&json!({ "Records": batch })).await;
        let mut named = answers[function].clone().expect("a batch");
        named.sort();
        let mut expected: Vec<_> = ids.to_vec();
        expected.sort();
        assert_eq!(named, expected, "{name}");
    }
    for id in &ids {
        let lines = logs.lines_with(id).into_iter().filter(|line| line.level() == "ERROR");
        // One line per function and batch.
        assert_eq!(lines.count(), 4, "{id}");
    }
}

// T19, T65: an empty identifier fails the whole batch too, without a reason. With none, a failed message would be lost.
#[tokio::test]
async fn only_a_failed_message_without_an_id_fails_its_whole_batch() {
    let functions = Functions::new();
    for function in [0, 1] {
        let mut nameless = work("")[function].clone();
        nameless.as_object_mut().unwrap().remove("messageId");
        let healthy = &work("a")[function];
        let answers = functions.deliver(&json!({ "Records": [nameless, healthy] })).await;
        assert_eq!(answers[function], Ok(vec![]), "it was done all the same");
        nameless["body"] = json!("nonsense");
        for nameless in [&nameless, &json!(null), &json!([1])] {
            let answers = functions.deliver(&json!({ "Records": [nameless, healthy] })).await;
            let refused = answers[function].as_ref().expect_err("all come again");
            assert!(refused.contains("has no id"), "{nameless}: {refused}");
        }
        // The id is read separately: the body is not a valid Rust string.
        let damaged = r#"{"Records":[{"eventSource":"aws:sqs","messageId":"m","body":"\ud800"}]}"#;
        let event = serde_json::from_str(damaged).unwrap();
        let answer = stale_event(&functions.stale, event, &Context::default()).await;
        assert_eq!(answer.unwrap().identifiers(), ["m"]);
    }
}

// T19
#[tokio::test]
async fn a_repeated_id_is_reported_once() {
    let functions = Functions::new();
    let batch = [message("twice", "nonsense"), work("twice")[0].clone(), message("twice", "nonsense")];
    let [stale, _] = functions.deliver(&json!({ "Records": batch })).await;
    assert_eq!(stale, Ok(vec!["twice".to_owned()]));
}

// T19
#[tokio::test]
async fn the_largest_batches_are_processed_whole() {
    let functions = Functions::new();
    let batch: Vec<_> = (0..10_000).map(|number| work(&number.to_string())[0].clone()).collect();
    let [stale, _] = functions.deliver(&json!({ "Records": batch })).await;
    assert_eq!(stale, Ok(vec![]));
    // 6 MB of malformed records. They become dead letters, and nothing is delivered again.
    let poison = |number: u32| {
        json!({
            "eventSource": "aws:dynamodb",
            "dynamodb": {
                "Keys": { "pk": { "S": "acme#pay#k" }, "sk": { "S": "record" } },
                "NewImage": { "state": { "S": "x".repeat(390_000) } },
                "SequenceNumber": number.to_string(),
            },
        })
    };
    let batch: Vec<_> = (0..15).map(poison).collect();
    let [stale, _] = functions.deliver(&json!({ "Records": batch })).await;
    assert_eq!(stale, Ok(vec![]));
    let dead_letters = functions.dead_letters.take();
    assert_eq!(dead_letters.len(), 15);
    assert!(
        dead_letters
            .iter()
            .all(|(dead_letter, _)| dead_letter.len() < 256 * 1024 && dead_letter.contains("acme#pay#k"))
    );
}

// T50: a function that is almost out of time leaves the rest of the batch to the next invocation.
#[tokio::test]
async fn work_without_time_left_is_delivered_again() {
    let functions = Functions::new();
    let open = |number: u32| {
        json!({
            "eventSource": "aws:dynamodb",
            "dynamodb": {
                "Keys": { "pk": { "S": format!("acme#pay#{number}") }, "sk": { "S": "record" } },
                "NewImage": {
                    "state": { "S": "in_progress" }, "attempt": { "B": "QQ==" },
                    "created_at": { "N": "1" }, "lease_until": { "N": "2" },
                },
                "SequenceNumber": number.to_string(),
            },
        })
    };
    let batch: Vec<_> = (0..3).map(open).collect();
    let raw: Vec<_> = batch.iter().map(|record| serde_json::value::to_raw_value(record).unwrap()).collect();
    assert_eq!(
        functions.stale.stream(&raw, Duration::ZERO).await,
        ["0", "1", "2"].map(|number| Some(number.to_owned()))
    );
    assert_eq!(functions.sent(), 0);
    let event = json!({ "Records": batch });
    assert_eq!(functions.deliver(&event).await[0], Ok(vec![]));
    assert_eq!(functions.sent(), 3);
    // Through the handler, the first message uses up all of the time. If the nearer deadline passes before the handler reads it, the
    // function has ten seconds.
    for (left, takes) in [(Duration::from_millis(100), 10), (Duration::from_secs(60), 57)] {
        let (checks, world) = (MemoryQueue::new(), ManualWorld::at(Timestamp::from_secs(2_000_000_000)));
        let slow = Slow(checks.clone(), world.clone(), Duration::from_secs(takes));
        let stale = Stale::new(MemoryStore::new(), slow, MemoryQueue::new(), MemoryQueue::new()).world(world);
        let read = serde_json::from_str(&event.to_string()).unwrap();
        let failures = stale_event(&stale, read, &with_left(left)).await.unwrap();
        assert_eq!((failures.identifiers().len(), checks.take().len()), (2, 1), "{left:?}");
    }
}

// T19: the reports of each guard of the sample that defers them.
#[tokio::test]
async fn deferred_reports_of_each_operation_reach_a_function_that_knows_it() {
    let sample = Sample::new("payments", "http://127.0.0.1:1").await;
    let mut reconcile = sample.start("reconcile", &[]).await;
    let messages: Value = serde_json::from_str(MESSAGES).expect("JSON");
    let report = messages["deferred_report"].to_string();
    let operations = ["create-payment", "create-order", "create-report"];
    let records = operations.map(|name| message(name, &report.replace("create-payment", name)));
    let answer = reconcile.invoke(&json!({ "Records": records })).await.expect("an answer");
    assert_eq!(answer, json!({ "batchItemFailures": [] }));
}
