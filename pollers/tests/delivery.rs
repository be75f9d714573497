//! A delivery to a local cloud that the test plays: what it invokes, and what it sends of what is dropped.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use pollers::{
    batch::Record,
    checkpoints::Checkpoints,
    delivery::Delivery,
    kinesis::{self, Stream},
    mapping::Mapping,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const ARN: &str = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders";

const SOURCE: &str = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders of 1970-01-01T00:00:00Z";

/// What came to the local cloud.
#[derive(Clone, Default)]
struct Came {
    events: Arc<Mutex<Vec<Value>>>,
    /// Where the checkpoints are, and what they were at each letter.
    file: Arc<OnceLock<PathBuf>>,
    kept: Arc<Mutex<Vec<Value>>>,
    letters: Arc<Mutex<Vec<Value>>>,
}

/// Fails for each event with an order that is bad.
async fn invoke(State(came): State<Came>, event: String) -> Response {
    let event: Value = serde_json::from_str(&event).expect("JSON");
    let is_bad = event["Records"].as_array().expect("records").iter().any(|record| record == "bad");
    came.events.lock().unwrap().push(event["Records"].clone());
    match is_bad {
        true => {
            ([("x-amz-function-error", "Unhandled")], r#"{"errorMessage":"a bad order"}"#).into_response()
        }
        false => "null".into_response(),
    }
}

/// SQS, which does not work at the first time.
async fn send(State(came): State<Came>, headers: HeaderMap, body: String) -> Response {
    assert_eq!(headers["x-amz-target"], "AmazonSQS.SendMessage");
    let sent: Value = serde_json::from_str(&body).expect("JSON");
    let letter = serde_json::from_str(sent["MessageBody"].as_str().expect("a body")).expect("JSON");
    let file = came.file.get().expect("the checkpoints");
    let kept = fs::read_to_string(file).expect("they are kept");
    came.kept.lock().unwrap().push(serde_json::from_str(&kept).expect("JSON"));
    let mut letters = came.letters.lock().unwrap();
    letters.push(letter);
    match letters.len() {
        1 => (StatusCode::BAD_REQUEST, r#"{"__type":"com.amazonaws.sqs#RequestThrottled"}"#).into_response(),
        _ => r#"{"MessageId":"1"}"#.into_response(),
    }
}

fn record(number: u32, event: &str) -> Record {
    Record {
        lane: "shardId-000000000000".into(),
        place: number.to_string(),
        item: json!(number.to_string()),
        event: json!(event).to_string(),
        arrived: SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000 + u64::from(number)),
    }
}

#[tokio::test]
async fn what_is_dropped_is_sent_before_its_checkpoint_passes() {
    let came = Came::default();
    let router = Router::new()
        .route("/2015-03-31/functions/ship/invocations", post(invoke))
        .route("/", post(send))
        .with_state(came.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().expect("a folder");
    came.file.set(folder.path().join("checkpoints")).expect("once");
    let mapping = Mapping {
        function: "ship".to_owned(),
        cloud: url.clone(),
        batch_size: 2,
        report_failures: true,
        bisect: true,
        max_retries: 0,
        max_age: -1,
        on_failure: Some(format!("{url}/123456789012/dropped")),
        checkpoints: Some(folder.path().join("checkpoints")),
    };
    let stream = Stream {
        client: kinesis::client(&url),
        name: "orders".to_owned(),
        arn: ARN.to_owned(),
        created: SystemTime::UNIX_EPOCH,
    };
    let delivery = Delivery::new(stream, mapping.clone(), "eu-central-1").expect("a mapping");
    delivery.deliver(vec![record(1, "a"), record(2, "bad"), record(3, "b")]).await;

    let invoked = came.events.lock().unwrap().clone();
    assert_eq!(invoked, [json!(["a", "bad"]), json!(["a"]), json!(["bad"]), json!(["b"])]);
    // The poison record is not passed before its letter is taken.
    let kept = json!({ "source": SOURCE, "places": { "shardId-000000000000": "1" } });
    assert_eq!(*came.kept.lock().unwrap(), [kept.clone(), kept]);
    let letters = came.letters.lock().unwrap().clone();
    let [refused, letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(refused, letter);
    assert_eq!(letter["requestContext"]["condition"], "RetryAttemptsExhausted");
    assert_eq!(letter["responseContext"]["functionError"], "Unhandled");
    let place = json!({
        "shardId": "shardId-000000000000",
        "startSequenceNumber": "2",
        "endSequenceNumber": "2",
        "approximateArrivalOfFirstRecord": "2020-09-13T12:26:42Z",
        "approximateArrivalOfLastRecord": "2020-09-13T12:26:42Z",
        "batchSize": 1,
        "streamArn": ARN,
    });
    assert_eq!(letter["KinesisBatchInfo"], place);
    // Another poller goes on from there.
    let checkpoints = Checkpoints::of(SOURCE.to_owned(), mapping.checkpoints.as_deref());
    assert_eq!(checkpoints.expect("they are kept").last("shardId-000000000000").as_deref(), Some("3"));
}

#[test]
fn checkpoints_of_another_stream_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("checkpoints");
    let checkpoints = |source: &str| Checkpoints::of(source.to_owned(), Some(&file));
    checkpoints(SOURCE)
        .expect("there are none yet")
        .pass([("shard", "1")].into_iter())
        .expect("they are kept");
    assert_eq!(checkpoints(SOURCE).expect("they are its own").last("shard").as_deref(), Some("1"));
    let later = SOURCE.replace("1970", "1971");
    let refused = checkpoints(&later).expect_err("a stream that was created later is another one");
    assert!(refused.contains(SOURCE) && refused.contains(&later), "{refused}");
    checkpoints(SOURCE).expect("they are its own").forget().expect("they are removed");
    assert_eq!(checkpoints(SOURCE).expect("there are none").last("shard"), None);
    fs::write(&file, r#"{"shard":"1"}"#).expect("it is written");
    assert!(checkpoints(SOURCE).is_err());
}
