//! The user's tables, which domain writes change.

use std::collections::BTreeMap;

use serde_dynamo::Item;

use super::expression::{self, Refused};
use crate::{
    domain::{Action, DomainWrite},
    store::Companion,
};

/// Items by table and key.
#[derive(Default)]
pub(super) struct DomainTables(BTreeMap<(String, String), Item>);

/// The new items by table and key; `None` deletes the current one.
pub(super) type Changes = Vec<((String, String), Option<Item>)>;

impl DomainTables {
    /// The changes that these companions make, or the places of those that are denied.
    pub(super) fn changes(&self, with: &[Companion]) -> Result<Result<Changes, Vec<usize>>, Refused> {
        let (mut changes, mut denied) = (Vec::new(), Vec::new());
        for (place, companion) in with.iter().enumerate() {
            let Companion::Domain(write) = companion else { continue };
            let at = place_of(write);
            let current = self.0.get(&at);
            if !expression::holds(write, current)? {
                denied.push(place);
                continue;
            }
            match &write.action {
                Action::Put => changes.push((at, Some(write.item.clone()))),
                Action::Update(text) => changes.push((at, Some(expression::updated(write, text, current)?))),
                Action::Delete => changes.push((at, None)),
                Action::Check | Action::Publish => {}
            }
        }
        Ok(if denied.is_empty() { Ok(changes) } else { Err(denied) })
    }

    pub(super) fn apply(&mut self, changes: Changes) {
        for (at, item) in changes {
            match item {
                Some(item) => drop(self.0.insert(at, item)),
                None => drop(self.0.remove(&at)),
            }
        }
    }

    pub(super) fn item(&self, write: &DomainWrite) -> Option<&Item> {
        self.0.get(&place_of(write))
    }
}

/// The table and the key of a write. The key is text, because attribute values have no order.
fn place_of(write: &DomainWrite) -> (String, String) {
    (write.table.clone(), format!("{:?}", write.key().collect::<Vec<_>>()))
}
