//! Every route, and whether it is guarded.

use axum::{Router, http::Method, routing::post};
use lambda_idempotency::{
    Idempotency, JwtClaim, bounds::Bounds, domain::Table, operation::Operation, queue::Queue, store::Store,
};
use payments::policy::profile;
pub use payments::routes::Route;

use crate::{accept, policy::CREATE_REPORT, report};

/// All routes: the router has no others. `reports` is the table of reports; deferred reports of workers go to `deferred_reports`;
/// each tenant has its `bounds`.
pub fn routes(
    store: impl Store,
    operation: Operation,
    reports: Table,
    deferred_reports: impl Queue,
    bounds: Bounds,
) -> Vec<Route> {
    let table = reports.clone();
    let guard = Idempotency::new(store, operation)
        .profile(profile())
        .defer_reports_to(deferred_reports)
        .accept(move |transaction, _, body| accept::accept(table.clone(), transaction, body))
        .tenant(JwtClaim("sub"))
        .bounds(bounds);
    vec![Route {
        method: Method::POST,
        path: "/reports",
        operation: Some(CREATE_REPORT),
        handler: post(report::create).route_layer(guard).with_state(reports),
    }]
}

/// The API.
pub fn router(
    store: impl Store,
    operation: Operation,
    reports: Table,
    deferred_reports: impl Queue,
    bounds: Bounds,
) -> Router {
    let routes = routes(store, operation, reports, deferred_reports, bounds);
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}
