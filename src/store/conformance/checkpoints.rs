//! Checks what a store promises about the checkpoints of jobs.

use futures_util::future::join_all;

use super::{HOUR, NOW, RACERS, samples::fresh, unique};
use crate::{
    record::Revision,
    store::{Checkpoint, Unsettled},
};

/// Runs every check of checkpoints.
pub(super) async fn all(store: &dyn Unsettled) {
    a_checkpoint_replaces_only_the_one_that_was_seen(store).await;
    of_a_hundred_racing_checkpoints_one_is_applied(store).await;
}

async fn a_checkpoint_replaces_only_the_one_that_was_seen(store: &dyn Unsettled) {
    let name = unique();
    let [first, second, late] = [Some("1/4"), None, Some("2/4")].map(|progress| checkpoint(&name, progress));
    assert_eq!(load(store, &name).await, None);
    assert!(!write(store, Some(first.revision), &second).await, "there is no checkpoint to replace");
    assert_eq!(load(store, &name).await, None);
    assert!(write(store, None, &first).await);
    assert!(!write(store, None, &late).await, "there is a checkpoint");
    assert_eq!(load(store, &name).await, Some(first.clone()));
    assert!(write(store, Some(first.revision), &second).await);
    assert!(!write(store, Some(first.revision), &late).await, "another checkpoint is current");
    // A write that is sent again finds its own checkpoint. This makes a lost answer harmless.
    assert!(write(store, Some(first.revision), &second).await);
    assert_eq!(load(store, &name).await, Some(second));
    assert_eq!(load(store, &unique()).await, None, "each job has a checkpoint of its own");
}

async fn of_a_hundred_racing_checkpoints_one_is_applied(store: &dyn Unsettled) {
    let name = unique();
    let first = checkpoint(&name, None);
    assert!(write(store, None, &first).await);
    let checkpoints: Vec<_> =
        (0..RACERS).map(|number| checkpoint(&name, Some(&number.to_string()))).collect();
    let written =
        join_all(checkpoints.iter().map(|checkpoint| write(store, Some(first.revision), checkpoint))).await;
    let mut winners =
        checkpoints.iter().zip(written).filter(|(_, written)| *written).map(|(checkpoint, _)| checkpoint);
    assert_eq!(load(store, &name).await.as_ref(), winners.next());
    assert_eq!(winners.next(), None, "only one is applied");
}

fn checkpoint(name: &str, progress: Option<&str>) -> Checkpoint {
    let (name, progress) = (name.to_owned(), progress.map(str::to_owned));
    Checkpoint { name, revision: fresh(), lease_until: NOW.plus(HOUR), progress }
}

async fn load(store: &dyn Unsettled, name: &str) -> Option<Checkpoint> {
    store.load_checkpoint(name).await.expect("an answer")
}

async fn write(store: &dyn Unsettled, seen: Option<Revision>, checkpoint: &Checkpoint) -> bool {
    store.write_checkpoint(seen, checkpoint).await.expect("an answer")
}
