//! Changes of the queues and of the tables. Who polls one waits for its next change, so that a cloud without work stands still.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};

/// The longest wait for a change. Some are not seen: a message that becomes a dead letter changes the other queue too.
const LONGEST: Duration = Duration::from_secs(5);

/// Changes of one thing.
pub type Changes = watch::Sender<()>;

/// The changes of each queue, by its name.
#[derive(Clone, Default)]
pub struct QueueChanges(Arc<Mutex<HashMap<String, Changes>>>);

impl QueueChanges {
    /// Those of this queue.
    pub fn of(&self, queue: &str) -> Changes {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(queue.to_owned()).or_default().clone()
    }
}

/// Changes of the tables.
#[derive(Clone, Default)]
pub struct TableChanges {
    pub all: Changes,
    /// When a record was changed last.
    pub records: watch::Sender<Option<Instant>>,
}

/// Waits for the next change, but not for long.
pub async fn next(changes: &mut watch::Receiver<()>) {
    let _ = time::timeout(LONGEST, changes.changed()).await;
}

/// Says now that something has changed, and once more after each of these times: then a message can be received.
pub fn happened(changes: &Changes, later: impl Iterator<Item = Duration>) {
    changes.send_replace(());
    for wait in later {
        let changes = changes.clone();
        tokio::spawn(async move {
            time::sleep(wait).await;
            changes.send_replace(());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_delayed_message_is_a_change_now_and_when_it_is_due() {
        let changes = QueueChanges::default();
        let mut seen = changes.of("checks").subscribe();
        let mut other = changes.of("orders").subscribe();
        happened(&changes.of("checks"), [Duration::from_millis(1)].into_iter());
        seen.changed().await.expect("now");
        seen.changed().await.expect("later");
        assert!(!other.has_changed().expect("it is kept"));
        happened(&changes.of("orders"), std::iter::empty());
        next(&mut other).await;
        assert!(!other.has_changed().expect("it was seen"));
    }
}
