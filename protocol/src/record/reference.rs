//! A provider's own id for what a phase did.

use std::fmt;

/// How long the name of a provider, and its id, may be, in bytes.
const MAX_BYTES: usize = 255;

/// A provider's own id for what a phase did: a charge, for example. Reports that know only this id find the record by it.
///
/// ```
/// # extern crate idempotency_protocol as lambda_idempotency;
/// use lambda_idempotency::record::Reference;
///
/// assert!(Reference::new("stripe", "ch_3MmlLrLkdIwHu7ix0snN0B15").is_some());
/// assert!(Reference::new("stripe", "").is_none());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    provider: String,
    id: String,
}

impl Reference {
    /// The `id` of this provider; `None` if one of them is empty, or longer than 255 bytes, or if the provider's name has a `#`.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> Option<Self> {
        let (provider, id) = (provider.into(), id.into());
        let fits = |text: &str| (1..=MAX_BYTES).contains(&text.len());
        (fits(&provider) && fits(&id) && !provider.contains('#')).then_some(Self { provider, id })
    }

    /// The provider's name.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The provider's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The partition key of its item. No record has one that begins with `#`, because no tenant is empty.
    pub fn partition_key(&self) -> String {
        format!("#{}#{}", self.provider, self.id)
    }
}

impl fmt::Debug for Reference {
    /// Without the id: whoever knows it can look up what it names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({})", self.provider)
    }
}
