//! The sample's routes, topics and switches.

use std::collections::BTreeSet;

use lambda_idempotency::outbox::{Destination, Topics};
use serde_json::json;

use super::{FUNCTION, NESTED, SAMPLE, list, members, referred, resource, template};
use crate::support::{embedded, orders::OrdersApi, payments_api::PaymentsApi, reports::reports_api};

// T45: a route that the gateway lacks cannot be called.
#[tokio::test]
async fn the_template_routes_what_the_functions_serve() {
    let payments = PaymentsApi::on(embedded::endpoint(), "http://127.0.0.1:1").await.routes();
    let orders = OrdersApi::on(embedded::endpoint()).await.routes();
    let (_, reports) = reports_api(embedded::endpoint()).await;
    for (function, routes) in
        [("PaymentsFunction", payments), ("OrdersFunction", orders), ("ReportsFunction", reports)]
    {
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

// T60
#[test]
fn every_route_of_the_sample_is_throttled() {
    let api = resource("AWS::Serverless::HttpApi", "HttpApi");
    let limits = |settings: &serde_json::Value| {
        ["ThrottlingRateLimit", "ThrottlingBurstLimit"]
            .map(|name| settings[name].as_f64().unwrap_or_default())
    };
    // Settings of a route replace these.
    assert!(limits(&api["DefaultRouteSettings"]).iter().all(|limit| *limit >= 1.0));
    for (route, settings) in members(&api["RouteSettings"]) {
        assert!(limits(settings).iter().all(|limit| *limit >= 1.0), "{route}");
    }
}

#[test]
fn the_outbox_may_send_to_the_target_of_each_topic() {
    let written =
        &template(SAMPLE)["Resources"][NESTED]["Properties"]["Parameters"]["OutboxTopics"]["Fn::Sub"];
    let written = written.as_str().expect("the list").replace("${ShopBus}", "ShopBus");
    let topics = Topics::parse(&written).expect("it is a list");
    assert!(topics.topic("order.placed").is_ok());

    // The outbox may send to each target, and to nothing else.
    let targets = topics.destinations().flat_map(|(topic, destination)| match destination {
        Destination::EventBus(bus) => ["PutEvents", "DescribeEventBus"].map(|action| (action, bus.clone())),
        other => panic!("{topic}: {other:?}"),
    });
    let targets = targets.map(|(action, bus)| (format!("events:{action}"), bus));
    let policy = resource("AWS::IAM::Policy", "OutboxTargets");
    assert_eq!(referred(&policy["Roles"][0]), "OutboxRole");
    let allowed = list(&policy["PolicyDocument"]["Statement"]).into_iter().flat_map(|statement| {
        let actions = list(&statement["Action"]).into_iter();
        actions
            .map(|action| (action.as_str().expect("an action").to_owned(), referred(&statement["Resource"])))
    });
    assert_eq!(allowed.collect::<BTreeSet<_>>(), targets.collect());
}

// The tenant is in the event: whoever can put one can act for each tenant.
#[test]
fn only_the_outbox_may_put_events() {
    let policy = resource("AWS::Events::EventBusPolicy", "ShopBusPolicy");
    let statement = &policy["Statement"];
    assert_eq!((&statement["Effect"], &statement["Principal"]), (&json!("Deny"), &json!("*")));
    assert_eq!(statement["Action"], "events:PutEvents");
    assert_eq!(referred(&statement["Resource"]), "ShopBus");
    assert_eq!(referred(&statement["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]), "OutboxRole");
}
