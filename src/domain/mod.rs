//! Writes to your own tables, and messages, in the transaction that completes an operation.
//!
//! 1. A [`Table`] names the table and its key attributes, and makes [`DomainWrite`]s: put, update, delete, check.
//! 2. Conditions and updates are DynamoDB's own expressions, with placeholders for names (`#n`) and values (`:v`).
//! 3. All writes of an operation commit with its record's completion, or none does.
//! 4. A write can say what its failed condition means: a refusal with an answer, or a stale read. If it does not, the operation
//!    fails, and nothing of it is written.
//! 5. A message commits in the same way: a [`Topic`] makes it, and [`outbox`](crate::outbox) delivers it.
//! 6. Most writes that DynamoDB would refuse are refused before anything is sent: see [`DomainWriteError`].
//!
//! It does not read. Read with your own client, strongly consistent, and put what you have read into a condition.
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
mod table;
mod topic;
mod write;
mod writes;

pub use error::DomainWriteError;
pub use table::Table;
pub use topic::Topic;
pub use write::DomainWrite;
pub(crate) use write::{Action, IfRefused};
pub(crate) use writes::Writes;
