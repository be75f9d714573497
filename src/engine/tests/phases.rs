//! What becomes of an operation with phases, whatever interrupts it.

use std::future::pending;

use super::*;
use crate::{
    record::{Next, Phases, State},
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const WITHIN: Duration = Duration::from_secs(3 * 24 * 3600);

fn resuming() -> Operation {
    operation().on_lease_expiry(OnLeaseExpiry::Resume(WITHIN))
}

/// A provider that honours keys for ever, and counts effects.
#[derive(Clone, Default)]
struct Provider {
    effects: Arc<Mutex<Vec<String>>>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn makes(&self, key: String) -> std::result::Result<String, CallError> {
        self.calls.lock().unwrap().push(key.clone());
        let mut effects = self.effects.lock().unwrap();
        if !effects.contains(&key) {
            effects.push(key.clone());
        }
        Ok(format!("id of {key}"))
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    fn effects(&self) -> usize {
        self.effects.lock().unwrap().len()
    }
}

async fn call(
    execution: &Execution,
    name: &str,
    provider: &Provider,
) -> std::result::Result<String, PhaseError> {
    execution.phase(name).keys_live(DAY).call(async |key| provider.makes(key).await).await
}

fn stock() -> Table {
    Table::new("stock", "sku")
}

fn take() -> crate::domain::DomainWrite {
    stock()
        .update(json!({ "sku": "tea" }), "SET available = available - :n")
        .condition("available >= :n")
        .value(":n", 1)
}

fn available(store: &Faulty) -> u64 {
    let row: Option<serde_json::Value> = store.inner.item(&stock(), json!({ "sku": "tea" })).unwrap();
    row.unwrap()["available"].as_u64().unwrap()
}

fn stocked(available: u64) -> Faulty {
    let store = Faulty::new();
    store.inner.put_item(&stock(), json!({ "sku": "tea", "available": available }));
    store
}

async fn phases(store: &Faulty) -> Phases {
    store.record().await.unwrap().phases.unwrap()
}

async fn names(store: &Faulty) -> Vec<String> {
    phases(store).await.kept.into_iter().map(|phase| phase.name).collect()
}

async fn begin(executor: &Executor) -> Ownership {
    owned(executor.reserve(&request()).await)
}

#[tokio::test]
async fn a_kept_phase_answers_at_once_in_the_next_execution() {
    let (store, provider) = (stocked(9), Provider::default());
    let executor = store.executor(resuming());
    let dead = begin(&executor).await;
    let first = call(dead.execution(), "charge", &provider).await.unwrap();
    let committed = dead.execution().commit("stock", vec![take()]).await.unwrap();
    assert_eq!((committed, available(&store)), (Committed::Written, 8));
    drop(dead);
    store.lease_ends();
    let ours = begin(&executor).await;
    assert_eq!(ours.execution().attempts(), 2);
    assert_eq!(call(ours.execution(), "charge", &provider).await.unwrap(), first);
    assert_eq!(ours.execution().commit("stock", vec![take()]).await.unwrap(), Committed::Written);
    assert_eq!((provider.calls(), available(&store)), (1, 8));
    let ended = executor.finish(ours, charged()).await;
    assert!(matches!(ended, FinishOutcome::Written { expires_at: Some(_) }), "{ended:?}");
    let kept = phases(&store).await.kept;
    let digested =
        |phase: &crate::record::Phase| phase.result.as_ref().is_some_and(|it| it.starts_with("sha256:"));
    assert!(kept.iter().all(digested), "{kept:?}");
    assert_eq!(names(&store).await, ["charge", "stock"]);
}

#[tokio::test]
async fn a_call_that_may_have_been_made_is_made_again_with_its_key() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let dead = begin(&executor).await;
    provider.makes(dead.execution().downstream_key("charge")).await.unwrap();
    drop(dead);
    store.lease_ends();
    let ours = begin(&executor).await;
    assert_eq!(phases(&store).await.begun, Some(NOW));
    call(ours.execution(), "charge", &provider).await.unwrap();
    assert_eq!((provider.calls(), provider.effects()), (2, 1));
    assert_eq!(phases(&store).await.begun, None, "it is kept, so nothing of it is open");
}

// T40
#[tokio::test]
async fn a_call_whose_key_is_forgotten_is_not_repeated() {
    for (late, asks) in [(true, false), (true, true), (false, false)] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let executor = store.executor(resuming());
        // Two executions may have made it: the earlier one counts.
        drop(begin(&executor).await);
        store.lease_ends();
        drop(begin(&executor).await);
        let age = if late { DAY - DEFAULT_NOT_FOUND_GRACE } else { DAY - DEFAULT_NOT_FOUND_GRACE - SECOND };
        store.world.set(NOW.plus(age));
        let ours = begin(&executor).await;
        let phase = ours.execution().phase("charge").keys_live(DAY);
        let phase = if asks { phase.ask(async |key| Ok(Some(format!("found {key}")))) } else { phase };
        let result: std::result::Result<String, _> = phase.call(async |key| provider.makes(key).await).await;
        assert_eq!(provider.calls(), usize::from(!late), "{late} {asks}");
        match result {
            Err(PhaseError::Unknown) if late && !asks => {}
            Ok(found) => assert_eq!(found.starts_with("found"), asks),
            other => panic!("{other:?}"),
        }
        let ended = executor.finish(ours, charged()).await;
        let state = store.state().await;
        if late && !asks {
            assert!(matches!(ended, FinishOutcome::Unknown), "{ended:?}");
            assert_eq!(state, "unknown");
        } else {
            assert_eq!(state, "completed");
        }
    }
}

#[tokio::test]
async fn asking_says_that_nothing_was_done_or_nothing_at_all() {
    for answer in [Ok(None), Err("away")] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let executor = store.executor(resuming());
        drop(begin(&executor).await);
        store.lease_ends();
        let ours = begin(&executor).await;
        let phase = ours.execution().phase("charge").ask({
            let answer = answer.clone();
            move |_| async move { Ok(answer?) }
        });
        let result = phase.call(async |key| provider.makes(key).await).await;
        let ended = executor.finish(ours, charged()).await;
        match answer {
            Ok(_) => {
                assert_eq!((result.is_ok(), provider.calls(), store.state().await), (true, 1, "completed"))
            }
            Err(_) => {
                assert!(matches!(result, Err(PhaseError::Perhaps(_))), "{result:?}");
                assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");
                assert_eq!((provider.calls(), store.state().await), (0, "between_workers"));
            }
        }
    }
}

#[tokio::test]
async fn a_refused_commit_is_kept_and_the_next_execution_gets_it() {
    let store = stocked(0);
    let executor = store.executor(resuming());
    let dead = begin(&executor).await;
    let refused = dead.execution().commit("stock", vec![take()]).await.unwrap();
    assert_eq!(refused, Committed::Refused(vec![0]));
    drop(dead);
    store.inner.put_item(&stock(), json!({ "sku": "tea", "available": 5 }));
    store.lease_ends();
    let ours = begin(&executor).await;
    assert_eq!(ours.execution().commit("stock", vec![take()]).await.unwrap(), refused);
    assert_eq!(available(&store), 5);
}

// T11
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_kept_once() {
    for faults in [vec![Fault::DropAnswer], vec![Fault::DropAnswer, Fault::Denied]] {
        let store = stocked(1);
        let executor = store.executor(resuming());
        let ours = begin(&executor).await;
        store.script(faults);
        let committed = store.passing(ours.execution().commit("stock", vec![take()])).await;
        assert_eq!((committed.unwrap(), available(&store)), (Committed::Written, 0));
    }
}

#[tokio::test]
async fn what_ends_an_execution_leaves_what_is_kept_to_the_next() {
    let not_executed = || CallError::not_executed("refused");
    for (report, failure) in [
        (Report::NotExecuted, None),
        (Report::NotBegun, None),
        (Report::PerhapsExecuted("panicked"), None),
        (charged(), Some(not_executed())),
        (charged(), Some(CallError::Perhaps("time-out".into()))),
    ] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let executor = store.executor(resuming());
        let ours = begin(&executor).await;
        call(ours.execution(), "charge", &provider).await.unwrap();
        let perhaps = matches!(failure, Some(CallError::Perhaps(_)));
        let swallowed = failure.is_some();
        if let Some(failure) = failure {
            let failed =
                ours.execution().phase::<()>("ship").keys_live(DAY).call(async |_| Err(failure)).await;
            assert!(matches!(failed, Err(PhaseError::NotExecuted(_) | PhaseError::Perhaps(_))));
            let again = call(ours.execution(), "other", &provider).await;
            assert!(matches!(again, Err(PhaseError::Misused(_))), "an error is final");
        }
        let ended = executor.finish(ours, report.clone()).await;
        assert_eq!(matches!(ended, FinishOutcome::Interrupted), swallowed, "{report:?}: {ended:?}");
        let record = store.record().await.unwrap();
        let State::BetweenWorkers { reconcile_at, .. } = record.state else {
            panic!("{report:?}: {record:?}")
        };
        let phases = record.phases.unwrap();
        assert_eq!((phases.kept.len(), phases.begun.is_some()), (1, perhaps), "{report:?}");
        assert_eq!(reconcile_at, phases.kept[0].at.plus(WITHIN));
        // T43: also with an old key, because it only resumes.
        let old = Request { may_begin: false, ..request() };
        assert_eq!(owned(executor.reserve(&old).await).execution().attempts(), 2);
    }
}

#[tokio::test]
async fn an_execution_that_did_nothing_is_released_as_ever() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let failed =
        ours.execution().phase::<()>("charge").call(async |_| Err(CallError::not_executed("no"))).await;
    assert!(failed.is_err());
    executor.finish(ours, Report::NotExecuted).await;
    assert_eq!(store.state().await, "failed_retryable");
    let refused = begin(&executor).await;
    executor.finish(refused, Report::NotBegun).await;
    assert_eq!(store.state().await, "failed_retryable");
}

#[tokio::test]
async fn a_call_that_is_dropped_or_still_runs_was_perhaps_made() {
    for drops in [true, false] {
        let store = Faulty::new();
        let executor = store.executor(resuming());
        let ours = begin(&executor).await;
        let execution = ours.execution().clone();
        let mut charge = Box::pin(async move {
            execution
                .phase("charge")
                .call(async |_| pending::<std::result::Result<(), CallError>>().await)
                .await
        });
        assert!(futures_util::poll!(&mut charge).is_pending());
        let charge = if drops {
            drop(charge);
            None
        } else {
            Some(charge)
        };
        let ended = executor.finish(ours, charged()).await;
        assert!(matches!(ended, FinishOutcome::Interrupted), "{drops}: {ended:?}");
        assert_eq!((store.state().await, phases(&store).await.begun), ("between_workers", Some(NOW)));
        drop(charge);
    }
}

#[tokio::test]
async fn phases_that_are_used_wrongly_keep_nothing() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(operation());
    let ours = begin(&executor).await;
    let refused = call(ours.execution(), "charge", &provider).await;
    assert!(matches!(refused, Err(PhaseError::Misused(_))), "the operation does not resume");
    executor.finish(ours, Report::NotExecuted).await;

    for wrong in ["", "a b", &"x".repeat(65)] {
        let store = Faulty::new();
        let ours = begin(&store.executor(resuming())).await;
        assert!(
            matches!(call(ours.execution(), wrong, &provider).await, Err(PhaseError::Misused(_))),
            "{wrong}"
        );
    }

    let store = Faulty::new();
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let execution = ours.execution();
    // One within another.
    let outer = execution.phase("outer").call(async |_| {
        let inner = call(execution, "inner", &provider).await;
        assert!(matches!(inner, Err(PhaseError::Misused(_))));
        Ok(())
    });
    outer.await.unwrap();
    let ended = executor.finish(ours, charged()).await;
    assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");

    let ours = begin(&executor).await;
    let execution = ours.execution().clone();
    assert!(execution.phase::<()>("outer").call(async |_| Ok(())).await.is_ok());
    let twice = execution.phase::<()>("outer").call(async |_| Ok(())).await;
    assert!(matches!(twice, Err(PhaseError::Misused(_))), "two of one name");
    executor.finish(ours, charged()).await;
    let late = call(&execution, "late", &provider).await;
    assert!(matches!(late, Err(PhaseError::Misused(_))), "after the end");
    assert_eq!(provider.calls(), 0);
}

// T61
#[tokio::test]
async fn a_handler_that_does_not_fit_what_is_kept_makes_no_call() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let old = begin(&executor).await;
    call(old.execution(), "charge", &provider).await.unwrap();
    executor.finish(old, Report::NotExecuted).await;
    let new = begin(&executor).await;
    let misfit = call(new.execution(), "check-fraud", &provider).await;
    assert!(matches!(misfit, Err(PhaseError::Mismatch)), "{misfit:?}");
    let ended = executor.finish(new, charged()).await;
    assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");
    // Nor one that cannot read the result.
    let new = begin(&executor).await;
    let number = new.execution().phase::<u64>("charge").call(async |_| Ok(1)).await;
    assert!(matches!(number, Err(PhaseError::Format(_))), "{number:?}");
    executor.finish(new, charged()).await;
    // The older code can still resume it.
    let old = begin(&executor).await;
    call(old.execution(), "charge", &provider).await.unwrap();
    executor.finish(old, charged()).await;
    assert_eq!((store.state().await, provider.calls()), ("completed", 1));
}

// T39
#[tokio::test]
async fn a_frozen_worker_makes_no_call_after_its_lease() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let frozen = begin(&executor).await;
    store.lease_ends();
    let late = call(frozen.execution(), "charge", &provider).await;
    assert!(matches!(late, Err(PhaseError::Lost)), "{late:?}");
    assert_eq!(provider.calls(), 0);
    let row = frozen.execution().commit("stock", vec![take()]).await;
    assert!(matches!(row, Err(PhaseError::Misused(_))), "an error is final");
}

#[tokio::test]
async fn a_fenced_workers_result_counts_while_its_phase_is_open() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let frozen = begin(&executor).await;
    let execution = frozen.execution().clone();
    let late = execution.phase("charge").keys_live(DAY).call(async |key| {
        let result = provider.makes(key).await;
        store.lease_ends();
        // The next worker has the record, and has not got to the call.
        let next = begin(&executor).await;
        assert_eq!(next.execution().attempts(), 2);
        result
    });
    let late: std::result::Result<String, _> = late.await;
    assert!(matches!(late, Err(PhaseError::Lost)), "only the owner goes on");
    assert_eq!((names(&store).await, store.state().await), (vec!["charge".to_owned()], "in_progress"));
    let ended = executor.finish(frozen, charged()).await;
    assert!(matches!(ended, FinishOutcome::AnsweredElsewhere), "{ended:?}");
    assert_eq!(store.state().await, "in_progress");
}

#[tokio::test]
async fn two_workers_in_one_call_keep_one_result() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let slow = begin(&executor).await;
    let execution = slow.execution().clone();
    let late = execution.phase("charge").keys_live(DAY).call(async |key| {
        let result = provider.makes(key).await;
        store.lease_ends();
        let next = begin(&executor).await;
        call(next.execution(), "charge", &provider).await.unwrap();
        executor.finish(next, charged()).await;
        result
    });
    let late: std::result::Result<String, _> = late.await;
    assert!(matches!(late, Err(PhaseError::Lost)), "{late:?}");
    assert_eq!((provider.effects(), store.state().await), (1, "completed"));
    let ended = executor.finish(slow, refused()).await;
    assert!(matches!(ended, FinishOutcome::Superseded(_)), "{ended:?}");
}

// T2: the handler does not go on until its result is kept.
#[tokio::test]
async fn a_result_that_cannot_be_kept_is_deferred_and_applied_later() {
    let (store, provider, queue) = (Faulty::new(), Provider::default(), MemoryQueue::new());
    let executor = store.executor(resuming()).defer_reports_to(queue.clone());
    let ours = begin(&executor).await;
    store.is_away.store(true, Ordering::SeqCst);
    let unkept = store.passing(call(ours.execution(), "charge", &provider)).await;
    assert!(matches!(unkept, Err(PhaseError::NotKept)), "{unkept:?}");
    let ended = store.passing(executor.finish(ours, charged())).await;
    assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");
    store.is_away.store(false, Ordering::SeqCst);
    let messages = queue.take();
    assert_eq!(messages.len(), 2, "the phase, and how the execution ended");
    // In the other order, and twice.
    for (message, _) in messages.iter().rev().chain(&messages) {
        let crate::message::Message::DeferredReport(report) = crate::message::Message::read(message).unwrap()
        else {
            panic!("{message}")
        };
        assert!(executor.apply(&report, Safe::Report).await.unwrap().is_none());
    }
    let kept = phases(&store).await;
    assert_eq!((kept.kept.len(), kept.begun, store.state().await), (1, None, "between_workers"));
    let ours = begin(&executor).await;
    call(ours.execution(), "charge", &provider).await.unwrap();
    assert_eq!(provider.calls(), 1);
}

#[tokio::test]
async fn another_result_of_a_kept_phase_is_escalated() {
    let (store, queue) = (Faulty::new(), MemoryQueue::new());
    let executor = store.executor(resuming()).defer_reports_to(queue.clone());
    let slow = begin(&executor).await;
    let execution = slow.execution().clone();
    let id = |id: u64| async move |_| Ok(id);
    let late = execution.phase("charge").keys_live(DAY).call(async |_| {
        store.lease_ends();
        let next = begin(&executor).await;
        next.execution().phase("charge").keys_live(DAY).call(id(2)).await.unwrap();
        Ok(1_u64)
    });
    assert!(matches!(late.await, Err(PhaseError::Lost)));
    let [(message, _)] = &queue.take()[..] else { panic!("not one message") };
    let crate::message::Message::DeferredReport(report) = crate::message::Message::read(message).unwrap()
    else {
        panic!("{message}")
    };
    assert!(executor.apply(&report, Safe::Report).await.unwrap().is_some());
}

#[tokio::test]
async fn an_outdated_completion_of_an_operation_that_resumes_answers_nobody() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let slow = begin(&executor).await;
    slow.execution().commit("intent", Vec::new()).await.unwrap();
    store.lease_ends();
    let next = begin(&executor).await;
    let ended = executor.finish(slow, charged()).await;
    assert!(matches!(ended, FinishOutcome::AnsweredElsewhere), "{ended:?}");
    let record = store.record().await.unwrap();
    assert_eq!((record.state.name(), record.reported), ("in_progress", None));
    next.execution().commit("intent", Vec::new()).await.unwrap();
    executor.finish(next, refused()).await;
    assert_eq!(store.state().await, "completed");
}

#[tokio::test]
async fn a_deployment_that_does_not_resume_takes_nothing_over() {
    for choice in [OnLeaseExpiry::Unknown, OnLeaseExpiry::RunAgain] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let resumes = store.executor(resuming());
        let ours = begin(&resumes).await;
        call(ours.execution(), "charge", &provider).await.unwrap();
        drop(ours);
        store.lease_ends();
        let other = store.executor(operation().on_lease_expiry(choice));
        let found = other.reserve(&request()).await;
        assert!(matches!(found, ReserveOutcome::Unknown { .. }), "{choice:?}: {found:?}");
        assert_eq!(store.state().await, "between_workers");
        assert_eq!(begin(&resumes).await.execution().attempts(), 2);
    }
    // Nor does one that resumes take over what had no phases.
    let store = Faulty::new();
    drop(begin(&store.executor(operation())).await);
    store.lease_ends();
    let found = store.executor(resuming()).reserve(&request()).await;
    assert!(matches!(found, ReserveOutcome::Unknown { .. }), "{found:?}");
    assert_eq!(store.state().await, "unknown");
}

// T38
#[tokio::test]
async fn a_result_that_is_too_long_is_asked_for_again() {
    let long = "x".repeat(crate::record::MAX_PHASE_RESULTS);
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let execution = ours.execution();
    execution.phase("small").call(async |_| Ok(1)).await.unwrap();
    let kept = execution.phase("report").call(async |_| Ok(long.clone())).await.unwrap();
    assert_eq!(kept, long, "this execution has it");
    execution.phase("next").call(async |_| Ok(2)).await.unwrap();
    executor.finish(ours, Report::NotExecuted).await;
    let results: Vec<_> = phases(&store).await.kept.into_iter().map(|phase| phase.result.is_some()).collect();
    assert_eq!(results, [true, false, true]);
    for asks in [true, false] {
        let ours = begin(&executor).await;
        let execution = ours.execution();
        execution.phase::<u64>("small").call(async |_| panic!("it is kept")).await.unwrap();
        let phase = execution.phase::<String>("report");
        let phase = if asks { phase.ask(async |_| Ok(Some("asked".to_owned()))) } else { phase };
        let report = phase.call(async |_| panic!("it was made")).await;
        match report {
            Ok(report) => assert_eq!((report.as_str(), asks), ("asked", true)),
            Err(error) => assert!(matches!(error, PhaseError::Unknown) && !asks, "{error:?}"),
        }
        executor.finish(ours, Report::NotExecuted).await;
    }
    assert_eq!(store.state().await, "unknown");
}

#[tokio::test]
async fn rows_that_are_refused_at_the_end_leave_what_is_kept() {
    let (store, provider) = (stocked(0), Provider::default());
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    call(ours.execution(), "charge", &provider).await.unwrap();
    ours.execution().write(take()).unwrap();
    let ended = executor.finish(ours, charged()).await;
    assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");
    assert_eq!(store.state().await, "between_workers");
    store.inner.put_item(&stock(), json!({ "sku": "tea", "available": 1 }));
    let ours = begin(&executor).await;
    call(ours.execution(), "charge", &provider).await.unwrap();
    ours.execution().write(take()).unwrap();
    executor.finish(ours, charged()).await;
    assert_eq!((store.state().await, available(&store), provider.calls()), ("completed", 0, 1));
}

#[test]
fn the_next_call_depends_on_what_is_kept_noted_and_begun() {
    let phase = |name: &str, result: Option<&str>| {
        crate::record::Phase::new(name.to_owned(), result.map(str::to_owned), NOW)
    };
    let mut phases = Phases::none(WITHIN);
    assert_eq!(phases.next(0, "charge", Duration::ZERO, NOW), Next::Call);
    phases.begun = Some(NOW);
    let ask = |made| Next::Ask { made };
    assert_eq!(phases.next(0, "charge", Duration::ZERO, NOW), ask(false));
    assert_eq!(phases.next(0, "charge", DAY, NOW), Next::Call);
    assert_eq!(phases.next(0, "charge", DAY, NOW.plus(DAY - DEFAULT_NOT_FOUND_GRACE)), ask(false));
    phases.noted = vec![phase("charge", Some("7"))];
    assert_eq!(phases.next(0, "charge", Duration::ZERO, NOW), Next::Noted("7"));
    assert_eq!(phases.next(0, "other", Duration::ZERO, NOW), ask(false));
    phases.noted = vec![phase("charge", None)];
    assert_eq!(phases.next(0, "charge", DAY, NOW), Next::Call, "the same key has its result");
    assert_eq!(phases.next(0, "charge", Duration::ZERO, NOW), ask(true));
    phases.begun = None;
    assert_eq!(phases.next(0, "charge", DAY, NOW), ask(true));
    phases.kept = vec![phase("charge", Some("7"))];
    assert_eq!(phases.next(0, "charge", Duration::ZERO, NOW), Next::Kept("7"));
    assert_eq!(phases.next(0, "other", DAY, NOW), Next::Mismatch);
}

#[tokio::test]
async fn the_future_of_a_handler_with_phases_can_change_threads() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let (store, provider) = (stocked(1), Provider::default());
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let execution = ours.execution().clone();
    let handler = async move {
        call(&execution, "charge", &provider).await?;
        let asks = execution.phase("ship").ask(async |_| Ok(None));
        asks.call(async |key| provider.makes(key).await).await?;
        execution.commit("stock", vec![take()]).await
    };
    assert_eq!(is_send(handler).await.unwrap(), Committed::Written);
}

// T6: another process, whose clock is ahead, has ended its lease.
#[tokio::test]
async fn a_worker_that_lost_its_record_commits_nothing() {
    let store = stocked(1);
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let record = store.record().await.unwrap();
    let expired = record.expire(Revision::mint(), Timestamp::MAX).unwrap();
    store.inner.put(Some(record.revision), &expired, &[]).await.unwrap();
    let lost = ours.execution().commit("stock", vec![take()]).await;
    assert!(matches!(lost, Err(PhaseError::Lost)), "{lost:?}");
    assert_eq!((available(&store), names(&store).await), (1, Vec::new()));
    let ended = executor.finish(ours, charged()).await;
    assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");
    assert_eq!(store.state().await, "between_workers");
}

// Both writes: the item that leads to the record, and the record that names it back.
#[tokio::test]
async fn a_reference_counts_once_its_record_names_it_back() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let reconciliation = crate::reconcile::Reconciliation::new(store.inner.clone(), MemoryQueue::new());
    let reference = Reference::new("stripe", "ch_1").unwrap();
    let ours = begin(&executor).await;
    let execution = ours.execution();
    assert!(
        matches!(execution.refer("stripe", "ch_0").await, Err(PhaseError::Misused(_))),
        "no call is open"
    );
    let charge = execution.phase("charge").call(async |_| {
        execution.refer("stripe", "ch_1").await?;
        assert!(store.inner.referred(&reference).await?.is_some());
        assert!(reconciliation.referred(&reference).await?.is_none(), "its record does not name it yet");
        for wrong in [("", "1"), ("a#b", "1"), ("stripe", "")] {
            assert!(matches!(execution.refer(wrong.0, wrong.1).await, Err(PhaseError::Misused(_))));
        }
        Ok(1)
    });
    charge.await.unwrap();
    let named = reconciliation.referred(&reference).await.unwrap().unwrap();
    assert_eq!(named.key, *execution.record_key());
    executor.finish(ours, charged()).await;
    assert!(reconciliation.referred(&reference).await.unwrap().is_some(), "a completed record names it too");
    let unknown = Reference::new("stripe", "ch_2").unwrap();
    store.inner.refer(&unknown, &named.key, NOW).await.unwrap();
    assert!(reconciliation.referred(&unknown).await.unwrap().is_none(), "anybody may have written it");
}

#[tokio::test]
async fn the_worst_failure_of_an_execution_counts() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let execution = ours.execution().clone();
    let mut charge = Box::pin(async move {
        execution.phase("charge").call(async |_| pending::<std::result::Result<(), CallError>>().await).await
    });
    assert!(futures_util::poll!(&mut charge).is_pending());
    assert!(call(ours.execution(), "ship", &provider).await.is_err(), "two at once");
    drop(charge);
    executor.finish(ours, Report::NotExecuted).await;
    assert_eq!((store.state().await, phases(&store).await.begun), ("between_workers", Some(NOW)));
}

#[tokio::test]
async fn an_answer_before_the_kept_phases_is_not_the_operations() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    call(ours.execution(), "charge", &provider).await.unwrap();
    executor.finish(ours, Report::NotExecuted).await;
    // The price has expired meanwhile.
    let early = begin(&executor).await;
    let ended = executor.finish(early, refused()).await;
    assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");
    assert_eq!(names(&store).await, ["charge"]);

    // Nor if an earlier execution may have made the first call.
    let store = Faulty::new();
    let executor = store.executor(resuming());
    drop(begin(&executor).await);
    store.lease_ends();
    let ended = executor.finish(begin(&executor).await, refused()).await;
    assert!(matches!(ended, FinishOutcome::Unknown), "{ended:?}");
    assert_eq!(store.state().await, "unknown");
}

#[tokio::test]
async fn a_result_that_others_report_is_used_if_the_handler_can_read_it() {
    for (reported, keys_live, expected, calls) in [
        ("\"theirs\"", Duration::ZERO, Some("theirs"), 0),
        ("{}", DAY, Some("id"), 1),
        ("{}", Duration::ZERO, None, 0),
    ] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let executor = store.executor(resuming());
        drop(begin(&executor).await);
        store.lease_ends();
        drop(executor.reserve(&request()).await);
        let record = store.record().await.unwrap();
        let phase = crate::record::Phase::new("charge".to_owned(), Some(reported.to_owned()), NOW);
        let noted = record.note(&phase, Revision::mint(), NOW).unwrap();
        store.inner.put(Some(record.revision), &noted, &[]).await.unwrap();
        store.lease_ends();
        let ours = begin(&executor).await;
        let charge = ours.execution().phase("charge").keys_live(keys_live);
        let charge: std::result::Result<String, _> = charge.call(async |key| provider.makes(key).await).await;
        match (charge, expected) {
            (Ok(result), Some(expected)) => assert!(result.starts_with(expected), "{result}"),
            (Err(PhaseError::Unknown), None) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(provider.calls(), calls);
        let phases = phases(&store).await;
        assert_eq!((phases.noted.len(), phases.kept.len()), if expected.is_some() { (0, 1) } else { (1, 0) });
    }
}

// T46: it is not made again only because the provider's search has not found it yet.
#[tokio::test]
async fn a_call_that_was_reported_is_never_denied() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    drop(begin(&executor).await);
    let record = store.record().await.unwrap();
    let phase = crate::record::Phase::new("charge".to_owned(), None, NOW);
    let noted = record.note(&phase, Revision::mint(), NOW).unwrap();
    store.inner.put(Some(record.revision), &noted, &[]).await.unwrap();
    store.lease_ends();
    let ours = begin(&executor).await;
    let charge = ours.execution().phase::<String>("charge").ask(async |_| Ok(None));
    let charge = charge.call(async |key| provider.makes(key).await).await;
    assert!(matches!(charge, Err(PhaseError::Unknown)), "{charge:?}");
    assert_eq!(provider.calls(), 0);
}

// T5: an operator deleted it, or restored the table.
#[tokio::test]
async fn a_call_whose_record_is_gone_was_made_nevertheless() {
    let (store, queue) = (Faulty::new(), MemoryQueue::new());
    let executor = store.executor(resuming()).defer_reports_to(queue.clone());
    let ours = begin(&executor).await;
    let execution = ours.execution().clone();
    let record = store.record().await.unwrap();
    let charge = execution.phase("charge").keys_live(DAY).call(async |_| {
        let anew = Record { created_at: NOW.plus(SECOND), revision: Revision::mint(), ..record.clone() };
        store.inner.put(Some(record.revision), &anew, &[]).await?;
        Ok(1)
    });
    assert!(matches!(charge.await, Err(PhaseError::Lost)));
    assert_eq!(queue.take().len(), 1, "its result is deferred");
    executor.finish(ours, charged()).await;
    assert_eq!((store.state().await, phases(&store).await.begun), ("between_workers", Some(NOW)));
}

#[tokio::test]
async fn a_row_refused_at_the_end_with_an_answer_is_no_refusal_over_what_is_kept() {
    let (store, provider) = (stocked(0), Provider::default());
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    call(ours.execution(), "charge", &provider).await.unwrap();
    ours.execution().write(take().or_answer(Answer::json(409, "{}"))).unwrap();
    let ended = executor.finish(ours, charged()).await;
    assert!(matches!(ended, FinishOutcome::Interrupted), "{ended:?}");
    assert_eq!(store.state().await, "between_workers");
}

// Nobody could make it again, or ask: it does not wait for a retry.
#[tokio::test]
async fn a_call_without_keys_or_a_question_is_unknown_at_once() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let perhaps =
        ours.execution().phase::<()>("charge").call(async |_| Err(CallError::Perhaps("time-out".into())));
    assert!(matches!(perhaps.await, Err(PhaseError::Unknown)));
    executor.finish(ours, Report::PerhapsExecuted("handler_failed")).await;
    assert_eq!(store.state().await, "unknown");
}
