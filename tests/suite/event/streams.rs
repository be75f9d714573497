//! Records of streams: what runs, what is parked, and which of them must come again.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use lambda_idempotency::lambda::Error;
use lambda_idempotency::{
    DynamoDbStore, Execution, Failure, Guard, MemoryStore, Operation,
    bounds::{Bounds, Rate},
    event::{
        BatchFunction, Consumer, DeadMessage, KeyFrom, MemorySource, Message, Shards, Source, SourceKind,
    },
    key::Tenant,
    queue::QueueError,
    time::Timestamp,
    world::World,
};
use serde_json::{Value, json};

use super::{SHIP, parcel, parcel_that, tenant};
use crate::support::{
    client::client,
    http::Gate,
    letters::Letters,
    messages::{deliver_within, hand_over},
    seeded_world::SeededWorld,
    streams::{STREAM, bytes, change, gzip, record, sequence},
};

pub(super) const START: Timestamp = Timestamp::from_secs(2_000_000_000);
const HALF_A_MINUTE: Duration = Duration::from_secs(30);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// A consumer of a stream in virtual time, and what it has run.
#[derive(Clone)]
pub(super) struct Stream {
    world: SeededWorld,
    store: MemoryStore,
    pub(super) source: MemorySource,
    runs: Arc<Mutex<Vec<String>>>,
}

impl Stream {
    pub(super) fn of(kind: SourceKind) -> Self {
        let (world, store) = (SeededWorld::new(7, START), MemoryStore::new());
        Self { world, store, source: MemorySource::of(kind, STREAM), runs: Arc::default() }
    }

    fn kinesis() -> Self {
        Self::of(SourceKind::Kinesis(Shards::default()))
    }

    pub(super) fn guard(&self) -> Guard {
        Guard::new(self.store.clone(), Operation::new(SHIP), tenant()).world(self.world.clone())
    }

    pub(super) fn consumer(&self) -> Consumer {
        let consumer = Consumer::new(self.source.clone(), KeyFrom::body("/id")).world(self.world.clone());
        // Half a minute has time for that.
        consumer.max_attempts(5)
    }

    /// Ships parcels as they say.
    pub(super) fn ships(
        &self,
    ) -> impl Fn(Execution, Value) -> futures_util::future::BoxFuture<'static, Result<(), Failure>>
    + Clone
    + Send
    + Sync
    + 'static {
        let runs = self.runs.clone();
        move |_, parcel| {
            let runs = runs.clone();
            Box::pin(async move {
                runs.lock().unwrap().push(parcel["id"].as_str().unwrap_or("?").to_owned());
                match parcel["does"].as_str() {
                    Some("nothing") => Err(Failure::not_executed("no connection")),
                    Some("fails") => Err(std::io::Error::other("no answer").into()),
                    Some("refuses") => Err(Failure::permanent("no such address")),
                    _ => Ok(()),
                }
            })
        }
    }

    pub(super) fn each(&self) -> impl BatchFunction {
        self.consumer().each(self.guard(), self.ships())
    }

    /// Hands an event over, with half a minute to run.
    pub(super) async fn hand_over(
        &self,
        consumer: &impl BatchFunction,
        event: Value,
    ) -> Result<Vec<String>, Error> {
        let now = UNIX_EPOCH + Duration::from_millis(self.world.now().as_millis());
        hand_over(consumer, event, now, HALF_A_MINUTE).await
    }

    /// Hands a batch over. Returns the sequence numbers of those that must come again.
    async fn deliver(&self, consumer: &impl BatchFunction, batch: &[Value]) -> Vec<String> {
        self.hand_over(consumer, json!({ "Records": batch })).await.expect("an answer")
    }

    pub(super) fn take_runs(&self) -> Vec<String> {
        std::mem::take(&mut self.runs.lock().unwrap())
    }

    /// The reason of the only one that is parked.
    pub(super) fn parked(&self) -> DeadMessage {
        let dead: [DeadMessage; 1] = self.source.take_dead().try_into().expect("one is parked");
        let [dead] = dead;
        dead
    }

    pub(super) fn world(&self) -> SeededWorld {
        self.world.clone()
    }

    pub(super) fn runs(&self) -> Arc<Mutex<Vec<String>>> {
        self.runs.clone()
    }

    pub(super) fn is_direct(&self) -> bool {
        self.source.kind() == SourceKind::Invocation
    }

    fn now(&self) -> Timestamp {
        self.world.now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_runs_once_and_a_redelivery_is_a_replay() {
    let stream = Stream::kinesis();
    let consumer = stream.each();
    let batch = [record(1, "a", parcel("1"), START), record(2, "a", parcel("2"), START)];
    for _ in 0..2 {
        assert_eq!(stream.deliver(&consumer, &batch).await, [""; 0]);
    }
    assert_eq!(stream.take_runs(), ["1", "2"]);
    assert!(stream.source.take_hidden().is_empty() && stream.source.take_dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn records_behind_one_of_their_key_wait_and_all_are_named() {
    let stream = Stream::kinesis();
    let consumer = stream.consumer().max_attempts(100).each(stream.guard(), stream.ships());
    let batch = [
        record(1, "b", parcel("before"), START),
        record(2, "a", parcel_that("fails", "nothing"), START),
        record(3, "a", parcel("behind"), START),
        record(4, "b", parcel("of another key"), START),
    ];
    assert_eq!(stream.deliver(&consumer, &batch).await, [2, 3].map(sequence));
    let mut runs = stream.take_runs();
    runs.dedup();
    // 1, 2, 4, 8 seconds between them, and no more time for 16.
    assert_eq!(runs.iter().filter(|run| *run == "behind").count(), 0, "{runs:?}");
    assert!(runs.contains(&"of another key".to_owned()) && runs.contains(&"before".to_owned()));
    assert!(stream.source.take_dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lane_by_shard_stops_at_its_first_failure() {
    let stream = Stream::of(SourceKind::Kinesis(Shards::default().lane_by_shard()));
    let consumer = stream.consumer().max_attempts(100).each(stream.guard(), stream.ships());
    let batch = [
        record(1, "a", parcel("1"), START),
        record(2, "b", parcel_that("2", "nothing"), START),
        record(3, "c", parcel("3"), START),
    ];
    assert_eq!(stream.deliver(&consumer, &batch).await, [2, 3].map(sequence));
    assert!(!stream.take_runs().contains(&"3".to_owned()));
}

// T84
#[tokio::test(start_paused = true)]
async fn a_poison_record_is_parked_and_its_key_goes_on() {
    let stream = Stream::kinesis();
    let batch = [record(1, "a", parcel_that("1", "nothing"), START), record(2, "a", parcel("2"), START)];
    assert_eq!(stream.deliver(&stream.each(), &batch).await, [""; 0]);
    let parked = stream.parked();
    assert_eq!(parked.reason, "it was tried 5 times: no connection");
    // The letter runs its record, once its function can.
    let letter: Value = serde_json::from_str(&parked.body).expect("an event");
    assert_eq!(letter, json!({ "parked": true, "Records": [batch[0]] }));
    assert_eq!(stream.take_runs(), ["1", "1", "1", "1", "1", "2"]);
}

// T84
#[tokio::test(start_paused = true)]
async fn what_cannot_be_parked_is_handed_back_with_all_behind_it() {
    let stream = Stream::kinesis();
    let of = |fails: u32| {
        let left = Arc::new(AtomicU32::new(fails));
        // They do not answer so often.
        let full = Letters(stream.source.clone(), move |source: MemorySource, dead| {
            let take = |left: u32| left.checked_sub(1);
            let fails = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
            async move { if fails { Err(QueueError::new("no answer")) } else { source.bury(dead).await } }
        });
        let consumer = Consumer::new(full, KeyFrom::body("/id")).world(stream.world.clone());
        consumer.each(stream.guard(), stream.ships())
    };
    let consumer = of(u32::MAX);
    let batch = [
        record(1, "a", parcel_that("1", "refuses"), START),
        record(2, "a", parcel("2"), START),
        record(3, "b", "no JSON", START),
        record(4, "c", parcel("4"), START),
    ];
    let began = stream.now();
    assert_eq!(stream.deliver(&consumer, &batch).await, [1, 2, 3].map(sequence));
    assert_eq!(stream.take_runs(), ["1", "4"]);
    // What its process has not parked is not passed by, when it comes again.
    assert_eq!(stream.deliver(&consumer, &batch).await, [1, 2, 3].map(sequence));
    assert_eq!(stream.take_runs(), [""; 0]);
    // Lambda would bring them again at once: they are sent again as long as there is time.
    assert!(stream.now().since(began) > Duration::from_secs(10));
    assert_eq!(stream.deliver(&of(3), &batch[..2]).await, [""; 0]);
    assert_eq!((&*stream.parked().reason, stream.take_runs()), ("no such address", vec!["2".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn tries_are_counted_by_the_record_and_not_by_deliveries() {
    let stream = Stream::kinesis();
    let consumer = stream.consumer().max_attempts(2).each(stream.guard(), stream.ships());
    let batch = [record(1, "a", parcel_that("1", "nothing"), START)];
    let now = UNIX_EPOCH + Duration::from_millis(stream.now().as_millis());
    // There is time for one.
    let back = deliver_within(&consumer, &batch, now, Duration::from_secs(1)).await.expect("an answer");
    assert_eq!((back, stream.take_runs().len()), (vec![sequence(1)], 1));
    assert_eq!(stream.deliver(&consumer, &batch).await, [""; 0]);
    assert_eq!(
        (stream.take_runs().len(), &*stream.parked().reason),
        (1, "it was tried 2 times: no connection")
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_is_waited_for_within_the_invocation() {
    let (stream, gate) = (Stream::kinesis(), Gate::closed());
    let held = gate.clone();
    let slow = stream.consumer().each(stream.guard(), move |_: Execution, _: Value| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok::<_, Failure>(())
        }
    });
    // They are old, but each has the time of an invocation.
    let old = START.minus(7 * HOUR);
    let batch = [record(1, "a", parcel("1"), old), record(2, "a", parcel("2"), old)];
    let other = tokio::spawn({
        let (stream, slow, first) = (stream.clone(), slow.clone(), batch[..1].to_vec());
        async move { stream.deliver(&slow, &first).await }
    });
    gate.reached(1).await;
    let opens = async {
        stream.world.sleep(Duration::from_secs(4)).await;
        gate.open();
    };
    let (back, ()) = tokio::join!(stream.deliver(&slow, &batch), opens);
    assert_eq!(back, [""; 0]);
    assert_eq!(other.await.expect("it ends"), [""; 0]);
    assert!(stream.source.take_dead().is_empty(), "none is parked");
}

// T50
#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_for_the_answer() {
    let stream = Stream::kinesis();
    let consumer = stream.consumer().max_attempts(100).each(stream.guard(), stream.ships());
    let began = stream.now();
    let batch = [record(1, "a", parcel_that("1", "fails"), START)];
    assert_eq!(stream.deliver(&consumer, &batch).await, [sequence(1)]);
    assert!(stream.now().since(began) < HALF_A_MINUTE, "{:?}", stream.now().since(began));
    assert_eq!(stream.take_runs().len(), 1, "its outcome is unknown");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_waits_takes_no_place_of_others() {
    let stream = Stream::kinesis();
    let consumer = stream.consumer().at_once(1).each(stream.guard(), stream.ships());
    let batch =
        [record(1, "a", parcel_that("waits", "fails"), START), record(2, "b", parcel("goes on"), START)];
    assert_eq!(stream.deliver(&consumer, &batch).await, [sequence(1)]);
    assert_eq!(stream.take_runs(), ["waits", "goes on"]);
}

// T84
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_go_on_is_parked_once_it_is_old() {
    let stream = Stream::kinesis();
    let consumer = stream.each();
    let batch = |age| [record(1, "a", parcel_that("1", "fails"), stream.now().minus(age))];
    assert_eq!(stream.deliver(&consumer, &batch(5 * HOUR)).await, [sequence(1)]);
    let old = batch(6 * HOUR);
    let behind = record(2, "a", parcel("2"), stream.now());
    assert_eq!(stream.deliver(&consumer, &[old[0].clone(), behind]).await, [""; 0]);
    let reason = stream.parked().reason;
    assert!(reason.ends_with(" s old: its outcome is unknown"), "{reason}");
    assert_eq!(stream.take_runs(), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn what_may_be_parked_at_once_holds_nothing_up() {
    let stream = Stream::of(SourceKind::Kinesis(Shards::default().park_after(Duration::ZERO)));
    let bounds = Bounds::of(stream.store.clone()).new_keys(Rate::per_minute(1).burst(1));
    let consumer = stream.consumer().each(stream.guard().bounds(bounds), stream.ships());
    let began = stream.now();
    let batch = [
        record(1, "a", parcel_that("1", "fails"), START),
        record(2, "a", parcel("2"), START),
        // Its tenant is over its bound.
        record(3, "a", parcel("3"), START),
        record(4, "a", parcel("2"), START),
    ];
    assert_eq!(stream.deliver(&consumer, &batch).await, [""; 0]);
    let reasons: Vec<_> = stream.source.take_dead().into_iter().map(|dead| dead.reason).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("unknown") && reasons[1].contains("too many"), "{reasons:?}");
    assert!(stream.now().since(began) < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_parks_no_shard() {
    let stream = Stream::of(SourceKind::Kinesis(Shards::default().park_after(Duration::ZERO)));
    // Nothing answers there.
    let store = DynamoDbStore::from_client(client("http://127.0.0.1:9"), "records");
    let guard = Guard::new(store, Operation::new(SHIP), tenant()).world(stream.world.clone());
    let consumer = stream.consumer().each(guard, stream.ships());
    let batch = [record(1, "a", parcel("1"), stream.now().minus(30 * HOUR))];
    assert_eq!(stream.deliver(&consumer, &batch).await, [sequence(1)]);
    assert!(stream.source.take_dead().is_empty() && stream.take_runs().is_empty());
}

// While one in front of it must come again, so does what was parked. What is behind it has run.
#[tokio::test(start_paused = true)]
async fn what_was_parked_runs_no_more_unless_its_letter_does() {
    let stream = Stream::kinesis();
    let is_mended = Arc::new(AtomicBool::new(false));
    let consumer = || {
        let (runs, is_mended) = (stream.runs.clone(), is_mended.clone());
        stream.consumer().max_attempts(2).each(stream.guard(), move |_: Execution, parcel: Value| {
            let id = parcel["id"].as_str().unwrap_or("?").to_owned();
            let is_mended = is_mended.load(Ordering::Relaxed);
            runs.lock().unwrap().push(id.clone());
            async move {
                match &*id {
                    "unknown" => Err(std::io::Error::other("no answer").into()),
                    "poison" if !is_mended => Err(Failure::not_executed("no connection")),
                    _ => Ok(()),
                }
            }
        })
    };
    let batch = [
        record(1, "b", parcel("unknown"), START),
        record(2, "a", parcel("poison"), START),
        record(3, "a", parcel("behind"), START),
    ];
    let (first, second) = (consumer(), consumer());
    assert_eq!(stream.deliver(&first, &batch).await, [sequence(1)]);
    assert_eq!(stream.take_runs(), ["unknown", "poison", "poison", "behind"]);
    let letter = stream.parked();
    is_mended.store(true, Ordering::Relaxed);
    // The process that has parked it knows it.
    assert_eq!(stream.deliver(&first, &batch).await, [sequence(1)]);
    assert!(stream.take_runs().is_empty() && stream.source.take_dead().is_empty());
    // Another one parks it once more.
    assert_eq!(stream.deliver(&second, &batch).await, [sequence(1)]);
    assert_eq!(
        (stream.take_runs(), &*stream.parked().reason),
        (vec![], "it was tried 3 times: its tries were over")
    );
    let letter = serde_json::from_str(&letter.body).expect("an event");
    assert_eq!(stream.hand_over(&first, letter).await.expect("an answer"), [""; 0]);
    assert_eq!(stream.take_runs(), ["poison"]);
    assert!(stream.source.take_dead().is_empty());
}

// After a day without a consumer, all records are old.
#[tokio::test(start_paused = true)]
async fn an_old_record_for_which_no_time_is_left_is_not_parked() {
    let stream = Stream::kinesis();
    let world = stream.world.clone();
    let consumer = stream.consumer().at_once(1).each(stream.guard(), move |_: Execution, _: Value| {
        let world = world.clone();
        async move {
            // Until nothing begins any more.
            world.sleep(Duration::from_millis(27_500)).await;
            Ok::<_, Failure>(())
        }
    });
    let old = START.minus(20 * HOUR);
    let batch: Vec<_> = (0..4).map(|n| record(n, &n.to_string(), parcel(&n.to_string()), old)).collect();
    let back = stream.deliver(&consumer, &batch).await;
    assert_eq!((back.len(), stream.source.take_dead().len()), (3, 0), "{back:?}");
}

// No record counts what is around the function, and a stream counts no receives.
#[tokio::test(start_paused = true)]
async fn what_no_record_counts_is_parked_once_it_is_old() {
    let stream = Stream::kinesis();
    let tenants = |_: &Message| -> Option<Tenant> { panic!("around the function") };
    let consumer = stream.consumer().each_of_tenants(tenants, stream.guard(), stream.ships());
    let batch = |age| [record(1, "a", parcel("1"), stream.now().minus(age))];
    assert_eq!(stream.deliver(&consumer, &batch(5 * HOUR)).await, [sequence(1)]);
    assert_eq!(stream.deliver(&consumer, &batch(6 * HOUR)).await, [""; 0]);
    assert!(stream.parked().reason.contains("nothing was done"));
}

#[tokio::test(start_paused = true)]
async fn data_is_text_perhaps_compressed_and_nothing_else() {
    let stream = Stream::kinesis();
    let consumer = stream.each();
    let packed = gzip(parcel("packed").to_string().as_bytes());
    let mut no_base64 = bytes(7, "g", b"", START);
    no_base64["kinesis"]["data"] = json!("?");
    let mut no_data = bytes(8, "h", b"", START);
    no_data["kinesis"]["data"] = Value::Null;
    let mut no_text = bytes(9, "i", b"", START);
    no_text["kinesis"]["data"] = json!(5);
    let batch = [
        bytes(1, "a", &packed, START),
        bytes(2, "b", &[0xff, 0xfe], START),
        bytes(3, "c", &[0xf3, 0x89, 0x9a, 0xc2, 1], START),
        bytes(4, "d", &packed[..packed.len() - 9], START),
        bytes(5, "e", &gzip(&vec![b' '; 8 * 1024 * 1024 + 1]), START),
        bytes(6, "f", b"", START),
        // Two members, of which the first alone is a parcel: the data is both.
        bytes(10, "j", &[&*packed, &*gzip(b" ?")].concat(), START),
        no_base64,
        no_data,
        no_text,
    ];
    assert_eq!(stream.deliver(&consumer, &batch).await, [""; 0]);
    assert_eq!(stream.take_runs(), ["packed"]);
    let parked = stream.source.take_dead();
    let reason = |part: &str| parked.iter().filter(|dead| dead.reason.contains(part)).count();
    assert_eq!(parked.len(), 9);
    for (part, number) in [
        ("no text in UTF-8", 1),
        ("switch its aggregation off", 1),
        ("no valid gzip", 1),
        ("longer than 8 MiB", 1),
        ("not JSON", 2),
        ("not base64", 1),
        ("it has no data", 1),
        ("not as Kinesis writes it", 1),
    ] {
        assert_eq!(
            reason(part),
            number,
            "{part}: {:?}",
            parked.iter().map(|dead| &dead.reason).collect::<Vec<_>>()
        );
    }
    assert!(parked.iter().all(|dead| dead.body.contains(r#""Records":["#)), "as an event");
}

// A few kilobytes may say that they are megabytes. Together, 64 MiB are unpacked.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_long_unpacked_is_done_in_parts() {
    let stream = Stream::kinesis();
    let consumer = stream.each();
    let long = |number: u32| {
        let parcel = json!({ "id": number.to_string(), "says": "x".repeat(7_500_000) }).to_string();
        bytes(number, &number.to_string(), &gzip(parcel.as_bytes()), START)
    };
    let mut batch: Vec<_> = (1..=10).map(long).collect();
    assert_eq!(stream.deliver(&consumer, &batch).await, [9, 10].map(sequence));
    assert_eq!(stream.deliver(&consumer, &batch.split_off(8)).await, [""; 0]);
    assert_eq!((stream.take_runs().len(), stream.source.take_dead().len()), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_dead_records_parks_a_few_at_once() {
    let stream = Stream::kinesis();
    // How many letters are sent at once, now and at most.
    let sent = Arc::new(Mutex::new((0, 0)));
    let (counted, world) = (sent.clone(), stream.world.clone());
    let slow = Letters(stream.source.clone(), move |source: MemorySource, dead| {
        let (counted, world) = (counted.clone(), world.clone());
        async move {
            {
                let (now, most) = &mut *counted.lock().unwrap();
                *now += 1;
                *most = (*most).max(*now);
            }
            world.sleep(Duration::from_millis(100)).await;
            counted.lock().unwrap().0 -= 1;
            source.bury(dead).await
        }
    });
    let consumer = Consumer::new(slow, KeyFrom::body("/id")).world(stream.world.clone()).at_once(3);
    let consumer = consumer.each(stream.guard(), stream.ships());
    let batch: Vec<_> = (1..=20).map(|n| record(n, &n.to_string(), "no JSON", START)).collect();
    assert_eq!(stream.deliver(&consumer, &batch).await, [""; 0]);
    assert_eq!((stream.source.take_dead().len(), sent.lock().unwrap().1), (20, 3));
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_stream_is_handed_back() {
    let stream = Stream::kinesis();
    let consumer = stream.each();
    let mut foreign = record(1, "a", parcel("1"), START);
    foreign["eventSourceARN"] = json!("arn:aws:kinesis:us-east-2:123456789012:stream/others");
    let mut fanned = record(2, "b", parcel("2"), START);
    fanned["eventSourceARN"] =
        json!(format!("arn:aws:kinesis:us-east-2:123456789012:stream/{STREAM}/consumer/fan:1"));
    assert_eq!(stream.deliver(&consumer, &[foreign.clone(), fanned]).await, [sequence(1)]);
    assert_eq!(stream.take_runs(), ["2"]);
    let now = UNIX_EPOCH + Duration::from_millis(stream.now().as_millis());
    let refused = deliver_within(&consumer, &[foreign], now, HALF_A_MINUTE).await.unwrap_err().to_string();
    assert!(refused.contains("stream/others") && refused.contains(STREAM), "{refused}");
}

// T65: to Lambda, an empty id means that all must come again, and no id that none must.
#[tokio::test(start_paused = true)]
async fn a_record_without_a_number_that_must_come_again_fails_the_batch() {
    let stream = Stream::kinesis();
    let consumer = stream.each();
    for missing in [Value::Null, json!("")] {
        let mut nameless = record(1, "a", parcel_that("1", "fails"), START);
        nameless["kinesis"]["sequenceNumber"] = missing;
        let now = UNIX_EPOCH + Duration::from_millis(stream.now().as_millis());
        assert!(deliver_within(&consumer, &[nameless], now, HALF_A_MINUTE).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_table_runs_once_by_its_place() {
    let stream = Stream::of(SourceKind::DynamoDb(Shards::default()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let consumer = Consumer::new(stream.source.clone(), KeyFrom::record_id()).world(stream.world.clone());
    let consumer = consumer.each(stream.guard(), move |_: Execution, change: Value| {
        noted.lock().unwrap().push(change["dynamodb"]["NewImage"]["n"]["N"].clone());
        async { Ok::<_, Failure>(()) }
    });
    let item =
        |number: u32, keys: &Value| change(number, keys, &json!({ "n": { "N": number.to_string() } }), START);
    let mut removed = item(3, &json!({ "pk": { "S": "b" } }));
    removed["eventName"] = json!("REMOVE");
    removed["userIdentity"] = json!({ "type": "Service", "principalId": "dynamodb.amazonaws.com" });
    let batch = [item(1, &json!({ "pk": { "S": "a" } })), item(2, &json!({ "pk": { "S": "a" } })), removed];
    for _ in 0..2 {
        assert_eq!(stream.deliver(&consumer, &batch).await, [""; 0]);
    }
    assert_eq!(seen.lock().unwrap().len(), 3, "a change each, and no more");
}

#[tokio::test(start_paused = true)]
async fn changes_of_one_item_keep_their_order() {
    let stream = Stream::of(SourceKind::DynamoDb(Shards::default()));
    let consumer = Consumer::new(stream.source.clone(), KeyFrom::body("/dynamodb/NewImage/id/S"));
    let runs = stream.runs.clone();
    let consumer = consumer.world(stream.world.clone()).max_attempts(100);
    let consumer = consumer.each(stream.guard(), move |_: Execution, change: Value| {
        let id = change["dynamodb"]["NewImage"]["id"]["S"].as_str().unwrap_or("?").to_owned();
        runs.lock().unwrap().push(id.clone());
        async move { if id == "1" { Err(Failure::not_executed("no connection")) } else { Ok(()) } }
    });
    let item = |number: u32, keys: Value| {
        change(number, &keys, &json!({ "id": { "S": number.to_string() } }), START)
    };
    // The same item, whatever the order of its attributes.
    let one = serde_json::from_str(r#"{"pk":{"S":"a"},"sk":{"S":"b"}}"#).expect("JSON");
    let same = serde_json::from_str(r#"{"sk":{"S":"b"},"pk":{"S":"a"}}"#).expect("JSON");
    let batch = [item(1, one), item(2, same), item(3, json!({ "pk": { "S": "a" }, "sk": { "S": "c" } }))];
    assert_eq!(stream.deliver(&consumer, &batch).await, ["1", "2"]);
    let runs = stream.take_runs();
    assert!(runs.contains(&"3".to_owned()) && !runs.contains(&"2".to_owned()), "{runs:?}");
    let consumer = stream.each();
    let keys = json!({ "pk": { "S": "d" } });
    let old = change(4, &keys, &json!({}), stream.now().minus(6 * HOUR));
    let key = Consumer::new(stream.source.clone(), KeyFrom::record_id()).world(stream.world.clone());
    let fails = key.each(stream.guard(), async |_: Execution, _: Value| {
        Err::<(), _>(std::io::Error::other("no answer").into())
    });
    assert_eq!(stream.deliver(&fails, &[old]).await, [""; 0]);
    // A letter that is cut may have lost its number.
    assert!(stream.parked().id.is_some_and(|id| id.ends_with(":4")));
    let broken = json!({ "eventSource": "aws:dynamodb", "eventSourceARN": format!("arn:aws:dynamodb:us-east-2:1:table/{STREAM}/stream/1") });
    assert_eq!(stream.deliver(&consumer, &[broken]).await, [""; 0]);
    assert!(stream.parked().reason.contains("not as a stream of DynamoDB writes it"));
}

#[test]
fn a_key_that_its_source_does_not_have_panics_at_start_up() {
    let starts = |kind: SourceKind, key: KeyFrom| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let guard = Guard::new(MemoryStore::new(), Operation::new(SHIP), tenant());
            let consumer = Consumer::new(MemorySource::of(kind, STREAM), key);
            drop(consumer.each(guard, async |_: Execution, _: Value| Ok::<_, Failure>(())));
        }))
        .is_ok()
    };
    let streams = || [SourceKind::Kinesis(Shards::default()), SourceKind::DynamoDb(Shards::default())];
    assert!(!starts(SourceKind::Sqs, KeyFrom::record_id()));
    for stream in streams() {
        assert!(starts(stream.clone(), KeyFrom::record_id()));
        assert!(!starts(stream.clone(), KeyFrom::deduplication_id()));
        assert!(!starts(stream, KeyFrom::attribute("key")));
    }
}
