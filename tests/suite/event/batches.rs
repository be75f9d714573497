//! Several messages at once: what runs together, what in order, and what is handed back.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use lambda_idempotency::{
    Execution, Failure, async_trait,
    event::{Consumer, DeadMessage, KeyFrom, Source, SourceKind},
    queue::QueueError,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::{consumer, fifo, guard, parcel, parcel_that, queue, ships};
use crate::support::{
    faults::{ANY, Fault},
    guarded::Guarded,
    http::{Counter, Gate},
    messages::{FIFO, QUEUE, deliver, deliver_within, message, of_group, received},
    on_each_store,
};

#[apply(on_each_store)]
async fn a_batch_of_no_messages_is_done(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let consumer = consumer(&guarded, &queue()).each(guard(&guarded), ships(&runs));
    assert!(deliver(&consumer, &[]).await.expect("an answer").is_empty());
}

// Reservations, functions and completions go on only once all ten are there. So the batch takes the time of two trips and a function.
#[apply(on_each_store)]
async fn messages_of_different_keys_run_at_once(endpoint: &str) {
    let (guarded, gate, queue) = (Guarded::on(endpoint).await, Gate::closed(), fifo());
    for _ in ["reservations", "completions"] {
        let meet = Fault::Meet(Arc::new(Barrier::new(10)));
        guarded.faults.script(ANY, vec![meet; 10]);
    }
    let held = gate.clone();
    let function = move |_: Execution, _: Value| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok::<_, Failure>(())
        }
    };
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), function);
    let messages: Vec<_> =
        (0..10).map(|n| of_group(&n.to_string(), &format!("m-{n}"), parcel(&format!("p-{n}")))).collect();
    let opens = async {
        gate.reached(10).await;
        gate.open();
    };
    let (delivered, ()) = tokio::join!(deliver(&consumer, &messages), opens);
    assert!(delivered.expect("an answer").is_empty());
    assert_eq!((guarded.faults.left(), guarded.meter.reading().total().round_trips), (0, 20));
}

// T64
#[apply(on_each_store)]
async fn the_same_key_twice_in_a_batch_runs_once(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    // One message that was received twice, another one of the same key, and one that did nothing, twice.
    let once = [message("m-1", parcel("p-1")), message("m-1", parcel("p-1")), message("m-2", parcel("p-1"))];
    assert!(deliver(&consumer, &once).await.expect("an answer").is_empty());
    assert_eq!(runs.count(), 1);
    let nothing = parcel_that("p-2", "nothing");
    let twice = [message("m-3", &nothing), message("m-4", &nothing), message("m-4", &nothing)];
    assert_eq!(deliver(&consumer, &twice).await.expect("an answer"), ["m-3", "m-4"]);
}

/// Records the order of its runs, and fails for parcels that say so.
fn in_order(
    order: &Arc<Mutex<Vec<String>>>,
) -> impl Fn(Execution, Value) -> futures_util::future::BoxFuture<'static, Result<(), Failure>>
+ Clone
+ Send
+ Sync
+ 'static {
    let order = order.clone();
    move |_, parcel| {
        let order = order.clone();
        Box::pin(async move {
            order.lock().unwrap().push(parcel["id"].as_str().unwrap_or_default().to_owned());
            match parcel["does"].as_str() {
                Some("nothing") => Err(Failure::not_executed("no connection")),
                Some("fails") => Err(std::io::Error::other("no answer").into()),
                Some("refuses") => Err(Failure::permanent("no such address")),
                _ => Ok(()),
            }
        })
    }
}

// T66
#[apply(on_each_store)]
async fn behind_a_failed_message_its_group_is_handed_back(endpoint: &str) {
    for does in ["nothing", "fails"] {
        let (guarded, queue, order) = (Guarded::on(endpoint).await, fifo(), Arc::default());
        let consumer = consumer(&guarded, &queue).at_once(1).each(guard(&guarded), in_order(&order));
        let messages = [
            of_group("a", "a-1", parcel("a-1")),
            of_group("b", "b-1", parcel("b-1")),
            of_group("a", "a-2", parcel_that("a-2", does)),
            of_group("a", "a-3", parcel("a-3")),
            of_group("b", "b-2", parcel("b-2")),
            // It cannot be used, and must not overtake the group either.
            of_group("a", "a-4", "no parcel"),
            of_group("a", "a-5", parcel("a-1")),
        ];
        assert_eq!(deliver(&consumer, &messages).await.expect("an answer"), ["a-2", "a-3", "a-4", "a-5"]);
        let mut ran: Vec<String> = order.lock().unwrap().clone();
        // By groups, each in its order.
        ran.sort_by(|one, other| one[..1].cmp(&other[..1]));
        assert_eq!(ran, ["a-1", "a-2", "b-1", "b-2"]);
        assert!(queue.take_dead().is_empty());
        let hidden = queue.take_hidden();
        // The rest is visible at once, and waits behind the one that is hidden.
        let (head, rest) = hidden.split_first().expect("four");
        assert!(head.0 == "receipt of a-2" && head.1 >= Duration::from_secs(1), "{hidden:?}");
        assert!(rest.len() == 3 && rest.iter().all(|(_, after)| after.is_zero()), "{hidden:?}");
    }
}

// A dead message leaves its group: the next ones run.
#[apply(on_each_store)]
async fn a_dead_message_does_not_block_its_group(endpoint: &str) {
    let (guarded, queue, order) = (Guarded::on(endpoint).await, fifo(), Arc::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), in_order(&order));
    let messages = [
        of_group("a", "a-1", parcel_that("a-1", "refuses")),
        of_group("a", "a-2", "no parcel"),
        of_group("a", "a-3", parcel("a-3")),
    ];
    assert!(deliver(&consumer, &messages).await.expect("an answer").is_empty());
    assert_eq!(*order.lock().unwrap(), ["a-1", "a-3"]);
    let dead: Vec<_> = queue.take_dead().into_iter().map(|dead| (dead.id, dead.group)).collect();
    let of_a = |id: &str| (Some(id.to_owned()), Some("a".to_owned()));
    assert_eq!(dead, [of_a("a-1"), of_a("a-2")]);
}

// T65
#[apply(on_each_store)]
async fn without_an_id_a_message_that_must_come_again_fails_the_batch(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    for id in [Value::Null, json!("")] {
        let mut unnamed = message("", parcel_that("p-1", "nothing"));
        unnamed["messageId"] = id;
        let refused = deliver(&consumer, &[message("m-2", parcel("p-2")), unnamed]).await;
        assert!(refused.expect_err("all come again").to_string().contains("has no id"));
    }
    let mut unnamed = message("", parcel("p-3"));
    unnamed["messageId"] = Value::Null;
    assert!(deliver(&consumer, &[unnamed]).await.expect("an answer").is_empty(), "what is done needs no id");
    assert_eq!(runs.count(), 4, "p-1 twice, p-2 and p-3 once");
}

#[apply(on_each_store)]
async fn messages_of_another_queue_are_not_run(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    let mut foreign = message("m-1", parcel("p-1"));
    foreign["eventSourceARN"] = json!("arn:aws:sqs:us-east-2:123456789012:returns");
    let mixed = [foreign.clone(), message("m-2", parcel("p-2"))];
    assert_eq!(deliver(&consumer, &mixed).await.expect("an answer"), ["m-1"]);
    let refused = deliver(&consumer, &[foreign]).await.expect_err("a mistake in the mapping").to_string();
    assert!(refused.contains(":returns") && refused.contains("parcels"), "{refused}");
    let kinesis = json!({ "eventSource": "aws:kinesis", "kinesis": { "data": "e30=" } });
    assert!(
        deliver(&consumer, &[kinesis]).await.expect_err("no message").to_string().contains("aws:kinesis")
    );
    assert_eq!((runs.count(), queue.take_hidden().len(), queue.take_dead().len()), (1, 0, 0));
}

// The third would begin too late: its function may take longer than what is left.
#[apply(on_each_store)]
async fn near_the_deadline_no_message_begins(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let (clock, counted) = (guarded.clock.clone(), runs.clone());
    let function = move |_: Execution, _: Value| {
        clock.advance(Duration::from_secs(14));
        counted.add();
        async { Ok::<_, Failure>(()) }
    };
    let consumer = consumer(&guarded, &queue).at_once(1).each(guard(&guarded), function);
    let messages: Vec<_> = (1..=4).map(|n| message(&format!("m-{n}"), parcel(&format!("p-{n}")))).collect();
    let now = UNIX_EPOCH + Duration::from_millis(guarded.now().as_millis());
    let back = deliver_within(&consumer, &messages, now, Duration::from_secs(30)).await.expect("an answer");
    assert_eq!((back, runs.count()), (vec!["m-3".to_owned(), "m-4".to_owned()], 2));
    assert_eq!(guarded.number_of_items().await, 2);
    let hidden = queue.take_hidden();
    assert!(hidden.iter().all(|(_, after)| (1..=1000).contains(&after.as_millis())), "{hidden:?}");
}

/// A queue of this name that is away: it hides nothing, and takes no dead letters.
struct Away(&'static str);

#[async_trait]
impl Source for Away {
    fn name(&self) -> &str {
        self.0
    }

    fn kind(&self) -> SourceKind {
        SourceKind::Sqs
    }

    async fn hide(&self, _: &[(String, Duration)]) -> Result<(), QueueError> {
        Err(QueueError::new("away"))
    }

    async fn bury(&self, _: DeadMessage) -> Result<(), QueueError> {
        Err(QueueError::new("away"))
    }
}

#[apply(on_each_store)]
async fn a_dead_message_is_kept_until_its_dead_letters_take_it(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let consumer = Consumer::new(Away(QUEUE), KeyFrom::body("/id")).world(guarded.clock.clone());
    let consumer = consumer.each(guard(&guarded), ships(&runs));
    let messages =
        [message("m-1", parcel_that("p-1", "refuses")), message("m-2", "tea"), message("m-3", parcel("p-3"))];
    assert_eq!(deliver(&consumer, &messages).await.expect("an answer"), ["m-1", "m-2"]);
    assert_eq!(runs.count(), 2);
}

// T66: as long as it is in the queue, the next ones wait.
#[apply(on_each_store)]
async fn a_dead_message_that_is_not_buried_blocks_its_group(endpoint: &str) {
    let (guarded, order) = (Guarded::on(endpoint).await, Arc::default());
    let consumer = Consumer::new(Away(FIFO), KeyFrom::body("/id")).world(guarded.clock.clone());
    let consumer = consumer.at_once(1).each(guard(&guarded), in_order(&order));
    let mut unreadable = of_group("c", "c-1", parcel("c-1"));
    unreadable["messageAttributes"] = json!({ "photo": "no attribute" });
    let messages = [
        of_group("a", "a-1", parcel_that("a-1", "refuses")),
        of_group("a", "a-2", parcel("a-2")),
        of_group("b", "b-1", "no parcel"),
        of_group("b", "b-2", parcel("b-2")),
        unreadable,
        of_group("c", "c-2", parcel("c-2")),
        of_group("d", "d-1", parcel("d-1")),
    ];
    let mut back = deliver(&consumer, &messages).await.expect("an answer");
    back.sort();
    assert_eq!(back, ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"]);
    assert_eq!(*order.lock().unwrap(), ["a-1", "d-1"]);
}

// There, a group is for fairness: SQS promises no order, and delivers the next ones meanwhile anyway.
#[apply(on_each_store)]
async fn a_group_of_a_standard_queue_has_no_order(endpoint: &str) {
    let (guarded, gate, queue) = (Guarded::on(endpoint).await, Gate::closed(), queue());
    let held = gate.clone();
    let function = move |_: Execution, parcel: Value| {
        let held = held.clone();
        async move {
            held.pass().await;
            if parcel["does"] == "nothing" { Err(Failure::not_executed("no connection")) } else { Ok(()) }
        }
    };
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), function);
    let of_tenant = |id: &str, does: &str| {
        let mut message = message(id, parcel_that(id, does));
        message["attributes"]["MessageGroupId"] = json!("acme");
        message
    };
    let messages = [of_tenant("m-1", "nothing"), of_tenant("m-2", "ships"), of_tenant("m-3", "ships")];
    let opens = async {
        gate.reached(3).await;
        gate.open();
    };
    let (delivered, ()) = tokio::join!(deliver(&consumer, &messages), opens);
    assert_eq!(delivered.expect("an answer"), ["m-1"]);
    assert_eq!((queue.take_hidden().len(), queue.take_dead().len()), (1, 0));
}

#[apply(on_each_store)]
async fn by_default_a_message_is_dead_after_ten_attempts(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let consumer = consumer(&guarded, &queue).each(guard(&guarded), ships(&runs));
    for times in 1..=10 {
        let message = received("m-1", parcel_that("p-1", "nothing"), times);
        let back = deliver(&consumer, &[message]).await.expect("an answer");
        assert_eq!((back.is_empty(), runs.count()), (times == 10, times as usize));
    }
    let reasons: Vec<_> = queue.take_dead().into_iter().map(|dead| dead.reason).collect();
    assert_eq!(reasons, ["it was tried 10 times: no connection"]);
}
