//! Every route, and whether it is guarded.

use axum::{
    Router,
    http::Method,
    routing::{get, post},
};
use lambda_idempotency::{
    bounds::Bounds, http::Idempotency, operation::Operation, queue::Queue, store::Store,
};
use payments::policy::profile;
pub use payments::routes::Route;

use crate::{
    create,
    policy::{CREATE_ORDER, Services, TENANT},
    read,
};

/// All routes: the router has no others. Deferred reports go to `deferred_reports`; each tenant has its `bounds`.
pub fn routes(
    store: impl Store,
    services: Services,
    order: Operation,
    deferred_reports: impl Queue,
    bounds: Bounds,
) -> Vec<Route> {
    let guard = Idempotency::new(store, order).profile(profile()).defer_reports_to(deferred_reports);
    let guard = guard.tenant(TENANT).bounds(bounds);
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
    bounds: Bounds,
) -> Router {
    let routes = routes(store, services, order, deferred_reports, bounds);
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}
