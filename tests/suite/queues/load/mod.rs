//! Many messages from somebody else's SQS through consumers that are killed, while calls of DynamoDB and of SQS fail.
//!
//! 1. The test plays the event source mapping: it hands out batches, and deletes what is not handed back.
//! 2. A consumer dies around an effect, or at its time-out, as in Lambda: all tasks of its process end.
//! 3. `MESSAGES` sets how many. `SEED` repeats a failed run's choices.

pub(crate) mod parcels;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use futures_util::{FutureExt, future::join_all};
use lambda_idempotency::{
    Execution, Failure, Guard, Operation, async_trait,
    event::{BatchFunction, Consumer, DeadMessage, KeyFrom, Source, SourceKind, SqsSource},
    key::Tenant,
    queue::{MemoryQueue, QueueError},
    reconcile::Reconciliation,
    store::dynamodb::DynamoDbStore,
};
use macro_rules_attribute::apply;
use serde_json::json;

use self::parcels::{Carrier, Dead, DeadLetters, Does, Load, NOTHING, Parcel, REFUSED};
use crate::support::{
    alone_on_dynamodb_local,
    client::{client, connect},
    messages::deliver_within,
    mortal::Mortal,
    proxy::{Act, Cut, Proxy, RuleId, Then},
    random::{Random, Seed},
    sqs::{self, Queue, Sqs},
    storm::{number_of, progress},
    tables::idempotency_table,
};

/// The figure: `MESSAGES=100000`.
const MESSAGES: usize = 1_000;

/// How many consumers each queue has.
const FIFO_CONSUMERS: usize = 5;
const STANDARD_CONSUMERS: usize = 2;

/// The function's time-out, and the queue's visibility time-out in seconds. It is longer, so that a dead worker's lease is over when its
/// message comes again.
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_millis(300);
const VISIBILITY: u32 = 4;

/// A message is hidden for this long at most. Held ones would be hidden for a minute, and the test would wait for them.
const MAX_HIDDEN: Duration = Duration::from_secs(2);

/// After "not found", nothing of a killed worker can arrive any more.
const NOT_FOUND_GRACE: Duration = Duration::from_secs(1);

/// A consumer is killed in one of this many of its batches, and the answer to one of this many is lost.
const KILLED_IN: usize = 25;
const LOST_IN: usize = 20;

/// Of this many messages that are done, one is not deleted.
const NOT_DELETED: usize = 25;

/// After this many executions a message goes to the dead letters.
const MAX_ATTEMPTS: u32 = 4;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// If no message is done for this long, none will be. Only a failure takes as long.
const STALLED: Duration = Duration::from_secs(90);

/// A queue whose messages are never hidden for long.
struct Hasty(SqsSource);

#[async_trait]
impl Source for Hasty {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn kind(&self) -> SourceKind {
        self.0.kind()
    }

    async fn hide(&self, receipts: &[(String, Duration)]) -> Result<(), QueueError> {
        let hidden = receipts.iter().map(|(receipt, time)| (receipt.clone(), (*time).min(MAX_HIDDEN)));
        self.0.hide(&hidden.collect::<Vec<_>>()).await
    }

    async fn bury(&self, message: DeadMessage) -> Result<(), QueueError> {
        self.0.bury(message).await
    }
}

/// What happened.
#[derive(Debug, Default)]
struct Figures {
    /// Batches that ended, and those in which a process was killed, around an effect or at its time-out.
    batches: Cell<usize>,
    killed: Cell<usize>,
    timed_out: Cell<usize>,
    /// Answers that were lost, and messages that were not deleted.
    lost: Cell<usize>,
    not_deleted: Cell<usize>,
    deleted: Cell<usize>,
    handed_back: Cell<usize>,
}

fn add(count: &Cell<usize>, number: usize) {
    count.set(count.get() + number);
}

struct Setup {
    store: DynamoDbStore,
    carrier: Carrier,
    /// SQS as the consumers see it.
    faulty_sqs: Proxy,
    figures: Figures,
    /// How often each message was received, by its body.
    received: RefCell<HashMap<String, usize>>,
    over: Cell<bool>,
}

pub(crate) fn operation() -> Operation {
    Operation::new("ship").grace(GRACE)
}

impl Setup {
    /// A new process, with its consumer.
    fn process(&self, queue: &Queue) -> (Process, impl BatchFunction + use<>) {
        let process = Process { world: Mortal::born(), moments: Arc::default() };
        let tenant = Tenant::parse("acme").expect("a tenant");
        let guard = Guard::new(self.store.clone(), operation(), tenant).world(process.world.clone());
        let config = connect(self.faulty_sqs.url()).sdk_config();
        let source = Hasty(SqsSource::new(&config, &*queue.url, &*queue.dead_letters));
        let consumer = Consumer::new(source, KeyFrom::body("/id")).max_attempts(MAX_ATTEMPTS);
        let (carrier, ran_by) = (self.carrier.clone(), process.clone());
        let function = move |execution, parcel| ship(ran_by.clone(), carrier.clone(), execution, parcel);
        let consumer = consumer.world(process.world.clone()).each(guard, function);
        (process, consumer)
    }

    /// Hands batches to one consumer until all is over.
    async fn consume(&self, queue: &Queue, mut random: Random) {
        let (mut process, mut consumer) = self.process(queue);
        let mut batch = random.below(KILLED_IN);
        while !self.over.get() {
            let messages = queue.receive().await;
            if messages.is_empty() {
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
            batch += 1;
            for message in &messages {
                let body = message.body().unwrap_or_default().to_owned();
                *self.received.borrow_mut().entry(body).or_default() += 1;
            }
            let records: Vec<_> = messages.iter().map(|message| queue.record(message)).collect();
            let killed = batch.is_multiple_of(KILLED_IN);
            let moment = if killed { 1 + random.below(2 * messages.len()) } else { 0 };
            process.moments.store(moment, Ordering::Relaxed);
            let delivered = deliver_within(&consumer, &records, SystemTime::now(), FUNCTION_TIMEOUT);
            let back = tokio::select! {
                biased;
                () = process.world.died() => {
                    add(&self.figures.killed, 1);
                    None
                }
                // Boxed, because without optimisation its future is large.
                back = Box::pin(delivered) => Some(back.expect("each message has an id")),
                () = tokio::time::sleep(FUNCTION_TIMEOUT) => {
                    process.world.kill();
                    add(&self.figures.timed_out, 1);
                    None
                }
            };
            match back {
                None => (process, consumer) = self.process(queue),
                Some(back) => {
                    add(&self.figures.batches, 1);
                    add(&self.figures.handed_back, back.len());
                    self.delete(queue, &messages, &back, batch, &mut random).await;
                }
            }
        }
    }

    /// Deletes what is not handed back, if that is not lost.
    async fn delete(
        &self,
        queue: &Queue,
        messages: &[Message],
        back: &[String],
        batch: usize,
        random: &mut Random,
    ) {
        if batch.is_multiple_of(LOST_IN) {
            return add(&self.figures.lost, 1);
        }
        let done = messages.iter().filter(|message| !back.iter().any(|id| message.message_id() == Some(id)));
        let (kept, deleted): (Vec<_>, Vec<_>) = done.partition(|_| random.below(NOT_DELETED) == 0);
        add(&self.figures.not_deleted, kept.len());
        add(&self.figures.deleted, deleted.len());
        queue.delete(deleted).await;
    }

    /// Sends all messages, and waits until none is left.
    async fn produce(&self, loads: [(&Queue, &Load); 2]) {
        let sending = loads.map(|(queue, load)| queue.send(&load.messages));
        let all: usize = loads.iter().map(|(_, load)| load.messages.len()).sum();
        let watched = async {
            let (mut last, mut since) = (0, Instant::now());
            loop {
                tokio::time::sleep(4 * POLL_INTERVAL).await;
                let deleted = self.figures.deleted.get();
                progress(&format!("\r{deleted} of {all} done "));
                if deleted > last {
                    (last, since) = (deleted, Instant::now());
                }
                assert!(since.elapsed() < STALLED, "no message is done any more: {:?}", self.figures);
            }
        };
        let drained = async {
            join_all(sending).await;
            while join_all(loads.map(|(queue, _)| queue.left())).await != [0, 0] {
                tokio::time::sleep(4 * POLL_INTERVAL).await;
            }
        };
        futures_util::future::select(Box::pin(drained), Box::pin(watched)).await.factor_first().0
    }
}

/// A process, and in how many moments it is killed; 0: it is not.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) world: Mortal,
    pub(crate) moments: Arc<AtomicUsize>,
}

impl Process {
    /// A moment in which it can be killed.
    async fn moment(&self) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if self.moments.load(Ordering::Relaxed) > 0 && self.moments.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.world.kill();
            std::future::pending::<()>().await;
        }
    }
}

/// The function: it can die before its effect, and after it.
pub(crate) async fn ship(
    process: Process,
    carrier: Carrier,
    execution: Execution,
    parcel: Parcel,
) -> Result<String, Failure> {
    let first = execution.attempts() == 1;
    process.moment().await;
    match parcel.does {
        Does::Nothing => return Err(Failure::not_executed(NOTHING)),
        Does::ShipLater if first => return Err(Failure::not_executed(NOTHING)),
        Does::FailAndShip if first => return Err("no answer".into()),
        Does::Refuse => return Err(Failure::permanent(REFUSED)),
        _ => carrier.ship(&parcel.id),
    }
    process.moment().await;
    if parcel.does == Does::ShipAndFail { Err("no answer".into()) } else { Ok(parcel.id) }
}

/// Takes the dead letters. Each must be what was sent, with a reason.
async fn dead_letters(queue: &Queue) -> DeadLetters {
    let mut dead = DeadLetters::new();
    for letter in queue.take_dead_letters().await {
        let body = letter.body().unwrap_or_default();
        let reason = sqs::attribute(&letter, "idempotency-reason").unwrap_or("no reason");
        let why = Dead::of(reason);
        assert_ne!(why, Dead::Other, "{body} is dead: {reason}");
        assert!(sqs::attribute(&letter, "idempotency-message-id").is_some());
        if let Some(group) = sqs::system_attribute(&letter, MessageSystemAttributeName::MessageGroupId) {
            assert!(body.contains(&format!("{group}-p")), "{body} is not of the group {group}");
        }
        dead.entry(body.to_owned()).or_default().insert(why);
    }
    dead
}

pub(crate) type Fault = (&'static str, RuleId);

/// Lost answers, lost requests, and conflicts.
pub(crate) fn break_store(store: &Proxy) -> [Fault; 4] {
    let lost = |cut| Act::Cut(cut, Then::Closed);
    let conflict = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
        "message": "Transaction is ongoing for the item"
    });
    let (put, get) = (["DynamoDB_20120810.PutItem"], ["DynamoDB_20120810.GetItem"]);
    [
        ("lost writes", store.to_every(9, &put, lost(Cut::Answer(0)))),
        ("conflicts", store.to_every(31, &put, Act::Answer(400, conflict))),
        ("lost requests", store.to_every(41, &put, lost(Cut::Request(0)))),
        ("lost reads", store.to_every(9, &get, lost(Cut::Answer(0)))),
    ]
}

/// It hides nothing (the SDK does not retry this), or takes a dead letter and does not say so.
fn break_sqs(sqs: &Proxy) -> [Fault; 2] {
    let denied = json!({ "__type": "com.amazonaws.sqs#AccessDeniedException", "message": "not now" });
    let lost = Act::Cut(Cut::Answer(0), Then::Closed);
    [
        (
            "not hidden",
            sqs.to_every(5, &["AmazonSQS.ChangeMessageVisibilityBatch"], Act::Answer(403, denied)),
        ),
        ("lost dead letters", sqs.to_every(5, &["AmazonSQS.SendMessage"], lost)),
    ]
}

/// How many records there are of each state.
pub(crate) async fn states(endpoint: &str, table: &str) -> HashMap<String, usize> {
    let scan = client(endpoint).scan().table_name(table).consistent_read(true);
    let items = scan.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
    let mut states = HashMap::new();
    for item in items.expect("the table answers") {
        if let Some(Ok(state)) = item.get("state").map(|state| state.as_s()) {
            *states.entry(state.clone()).or_default() += 1;
        }
    }
    states
}

// T1, T2, T9, T18, T35, T64, T65, T66, T67: a third of the messages comes twice, and each consumer dies in every 25th batch.
#[apply(alone_on_dynamodb_local)]
async fn messages_through_dying_consumers_take_effect_once_and_in_order(endpoint: &str) {
    let (seed, number) = (Seed::find(), number_of("MESSAGES", MESSAGES));
    let mut random = Random::new(seed.0);
    let standard = Load::standard(number * 3 / 10, &mut random);
    let fifo = Load::fifo(number - standard.number, &mut random);
    let table = idempotency_table(&client(endpoint)).await;
    let (sqs, store) = (Sqs::start().await, Proxy::before(endpoint).await);
    let faulty_sqs = Proxy::before(sqs.url()).await;
    let (store_faults, sqs_faults) = (break_store(&store), break_sqs(&faulty_sqs));
    let queues = [sqs.queue("parcels.fifo", VISIBILITY).await, sqs.queue("parcels", VISIBILITY).await];
    let setup = Setup {
        store: DynamoDbStore::from_client(connect(store.url()).client(), table.as_str()),
        carrier: Carrier::default(),
        faulty_sqs,
        figures: Figures::default(),
        received: RefCell::default(),
        over: Cell::new(false),
    };
    let escalated = MemoryQueue::new();
    let reconciliation = Reconciliation::new(setup.store.clone(), escalated.clone())
        .operation(operation(), setup.carrier.clone())
        .not_found_grace(NOT_FOUND_GRACE)
        .backoff(Duration::from_millis(100), Duration::from_millis(400), u32::MAX);

    let began = Instant::now();
    let consumers = [(&queues[0], FIFO_CONSUMERS), (&queues[1], STANDARD_CONSUMERS)]
        .into_iter()
        .flat_map(|(queue, number)| std::iter::repeat_n(queue, number))
        .zip(1..)
        .map(|(queue, number)| setup.consume(queue, Random::new(seed.0 ^ number)));
    let reconciles = async {
        while !setup.over.get() {
            // What fails is due again.
            let _ = reconciliation.poll(Duration::from_secs(5)).await;
            tokio::time::sleep(2 * POLL_INTERVAL).await;
        }
    };
    let loads = [(&queues[0], &fifo), (&queues[1], &standard)];
    let produces = setup.produce(loads).map(|()| setup.over.set(true));
    tokio::join!(join_all(consumers), reconciles, produces);

    let took = began.elapsed();
    for (queue, load) in loads {
        assert_eq!(queue.left().await, 0);
        assert_eq!(dead_letters(queue).await, load.dead);
    }
    let mut shipped = setup.carrier.shipped();
    let mut unordered = shipped.remove("standard").unwrap_or_default();
    let mut expected = standard.shipped["standard"].clone();
    unordered.sort();
    expected.sort();
    assert!(unordered == expected, "each parcel of the standard queue is shipped once");
    assert!(shipped == fifo.shipped, "each parcel of a group is shipped once, and in order");
    assert!(escalated.take().is_empty());
    let mut states = states(endpoint, &table).await;
    assert_eq!(states.remove("completed"), Some(fifo.completed + standard.completed));
    states.remove("failed_retryable");
    assert!(states.is_empty(), "{states:?}");

    let received = setup.received.borrow();
    let again = received.values().filter(|times| **times > 1).count();
    let used = store_faults.map(|(name, rule)| (name, store.used(rule))).into_iter();
    let used = used.chain(sqs_faults.map(|(name, rule)| (name, setup.faulty_sqs.used(rule))));
    let used: Vec<_> = used.collect();
    let figures = format!(
        "{number} messages in {took:?}, {again} of them received again, {} receives; {} effects; {:?}; {used:?}",
        received.values().sum::<usize>(),
        setup.carrier.calls(),
        setup.figures
    );
    progress(&format!("\r{figures}\n"));
    // Faults that did not happen would prove nothing.
    assert!(again * 5 >= number && setup.figures.killed.get() > 0, "{figures}");
    assert!(used.iter().all(|(_, used)| *used > 0), "{figures}");
}
