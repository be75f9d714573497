//! A table of accounts, in addition to the table of records.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{
    domain::{DomainWrite, Table},
    engine::{Executor, Ownership, Request},
    queue::MemoryQueue,
    record::Answer,
};
use serde_json::json;

use super::{
    guarded::{Guarded, operation, owned},
    tables,
};

pub const TRANSACTION: &str = "TransactWriteItems";

pub struct Bank {
    pub guarded: Guarded,
    pub accounts: Table,
    pub queue: MemoryQueue,
}

impl Bank {
    /// With one account, `a`, that has 100 cents.
    pub async fn on(endpoint: &str) -> Self {
        let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
        let accounts = tables::domain_table(&guarded.undisturbed).await;
        let bank = Self { guarded, accounts, queue: MemoryQueue::new() };
        bank.set("a", 100).await;
        bank
    }

    pub fn executor(&self) -> Executor {
        self.guarded.executor()
    }

    /// With a queue, and no completion timeout: one try of each write.
    pub fn deferring(&self) -> Executor {
        self.guarded
            .executor_of(operation().completion_timeout(Duration::ZERO))
            .defer_reports_to(self.queue.clone())
    }

    pub async fn begin(&self, request: &Request) -> Ownership {
        owned(self.executor().reserve(request).await)
    }

    pub async fn set(&self, id: &str, cents: u64) {
        let put = self.guarded.undisturbed.put_item().table_name(self.accounts.name());
        let put =
            put.item("id", AttributeValue::S(id.into())).item("cents", AttributeValue::N(cents.to_string()));
        put.send().await.expect("the table answers");
    }

    pub async fn cents(&self, id: &str) -> Option<u64> {
        let get = self.guarded.undisturbed.get_item().table_name(self.accounts.name()).consistent_read(true);
        let item =
            get.key("id", AttributeValue::S(id.into())).send().await.expect("the table answers").item?;
        Some(item["cents"].as_n().expect("a number").parse().expect("whole cents"))
    }

    /// Takes this much from account `a`, if the balance covers it.
    pub fn take(&self, cents: u64) -> DomainWrite {
        self.accounts
            .update(json!({ "id": "a" }), "SET cents = cents - :cents")
            .condition("cents >= :cents")
            .value(":cents", cents)
    }

    pub fn book(&self, id: &str) -> DomainWrite {
        self.accounts.put(json!({ "id": id, "cents": 1 }))
    }
}

/// The refusal of a withdrawal.
pub fn too_little() -> Answer {
    Answer::json(409, r#"{"title":"Not enough money"}"#)
}
