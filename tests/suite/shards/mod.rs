//! Many records of streams and topics through consumers that die, while calls of DynamoDB fail, a shard is split, and parts get other consumers.
//!
//! 1. The test plays the mapping: it hands out batches of each part, and moves its checkpoint.
//! 2. A consumer dies around an effect, or at its time-out, as in Lambda: all tasks of its process end.
//! 3. `RECORDS` sets how many. `SEED` repeats a failed run's choices.

mod parts;

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::future::{BoxFuture, join_all};
use lambda_idempotency::{
    Guard,
    event::{Answers, BatchFunction, Consumer, KeyFrom, MemorySource, Source},
    key::Tenant,
    queue::{MemoryQueue, QueueError},
    reconcile::Reconciliation,
    store::dynamodb::DynamoDbStore,
    time::Timestamp,
    world::World,
};
use macro_rules_attribute::apply;
use serde_json::Value;

use self::parts::{Batch, Stream};
use crate::{
    queues::load::{
        Process, break_store, operation,
        parcels::{Carrier, Dead, DeadLetters, Load},
        ship, states,
    },
    support::{
        alone_on_dynamodb_local,
        client::{client, connect},
        letters::Letters,
        messages::hand_over,
        mortal::Mortal,
        proxy::Proxy,
        random::{Random, Seed},
        storm::{number_of, progress},
        streams::STREAM,
        tables::idempotency_table,
    },
};

/// The figure: `RECORDS=20000`.
const RECORDS: usize = 500;

const CONSUMERS: u64 = 4;

const FUNCTION_TIMEOUT: Duration = Duration::from_secs(3);

/// After "not found", nothing of a killed worker can arrive any more.
const NOT_FOUND_GRACE: Duration = Duration::from_secs(1);

/// A consumer is killed in one of this many of its batches, and the answer to one of this many is lost.
const KILLED_IN: usize = 10;
const LOST_IN: usize = 10;

/// After this many executions a record is parked.
const MAX_ATTEMPTS: u32 = 6;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// If no checkpoint moves for this long, none will. Only a failure takes as long.
const STALLED: Duration = Duration::from_secs(90);

/// The clock of a process, in which a record waits for a tenth of its time.
#[derive(Clone, Debug)]
struct Hasty(Mortal);

impl World for Hasty {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn running(&self) -> Duration {
        self.0.running()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(span / 10)
    }

    fn nonce(&self) -> [u8; 16] {
        self.0.nonce()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

/// A queue of what is parked, which refuses each fifth letter, and takes another fifth without saying so.
fn forgetful(source: MemorySource, sent: &Arc<AtomicUsize>) -> impl Source + use<> {
    let sent = sent.clone();
    Letters(source, move |source: MemorySource, dead| {
        let number = sent.fetch_add(1, Ordering::Relaxed);
        async move {
            match number % 5 {
                3 => Err(QueueError::new("refused")),
                4 => source.bury(dead).await.and(Err(QueueError::new("no answer"))),
                _ => source.bury(dead).await,
            }
        }
    })
}

/// What happened.
#[derive(Debug, Default)]
struct Figures {
    /// Batches that ended, and those in which a process was killed, around an effect or at its time-out.
    batches: Cell<usize>,
    killed: Cell<usize>,
    timed_out: Cell<usize>,
    /// Answers that were lost, and invocations that failed.
    lost: Cell<usize>,
    failed: Cell<usize>,
    handed_back: Cell<usize>,
    /// Records that were handed out.
    received: Cell<usize>,
}

fn add(count: &Cell<usize>, number: usize) {
    count.set(count.get() + number);
}

struct Setup {
    store: DynamoDbStore,
    carrier: Carrier,
    stream: Stream,
    parked: MemorySource,
    /// How many letters were sent.
    letters: Arc<AtomicUsize>,
    figures: Figures,
}

impl Setup {
    /// A new process, with its consumer.
    fn process(&self) -> (Process, impl BatchFunction + use<>) {
        let process = Process { world: Mortal::born(), moments: Arc::default() };
        let tenant = Tenant::parse("acme").expect("a tenant");
        let guard = Guard::new(self.store.clone(), operation(), tenant).world(process.world.clone());
        let consumer = Consumer::new(forgetful(self.parked.clone(), &self.letters), KeyFrom::body("/id"))
            .max_attempts(MAX_ATTEMPTS);
        let (carrier, ran_by) = (self.carrier.clone(), process.clone());
        let function = move |execution, parcel| ship(ran_by.clone(), carrier.clone(), execution, parcel);
        let consumer = consumer.world(Hasty(process.world.clone())).each(guard, function);
        (process, consumer)
    }

    fn is_over(&self) -> bool {
        let (done, all) = self.stream.progress();
        done == all
    }

    /// Hands batches to one consumer until all is over.
    async fn consume(&self, mut random: Random) {
        let (mut process, mut consumer) = self.process();
        let mut number = random.below(KILLED_IN);
        while !self.is_over() {
            let Some(batch) = self.stream.take(&mut random) else {
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            };
            number += 1;
            add(&self.figures.received, batch.records.len());
            let killed = number.is_multiple_of(KILLED_IN);
            let moment = if killed { 1 + random.below(4) } else { 0 };
            process.moments.store(moment, Ordering::Relaxed);
            let event = self.stream.event(&batch);
            let delivered = hand_over(&consumer, event, SystemTime::now(), FUNCTION_TIMEOUT);
            let ended = tokio::select! {
                biased;
                () = process.world.died() => {
                    add(&self.figures.killed, 1);
                    None
                }
                // Boxed, because without optimisation its future is large.
                answer = Box::pin(delivered) => Some(answer.ok()),
                () = tokio::time::sleep(FUNCTION_TIMEOUT) => {
                    process.world.kill();
                    add(&self.figures.timed_out, 1);
                    None
                }
            };
            if ended.is_none() {
                (process, consumer) = self.process();
            }
            self.answer(&batch, number, ended.flatten());
        }
    }

    fn answer(&self, batch: &Batch, number: usize, back: Option<Vec<String>>) {
        add(&self.figures.batches, 1);
        add(
            if back.is_some() { &self.figures.handed_back } else { &self.figures.failed },
            back.as_ref().map_or(1, Vec::len),
        );
        let is_lost = number.is_multiple_of(LOST_IN);
        add(&self.figures.lost, usize::from(is_lost));
        self.stream.answer(batch, back.as_deref().filter(|_| !is_lost));
    }

    async fn watch(&self) {
        let (mut last, mut since) = (0, Instant::now());
        while !self.is_over() {
            tokio::time::sleep(4 * POLL_INTERVAL).await;
            let (done, all) = self.stream.progress();
            progress(&format!("\r{done} of {all} done "));
            if done > last {
                (last, since) = (done, Instant::now());
            }
            assert!(since.elapsed() < STALLED, "no record is done any more: {:?}", self.figures);
        }
    }
}

/// What was parked: each is an event with what was sent, and has a reason.
fn parked(source: &MemorySource) -> DeadLetters {
    let mut parked = DeadLetters::new();
    for letter in source.take_dead() {
        let event: Value = serde_json::from_str(&letter.body).expect("an event");
        let of_kinesis = event["Records"][0]["kinesis"]["data"].as_str();
        let of_kafka = || event["records"].as_object()?.values().next()?[0]["value"].as_str();
        let data = of_kinesis.or_else(of_kafka).expect("data");
        let body = String::from_utf8(BASE64_STANDARD.decode(data).expect("base64")).expect("text");
        let why = Dead::of(&letter.reason);
        assert_ne!(why, Dead::Other, "{body} is parked: {}", letter.reason);
        parked.entry(body).or_default().insert(why);
    }
    parked
}

async fn run(endpoint: &str, stream: impl FnOnce(&Load) -> Stream) {
    let (seed, number) = (Seed::find(), number_of("RECORDS", RECORDS));
    let load = Load::fifo(number, &mut Random::new(seed.0));
    let table = idempotency_table(&client(endpoint)).await;
    let store = Proxy::before(endpoint).await;
    let faults = break_store(&store);
    let stream = stream(&load);
    let source = MemorySource::of(stream.kind.clone(), STREAM);
    let setup = Setup {
        store: DynamoDbStore::from_client(connect(store.url()).client(), table.as_str()),
        carrier: Carrier::default(),
        stream,
        parked: source.clone(),
        letters: Arc::default(),
        figures: Figures::default(),
    };
    let escalated = MemoryQueue::new();
    let reconciliation = Reconciliation::new(setup.store.clone(), escalated.clone())
        .operation(operation(), setup.carrier.clone())
        .not_found_grace(NOT_FOUND_GRACE)
        .backoff(Duration::from_millis(100), Duration::from_millis(400), u32::MAX);
    let began = Instant::now();
    let consumers = (1..=CONSUMERS).map(|number| setup.consume(Random::new(seed.0 ^ number)));
    let reconciles = async {
        while !setup.is_over() {
            // What fails is due again.
            let _ = reconciliation.poll(Duration::from_secs(5)).await;
            tokio::time::sleep(2 * POLL_INTERVAL).await;
        }
    };
    tokio::join!(join_all(consumers), reconciles, setup.watch());

    let took = began.elapsed();
    assert!(
        setup.carrier.shipped() == load.shipped,
        "each parcel is shipped once, and in the order of its key"
    );
    let reasons = |letters: DeadLetters| -> Vec<(String, BTreeSet<Dead>)> { letters.into_iter().collect() };
    assert_eq!(reasons(parked(&source)), reasons(load.dead));
    assert!(escalated.take().is_empty());
    let mut states = states(endpoint, &table).await;
    assert_eq!(states.remove("completed"), Some(load.completed));
    states.remove("failed_retryable");
    assert!(states.is_empty(), "{states:?}");
    let used = faults.map(|(name, rule)| (name, store.used(rule)));
    let (_, all) = setup.stream.progress();
    let figures = format!(
        "{number} records, {all} with repeats, in {took:?}; {} effects; moved {} times; {:?}; {used:?}",
        setup.carrier.calls(),
        setup.stream.moved.get(),
        setup.figures
    );
    progress(&format!("\r{figures}\n"));
    // Faults that did not happen would prove nothing.
    let happened = [&setup.figures.killed, &setup.figures.lost, &setup.figures.failed, &setup.stream.moved];
    assert!(happened.iter().all(|count| count.get() > 0), "{figures}");
    assert!(used.iter().all(|(_, used)| *used > 0) && all * 10 >= number * 13, "{figures}");
}

// T1, T2, T9, T18, T64, T65, T66, T84: a third of the records comes twice, and each consumer dies in every tenth batch.
#[apply(alone_on_dynamodb_local)]
async fn records_of_a_split_stream_take_effect_once_and_in_order(endpoint: &str) {
    run(endpoint, |load| Stream::kinesis(&load.messages)).await;
}

#[apply(alone_on_dynamodb_local)]
async fn records_of_a_rebalanced_topic_take_effect_once_and_in_order(endpoint: &str) {
    run(endpoint, |load| Stream::kafka(Answers::Whole, &load.messages)).await;
}
