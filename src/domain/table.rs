//! A table that domain writes go to.

use std::sync::Arc;

/// One of your tables: its name, and the names of its key attributes.
///
/// Not the table of records: writes into that are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    name: Arc<str>,
    partition_key: Arc<str>,
    sort_key: Option<Arc<str>>,
}

impl Table {
    /// A table with a partition key and no sort key.
    pub fn new(name: impl Into<Arc<str>>, partition_key: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), partition_key: partition_key.into(), sort_key: None }
    }

    /// The same with a sort key.
    #[must_use]
    pub fn sort_key(mut self, name: impl Into<Arc<str>>) -> Self {
        self.sort_key = Some(name.into());
        self
    }

    /// The table's name, or its ARN.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the key attributes.
    pub(crate) fn key_names(&self) -> impl Iterator<Item = &str> {
        [Some(&self.partition_key), self.sort_key.as_ref()].into_iter().flatten().map(|name| &**name)
    }
}
