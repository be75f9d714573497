//! Writes to tables of yours, in the transaction that completes an operation.
//!
//! 1. A [`Table`] names the table and its key attributes, and makes [`DomainWrite`]s: put, update, delete, check.
//! 2. Conditions and updates are DynamoDB's own expressions, with placeholders for names (`#n`) and values (`:v`).
//! 3. All writes of an operation commit with its record's completion, or none does.
//! 4. A write says what its failed condition means: a refusal with an answer, or a stale read. Without a word it is neither: the
//!    operation fails, and nothing of it is written.
//! 5. What DynamoDB would refuse is refused before anything is sent, as far as it can be known: see [`DomainWriteError`].
//!
//! It does not read: read with a client of your own, strongly consistent, and guard what you have read with a condition.
//!
//! ```
//! use lambda_idempotency::{Answer, domain::Table};
//! use serde_json::json;
//!
//! let accounts = Table::new("accounts", "id");
//! let withdraw = accounts
//!     .update(json!({ "id": "a-1" }), "SET balanceCents = balanceCents - :cents")
//!     .condition("balanceCents >= :cents")
//!     .value(":cents", 500)
//!     .or_answer(Answer::json(409, r#"{"title":"Not enough money"}"#));
//! let book = Table::new("transfers", "id").put(json!({ "id": "t-1", "cents": 500 })).if_absent();
//! ```

mod answer;
mod error;
mod size;
mod write;
mod writes;

use std::sync::Arc;

use serde::Serialize;

pub use error::DomainWriteError;
pub use write::DomainWrite;
pub(crate) use write::{Action, IfRefused};
pub(crate) use writes::Writes;

/// A table of yours: its name, and the names of its key attributes.
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

    /// Puts `item`, whatever is there, unless the write gets a [condition](DomainWrite::condition).
    pub fn put(&self, item: impl Serialize) -> DomainWrite {
        DomainWrite::of(self, &item, Action::Put)
    }

    /// Updates the item with this key by an
    /// [update expression](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html);
    /// creates it if there is none, unless the write gets a [condition](DomainWrite::condition).
    pub fn update(&self, key: impl Serialize, expression: impl Into<String>) -> DomainWrite {
        DomainWrite::of(self, &key, Action::Update(expression.into()))
    }

    /// Deletes the item with this key, if there is one.
    pub fn delete(&self, key: impl Serialize) -> DomainWrite {
        DomainWrite::of(self, &key, Action::Delete)
    }

    /// Writes nothing: the transaction commits only if the item with this key meets the [condition](DomainWrite::condition),
    /// which is needed.
    pub fn check(&self, key: impl Serialize) -> DomainWrite {
        DomainWrite::of(self, &key, Action::Check)
    }

    /// The names of the key attributes.
    pub(crate) fn key_names(&self) -> impl Iterator<Item = &str> {
        [Some(&self.partition_key), self.sort_key.as_ref()].into_iter().flatten().map(|name| &**name)
    }
}
