//! Reports over kept phases that the store does not take.

use super::*;

/// An execution that has charged loses its store, and ends with this row. How, and its report in the queue.
async fn lost(store: &Faulty, row: Option<crate::domain::DomainWrite>) -> (Says<Replay>, DeferredReport) {
    let (provider, queue) = (Provider::default(), MemoryQueue::new());
    let executor = store.executor(resuming()).defer_reports_to(queue.clone());
    let ours = charging(&executor, &provider).await;
    row.into_iter().for_each(|row| ours.execution().write(row).unwrap());
    store.is_away.store(true, Ordering::SeqCst);
    let ended = store.passing(executor.finish(ours, charged())).await;
    store.is_away.store(false, Ordering::SeqCst);
    let [(message, _)] = &queue.take()[..] else { panic!("not one message") };
    (ended, deferred(message))
}

// T43: a retry may resume, and end with another answer.
#[tokio::test]
async fn an_answer_over_kept_phases_counts_only_once_it_is_written() {
    let store = Faulty::new();
    let (ended, report) = lost(&store, None).await;
    assert!(matches!(ended, Says::Interrupted), "{ended:?}");
    assert_eq!(delivered(&store.executor(resuming()), &report).await.unwrap(), NOTHING);
    assert_eq!(store.state().await, "completed");
}

// T55: the charge stands, and only the handler itself answers with a refusal.
#[tokio::test]
async fn a_row_refused_from_the_queue_ends_nothing_over_kept_phases() {
    let store = stocked(0);
    let (ended, report) = lost(&store, Some(take().or_answer(Answer::json(409, "{}")))).await;
    assert!(matches!(ended, Says::Interrupted), "{ended:?}");
    let applied = delivered(&store.executor(resuming()), &report).await.unwrap();
    assert_eq!(applied, NOTHING, "nobody has to look at it");
    assert_eq!((store.state().await, names(&store).await), ("between_workers", vec!["charge".to_owned()]));
}

// T2: the call in which the execution ended is the one that is kept since. Nobody came to the next one.
#[tokio::test]
async fn a_call_kept_before_its_execution_ends_leaves_no_call_open() {
    let (store, provider, queue) = (Faulty::new(), Provider::default(), MemoryQueue::new());
    let executor = store.executor(resuming()).defer_reports_to(queue.clone());
    let ours = begin(&executor).await;
    store.is_away.store(true, Ordering::SeqCst);
    drop(store.passing(call(ours.execution(), "charge", &provider)).await);
    drop(store.passing(executor.finish(ours, charged())).await);
    store.is_away.store(false, Ordering::SeqCst);
    for (message, _) in queue.take() {
        assert_eq!(delivered(&executor, &deferred(&message)).await.unwrap().len(), 0);
    }
    let kept = phases(&store).await;
    assert_eq!((kept.kept.len(), kept.begun, store.state().await), (1, None, "between_workers"));
    // Its call needs neither its key nor a question.
    let ours = charging(&executor, &provider).await;
    let shipped = ours.execution().phase("ship").call(async |_| Ok(1)).await;
    assert!(matches!(shipped, Ok(1)), "{shipped:?}");
}
