//! What is kept, and what the next execution makes of it.

use super::*;

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
    assert!(matches!(ended, Says::Own { expires_at: Some(_) }), "{ended:?}");
    let kept = phases(&store).await.kept;
    let digested = |phase: &Phase| phase.result.as_ref().is_some_and(|it| it.text().starts_with("sha256:"));
    assert!(kept.iter().all(digested), "{kept:?}");
    assert_eq!(names(&store).await, ["charge", "stock"]);
}

#[tokio::test]
async fn a_call_that_was_perhaps_made_is_repeated_with_its_key() {
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
            assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
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
                assert!(matches!(ended, Says::Interrupted), "{ended:?}");
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

// T38: nobody can be asked what became of a commit.
#[tokio::test]
async fn a_refused_commit_of_many_rows_is_kept_beside_long_results() {
    let (store, long) = (Faulty::new(), "x".repeat(crate::record::MAX_PHASE_RESULTS - 2));
    let executor = store.executor(resuming());
    let rows = || {
        let row = |sku| {
            stock().update(json!({ "sku": sku }), "SET available = :n").condition("attribute_exists(sku)")
        };
        (0..97).map(|place| row(format!("tea-{place}")).value(":n", 1)).collect()
    };
    let dead = begin(&executor).await;
    dead.execution().phase("charge").call(async |_| Ok(long.clone())).await.unwrap();
    let refused = dead.execution().commit("stock", rows()).await.unwrap();
    assert!(matches!(&refused, Committed::Refused(places) if places.len() == 97), "{refused:?}");
    drop(dead);
    store.lease_ends();
    let ours = begin(&executor).await;
    let charge =
        ours.execution().phase::<String>("charge").call(async |_| panic!("it is kept")).await.unwrap();
    assert_eq!((charge, ours.execution().commit("stock", rows()).await.unwrap()), (long, refused));
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
async fn phases_that_are_used_wrongly_keep_nothing() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(operation());
    let ours = begin(&executor).await;
    let refused = call(ours.execution(), "charge", &provider).await;
    assert!(matches!(refused, Err(PhaseError::Misused(_))), "the operation does not resume");
    executor.finish(ours, Report::NotExecuted(None)).await;

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
    assert_interrupted(&store, executor.finish(ours, charged()).await).await;

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

// T61: a deployment cannot come to a phase that its list does not have, or has elsewhere.
#[tokio::test]
async fn a_phase_that_is_not_declared_next_is_not_called() {
    let provider = Provider::default();
    for wrong in [["capture", "refund"], ["refund", "charge"], ["refund", "refund"]] {
        let store = Faulty::new();
        let ours = begin(&store.executor(resuming())).await;
        let mut made = Vec::new();
        for name in wrong {
            made.push(call(ours.execution(), name, &provider).await);
        }
        let last = made.iter().find_map(|made| made.as_ref().err());
        assert!(matches!(last, Some(PhaseError::Misused(_))), "{wrong:?}: {made:?}");
    }
    assert_eq!(provider.calls(), 2, "once the refund of each of the last two");
    // One that its way does not need may be left out.
    let ours = begin(&Faulty::new().executor(resuming())).await;
    call(ours.execution(), "charge", &provider).await.unwrap();
    call(ours.execution(), "refund", &provider).await.unwrap();
}

// T61
#[tokio::test]
async fn a_handler_that_does_not_fit_what_is_kept_makes_no_call() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    executor.finish(charging(&executor, &provider).await, Report::NotExecuted(None)).await;
    let new = begin(&executor).await;
    let misfit = call(new.execution(), "check-fraud", &provider).await;
    assert!(matches!(misfit, Err(PhaseError::Mismatch)), "{misfit:?}");
    assert_interrupted(&store, executor.finish(new, charged()).await).await;
    // Nor one that cannot read the result.
    let new = begin(&executor).await;
    let number = new.execution().phase::<u64>("charge").call(async |_| Ok(1)).await;
    assert!(matches!(number, Err(PhaseError::Format(_))), "{number:?}");
    executor.finish(new, charged()).await;
    // The older code can still resume it.
    executor.finish(charging(&executor, &provider).await, charged()).await;
    assert_eq!((store.state().await, provider.calls()), ("completed", 1));
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
    assert!(matches!(ended, Says::Interrupted), "{ended:?}");
    store.is_away.store(false, Ordering::SeqCst);
    let messages = queue.take();
    assert_eq!(messages.len(), 2, "the phase, and how the execution ended");
    // In the other order, and twice.
    for (message, _) in messages.iter().rev().chain(&messages) {
        assert_eq!(delivered(&executor, &deferred(message)).await.unwrap().len(), 0);
    }
    let kept = phases(&store).await;
    assert_eq!((kept.kept.len(), kept.begun, store.state().await), (1, None, "between_workers"));
    drop(charging(&executor, &provider).await);
    assert_eq!(provider.calls(), 1);
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
    executor.finish(ours, Report::NotExecuted(None)).await;
    let results: Vec<_> = phases(&store).await.kept.into_iter().map(|phase| phase.result.is_some()).collect();
    assert_eq!(results, [true, false, true]);
    // A question that fails says nothing of the call that follows.
    let ours = begin(&executor).await;
    ours.execution().phase::<u64>("small").call(async |_| panic!("it is kept")).await.unwrap();
    let asking =
        ours.execution().phase::<String>("report").ask(async |_| Err(CallError::Perhaps("no answer".into())));
    let failed = asking.call(async |_| panic!("it was made")).await;
    assert!(matches!(failed, Err(PhaseError::Perhaps(_))), "{failed:?}");
    executor.finish(ours, Report::NotExecuted(None)).await;
    assert_eq!(phases(&store).await.begun, None);
    for asks in [false, true] {
        let ours = begin(&executor).await;
        let execution = ours.execution();
        execution.phase::<u64>("small").call(async |_| panic!("it is kept")).await.unwrap();
        let phase = execution.phase::<String>("report");
        let phase = if asks { phase.ask(async |_| Ok(Some("asked".to_owned()))) } else { phase };
        let report = phase.call(async |_| panic!("it was made")).await;
        match report {
            Ok(report) => assert_eq!((report.as_str(), asks), ("asked", true)),
            Err(error) => assert!(matches!(error, PhaseError::ResultMissing) && !asks, "{error:?}"),
        }
        executor.finish(ours, Report::NotExecuted(None)).await;
    }
    assert_eq!(store.state().await, "between_workers", "it is known that the call was made");
}

// T38: a message would be about the last phase that is kept, which is another one.
#[tokio::test]
async fn what_was_asked_for_is_not_deferred_as_another_phase() {
    let (store, queue, long) =
        (Faulty::new(), MemoryQueue::new(), "x".repeat(crate::record::MAX_PHASE_RESULTS));
    let executor = store.executor(resuming()).defer_reports_to(queue.clone());
    let ours = begin(&executor).await;
    ours.execution().phase("report").call(async |_| Ok(long)).await.unwrap();
    ours.execution().phase("next").call(async |_| Ok(2)).await.unwrap();
    executor.finish(ours, Report::NotExecuted(None)).await;
    let ours = begin(&executor).await;
    let asks = ours.execution().phase("report").ask(async |_| Ok(Some("asked".to_owned())));
    store.is_away.store(true, Ordering::SeqCst);
    let unkept = store.passing(asks.call(async |_| panic!("it was made"))).await;
    assert!(matches!(unkept, Err(PhaseError::NotKept)), "{unkept:?}");
    assert_eq!(queue.take().len(), 0);
}

// A late worker of a version that made a call of what is a commit now, and whose result is too long to be kept.
#[tokio::test]
async fn a_commit_meanwhile_kept_as_a_call_commits_nothing() {
    let (store, long) = (stocked(1), "x".repeat(crate::record::MAX_PHASE_RESULTS));
    let executor = store.executor(resuming());
    let slow = begin(&executor).await;
    let mut ours = None;
    let late = slow.execution().phase("stock").call(async |_| {
        store.lease_ends();
        ours = Some(begin(&executor).await);
        Ok(long)
    });
    assert!(matches!(late.await, Err(PhaseError::Lost)));
    let ours = ours.unwrap();
    let committed = ours.execution().commit("stock", vec![take()]).await;
    assert!(matches!(committed, Err(PhaseError::Lost)), "{committed:?}");
    assert_eq!((phases(&store).await.kept[0].result.is_none(), available(&store)), (true, 1));
}

#[test]
fn the_next_call_depends_on_what_is_kept_noted_and_begun() {
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

// A call that is kept without its result has committed no rows.
#[tokio::test]
async fn a_commit_in_place_of_a_kept_call_is_a_mismatch() {
    let store = stocked(1);
    let executor = store.executor(resuming());
    let dead = begin(&executor).await;
    let too_long = "x".repeat(crate::record::MAX_PHASE_RESULTS);
    let called = dead.execution().phase::<String>("stock").call(async |_| Ok(too_long)).await;
    assert!(called.is_ok(), "{called:?}");
    drop(dead);
    store.lease_ends();
    let ours = begin(&executor).await;
    let committed = ours.execution().commit("stock", vec![take()]).await;
    assert!(matches!(committed, Err(PhaseError::Mismatch)), "{committed:?}");
    assert_eq!(available(&store), 1);
}
