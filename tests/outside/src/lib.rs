//! What the tests of this package share.

use lambda_idempotency::{Guard, MemoryStore, Operation, key::Tenant};

/// A guard of `operation`, on a store of its own.
pub fn guard(operation: Operation) -> Guard {
    Guard::new(MemoryStore::new(), operation, Tenant::parse("shop").expect("a tenant"))
}
