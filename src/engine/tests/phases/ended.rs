//! What ends an execution between two phases.

use super::*;
use crate::{
    reconcile::{ReconcileOutcome, Reconciliation},
    record::tests::Mint,
};

#[tokio::test]
async fn what_ends_an_execution_leaves_what_is_kept_to_the_next() {
    let not_executed = || CallError::not_executed("refused");
    for (report, failure) in [
        (Report::NotExecuted(None), None),
        (Report::NotBegun, None),
        (Report::perhaps("panicked"), None),
        (charged(), Some(not_executed())),
        (charged(), Some(CallError::Perhaps("time-out".into()))),
    ] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let executor = store.executor(resuming());
        let ours = charging(&executor, &provider).await;
        let perhaps = matches!(failure, Some(CallError::Perhaps(_)));
        if let Some(failure) = failure {
            let failed =
                ours.execution().phase::<()>("ship").keys_live(DAY).call(async |_| Err(failure)).await;
            assert!(matches!(failed, Err(PhaseError::NotExecuted(_) | PhaseError::Perhaps(_))));
            let again = call(ours.execution(), "other", &provider).await;
            assert!(matches!(again, Err(PhaseError::Misused(_))), "an error is final");
        }
        let ended = executor.finish(ours, report.clone()).await;
        // T43: parts of it are done, so its caller gets no answer that leads to a new key.
        assert!(matches!(ended, Says::Interrupted), "{report:?}: {ended:?}");
        let record = store.record().await.unwrap();
        let State::BetweenWorkers { reconcile_at, .. } = record.state else {
            panic!("{report:?}: {record:?}")
        };
        let phases = record.phases().unwrap();
        assert_eq!((phases.kept.len(), phases.begun.is_some()), (1, perhaps), "{report:?}");
        assert_eq!(reconcile_at, phases.kept[0].at.plus(WITHIN));
        // T43: also with an old key, because it only resumes.
        let old = Request { admission: too_old(), ..request() };
        assert_eq!(owned(executor.reserve(&old).await).execution().attempts(), 2);
    }
}

// T50: operators have it already, and it is counted once.
#[tokio::test]
async fn retries_that_fail_escalate_nothing_anew() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let asks = Reconciliation::new(store.inner.clone(), MemoryQueue::new()).world(store.world.clone());
    executor.finish(charging(&executor, &provider).await, Report::NotExecuted(None)).await;
    let is_escalated_by_a_poll = async || {
        let record = store.record().await.unwrap();
        asks.ask_if_due(&record.key).await.unwrap() == ReconcileOutcome::Escalated
    };
    assert!(!is_escalated_by_a_poll().await);
    store.world.advance(WITHIN);
    assert!(is_escalated_by_a_poll().await);
    let because = store.record().await.unwrap().note.map(|note| note.to_string());
    assert_eq!(because.as_deref(), Some("it was interrupted, and no retry resumed it in time"));
    for dies in [false, true, false] {
        let retry = charging(&executor, &provider).await;
        if dies {
            drop(retry);
            store.lease_ends();
        } else {
            executor.finish(retry, Report::NotExecuted(None)).await;
        }
        assert!(!is_escalated_by_a_poll().await, "{dies}");
        assert!(store.record().await.unwrap().is_escalated(), "{dies}");
    }
    // What a retry achieves is a new recovery point, and time for the next one.
    let retry = charging(&executor, &provider).await;
    call(retry.execution(), "ship", &provider).await.unwrap();
    executor.finish(retry, Report::NotExecuted(None)).await;
    assert!(!is_escalated_by_a_poll().await);
    store.world.advance(WITHIN);
    assert!(is_escalated_by_a_poll().await);
}

#[tokio::test]
async fn an_execution_that_did_nothing_is_released_as_ever() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let failed =
        ours.execution().phase::<()>("charge").call(async |_| Err(CallError::not_executed("no"))).await;
    assert!(failed.is_err());
    executor.finish(ours, Report::NotExecuted(None)).await;
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
        assert!(matches!(ended, Says::Interrupted), "{drops}: {ended:?}");
        assert_eq!((store.state().await, phases(&store).await.begun), ("between_workers", Some(NOW)));
        drop(charge);
    }
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
    assert!(matches!(ended, Says::AnsweredElsewhere), "{ended:?}");
    assert_eq!(store.state().await, "in_progress");
}

// T62
#[tokio::test]
async fn two_workers_in_one_call_keep_one_result() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let slow = begin(&executor).await;
    let execution = slow.execution().clone();
    let late = execution.phase("charge").keys_live(DAY).call(async |key| {
        let result = provider.makes(key).await;
        store.lease_ends();
        executor.finish(charging(&executor, &provider).await, charged()).await;
        result
    });
    let late: std::result::Result<String, _> = late.await;
    assert!(matches!(late, Err(PhaseError::Lost)), "{late:?}");
    assert_eq!((provider.effects(), store.state().await), (1, "completed"));
    let ended = executor.finish(slow, refused()).await;
    assert!(matches!(ended, Says::Replay(_)), "{ended:?}");
}

#[tokio::test]
async fn an_outdated_completion_of_an_operation_that_resumes_answers_nobody() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let slow = begin(&executor).await;
    slow.execution().commit("stock", Vec::new()).await.unwrap();
    store.lease_ends();
    let next = begin(&executor).await;
    let ended = executor.finish(slow, charged()).await;
    assert!(matches!(ended, Says::AnsweredElsewhere), "{ended:?}");
    let record = store.record().await.unwrap();
    assert_eq!((record.state.name(), record.reported), ("in_progress", None));
    next.execution().commit("stock", Vec::new()).await.unwrap();
    executor.finish(next, refused()).await;
    assert_eq!(store.state().await, "completed");
}

#[tokio::test]
async fn a_deployment_that_does_not_resume_takes_nothing_over() {
    for choice in [OnLeaseExpiry::Unknown, OnLeaseExpiry::RunAgain] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let resumes = store.executor(resuming());
        drop(charging(&resumes, &provider).await);
        store.lease_ends();
        let other = store.executor(operation().on_lease_expiry(choice));
        let found = other.reserve(&request()).await;
        assert!(matches!(found, Err(Says::Unknown { .. })), "{choice:?}: {found:?}");
        assert_eq!(store.state().await, "between_workers");
        assert_eq!(begin(&resumes).await.execution().attempts(), 2);
    }
    // Nor does one that resumes take over what had no phases.
    let store = Faulty::new();
    drop(begin(&store.executor(operation())).await);
    store.lease_ends();
    let found = store.executor(resuming()).reserve(&request()).await;
    assert!(matches!(found, Err(Says::Unknown { .. })), "{found:?}");
    assert_eq!(store.state().await, "unknown");
}

#[tokio::test]
async fn rows_that_are_refused_at_the_end_leave_what_is_kept() {
    let (store, provider) = (stocked(0), Provider::default());
    let executor = store.executor(resuming());
    let ours = charging(&executor, &provider).await;
    ours.execution().write(take()).unwrap();
    assert_interrupted(&store, executor.finish(ours, charged()).await).await;
    store.inner.put_item(&stock(), json!({ "sku": "tea", "available": 1 }));
    let ours = charging(&executor, &provider).await;
    ours.execution().write(take()).unwrap();
    executor.finish(ours, charged()).await;
    assert_eq!((store.state().await, available(&store), provider.calls()), ("completed", 0, 1));
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
    assert_interrupted(&store, executor.finish(ours, charged()).await).await;
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
    executor.finish(ours, Report::NotExecuted(None)).await;
    assert_eq!((store.state().await, phases(&store).await.begun), ("between_workers", Some(NOW)));
}

#[tokio::test]
async fn an_answer_before_the_kept_phases_is_not_the_operations() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let ours = charging(&executor, &provider).await;
    executor.finish(ours, Report::NotExecuted(None)).await;
    // The price has expired meanwhile.
    let early = begin(&executor).await;
    assert_interrupted(&store, executor.finish(early, refused()).await).await;
    assert_eq!(names(&store).await, ["charge"]);

    // Nor if an earlier execution may have made the first call.
    let store = Faulty::new();
    let executor = store.executor(resuming());
    drop(begin(&executor).await);
    store.lease_ends();
    let ended = executor.finish(begin(&executor).await, refused()).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    assert_eq!(store.state().await, "unknown");
}

#[tokio::test]
async fn a_refused_row_with_an_answer_ends_nothing_over_kept_phases() {
    let (store, provider) = (stocked(0), Provider::default());
    let executor = store.executor(resuming());
    let ours = charging(&executor, &provider).await;
    ours.execution().write(take().or_answer(Answer::json(409, "{}"))).unwrap();
    assert_interrupted(&store, executor.finish(ours, charged()).await).await;
}

/// A worker whose call was not made reports that while its store is away. Its report, and its store.
async fn deferred_release() -> (Faulty, DeferredReport) {
    let (store, provider, queue) = (Faulty::new(), Provider::default(), MemoryQueue::new());
    let executor = store.executor(resuming()).defer_reports_to(queue.clone());
    let ours = charging(&executor, &provider).await;
    store.is_away.store(true, Ordering::SeqCst);
    store.passing(executor.finish(ours, Report::NotExecuted(None))).await;
    store.is_away.store(false, Ordering::SeqCst);
    let [(message, _)] = &queue.take()[..] else { panic!("not one message") };
    (store, deferred(message))
}

#[tokio::test]
async fn a_deferred_release_leaves_no_call_open() {
    let (store, report) = deferred_release().await;
    assert_eq!(delivered(&store.executor(resuming()), &report).await.unwrap(), NOTHING);
    assert_eq!((store.state().await, phases(&store).await.begun), ("between_workers", None));
}

// T5: what its phases did would be forgotten.
#[tokio::test]
async fn a_kept_phase_is_escalated_if_its_record_is_gone() {
    let (store, report) = deferred_release().await;
    let (seen, _) = report.read().unwrap();
    // An operator has to know what it got: no digest of it.
    assert_eq!(seen.effects, store.record().await.unwrap().effects);
    let restored = Faulty::new();
    restored.world.advance(DAY * 8);
    let applied = delivered(&restored.executor(resuming()), &report).await.unwrap();
    assert!(applied[0].starts_with("its record is gone"), "{applied:?}");
}
