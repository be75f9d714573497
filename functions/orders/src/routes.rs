//! Every route, and whether it is guarded.

use axum::{
    Router,
    http::Method,
    routing::{get, post},
};
use lambda_idempotency::{http::Idempotency, operation::Operation, queue::Queue, store::Store};
use payments::policy::profile;
pub use payments::routes::Route;

use crate::{
    create,
    policy::{CREATE_ORDER, Services, TENANT},
    read,
};

/// All routes: the router has no others. Deferred reports go to `deferred_reports`.
pub fn routes(
    store: impl Store,
    services: Services,
    order: Operation,
    deferred_reports: impl Queue,
) -> Vec<Route> {
    let guard = Idempotency::new(store, order).profile(profile()).defer_reports_to(deferred_reports);
    let guard = guard.tenant(TENANT);
    let route = |method, path, operation, handler| Route { method, path, operation, handler };
    let create = post(create::create).route_layer(guard).with_state(services.clone());
    vec![
        route(Method::POST, "/orders", Some(CREATE_ORDER), create),
        route(Method::GET, "/orders/{id}", None, get(read::order).with_state(services.clone())),
        route(Method::GET, "/stock/{sku}", None, get(read::stock).with_state(services)),
    ]
}

/// The API.
pub fn router(
    store: impl Store,
    services: Services,
    order: Operation,
    deferred_reports: impl Queue,
) -> Router {
    let routes = routes(store, services, order, deferred_reports);
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}
