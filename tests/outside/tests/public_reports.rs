//! What public reports about other layers of this kind say went wrong, tried with a guarded function.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use lambda_idempotency::{
    Failure, Guard, How, MemoryStore, Operation, Ran, RunError, World, key::Tenant, operation::OnLeaseExpiry,
    time::Timestamp, world::ManualWorld,
};

const LEASE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);

fn world() -> ManualWorld {
    ManualWorld::at(Timestamp::from_secs(1_000_000))
}

fn guard(store: &MemoryStore, world: &ManualWorld, operation: Operation) -> Guard {
    let operation = operation.lease(LEASE).grace(GRACE);
    Guard::new(store.clone(), operation, Tenant::parse("acme").unwrap()).world(world.clone())
}

/// Counts its runs.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicU32>);

impl Runs {
    async fn charge(self) -> Result<u32, Failure> {
        Ok(self.0.fetch_add(1, SeqCst) + 1)
    }

    fn count(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// The process of a guarded function ends within the function.
fn dies(guard: &Guard, runs: &Runs) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (guard, runs) = (guard.clone(), runs.clone());
    let dies = async move {
        let charge = async move |_, _| {
            runs.charge().await?;
            pending::<Result<u32, Failure>>().await
        };
        tokio::spawn(async move { guard.run(&["k"], 1, charge).await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    runtime.block_on(dies);
}

// aws-powertools/powertools-lambda-python#8049: after a time-out of Lambda, the same request ran again.
#[test]
fn what_a_timeout_interrupted_does_not_run_again() {
    let (store, world, runs) = (MemoryStore::new(), world(), Runs::default());
    let guard = guard(&store, &world, Operation::new("withdraw"));
    dies(&guard, &runs);
    let retry = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (passes, is_in_flight) in [(Duration::ZERO, true), (LEASE + GRACE, false), (LEASE, false)] {
        world.advance(passes);
        let again = runs.clone();
        let told = retry.block_on(guard.run(&["k"], 1, async move |_, _| again.charge().await));
        match told {
            Err(RunError::InFlight { .. }) => assert!(is_in_flight),
            Err(RunError::Unknown { .. }) => assert!(!is_in_flight),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(runs.count(), 1);
}

// ikyriak/IdempotentAPI#37: a crash left its key in conflict for ever, also where running again is right.
#[test]
fn a_crash_blocks_no_operation_that_may_run_again() {
    let (store, world, runs) = (MemoryStore::new(), world(), Runs::default());
    let operation = Operation::new("sync").on_lease_expiry(OnLeaseExpiry::RunAgain);
    let guard = guard(&store, &world, operation);
    dies(&guard, &runs);
    world.advance(LEASE + GRACE);
    let retry = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let again = runs.clone();
    let ran = retry.block_on(guard.run(&["k"], 1, async move |_, _| again.charge().await)).unwrap();
    assert_eq!((ran.value, ran.how), (2, How::Executed));
}

// josipmusa/idempotency4j#45, #46: a release took the lock's end for its own, and was gone at once.
#[tokio::test]
async fn a_late_release_keeps_its_key_for_its_request() {
    let (store, world, runs) = (MemoryStore::new(), world(), Runs::default());
    let guard = guard(&store, &world, Operation::new("pay"));
    let slow = world.clone();
    let released = guard
        .run(&["k"], 1, async move |_, _| {
            slow.advance(LEASE - Duration::from_secs(1));
            Err::<u32, _>(Failure::not_executed("nothing was sent"))
        })
        .await;
    assert!(matches!(released, Err(RunError::NotExecuted(_))), "{released:?}");
    world.advance(LEASE);
    let other = guard.run(&["k"], 2, async |_, _| Ok::<u32, Failure>(0)).await;
    assert!(matches!(other, Err(RunError::Mismatch)), "{other:?}");
    let again = runs.clone();
    assert_eq!(guard.run(&["k"], 1, async move |_, _| again.charge().await).await.unwrap().value, 1);
}

// nishimura-yuma77/hiromeru#20: a worker that had lost its lease still settled the record of its successor.
#[tokio::test]
async fn a_worker_that_lost_its_lease_changes_no_later_answer() {
    let (store, world, runs) = (MemoryStore::new(), world(), Runs::default());
    let guard = guard(&store, &world, Operation::new("sync").on_lease_expiry(OnLeaseExpiry::RunAgain));
    let (successor, time, second) = (guard.clone(), world.clone(), runs.clone());
    let late = guard
        .run(&["k"], 1, async move |_, _| {
            time.advance(LEASE + GRACE);
            let charge = async move |_, _| second.charge().await;
            assert_eq!(successor.run(&["k"], 1, charge).await.unwrap().value, 1);
            Ok::<u32, Failure>(99)
        })
        .await;
    // Its lease was over: it goes no further, and its caller hears what counts.
    assert!(matches!(late, Ok(Ran { value: 1, .. }) | Err(RunError::Unknown { .. })), "{late:?}");
    let kept = guard.run(&["k"], 1, async |_, _| Ok::<u32, Failure>(0)).await;
    assert_eq!((kept.unwrap().value, runs.count()), (1, 1));
    assert!(world.now() > Timestamp::from_secs(1_000_000));
}

// aws-powertools/powertools-lambda-python#738: a function that failed left its key in progress.
#[tokio::test]
async fn a_function_that_panics_leaves_no_key_in_progress() {
    let (store, world, runs) = (MemoryStore::new(), world(), Runs::default());
    let guard = guard(&store, &world, Operation::new("pay"));
    let panics = async |_, _| -> Result<u32, Failure> { panic!("after the charge, perhaps") };
    let failed = guard.run(&["k"], 1, panics).await;
    assert!(matches!(failed, Err(RunError::Unknown { .. })), "{failed:?}");
    let again = runs.clone();
    let retry = guard.run(&["k"], 1, async move |_, _| again.charge().await).await;
    assert!(matches!(retry, Err(RunError::Unknown { .. })), "{retry:?}");
    assert_eq!(runs.count(), 0);
}
