//! A guard without a tenant, which must not compile. Without `--cfg without_tenant` there is nothing here.

#![allow(unexpected_cfgs)]

#[cfg(without_tenant)]
fn main() {
    use axum::{Router, routing::post};
    use lambda_idempotency::{http::Idempotency, operation::Operation, store::memory::MemoryStore};

    let guard = Idempotency::new(MemoryStore::new(), Operation::new("pay"));
    let _: Router = Router::new().route("/payments", post(async || "paid").route_layer(guard));
}

#[cfg(not(without_tenant))]
fn main() {}
