//! The dashboard shows metrics that exist.

use std::collections::BTreeSet;

use lambda_idempotency::telemetry;
use serde_json::{Value, json};

use super::{list, resource};

// A metric that nothing emits would be an empty chart.
#[test]
fn the_dashboard_shows_metrics_that_are_emitted() {
    let body = resource("AWS::CloudWatch::Dashboard", "OutboxDashboard")["DashboardBody"]["Fn::Sub"].clone();
    let body: Value = serde_json::from_str(body.as_str().expect("text")).expect("JSON");
    let charts = list(&body["widgets"]).into_iter().map(|widget| &widget["properties"]);
    let metrics = charts.flat_map(|chart| {
        assert_eq!(chart["region"], "${AWS::Region}");
        list(&chart["metrics"]).into_iter().map(|metric| metric.as_array().expect("a metric").clone())
    });
    let shown = metrics.map(|metric| match &metric[..] {
        [namespace, name] | [namespace, name, Value::Object(_)] => {
            assert_eq!(namespace, "${MetricsNamespace}");
            name.clone()
        }
        [namespace, name, dimension, queue] => {
            assert_eq!((namespace, dimension), (&json!("AWS/SQS"), &json!("QueueName")));
            json!(format!("{} {}", name.as_str().expect("a name"), queue.as_str().expect("a queue")))
        }
        other => panic!("{other:?}"),
    });
    let shown: BTreeSet<_> = shown.map(|name| name.as_str().expect("a name").to_owned()).collect();
    let expected = [
        telemetry::OUTBOX_DELIVERED,
        telemetry::OUTBOX_NOT_DELIVERED,
        telemetry::DELIVERY_AGE,
        telemetry::RESERVE_ACCEPTED,
        "ApproximateAgeOfOldestMessage ${OutboxQueue.QueueName}",
        "ApproximateAgeOfOldestMessage ${WorkQueue.QueueName}",
    ];
    assert_eq!(shown, expected.map(str::to_owned).into());
}
