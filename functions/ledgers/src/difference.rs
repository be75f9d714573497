//! What differs, and how much of it.

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
    /// That of whoever acts for us.
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
    /// Both have it, and do not say the same.
    Differs {
        /// Its id.
        id: &'a str,
        /// What we say.
        ours: &'a V,
        /// What they say.
        theirs: &'a V,
    },
    /// One side has it once more; compared is what it said first.
    Duplicate {
        /// Its id.
        id: &'a str,
        /// Whose ledger has it.
        side: Side,
        /// What it says this time.
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

/// How much there is of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Entries of our ledger.
    pub ours: u64,
    /// Entries of theirs.
    pub theirs: u64,
    /// Ids of which both say the same.
    pub equal: u64,
    /// Ids that only we have.
    pub only_ours: u64,
    /// Ids that only they have.
    pub only_theirs: u64,
    /// Ids of which both say something else.
    pub differs: u64,
    /// Further entries of ids that a side had already.
    pub duplicates: u64,
}

impl Summary {
    /// Whether both ledgers say the same.
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
