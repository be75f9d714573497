//! A phase, as the item of its record has it.

use serde::{Deserialize, Serialize};

use crate::{
    record::{Phase, Reference, phase_of},
    time::Timestamp,
};

/// A phase, as its record keeps it.
#[derive(Serialize, Deserialize)]
pub(super) struct ItemPhase {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    references: Vec<(String, String)>,
}

impl From<&Phase> for ItemPhase {
    fn from(Phase { name, result, at, references }: &Phase) -> Self {
        let named = |reference: &Reference| (reference.provider().to_owned(), reference.id().to_owned());
        let references = references.iter().map(named).collect();
        let result = result.as_ref().map(|result| result.text().to_owned());
        Self { name: name.clone(), result, at: *at, references }
    }
}

impl From<ItemPhase> for Phase {
    fn from(ItemPhase { name, result, at, references }: ItemPhase) -> Self {
        let references = references.into_iter().filter_map(|(provider, id)| Reference::new(provider, id));
        Self { references: references.collect(), ..phase_of(name, result, at) }
    }
}
