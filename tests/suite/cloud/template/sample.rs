//! The sample's routes and secrets.

use std::collections::BTreeSet;

use serde_json::json;

use super::{FUNCTION, members, resource, resources};
use crate::support::{embedded, orders::OrdersApi, payments_api::PaymentsApi};

/// The functions that have this variable, with its value.
fn with_variable(variable: &str) -> Vec<(String, serde_json::Value)> {
    let functions = resources(FUNCTION).into_iter();
    let found = functions
        .map(|function| (function.name, function.properties["Environment"]["Variables"][variable].clone()));
    found.filter(|(_, value)| !value.is_null()).collect()
}

#[test]
fn secrets_go_to_the_functions_that_need_them_alone() {
    let names = |variable| with_variable(variable).into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>();
    assert_eq!(
        names("SEALING_KEYS"),
        ["CompareFunction", "OrderQueueFunction", "OrdersFunction", "PaymentsFunction", "WebhookFunction"]
            .map(str::to_owned)
            .into()
    );
    assert_eq!(names("WEBHOOK_SECRETS"), ["WebhookFunction".to_owned()].into());
}

#[test]
fn every_function_seals_and_opens_with_the_same_secret() {
    let secret = "{{resolve:secretsmanager:${SealingSecret}:SecretString:::${SealingSecretVersion}}}";
    for (function, value) in with_variable("SEALING_KEYS") {
        assert_eq!(value, json!({ "Fn::Sub": secret }), "{function}");
    }
}

// T45: a route that the gateway lacks cannot be called.
#[tokio::test]
async fn the_template_routes_what_the_functions_serve() {
    let payments = PaymentsApi::on(embedded::endpoint(), "http://127.0.0.1:1").await.routes();
    let orders = OrdersApi::on(embedded::endpoint()).await.routes();
    for (function, routes) in [("PaymentsFunction", payments), ("OrdersFunction", orders)] {
        // The gateway's `{key+}` is the router's `{*key}`.
        let served = routes
            .into_iter()
            .map(|route| format!("{} {}", route.method, route.path.replace("{*key}", "{key+}")));
        let events = resource(FUNCTION, function)["Events"].clone();
        let routed = members(&events).map(|(_, event)| {
            let text = |name| event["Properties"][name].as_str().expect("text");
            format!("{} {}", text("Method"), text("Path"))
        });
        assert_eq!(routed.collect::<BTreeSet<_>>(), served.collect::<BTreeSet<_>>());
    }
}

// T50: during a provider's incident, a charge that is not found may exist.
#[test]
fn releases_by_not_found_can_be_stopped_by_a_parameter() {
    assert_eq!(
        with_variable("NOT_FOUND_RELEASES"),
        [("ReconcileFunction".to_owned(), json!({ "Ref": "NotFoundReleases" }))]
    );
    let parameter = &super::template(super::SAMPLE)["Parameters"]["NotFoundReleases"];
    assert_eq!(parameter["AllowedValues"], json!(["on", "off"]));
    assert_eq!(parameter["Default"], "on");
}
