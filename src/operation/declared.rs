//! The phases that an operation declares.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::record::{MAX_PHASES, Phase, PhaseList, Resumes};

/// The phases of an operation that resumes.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    names: Arc<[String]>,
    resumes: Resumes,
}

impl Declared {
    /// These phases, in their order.
    ///
    /// # Errors
    /// If they cannot be the phases of an operation.
    pub(super) fn new(names: Vec<String>, within: Duration) -> Result<Self, String> {
        let mut known = HashSet::new();
        if let Some(wrong) = names.iter().find(|name| !Phase::is_name(name)) {
            return Err(format!("{wrong:?} is not 1 to 64 letters, digits, `-`, `_` or `.`"));
        }
        if let Some(twice) = names.iter().find(|name| !known.insert(name.as_str())) {
            return Err(format!("two phases have the name {twice:?}"));
        }
        if !(1..=MAX_PHASES).contains(&names.len()) {
            return Err(format!("{} phases are not 1 to {MAX_PHASES}", names.len()));
        }
        let list = PhaseList::of(&names);
        Ok(Self { names: names.into(), resumes: Resumes { within, list } })
    }

    /// How the operation resumes.
    pub(super) const fn resumes(&self) -> Resumes {
        self.resumes
    }

    /// The place of the phase of this name among them.
    pub(super) fn place_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|declared| declared == name)
    }
}
