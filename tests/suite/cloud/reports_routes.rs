//! The reports function: its route is guarded.

use crate::support::{embedded, payments_api::assert_guarded, reports::reports_api};

#[tokio::test]
async fn every_route_that_changes_something_is_guarded_and_refuses_a_keyless_request() {
    let (app, routes) = reports_api(embedded::endpoint()).await;
    assert_guarded(&app, &routes, r#"{"seconds":1}"#).await;
}
