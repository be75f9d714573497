//! The differences between two ledgers, and their counts.

use std::{
    fmt,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};

/// Whose ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Ours.
    Ours,
    /// That of the party that acts for us.
    Theirs,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "our ledger",
            Self::Theirs => "their ledger",
        })
    }
}

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum Difference<'a, V> {
    /// Only we have it.
    OnlyOurs {
        /// Its id.
        id: &'a str,
        /// What we say.
        ours: &'a V,
    },
    /// Only they have it.
    OnlyTheirs {
        /// Its id.
        id: &'a str,
        /// What they say.
        theirs: &'a V,
    },
    /// Both have it, with different values.
    Differs {
        /// Its id.
        id: &'a str,
        /// What we say.
        ours: &'a V,
        /// What they say.
        theirs: &'a V,
    },
    /// One side has it more than once; the first entry is the one that is compared.
    Duplicate {
        /// Its id.
        id: &'a str,
        /// Whose ledger has it.
        side: Side,
        /// The value of this further entry.
        value: &'a V,
    },
}

impl<V> Difference<'_, V> {
    /// The id of what differs.
    pub fn id(&self) -> &str {
        match self {
            Self::OnlyOurs { id, .. }
            | Self::OnlyTheirs { id, .. }
            | Self::Differs { id, .. }
            | Self::Duplicate { id, .. } => id,
        }
    }
}

impl<V: Serialize> Difference<'_, V> {
    /// Writes it as one line of JSON.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write_line(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// The counts of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Entries of our ledger.
    pub ours: u64,
    /// Entries of theirs.
    pub theirs: u64,
    /// Ids on which both agree.
    pub equal: u64,
    /// Ids that only we have.
    pub only_ours: u64,
    /// Ids that only they have.
    pub only_theirs: u64,
    /// Ids that both have, with different values.
    pub differs: u64,
    /// Repeated entries of an id within one side.
    pub duplicates: u64,
}

impl Summary {
    /// Whether both ledgers agree.
    pub const fn agrees(&self) -> bool {
        self.only_ours == 0 && self.only_theirs == 0 && self.differs == 0 && self.duplicates == 0
    }

    pub(crate) const fn add<V>(&mut self, difference: &Difference<'_, V>) {
        let count = match difference {
            Difference::OnlyOurs { .. } => &mut self.only_ours,
            Difference::OnlyTheirs { .. } => &mut self.only_theirs,
            Difference::Differs { .. } => &mut self.differs,
            Difference::Duplicate { .. } => &mut self.duplicates,
        };
        *count += 1;
    }
}
