//! What callers were told, what was counted and what operators got.

use super::ids::{KEYS, ProcessId};

/// What was told and counted.
#[derive(Debug, Default, Hash)]
pub struct Ledger {
    /// Whether a client was told that nothing comes of its key, when nothing had: it makes a new one.
    pub has_new_key: bool,
    /// How many handlers have begun.
    pub begun: u32,
    /// How often work ended with 408: by writes whose caller knows that, and by others.
    pub ended: u32,
    pub perhaps_ended: u32,
    /// How often that was counted.
    pub counted: u32,
    /// The process whose execution has the record of each key, and whether its handler has begun.
    pub owners: [Option<(ProcessId, bool)>; KEYS.len()],
}
