//! The target for event buses, and the event bus of the local cloud.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use aws_config::SdkConfig;
use axum::{
    Router,
    http::{HeaderMap, StatusCode},
};
use lambda_idempotency::{
    outbox::{EventBus, Target},
    telemetry::error_chain,
    time::Timestamp,
    time_budget::BUS_CHECK,
    world::ManualWorld,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{PLACED, topic, undelivered};
use crate::support::{
    client::connect,
    embedded,
    guarded::{Guarded, completed, owned, request, written},
    local_cloud::LocalCloud,
    sample::Sample,
};

/// The address and the name of the bus, which the local cloud prints.
fn bus(cloud: &LocalCloud) -> (String, String) {
    let printed = cloud.printed();
    let mut words =
        printed.lines().find_map(|line| line.strip_prefix("bus ")).expect("it is printed").split_whitespace();
    let mut word = || words.next().expect("address and name").to_owned();
    (word(), word().trim_matches(['(', ')']).to_owned())
}

#[tokio::test]
async fn an_event_bus_is_handed_messages_as_cloud_events() {
    let cloud = LocalCloud::start(&[]).await;
    let (address, name) = bus(&cloud);
    let (guarded, request) = (Guarded::on(embedded::endpoint()).await, request());
    let ours = owned(guarded.executor().reserve(&request).await);
    for n in 0..3 {
        ours.execution().publish(&topic(), &json!({ "n": n })).expect("it is a message");
    }
    written(guarded.executor().finish(ours, completed("done")).await);
    let messages = undelivered(&guarded, &request.key).await;

    let config = connect(&address).sdk_config();
    let arn = format!("arn:aws:events:eu-central-1:123456789012:event-bus/{name}");
    for name in [name.clone(), arn] {
        let target = EventBus::new(&config, name);
        for message in &messages {
            target.deliver(message).await.expect("the bus accepts it");
        }
    }
    let delivered = cloud.delivered().await;
    assert_eq!(delivered.len(), 6, "{delivered:?}");
    for (delivered, message) in delivered.iter().zip(messages.iter().chain(&messages)) {
        assert_eq!((&delivered.id, delivered.sequence), (&message.id(), message.sequence.into()));
        assert_eq!((&*delivered.operation, &*delivered.topic), (request.key.operation().as_str(), PLACED));
        assert_eq!(delivered.key, request.key.idempotency_key().as_str());
        assert_eq!(delivered.body, json!({ "n": message.sequence }));
    }

    // What the bus does not accept is an error, though the call succeeds.
    let mut unreadable = messages[0].clone();
    unreadable.topic.clear();
    let refused = EventBus::new(&config, &*name).deliver(&unreadable).await.expect_err("no detail-type");
    assert!(error_chain(&refused).contains("InvalidArgument"), "{}", error_chain(&refused));
    assert_eq!(cloud.delivered().await.len(), 6);
}

/// An event bus that answers as EventBridge does: it accepts every event, also if the bus does not exist.
#[derive(Clone, Default)]
struct Dropping {
    is_deleted: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Dropping {
    async fn start(&self) -> SdkConfig {
        let bus = self.clone();
        let answer = move |headers: HeaderMap| async move {
            let call = headers["x-amz-target"].to_str().expect("a name").replace("AWSEvents.", "");
            let (status, answer) = match &*call {
                "DescribeEventBus" if bus.is_deleted.load(SeqCst) => {
                    (StatusCode::BAD_REQUEST, json!({ "__type": "ResourceNotFoundException" }))
                }
                "DescribeEventBus" => (StatusCode::OK, json!({ "Name": "shop" })),
                _ => (StatusCode::OK, json!({ "FailedEntryCount": 0, "Entries": [{ "EventId": "1" }] })),
            };
            bus.calls.lock().unwrap().push(call);
            (status, [("content-type", "application/x-amz-json-1.1")], answer.to_string())
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        connect(&address).sdk_config()
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

// T56, T63: the outbox removes what the bus accepts.
#[tokio::test]
async fn a_bus_deleted_meanwhile_is_noticed_within_a_minute() {
    const ASKED: &str = "DescribeEventBus";
    const PUT: &str = "PutEvents";
    let guarded = Guarded::on(embedded::endpoint()).await;
    let request = request();
    let ours = owned(guarded.executor().reserve(&request).await);
    ours.execution().publish(&topic(), &json!({})).expect("it is a message");
    written(guarded.executor().finish(ours, completed("done")).await);
    let [message] = &undelivered(&guarded, &request.key).await[..] else { panic!("one message") };

    let (bus, world) = (Dropping::default(), ManualWorld::at(Timestamp::from_secs(1_000_000)));
    let target = EventBus::new(&bus.start().await, "shop").world(world.clone());
    target.deliver(message).await.expect("it exists");
    world.advance(BUS_CHECK - Duration::from_millis(1));
    target.clone().deliver(message).await.expect("it was asked just now");
    assert_eq!(bus.calls(), [ASKED, PUT, PUT]);

    bus.is_deleted.store(true, SeqCst);
    world.advance(Duration::from_millis(1));
    for _ in 0..2 {
        let missing = target.deliver(message).await.expect_err("it is deleted");
        assert!(error_chain(&missing).contains("there is no event bus shop"), "{missing}");
    }
    assert_eq!(bus.calls(), [ASKED, ASKED], "nothing is handed over");

    bus.is_deleted.store(false, SeqCst);
    target.deliver(message).await.expect("it exists again");
    // A function that was frozen: its monotonic clock stood still.
    world.set(Timestamp::from_secs(1_000_300));
    target.deliver(message).await.expect("it exists");
    assert_eq!(bus.calls(), [ASKED, PUT, ASKED, PUT]);
}

// T56: EventBridge accepts events for a bus that does not exist, and drops them. Other topics, and accepted work, do not wait for it.
#[tokio::test]
async fn a_missing_event_bus_is_named_at_start_up() {
    let cloud = LocalCloud::start(&[]).await;
    let (address, name) = bus(&cloud);
    let config = connect(&address).sdk_config();
    let arn = format!("arn:aws:events:eu-central-1:123456789012:event-bus/{name}");
    for name in [&name, &arn] {
        EventBus::new(&config, &**name).check().await.expect("it exists");
    }
    // It may not be allowed to ask, or EventBridge may be away.
    let away = connect("http://localhost:9").sdk_config();
    EventBus::new(&away, &*name).check().await.expect("it may exist");

    let another = EventBus::new(&config, "another").check().await.expect_err("it does not exist");
    let message = "the environment variable OUTBOX_TOPICS: there is no event bus another";
    assert_eq!(another.to_string(), message);

    let sample = Sample::new(&name, "http://localhost:9").await;
    let queue = "http://localhost:9/wakes.fifo";
    let variables = [
        ("AWS_ENDPOINT_URL_EVENTBRIDGE", &*address),
        ("OUTBOX_TOPICS", "order.placed=bus:another"),
        ("OUTBOX_QUEUE_URL", queue),
        ("OUTBOX_DEAD_LETTERS_QUEUE_URL", queue),
    ];
    let mut outbox = sample.start("outbox", &variables).await;
    let change = json!({ "Records": [{ "eventSource": "aws:dynamodb", "dynamodb": {} }] });
    outbox.invoke(&change).await.expect("it has started");
    let log = outbox.log();
    assert!(log.contains("what is published to this topic cannot be delivered"), "{log}");
    assert!(log.contains(message), "{log}");
}

#[tokio::test]
async fn the_local_bus_answers_like_event_bridge() {
    let cloud = LocalCloud::start(&[]).await;
    let (address, name) = bus(&cloud);
    let call = async |operation: &str, body: Value| -> (u16, Value) {
        let request = reqwest::Client::new().post(&address).header("x-amz-target", operation);
        let request = request.header("content-type", "application/x-amz-json-1.1").body(body.to_string());
        let answer = request.send().await.expect("the bus answers");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    };
    let entry =
        |detail: &str| json!({ "EventBusName": name, "Source": "s", "DetailType": "t", "Detail": detail });
    let put = "AWSEvents.PutEvents";
    for (operation, body, kind) in [
        ("AWSEvents.PutRule", json!({}), "UnknownOperationException"),
        (put, json!({}), "SerializationException"),
        (put, json!({ "Entries": [] }), "ValidationException"),
        (put, json!({ "Entries": vec![entry("{}"); 11] }), "ValidationException"),
    ] {
        let (status, answer) = call(operation, body).await;
        assert_eq!((status, &answer["__type"]), (400, &json!(kind)), "{answer}");
    }
    // Each entry is accepted or refused alone.
    let entries = json!([entry("{}"), entry("{"), entry("[]"), { "EventBusName": name }, entry("{}")]);
    let (status, answer) = call(put, json!({ "Entries": entries })).await;
    assert_eq!((status, &answer["FailedEntryCount"]), (200, &json!(3)), "{answer}");
    let codes: Vec<_> =
        answer["Entries"].as_array().expect("a list").iter().map(|it| &it["ErrorCode"]).collect();
    assert_eq!(
        codes,
        [
            &json!(null),
            &json!("MalformedDetail"),
            &json!("MalformedDetail"),
            &json!("MalformedDetail"),
            &json!(null)
        ]
    );
    let ids: Vec<_> = [0, 4].map(|place| answer["Entries"][place]["EventId"].as_str()).into();
    assert!(ids[0].is_some() && ids[0] != ids[1], "{answer}");
}
