//! What others report of a phase, and what is lost on the way.

use super::*;
use crate::record::{AlarmKind, tests::Mint};

#[tokio::test]
async fn another_result_of_a_kept_phase_is_an_alarm() {
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
    let record = store.record().await.unwrap();
    assert!(record.has_alarm(AlarmKind::ForgottenPhase));
    assert!(record.alarms[0].because.to_string().starts_with("charge "), "{:?}", record.alarms);
    let report = executor.engine.report_beside(&record.key, record.alarms[0].report.unwrap()).await.unwrap();
    let (seen, ended) = report.expect("it lies beside the record").read().unwrap();
    assert_eq!((seen.kept_phase(0).unwrap().result.as_ref().unwrap().text(), ended), ("1", None));
    assert_eq!(queue.take().len(), 0);
}

// T54: neither has a report beside it, so only what they say tells them apart.
#[tokio::test]
async fn two_phases_with_another_result_than_reported_are_two_alarms() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    for name in ["charge", "ship"] {
        let called = ours.execution().phase(name).call(async |_| {
            note(&store, name, Some("\"theirs\"")).await;
            Ok("ours".to_owned())
        });
        assert_eq!(called.await.unwrap(), "ours");
    }
    let record = store.record().await.unwrap();
    let because: Vec<_> = record.alarms.iter().map(|alarm| alarm.because.to_string()).collect();
    assert!(
        matches!(&*because, [charge, ship] if charge.starts_with("charge ") && ship.starts_with("ship "))
    );
    assert!(
        record.alarms.iter().all(|alarm| alarm.kind == AlarmKind::ForgottenPhase && alarm.report.is_none())
    );
    assert_eq!(names(&store).await, ["charge", "ship"]);
}

#[tokio::test]
async fn a_reported_result_is_used_if_the_handler_can_read_it() {
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
        note(&store, "charge", Some(reported)).await;
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
    note(&store, "charge", None).await;
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
    assert!(
        store.record().await.unwrap().alarms[0].report.is_some(),
        "its result lies beside what began anew"
    );
    assert_eq!(queue.take().len(), 0);
    executor.finish(ours, charged()).await;
    assert_eq!((store.state().await, phases(&store).await.begun), ("between_workers", Some(NOW)));
}

// T62: the report of the next owner, for whom that call is unknown, is written after it is known.
#[tokio::test]
async fn a_call_that_is_known_meanwhile_is_not_unknown() {
    for kept in [true, false] {
        let (store, provider) = (Faulty::new(), Provider::default());
        let executor = store.executor(resuming());
        let slow = begin(&executor).await;
        let execution = slow.execution().clone();
        let mut ours = None;
        let late = execution.phase("charge").call(async |key| {
            store.lease_ends();
            let next = begin(&executor).await;
            let charge = next.execution().phase::<String>("charge").call(async |_| panic!("unknown")).await;
            assert!(matches!(charge, Err(PhaseError::Unknown)), "{charge:?}");
            ours = Some(next);
            match kept {
                true => provider.makes(key).await,
                false => {
                    note(&store, "charge", Some("\"reported\"")).await;
                    Err(CallError::Perhaps("time-out".into()))
                }
            }
        });
        assert!(late.await.is_err(), "it has lost its record");
        let ended = executor.finish(ours.unwrap(), charged()).await;
        assert!(matches!(ended, Says::Interrupted), "{kept}: {ended:?}");
        let phases = phases(&store).await;
        assert_eq!(
            (phases.kept.len(), phases.noted.len(), phases.begun.is_none()),
            match kept {
                true => (1, 0, true),
                // It may be another phase that was reported.
                false => (0, 1, false),
            }
        );
        let next = begin(&executor).await;
        let charge = next.execution().phase::<String>("charge").call(async |_| panic!("it is known")).await;
        assert!(charge.is_ok(), "{kept}: {charge:?}");
    }
}

// It may be another call that was reported.
#[tokio::test]
async fn a_call_stays_unknown_beside_what_its_worker_knew() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let perhaps = ours.execution().phase::<()>("charge").call(async |_| {
        note(&store, "refund", None).await;
        Err(CallError::Perhaps("time-out".into()))
    });
    assert!(perhaps.await.is_err());
    assert_interrupted(&store, executor.finish(ours, charged()).await).await;
    // No provider remembers the key: it is not made once more, and the next execution says so.
    let next = begin(&executor).await;
    let charge = next.execution().phase::<String>("charge").call(async |key| provider.makes(key).await).await;
    assert!(matches!(charge, Err(PhaseError::Unknown)), "{charge:?}");
    executor.finish(next, charged()).await;
    assert_eq!((store.state().await, provider.calls()), ("unknown", 0));
}

// No execution could make it again, or ask: it does not wait for a retry.
#[tokio::test]
async fn a_call_without_keys_or_a_question_is_unknown_at_once() {
    let store = Faulty::new();
    let executor = store.executor(resuming());
    let ours = begin(&executor).await;
    let perhaps =
        ours.execution().phase::<()>("charge").call(async |_| Err(CallError::Perhaps("time-out".into())));
    assert!(matches!(perhaps.await, Err(PhaseError::Unknown)));
    executor.finish(ours, Report::perhaps("handler_failed")).await;
    assert_eq!(store.state().await, "unknown");
}

// Only its own transaction says what became of it.
#[tokio::test]
async fn a_commit_runs_whatever_others_report_of_it() {
    for result in [None, Some("[]")] {
        let store = stocked(1);
        let executor = store.executor(resuming());
        drop(begin(&executor).await);
        note(&store, "stock", result).await;
        store.lease_ends();
        let ours = begin(&executor).await;
        let committed = ours.execution().commit("stock", vec![take()]).await.unwrap();
        assert_eq!((committed, available(&store)), (Committed::Written, 0));
        assert!(phases(&store).await.noted.is_empty());
    }
}
