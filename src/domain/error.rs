//! Why a domain write is refused before anything is sent.

use super::size::MAX_WRITES;

/// Why a domain write is refused before anything is sent. A mistake in the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DomainWriteError {
    /// The item, key or a value cannot be an attribute of DynamoDB.
    #[error("table {table}: the item, its key or a value is not one of DynamoDB's: {reason}")]
    Shape {
        /// The table.
        table: String,
        /// The message of serde_dynamo.
        reason: String,
    },
    /// A key attribute is missing, empty, or not a string, number or binary; or a key has other attributes too.
    #[error(
        "table {table}: {attribute:?} must be a string, number or binary that is not empty, and keys have no other attributes"
    )]
    Key {
        /// The table.
        table: String,
        /// The attribute.
        attribute: String,
    },
    /// The table holds the records of operations.
    #[error("table {0} holds idempotency records: domain items need a table of their own")]
    TableOfRecords(String),
    /// A second write to the same item. DynamoDB allows one action for each item of a transaction. Numbers in keys are compared as
    /// numbers.
    #[error("table {0}: two writes to one item")]
    SameItem(String),
    /// A [check](super::Table::check) without a condition.
    #[error("table {0}: a check needs a condition")]
    NoCondition(String),
    /// The item has more than 400 KB, or the expressions of the write more than 4 KB.
    #[error("table {0}: the item, or an expression, is too large")]
    TooLarge(String),
    /// A placeholder that is used but not given, given but not used, or given twice.
    #[error("table {table}: the placeholder {placeholder:?} must be given once, and used")]
    Placeholder {
        /// The table.
        table: String,
        /// The placeholder.
        placeholder: String,
    },
    /// An expression is empty.
    #[error("table {0}: an expression is empty")]
    EmptyExpression(String),
    /// The answer of [`or_answer`](super::DomainWrite::or_answer) has no status that a response can have.
    #[error("table {0}: the answer for a refused write needs a status from 200 to 599")]
    Answer(String),
    /// The callers of the operation cannot read the answer of [`or_answer`](super::DomainWrite::or_answer).
    #[error(
        "table {0}: the operation's callers cannot read the answer for a refused write: over HTTP it is an Answer::json or Answer::http, of a function an Answer::refusal"
    )]
    AnswerKind(String),
    /// A message that cannot be published.
    #[error("topic {topic}: the message cannot be published: {reason}")]
    Message {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
    /// The handler has answered: a write that it adds now would not commit.
    #[error("the handler has answered: nothing can be added to its transaction")]
    Ended,
    /// More than [`DomainWrite::MAX`](super::DomainWrite::MAX) writes, or more than 4 MB.
    #[error("an operation has at most {MAX_WRITES} writes, and 4 MB")]
    TooMany,
}
