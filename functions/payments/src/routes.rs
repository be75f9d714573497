//! Every route, and whether it is guarded (R5).

use std::sync::Arc;

use axum::{
    Router,
    http::Method,
    routing::{MethodRouter, get, post},
};
use lambda_idempotency::{http::Idempotency, operation::Operation, queue::Queue, store::Store};

use crate::{
    Ledger, Provider, SealingKeys, create,
    policy::{CREATE_PAYMENT, Services, TENANT},
    read,
};

/// A route as the router has it.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, as axum writes it.
    pub path: &'static str,
    /// The operation that guards it; `None` for a route without a guard.
    pub operation: Option<&'static str>,
    handler: MethodRouter,
}

/// All routes. The router is made of this list and nothing else, so that the list is the truth. Payments whose end cannot be
/// written go to `lost_endings`.
pub fn routes(
    store: impl Store + Clone,
    ledger: Ledger,
    provider: Provider,
    sealing_keys: SealingKeys,
    payment: Operation,
    lost_endings: impl Queue,
) -> Vec<Route> {
    let services = Services { ledger, provider, sealing_keys };
    let guard = Idempotency::new(store.clone(), payment).lost_endings_to(lost_endings).tenant(TENANT);
    let records: Arc<dyn Store> = Arc::new(store);
    vec![
        Route {
            method: Method::POST,
            path: "/payments",
            operation: Some(CREATE_PAYMENT),
            handler: post(create::create).route_layer(guard).with_state(services.clone()),
        },
        Route {
            method: Method::GET,
            path: "/payments",
            operation: None,
            handler: get(read::payments).with_state(services.clone()),
        },
        Route {
            method: Method::GET,
            path: "/payments/{id}",
            operation: None,
            handler: get(read::payment).with_state(services),
        },
        Route {
            method: Method::GET,
            path: read::OPERATIONS,
            operation: None,
            handler: get(read::operation).with_state(records.clone()),
        },
        Route {
            method: Method::GET,
            // A key may hold a slash, and an HTTP API decodes it.
            path: "/operations/{*key}",
            operation: None,
            handler: get(read::operation).with_state(records),
        },
    ]
}

/// The API.
pub fn router(
    store: impl Store + Clone,
    ledger: Ledger,
    provider: Provider,
    sealing_keys: SealingKeys,
    payment: Operation,
    lost_endings: impl Queue,
) -> Router {
    let routes = routes(store, ledger, provider, sealing_keys, payment, lost_endings);
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}
