//! Finds out what became of operations whose outcome is unknown, and settles them.
//!
//! Three sources, in this order of authority: the provider's word ([`told`](Reconciliation::told), by webhook), the
//! provider's answer to a question ([`ask`](Reconciliation::ask), when `reconcile_at` is due), and, after a bounded number of
//! questions, a person. Whoever comes first writes by compare-and-set; who comes second sees it settled.
//!
//! ```
//! use lambda_idempotency::reconcile::{Answer, AskError, Finding, Question, Reconciler};
//!
//! struct Payments;
//!
//! impl Reconciler for Payments {
//!     async fn ask(&self, question: &Question) -> Result<Finding, AskError> {
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
mod engine;
mod message;
mod outcome;

use std::{error::Error, fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;

use crate::{
    key::{RecordKey, Tenant},
    record::Record,
};

pub use back_off::BackOff;
pub use engine::{DEFAULT_NOT_FOUND_GRACE, Reconciliation};
pub use message::Message;
pub use outcome::{ReconcileError, Reconciled};

/// What went wrong with a question. It is asked again.
pub type AskError = Box<dyn Error + Send + Sync>;

/// Knows where to ask what became of an operation. One for each operation.
pub trait Reconciler: Send + Sync {
    /// Asks about one operation. Must change nothing that a second question would change again: it is asked any number of
    /// times, and at once by several.
    ///
    /// # Errors
    /// Where the one who is asked does not answer. The question is put off, as by [`Finding::AskAgain`].
    fn ask(&self, question: &Question) -> impl Future<Output = Result<Finding, AskError>> + Send;
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
pub enum Finding {
    /// It was executed, and this is what its client is to get.
    Executed(Answer),
    /// It was not executed, and will not be: the next retry runs it.
    NotExecuted,
    /// Nothing is known of it there. Counts as not executed once a request that was still on its way must have arrived: see
    /// [`Reconciliation::not_found_grace`].
    NotFound,
    /// It is not decided yet: ask again after this time, or after the back-off.
    AskAgain(Option<Duration>),
}

/// The answer that a reconciled operation gives.
#[derive(Clone)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers to replay.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// A JSON document.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { status, headers, body: body.into() }
    }
}

impl fmt::Debug for Answer {
    /// Without headers and body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

type Asking<'a> = Pin<Box<dyn Future<Output = Result<Finding, AskError>> + Send + 'a>>;

/// A [`Reconciler`] behind a pointer.
trait Ask: Send + Sync {
    fn ask_boxed<'a>(&'a self, question: &'a Question) -> Asking<'a>;
}

impl<R: Reconciler> Ask for R {
    fn ask_boxed<'a>(&'a self, question: &'a Question) -> Asking<'a> {
        Box::pin(self.ask(question))
    }
}
