//! What a record knows of work that was accepted, to be executed later by a worker. `work` has its transitions.
//!
//! 1. One transaction accepts: the record is pending, and the request lies beside it, under an id of its own.
//! 2. A worker claims it by a swap: pending → in progress. From then on it is an execution as any other. No client's request takes
//!    it over: a client waits.
//! 3. Where another operation is released, so that its client may retry, this one is pending again: no client would retry.
//! 4. It ends with the answer 408, which says that nothing was done, only if each of its executions certainly did nothing: pending beyond
//!    [`claim_by`](Accepted::claim_by), or after [`max_attempts`](Accepted::max_attempts) executions. Otherwise it is escalated.
//! 5. A claim that was taken back is no execution.

use super::{BodyId, Revision, SettledBy};
use crate::time::Timestamp;

/// What was accepted, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The body item with the request. Each acceptance has another one, so that deleting it late never deletes the next one's.
    pub request: BodyId,
    /// Until when a worker may claim it.
    pub claim_by: Timestamp,
    /// How many executions there are at most, unless they resume behind what is kept.
    pub max_attempts: u32,
    /// How many executions there were since then.
    pub tries: u32,
    /// How many executions perhaps did something, those before it was accepted included.
    pub perhaps: u32,
}

/// When an operation is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// By the request itself.
    #[default]
    Now,
    /// Later: the request is accepted.
    Later {
        /// Until when a worker may claim it.
        claim_by: Timestamp,
        /// How many executions there are at most.
        max_attempts: u32,
    },
    /// Now, by the worker that claims what was accepted with this request.
    Claimed(BodyId),
}

impl Accepted {
    /// Accepted by the write of this revision.
    pub(super) fn by(revision: Revision, claim_by: Timestamp, max_attempts: u32) -> Self {
        Self { request: BodyId::from(*revision.as_bytes()), claim_by, max_attempts, tries: 0, perhaps: 0 }
    }

    /// One more execution begins, which may do something.
    pub(super) const fn claimed(self) -> Self {
        Self { tries: self.tries.saturating_add(1), perhaps: self.perhaps.saturating_add(1), ..self }
    }

    /// That execution did not begin after all.
    pub(super) const fn taken_back(self) -> Self {
        Self { tries: self.tries.saturating_sub(1), perhaps: self.perhaps.saturating_sub(1), ..self }
    }

    /// One more execution is known to have done nothing. The provider and an operator speak of all of them, because they have one
    /// downstream key. An assumption is not certain.
    pub(super) const fn without(self, by: SettledBy) -> Self {
        let perhaps = match by {
            SettledBy::Provider | SettledBy::Operator => 0,
            SettledBy::Worker | SettledBy::Certainty | SettledBy::NotBegun => self.perhaps.saturating_sub(1),
            SettledBy::Assumption => self.perhaps,
        };
        Self { perhaps, ..self }
    }
}
