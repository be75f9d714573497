//! The dashboard shows every alarm and every metric, whatever the stack leaves out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use lambda_idempotency::telemetry;
use serde_json::{Value, json};

use super::{ALARM, IDEMPOTENCY, QUEUE, alarms::looks_at, list, members, resources, template, text};

/// What CloudWatch shows without charge: three dashboards with so many metrics each.
const FREE_METRICS: usize = 50;

/// Metrics of which the dashboard shows the alarm alone, because that comes at the first of them, or if they do not come.
const ALARM_SAYS_ALL: &[&str] = &[
    telemetry::RECONCILE_ASSUMED,
    telemetry::TABLE_SETTING_OFF,
    telemetry::COMPLETION_DENIED,
    telemetry::COMPLETION_UNWRITTEN,
    telemetry::CONTRADICTION_SENT,
    telemetry::CONTRADICTION_UNSENT,
    telemetry::DOUBLE_EXECUTION,
    telemetry::LOOK_UP_OVER_BOUND,
    telemetry::OUTBOX_BATCH,
    telemetry::PHASE_MISMATCH,
    telemetry::RECONCILE_POLL,
    telemetry::STREAM_BATCH,
    telemetry::STREAM_BEGAN,
    telemetry::SWEEP_COMPLETED,
    telemetry::TRANSACTION_UNCONFIRMED,
];

/// Metrics that are not shown, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (telemetry::ALARMED_COUNT, "the escalated records contain them"),
    (telemetry::LOOK_UP_EMPTY, "clients ask for what never arrived"),
    (telemetry::MESSAGE_HANDED_BACK, "they come again, and the queue is its consumer's"),
    (telemetry::MESSAGE_CUT, "the source is its consumer's"),
    (telemetry::MESSAGE_HELD, "the queue is its consumer's"),
    (telemetry::MESSAGE_NOT_BURIED, "the queue is its consumer's"),
    (telemetry::MESSAGE_NOT_HIDDEN, "they come again, and the queue is its consumer's"),
    (telemetry::RECONCILE_SCHEDULED, "what is asked again is still unknown"),
    (telemetry::RESERVE_OVER_BOUND, "bounds are the user's, and off by default"),
    (telemetry::RESERVE_STOPPED, "an operator has done it"),
    (telemetry::TTL_PRUNED, "it is settled"),
    (telemetry::WEBHOOK_AGAIN, "the webhook is the user's"),
    (telemetry::WEBHOOK_EARLY, "the webhook is the user's"),
    (telemetry::WEBHOOK_REFUSED, "the webhook is the user's"),
    (telemetry::WEBHOOK_UNREADABLE, "the webhook is the user's"),
    (telemetry::WEBHOOK_UNSIGNED, "the webhook is the user's"),
];

/// Parsed once, because each name in the dashboard's body is looked up.
static RESOURCES: LazyLock<Value> = LazyLock::new(|| template(IDEMPOTENCY)["Resources"].clone());

/// A stack, by its parameters.
#[derive(Clone, Copy, Debug)]
struct Stack {
    outbox: &'static str,
    alarms: &'static str,
    makes_table: bool,
}

impl Stack {
    fn all() -> Vec<Self> {
        let outboxes = ["on", "own", "off"].into_iter();
        let both = outboxes.flat_map(|outbox| ["all", "essential"].map(|alarms| (outbox, alarms)));
        both.flat_map(|(outbox, alarms)| {
            [true, false].map(|makes_table| Self { outbox, alarms, makes_table })
        })
        .collect()
    }

    /// `mod.rs` and `alarms.rs` test that the conditions say this.
    fn holds(self, condition: &Value) -> bool {
        let all = self.alarms == "all";
        match condition.as_str() {
            None => true,
            Some("HasAllAlarms") => all,
            Some("HasOutbox") => self.outbox != "off",
            Some("HasOutboxAlarms") => self.outbox != "off" && all,
            Some("HasOutboxFunction") => self.outbox == "on",
            Some("HasOutboxFunctionAlarms") => self.outbox == "on" && all,
            Some("MakesTable") => self.makes_table,
            Some(other) => panic!("{other}"),
        }
    }

    /// What this stack has by this name, such as `Queue.Arn` or `AWS::Region`: the name itself.
    fn named(self, name: &str) -> String {
        let resource = &RESOURCES[name.split('.').next().expect("a name")];
        assert!(self.holds(&resource["Condition"]), "{self:?} has no {name}");
        name.to_owned()
    }

    /// The value as text. `None` is `AWS::NoValue`.
    fn text(self, value: &Value) -> Option<String> {
        let Some((function, argument)) = members(value).next() else {
            return Some(value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned());
        };
        match (&**function, argument) {
            ("Ref", Value::String(name)) if name == "AWS::NoValue" => None,
            ("Ref" | "Fn::GetAtt", Value::String(name)) => Some(self.named(name)),
            ("Fn::If", chosen) => self.text(&chosen[if self.holds(&chosen[0]) { 1 } else { 2 }]),
            ("Fn::Join", Value::Array(join)) => {
                let texts = list(&join[1]).into_iter().filter_map(|value| self.text(value));
                Some(texts.collect::<Vec<_>>().join(join[0].as_str().expect("a separator")))
            }
            ("Fn::Sub", Value::String(text)) => Some(self.substituted(text, &Value::Null)),
            ("Fn::Sub", arguments) => {
                Some(self.substituted(arguments[0].as_str().expect("text"), &arguments[1]))
            }
            _ => panic!("{function}"),
        }
    }

    fn substituted(self, text: &str, own: &Value) -> String {
        let (mut done, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').expect("a name ends");
            done += before;
            done +=
                &own.get(name).map_or_else(|| self.named(name), |value| self.text(value).expect("a value"));
            rest = after;
        }
        done + rest
    }

    /// The dashboard's widgets in this stack.
    fn widgets(self) -> Vec<Value> {
        let body = &RESOURCES["IdempotencyDashboard"]["Properties"]["DashboardBody"];
        let body: Value = serde_json::from_str(&self.text(body).expect("a body")).expect("JSON");
        body["widgets"].as_array().expect("widgets").clone()
    }
}

/// A line of a chart: the metric with its dimensions, and its statistic.
fn lines(chart: &Value) -> Vec<(Vec<String>, String)> {
    assert_eq!((&chart["region"], &chart["period"]), (&json!("AWS::Region"), &json!(300)));
    let mut lines = Vec::new();
    for line in list(&chart["metrics"]) {
        let (names, options): (Vec<_>, Vec<_>) = list(line).into_iter().partition(|it| it.is_string());
        assert!(options.len() < 2, "{line}");
        let options = options.first().copied().cloned().unwrap_or_default();
        if names.is_empty() {
            assert!(options["expression"].is_string(), "{line}");
            continue;
        }
        let stat = if options["stat"].is_null() { &chart["stat"] } else { &options["stat"] };
        let names = names.into_iter().map(|name| name.as_str().expect("a name").to_owned());
        lines.push((names.collect(), stat.as_str().unwrap_or_else(|| panic!("{line}")).to_owned()));
    }
    lines
}

/// All lines of a stack's charts.
fn shown(stack: Stack) -> Vec<(Vec<String>, String)> {
    let charts = stack.widgets().into_iter().filter(|widget| widget["type"] == "metric");
    charts.flat_map(|chart| lines(&chart["properties"])).collect()
}

/// The names of all metrics that the library counts, as its source has them.
fn counted() -> BTreeSet<String> {
    let source = text("src/telemetry.rs");
    let texts = source.split('"').filter(|text| text.starts_with("api.idempotency."));
    let names: BTreeSet<_> = texts.map(str::to_owned).collect();
    assert!(names.len() > 50 && names.contains(telemetry::WORK_WAITING), "{names:?}");
    names
}

// An alarm that is not there is looked for elsewhere, in the middle of the night.
#[test]
fn the_dashboard_shows_every_alarm_that_its_stack_has() {
    for stack in Stack::all() {
        let mut alarms = stack.widgets().into_iter().filter(|widget| widget["type"] == "alarm");
        let widget = alarms.next().expect("the alarms").clone();
        assert!(alarms.next().is_none());
        let shown = list(&widget["properties"]["alarms"]).into_iter();
        let shown: Vec<_> = shown.map(|arn| arn.as_str().expect("an ARN").to_owned()).collect();
        // https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
        assert!((1..=100).contains(&shown.len()), "{}", shown.len());
        let of_stack = members(&RESOURCES)
            .filter(|(_, resource)| resource["Type"] == ALARM && stack.holds(&resource["Condition"]))
            .map(|(name, _)| format!("{name}.Arn"));
        assert_eq!(shown.iter().cloned().collect::<BTreeSet<_>>(), of_stack.collect(), "{stack:?}");
    }
}

// A new metric gets a chart, or a reason.
#[test]
fn the_dashboard_shows_every_metric_or_says_why_not() {
    let stack = Stack { outbox: "on", alarms: "all", makes_table: true };
    let (counted, lines) = (counted(), shown(stack).into_iter());
    let lines = lines.filter(|(names, _)| names[0] == "MetricsNamespace");
    let mut found = BTreeSet::new();
    for (names, stat) in lines {
        let [_, name] = &names[..] else { panic!("it has dimensions: {names:?}") };
        // A metric that nothing emits would be an empty chart.
        assert!(counted.contains(name), "{name}");
        let fits = match name.rsplit_once('.').expect("a name").1 {
            "count" => stat == "Sum",
            "latency" | "delivery_age" => ["p50", "p99"].contains(&&*stat),
            // They are samples.
            _ => stat == "Maximum",
        };
        assert!(fits, "{name}: {stat}");
        found.insert(name.clone());
    }
    let watched: BTreeSet<_> =
        resources(ALARM).iter().flat_map(|alarm| looks_at(&alarm.properties)).collect();
    for name in ALARM_SAYS_ALL {
        assert!(watched.contains(*name), "no alarm says anything about {name}");
    }
    let left_out = ALARM_SAYS_ALL.iter().chain(LEFT_OUT.iter().map(|(name, _)| name));
    for name in left_out {
        assert!(found.insert((*name).to_owned()), "{name} is shown, or left out twice");
    }
    assert_eq!(found, counted);
}

#[test]
fn the_dashboard_shows_queues_and_table_of_its_stack() {
    for stack in Stack::all() {
        let mut of_aws = BTreeMap::<_, BTreeSet<String>>::new();
        for (names, stat) in shown(stack) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            match names[..] {
                ["AWS/SQS", name, "QueueName", queue] => {
                    assert_eq!(stat, "Maximum", "{name}");
                    let queue = queue.strip_suffix(".QueueName").expect("a queue");
                    assert_eq!(RESOURCES[queue]["Type"], QUEUE, "{queue}");
                    of_aws.entry(name.to_owned()).or_default().insert(queue.to_owned());
                }
                ["AWS/DynamoDB", name, "TableName", table, ref index @ ..] => {
                    let expected = if stack.makes_table { "IdempotencyTable" } else { "ExistingTableName" };
                    assert_eq!((table, &*stat), (expected, "Sum"));
                    of_aws.entry(name.to_owned()).or_default().insert(index.join(" "));
                }
                _ => assert_eq!(names[0], "MetricsNamespace"),
            }
        }
        let units = BTreeSet::from([String::new(), "GlobalSecondaryIndexName reconcile".to_owned()]);
        assert_eq!(of_aws["ConsumedReadCapacityUnits"], units);
        assert_eq!(of_aws["ConsumedWriteCapacityUnits"], units);
        let dead_letters = members(&RESOURCES).filter(|(name, resource)| {
            resource["Type"] == QUEUE
                && (name.ends_with("DeadLettersQueue") || *name == "ContradictionsQueue")
                && stack.holds(&resource["Condition"])
        });
        let dead_letters = dead_letters.map(|(name, _)| name.clone()).collect();
        assert_eq!(of_aws["ApproximateNumberOfMessagesVisible"], dead_letters, "{stack:?}");
    }
}

// It would cost three dollars a month.
#[test]
fn the_dashboard_has_no_more_metrics_than_are_free() {
    let lines = shown(Stack { outbox: "on", alarms: "all", makes_table: true });
    assert!(lines.len() <= FREE_METRICS, "{}", lines.len());
    let dashboards = resources("AWS::CloudWatch::Dashboard");
    assert_eq!(dashboards.len(), 1, "all three are free, of the whole account");
}

#[test]
fn the_charts_of_the_dashboard_do_not_overlap() {
    for stack in Stack::all() {
        let mut taken = BTreeSet::new();
        for widget in stack.widgets() {
            let [x, y, width, height] =
                ["x", "y", "width", "height"].map(|name| widget[name].as_u64().expect("a number"));
            assert!(x + width <= 24, "{widget}");
            for place in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
                assert!(taken.insert(place), "{}", widget["properties"]["title"]);
            }
        }
    }
}
