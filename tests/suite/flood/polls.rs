//! The questions of polls.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    async_trait,
    queue::MemoryQueue,
    reconcile::{Finding, Question, Reconciler, Reconciliation},
    record::Record,
    store::{Store, dynamodb::DynamoDbStore},
    time_budget::MIN_QUESTION_TIME,
};

use super::{FLOOD, assert_waits, put, unknown};
use crate::support::{
    BoxError,
    clock::WatchedClock,
    embedded,
    guarded::{Guarded, operation, record_key},
};

/// How long a question takes, one after the other.
const QUESTION: Duration = Duration::from_millis(100);

/// Asks in the midst of which the other tenant's outcome becomes due.
#[derive(Clone)]
struct Provider {
    clock: WatchedClock,
    store: DynamoDbStore,
    asked: Arc<Mutex<Asked>>,
}

#[derive(Default)]
struct Asked {
    /// How many of the flood's.
    flood: usize,
    /// The other tenant's outcome, and by which question of the flood it becomes due.
    becomes_due: Option<(usize, Record)>,
    /// How many of the flood's had begun when it became due.
    before: usize,
    /// How many more began before it did.
    waited: Option<usize>,
}

#[async_trait]
impl Reconciler for Provider {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        let due = {
            let mut asked = self.asked.lock().unwrap();
            if question.tenant().as_str() == FLOOD {
                asked.flood += 1;
            } else {
                asked.waited = Some(asked.flood - asked.before);
            }
            let flood = asked.flood;
            let due = asked.becomes_due.take_if(|(by, _)| *by == flood);
            if due.is_some() {
                asked.before = flood;
            }
            due
        };
        if let Some((_, record)) = due {
            self.store.put(None, &record, &[]).await?;
        }
        self.clock.advance(QUESTION);
        Ok(Finding::NotExecuted)
    }
}

// T60, T81
#[tokio::test]
async fn a_question_waits_for_two_turns_of_a_flood_at_most() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (store, now) = (guarded.undisturbed_store(), guarded.now());
    let an_hour_ago = now.minus(Duration::from_secs(3600));
    put(&store, (0..1500).map(|number| unknown(record_key(FLOOD, &number.to_string()), an_hour_ago))).await;
    let provider = Provider { clock: guarded.clock.clone(), store: store.clone(), asked: Arc::default() };
    let reconciliation = Reconciliation::new(store.clone(), MemoryQueue::new())
        .world(guarded.clock.clone())
        .operation(operation(), provider.clone());
    let mut worst = 0;
    // Some come before the flood in the order of the index, and some after it. Each becomes due at another place of a turn.
    for other in ["other-0", "other-1", "other-2", "other-3"] {
        for by in [1, 2, 7, 8, 9, 16] {
            let record = unknown(record_key(other, &by.to_string()), now);
            *provider.asked.lock().unwrap() = Asked { becomes_due: Some((by, record)), ..Asked::default() };
            reconciliation.poll(MIN_QUESTION_TIME + 40 * QUESTION).await.unwrap();
            let waited = provider.asked.lock().unwrap().waited;
            worst = worst.max(waited.expect("it is asked in the poll in which it becomes due"));
        }
    }
    assert_waits("questions of a poll", worst);
}
