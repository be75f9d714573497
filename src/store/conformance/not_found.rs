//! Checks what a store promises about the switch of "not found". A store has one, so these checks run one after the other.

use super::{NOW, samples::fresh};
use crate::store::{AuditLine, NotFoundSwitch, Unsettled};

/// Runs every check of the switch.
pub(super) async fn all(store: &dyn Unsettled) {
    the_switch_replaces_only_the_one_that_was_seen_with_its_line(store).await;
}

async fn the_switch_replaces_only_the_one_that_was_seen_with_its_line(store: &dyn Unsettled) {
    let (before, earlier) = (load(store).await, lines(store).await);
    let [off, late, on] =
        [("off", false), ("late", false), ("on", true)].map(|(reason, releases)| switch(releases, reason));
    let seen = before.as_ref().map(|before| before.revision);
    assert!(!write(store, Some(late.revision), &late).await, "there is no such switch to replace");
    assert!(write(store, seen, &off).await);
    assert_eq!(load(store).await, Some(off.clone()));
    assert!(!write(store, seen, &late).await, "another one is current");
    // A write that is sent again finds its own.
    assert!(write(store, seen, &off).await);
    assert!(write(store, Some(off.revision), &on).await);
    assert!(write(store, seen, &off).await, "an earlier try was written, and replaced since");
    assert_eq!(load(store).await, Some(on.clone()));
    let written = lines(store).await.split_off(earlier.len());
    assert_eq!(written, [off.line(), on.line()]);
}

fn switch(releases: bool, reason: &str) -> NotFoundSwitch {
    // Lines of one instant are in no order.
    let at = if releases { NOW.plus(super::HOUR) } else { NOW };
    NotFoundSwitch { revision: fresh(), releases, who: "olga".into(), at, reason: reason.into() }
}

async fn load(store: &dyn Unsettled) -> Option<NotFoundSwitch> {
    store.not_found_switch().await.expect("an answer")
}

async fn lines(store: &dyn Unsettled) -> Vec<AuditLine> {
    store.not_found_lines().await.expect("an answer")
}

async fn write(
    store: &dyn Unsettled,
    seen: Option<crate::record::Revision>,
    switch: &NotFoundSwitch,
) -> bool {
    store.switch_not_found(seen, switch).await.expect("an answer")
}
