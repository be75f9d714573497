//! Finds out what became of operations whose outcome is unknown, and settles them.
//!
//! 1. Three sources, in this order of authority: the provider's word ([`told`](Reconciliation::told), by webhook), the
//!    provider's answer to a question ([`poll`](Reconciliation::poll), when `reconcile_at` is due), and, after a bounded
//!    number of questions, an operator.
//! 2. Whoever comes first writes by compare-and-set; who comes second sees it settled.
//! 3. What a provider tells by itself is held against the record whatever its state ([`Told`]): nothing of it is forgotten, and
//!    what the record contradicts is escalated.
//! 4. A record of which the provider has told an effect is ended by proof of that effect alone, or by a person.
//! 5. What nobody can settle is escalated: the record first, of which each poll tells until it is settled, then a dead letter.
//!
//! ```
//! use lambda_idempotency::{async_trait, reconcile::{Finding, Question, Reconciler}, record::Answer};
//!
//! struct Payments;
//!
//! #[async_trait]
//! impl Reconciler for Payments {
//!     async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
//!         let key = question.downstream_key("charge");
//!         // Ask your provider about `key`. Here it says:
//!         let charge = Some(format!("{{\"id\":\"{key}\"}}"));
//!         Ok(match charge {
//!             Some(body) => Finding::Executed(Answer::json(201, body)),
//!             None => Finding::NotFound,
//!         })
//!     }
//! }
//! ```

mod back_off;
mod learned;
mod listen;
mod message;
mod outcome;
mod poll;
mod reconciliation;
mod told;

use std::{error::Error, time::Duration};

use async_trait::async_trait;

use crate::{
    key::{RecordKey, Tenant},
    record::{Answer, Record},
    time_budget::{ASK_TIMEOUT, OFFLINE_PATIENCE, STORE_TIMEOUT},
};

pub(crate) use message::Message;
pub use outcome::ReconcileOutcome;
pub use poll::Polled;
pub use reconciliation::Reconciliation;
pub use told::Told;

/// How long the work of one message takes at most: a read, a claim, a question, its answer's body, and a write.
pub const LONGEST_QUESTION: Duration =
    ASK_TIMEOUT.saturating_add(OFFLINE_PATIENCE).saturating_add(STORE_TIMEOUT.saturating_mul(3));

/// Knows where to ask what became of an operation. One for each operation.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    /// Asks about one operation. Must change nothing that a second question would change again: it is asked any number of
    /// times, and at once by several.
    ///
    /// # Errors
    /// If the one who is asked does not answer. The question is put off, as by [`Finding::AskAgain`].
    async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>>;
}

/// A question about one operation.
#[derive(Clone, Debug)]
pub struct Question {
    record: Record,
}

impl Question {
    /// Whose operation it is.
    pub fn tenant(&self) -> &Tenant {
        self.record.key.tenant()
    }

    /// Whose, which operation, which key.
    pub fn record_key(&self) -> &RecordKey {
        &self.record.key
    }

    /// The key that the handler handed on to the downstream service that `phase` calls.
    pub fn downstream_key(&self, phase: &str) -> String {
        self.record.key.downstream_key(&self.record.fingerprint, phase)
    }

    /// The record as it stood when the question was asked.
    pub fn record(&self) -> &Record {
        &self.record
    }
}

/// What is known of an operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// It was executed, and this is what its client is to get.
    Executed(Answer),
    /// It was not executed, and will not be: the next retry runs it.
    NotExecuted,
    /// Nothing is known of it there. Counts as not executed once a request that was still on its way must have arrived
    /// ([`Reconciliation::not_found_grace`]), and as long as it would be remembered
    /// ([`Operation::not_found_within`](crate::operation::Operation::not_found_within)); later it is escalated.
    NotFound,
    /// It is not decided yet: ask again after this time, or after the back-off.
    AskAgain(Option<std::time::Duration>),
}
