//! One tenant's questions do not delay everybody's (T60).

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    async_trait,
    queue::MemoryQueue,
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::{Record, UnknownCause},
    store::{Checkpoint, Store, Unsettled, conformance::samples, memory::MemoryStore},
    time::Timestamp,
    time_budget::{ASK_TIMEOUT, MIN_QUESTION_TIME, STORE_TRY},
    world::World,
};

use macro_rules_attribute::apply;
use tokio::sync::Notify;

use crate::support::{
    BoxError,
    clock::{STORE_TIMEOUT, WatchedClock},
    faults::Fault,
    guarded::{Guarded, fingerprints, operation, record_key},
    on_each_store,
    seeded_world::SeededWorld,
};

const START: Timestamp = Timestamp::from_secs(2_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

/// What the function's time-out leaves for a poll.
const POLL: Duration = Duration::from_secs(45);

/// Of each tenant in its turn, all at once.
const TURN: usize = 8;

/// An outcome of this tenant, unknown and due at this time.
fn unknown(tenant: &str, key: &str, due: Timestamp) -> Record {
    let reserved = samples::in_progress(record_key(tenant, key), fingerprints("{}"), due, due);
    samples::unknown(&reserved, UnknownCause::PerhapsExecuted, due)
}

/// When each of a tenant's questions was first asked.
type Asked = Arc<Mutex<HashMap<String, Vec<Timestamp>>>>;

/// A provider that is down: no question is answered in time.
struct Down(SeededWorld, Asked);

#[async_trait]
impl Reconciler for Down {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        let tenant = question.tenant().as_str().to_owned();
        self.1.lock().unwrap().entry(tenant).or_default().push(self.0.now());
        self.0.sleep(2 * ASK_TIMEOUT).await;
        unreachable!("the poll waits no longer");
    }
}

// T60. The bound that docs/costs.md states.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_questions_of_one_tenant_delay_no_other() {
    const OTHERS: [(&str, usize); 3] = [("a", 1), ("n", 20), ("z", 3)];
    let (store, world, asked) = (MemoryStore::new(), SeededWorld::new(7, START), Asked::default());
    for number in 0..100_000 {
        let record = unknown("flood", &number.to_string(), START.minus(24 * 60 * MINUTE));
        store.put(None, &record, &[]).await.unwrap();
    }
    for (tenant, count) in OTHERS {
        for number in 0..count {
            let record = unknown(tenant, &number.to_string(), START.minus(Duration::from_secs(1)));
            store.put(None, &record, &[]).await.unwrap();
        }
    }
    let reconciliation = Reconciliation::new(store, MemoryQueue::new())
        .world(world.clone())
        // Each is asked once here.
        .backoff(60 * MINUTE, 60 * MINUTE, 9)
        .max_unknown_age(1_000 * 60 * MINUTE)
        .operation(operation(), Down(world.clone(), asked.clone()));
    for minute in 1..=6 {
        reconciliation.poll(POLL).await.unwrap();
        world.sleep(START.plus(minute * MINUTE).since(world.now())).await;
    }
    let asked = asked.lock().unwrap();
    // Four tenants take turns, each of which lasts as long as a question. A poll has time for four.
    let turn = |number: usize| u32::try_from(4 * number.div_ceil(TURN)).unwrap();
    let bound = |number| START.plus(turn(number).div_ceil(4) * MINUTE);
    for (tenant, count) in OTHERS {
        let times = asked.get(tenant).map_or(&[][..], Vec::as_slice);
        assert_eq!(times.len(), count, "{tenant}");
        for (at, number) in times.iter().zip(1..) {
            assert!(*at < bound(number), "question {number} of {tenant} was asked at {at:?}");
        }
    }
    assert!(asked["flood"].len() > 40, "it has its turns too: {}", asked["flood"].len());
}

/// How long a question takes, one after the other: short beside the time-out of a call to the store.
const QUESTION: Duration = Duration::from_millis(100);

/// A provider that takes its time.
#[derive(Clone)]
struct Slow(WatchedClock, Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Reconciler for Slow {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        self.0.advance(QUESTION);
        self.1.lock().unwrap().push(question.tenant().as_str().to_owned());
        Ok(Finding::NotExecuted)
    }
}

/// A store with open questions of these tenants, and a poller that asks them slowly.
async fn polled(endpoint: &str, tenants: &[(&str, usize)]) -> (Guarded, Slow, Reconciliation) {
    let guarded = Guarded::on(endpoint).await;
    let slow = Slow(guarded.clock.clone(), Arc::default());
    let (store, now) = (guarded.undisturbed_store(), guarded.now());
    for (due, (tenant, count)) in (1..).zip(tenants) {
        for number in 0..*count {
            let due = now.minus(60 * MINUTE).plus(due * MINUTE);
            store.put(None, &unknown(tenant, &number.to_string(), due), &[]).await.unwrap();
        }
    }
    let reconciliation = Reconciliation::new(store, MemoryQueue::new())
        .world(guarded.clock.clone())
        .operation(operation(), slow.clone());
    (guarded, slow, reconciliation)
}

// T60: more than a page of each partition, and the longest overdue.
#[apply(on_each_store)]
async fn in_a_poll_the_tenants_of_the_index_take_turns(endpoint: &str) {
    // Twelve of one question each: some come before the flood in the order of the index, and some after it.
    let others: Vec<_> = (0..12).map(|number| format!("other-{number}")).collect();
    let others = others.iter().map(|other| (&**other, 1));
    let tenants: Vec<_> = [("flood", 250), ("nine", 9)].into_iter().chain(others).collect();
    let (_guarded, slow, reconciliation) = polled(endpoint, &tenants).await;
    reconciliation.poll(100 * QUESTION).await.unwrap();
    let asked = slow.1.lock().unwrap();
    let place = |tenant: &str, number: usize| {
        let mut places = asked.iter().enumerate().filter(|(_, asked)| *asked == tenant);
        places.nth(number).map_or(usize::MAX, |(place, _)| place)
    };
    // A round has a turn of the flood, one of the nine, and twelve questions; eight questions are under way at once.
    for (tenant, _) in &tenants {
        assert!(place(tenant, 0) < 2 * TURN + 12 + TURN, "{tenant}: {asked:?}");
    }
    assert!(place("nine", 8) < 2 * (2 * TURN + 12) + TURN, "{asked:?}");
    let flood = asked.iter().filter(|tenant| *tenant == "flood").count();
    assert!(flood > asked.len() / 2, "the time that others do not need is its own");
}

// T60
#[apply(on_each_store)]
async fn a_poll_continues_where_the_last_one_stopped(endpoint: &str) {
    let tenants: Vec<_> = (0..9).map(|number| format!("tenant-{number}")).collect();
    let questions: Vec<_> = tenants.iter().map(|tenant| (&**tenant, 30)).collect();
    let (guarded, slow, reconciliation) = polled(endpoint, &questions).await;
    // Each poll has time for three turns and a part of one.
    for _ in 0..3 {
        reconciliation.poll(MIN_QUESTION_TIME + 28 * QUESTION).await.unwrap();
    }
    let asked: BTreeSet<_> = slow.1.lock().unwrap().iter().cloned().collect();
    assert_eq!(asked, tenants.into_iter().collect());
    // Once all are asked, a poll begins with the first again.
    while reconciliation.poll(60 * MINUTE).await.unwrap().due > 0 {}
    let checkpoint = guarded.undisturbed_store().load_checkpoint("poll").await.unwrap();
    assert!(checkpoint.is_some_and(|checkpoint| checkpoint.progress.is_none()));
}

/// A reconciler that ends its process at this question.
struct Kills(Arc<Mutex<Vec<String>>>, usize, Arc<Notify>);

#[async_trait]
impl Reconciler for Kills {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        let number = {
            let mut asked = self.0.lock().unwrap();
            asked.push(question.tenant().as_str().to_owned());
            asked.len()
        };
        if number >= self.1 {
            self.2.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(Finding::AskAgain(Some(60 * MINUTE)))
    }
}

// T50, T60: each poll is killed in its first turns. If it left its place only at its end, the next one would begin with the same tenants.
#[apply(on_each_store)]
async fn a_poll_that_is_killed_leaves_its_place(endpoint: &str) {
    let tenants: Vec<_> = (0..9).map(|number| format!("tenant-{number}")).collect();
    let questions: Vec<_> = tenants.iter().map(|tenant| (&**tenant, 30)).collect();
    for question in [1, 12] {
        let (guarded, _, _) = polled(endpoint, &questions).await;
        let mut all = BTreeSet::new();
        for _ in 0..9 {
            let (asked, killed) = (Arc::default(), Arc::new(Notify::new()));
            let reconciler = Kills(Arc::clone(&asked), question, killed.clone());
            let reconciliation = Reconciliation::new(guarded.undisturbed_store(), MemoryQueue::new())
                .world(guarded.clock.clone())
                .operation(operation(), reconciler);
            tokio::select! {
                ended = reconciliation.poll(60 * MINUTE) => panic!("{ended:?}"),
                () = killed.notified() => {}
            }
            all.extend(asked.lock().unwrap().drain(..));
        }
        assert_eq!(all, tenants.iter().cloned().collect(), "killed at question {question}");
    }
}

// T60: a store that answers late takes no tenant's turn.
#[apply(on_each_store)]
async fn a_turn_that_no_question_began_is_not_over(endpoint: &str) {
    let (guarded, _, _) = polled(endpoint, &[("acme", 1)]).await;
    let asked = Arc::default();
    let reconciler = Kills(Arc::clone(&asked), usize::MAX, Arc::default());
    let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new())
        .world(guarded.clock.clone())
        .operation(operation(), reconciler);
    guarded.faults.script("PutItem", [Fault::BlackHole]);
    let slow = async {
        // The first two sleeps are those of the reads of the checkpoint and of the index.
        guarded.clock.slept(STORE_TIMEOUT, 2).await;
        guarded.clock.slept(STORE_TRY, 1).await;
        guarded.clock.advance(STORE_TIMEOUT);
    };
    let (polled, ()) = tokio::join!(reconciliation.poll(STORE_TIMEOUT), slow);
    assert_eq!(polled.unwrap().due, 0);
    assert!(guarded.undisturbed_store().load_checkpoint("poll").await.unwrap().is_none());
    reconciliation.poll(MINUTE).await.unwrap();
    assert_eq!(*asked.lock().unwrap(), ["acme"]);
}

// T50: what is in the checkpoint may be of another version, or damaged.
#[apply(on_each_store)]
async fn a_poll_goes_on_whatever_its_checkpoint_says(endpoint: &str) {
    for (progress, fails) in
        [("nonsense", false), ("[]", true), (r#"["a","b"]"#, true), (r#"[" ","",""]"#, true), ("{}", false)]
    {
        let (guarded, _, reconciliation) = polled(endpoint, &[("acme", 1)]).await;
        let store = guarded.undisturbed_store();
        let checkpoint = Checkpoint {
            name: "poll".to_owned(),
            revision: [7; 16].into(),
            lease_until: guarded.now(),
            progress: Some(progress.to_owned()),
        };
        assert!(store.write_checkpoint(None, &checkpoint).await.unwrap());
        // At worst one poll fails: the next one begins anew.
        let polled = match reconciliation.poll(MINUTE).await {
            Err(_) if fails => reconciliation.poll(MINUTE).await,
            polled => polled,
        };
        assert_eq!(polled.unwrap().resolved, 1, "{progress}");
    }
}

// The place is a matter of fairness alone.
#[apply(on_each_store)]
async fn a_poll_without_its_checkpoint_asks_all_the_same(endpoint: &str) {
    for action in ["GetItem", "PutItem"] {
        let (guarded, _, _) = polled(endpoint, &[("acme", 1)]).await;
        let asked = Arc::default();
        let reconciler = Kills(Arc::clone(&asked), usize::MAX, Arc::default());
        let reconciliation = Reconciliation::new(guarded.store(), MemoryQueue::new())
            .world(guarded.clock.clone())
            .operation(operation(), reconciler);
        // The first call of each kind is about the checkpoint.
        guarded.faults.script(action, [Fault::AccessDenied]);
        reconciliation.poll(MINUTE).await.expect("it polls");
        assert_eq!(*asked.lock().unwrap(), ["acme"], "{action}");
    }
}
