//! Every route, and whether it is guarded.

use std::sync::Arc;

use axum::{
    Router,
    http::Method,
    routing::{MethodRouter, get, post},
};
use lambda_idempotency::{
    bounds::Bounds, http::Idempotency, operation::Operation, queue::Queue, store::Store,
};

use crate::{
    create,
    policy::{self, CREATE_PAYMENT, Services, TENANT, TRANSFER},
    read, transfer,
};

/// A route of the router.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, as axum writes it.
    pub path: &'static str,
    /// The operation that guards it; `None` for a route without a guard.
    pub operation: Option<&'static str>,
    /// What serves it.
    pub handler: MethodRouter,
}

/// All routes: the router has no others. Deferred reports go to `deferred_reports`; each tenant has its `bounds`.
pub fn routes(
    store: impl Store + Clone,
    services: Services,
    payment: Operation,
    deferred_reports: impl Queue,
    bounds: Bounds,
) -> Vec<Route> {
    let guarded = |operation| {
        let guard = Idempotency::new(store.clone(), operation).profile(policy::profile()).tenant(TENANT);
        guard.bounds(bounds.clone())
    };
    let guard = guarded(payment).defer_reports_to(deferred_reports);
    let transfers = guarded(policy::transfer()).single_transaction();
    let transfers = post(transfer::transfer).route_layer(transfers);
    #[cfg(feature = "test-cards")]
    let transfers = transfers.layer(axum::middleware::map_response(crate::test_cards::after_commit));
    let records: (Arc<dyn Store>, _) = (Arc::new(store), services.look_ups.clone());
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
            handler: get(read::payment).with_state(services.clone()),
        },
        Route {
            method: Method::POST,
            path: "/transfers",
            operation: Some(TRANSFER),
            handler: transfers.with_state(services.clone()),
        },
        Route {
            method: Method::GET,
            path: "/accounts",
            operation: None,
            handler: get(read::accounts).with_state(services),
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
    services: Services,
    payment: Operation,
    deferred_reports: impl Queue,
    bounds: Bounds,
) -> Router {
    let routes = routes(store, services, payment, deferred_reports, bounds);
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}
