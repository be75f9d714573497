//! The tables of the user's that domain writes go to.

use std::collections::BTreeMap;

use serde_dynamo::{AttributeValue, Item};

use super::expression::{self, Refused};
use crate::{
    domain::{Action, DomainWrite},
    store::Companion,
};

/// Items by their table and key.
#[derive(Default)]
pub(super) struct DomainTables(BTreeMap<(String, String), Item>);

/// Items to write in place of others; `None` deletes.
pub(super) type Changes = Vec<((String, String), Option<Item>)>;

impl DomainTables {
    /// What these companions change, or the places of those that are denied.
    pub(super) fn changes(&self, with: &[Companion]) -> Result<Result<Changes, Vec<usize>>, Refused> {
        let (mut changes, mut denied) = (Vec::new(), Vec::new());
        for (place, companion) in with.iter().enumerate() {
            let Companion::Domain(write) = companion else { continue };
            let (table, key) = write.identity();
            let at = (table.to_owned(), name(key));
            let current = self.0.get(&at);
            if !expression::holds(write, current)? {
                denied.push(place);
                continue;
            }
            match &write.action {
                Action::Put => changes.push((at, Some(write.item.clone()))),
                Action::Update(text) => changes.push((at, Some(expression::updated(write, text, current)?))),
                Action::Delete => changes.push((at, None)),
                Action::Check => {}
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
        let (table, key) = write.identity();
        self.0.get(&(table.to_owned(), name(key)))
    }
}

/// A key as text, so that it has an order.
fn name(key: &[AttributeValue]) -> String {
    format!("{key:?}")
}
