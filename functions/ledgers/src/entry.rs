//! One line of a ledger.

use serde::{Deserialize, Serialize};

/// One line of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<V> {
    /// The id that both sides use.
    pub id: String,
    /// What both sides should agree on. Keep it small, because a part of a day is held in memory.
    pub value: V,
}
