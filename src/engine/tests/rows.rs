//! Domain writes that a closure computes when the operation is about to commit.

use std::future::pending;

use super::*;
use crate::{domain::DomainWrite, engine::BoxError, message::Message};

type Computed = std::result::Result<Vec<DomainWrite>, BoxError>;

// The effect's answer is there, and must be written while its worker lives.
#[tokio::test]
async fn a_computation_of_rows_that_never_ends_is_left_in_time() {
    let store = Faulty::new();
    let executor = store.executor(operation().completion_timeout(7 * SECOND));
    let ours = owned(executor.reserve(&request()).await);
    ours.execution().write_computed(pending::<Computed>);
    let ended = store.passing(executor.finish(ours, charged())).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    let record = store.record().await.unwrap();
    assert_eq!((record.state.name(), record.reported), ("unknown", Some(Evidence::Effect)));
    assert!(store.world.running() < 8 * SECOND, "{:?}", store.world.running());
}

// T55: computed in no time, they would be lost. From the queue they are tried once more.
#[tokio::test]
async fn rows_refused_as_the_time_ends_are_deferred_with_their_effect() {
    let (store, queue) = (Faulty::new(), MemoryQueue::new());
    let executor = store.executor(operation().completion_timeout(SECOND)).defer_reports_to(queue.clone());
    let ours = owned(executor.reserve(&request()).await);
    let world = store.world.clone();
    ours.execution().write_computed(move || {
        let world = world.clone();
        async move {
            // The read that they come from takes the whole time.
            tokio::task::yield_now().await;
            world.advance(SECOND);
            let row = Table::new("rows", "id").put(json!({ "id": 1 })).condition("attribute_exists(id)");
            Ok::<_, BoxError>(vec![row.or_recompute()])
        }
    });
    let ended = store.passing(executor.finish(ours, charged())).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");
    let [(message, _)] = &queue.take()[..] else { panic!("not one message") };
    let Message::DeferredReport(report) = Message::read(message).unwrap() else { panic!("{message}") };
    assert_eq!(report.writes().len(), 1);
}
