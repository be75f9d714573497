//! The digest of a state: two executions with the same state go on in the same ways.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::universe::Universe;

impl Universe {
    /// The digest of everything.
    pub fn state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.clock, self.down_until.saturating_sub(self.clock)).hash(&mut hasher);
        (self.losses, self.sweeps, self.swept_at).hash(&mut hasher);
        for shelf in &self.shelves {
            shelf.digest(self.clock).hash(&mut hasher);
        }
        self.input.hash(&mut hasher);
        for process in &self.processes {
            // What a process was answered does not matter once it is over.
            let rest = (process.name, process.history, process.frozen, process.suspended, process.behind);
            let outage = process.outage_until.saturating_sub(self.clock);
            (!process.over).then_some((rest, outage, process.message)).hash(&mut hasher);
        }
        for message in &self.messages {
            (message.digest, message.visible_at, message.receives, message.taken).hash(&mut hasher);
        }
        for later in &self.later {
            let process = &self.processes[usize::from(later.process)];
            (later.digest, later.at, later.by, process.began, process.faults, process.ended_at)
                .hash(&mut hasher);
        }
        (&self.received, self.dead_letters, &self.ledger).hash(&mut hasher);
        hasher.finish()
    }
}
