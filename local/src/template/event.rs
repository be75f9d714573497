//! The events of a function: its routes, and the queues, streams and schedules that invoke it.

use super::{
    number::{AGE, RETRIES, number},
    pattern,
    poller::Poller,
    scope::{Scope, refuse},
};
use crate::route::Route;
use serde_json::{Value, json};
use std::time::Duration;

/// The most messages that SQS returns at once.
const MAX_BATCH: i32 = 10;

/// The member of `FunctionResponseTypes` of a function that names what failed.
pub const REPORTS: &str = "ReportBatchItemFailures";

/// A queue, and the function that takes its messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    pub function: String,
    /// Its name in the template.
    pub event: String,
    pub queue_arn: String,
    pub batch: i32,
    /// Whether the function names the messages that failed.
    pub reports_failures: bool,
}

/// A table's stream, and the function that gets its records.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamMapping {
    pub function: String,
    /// Its name in the template.
    pub event: String,
    pub stream_arn: String,
    pub filters: Vec<Value>,
    /// Whether the function names the records that failed.
    pub reports_failures: bool,
    /// Whether records are gathered before they are delivered.
    pub gathers: bool,
    /// Whether a batch that fails is halved.
    pub bisects: bool,
    /// `None`: there is no limit.
    pub max_retries: Option<u32>,
    pub max_age: Option<Duration>,
    /// The queue of those that keep failing.
    pub dead_letters_arn: Option<String>,
}

/// A schedule, and the function that it invokes.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub function: String,
    /// `None` of one at certain times of a day: it is invoked by hand.
    pub period: Option<Duration>,
    pub input: Value,
}

/// What an event adds to the local cloud.
#[derive(Debug, PartialEq)]
pub enum Event {
    Route(Route),
    Queue(Mapping),
    Stream(StreamMapping),
    Poller(Poller),
    Schedule(Schedule),
    /// It is disabled.
    Nothing,
}

impl Event {
    /// Reads one event of this function.
    ///
    /// # Errors
    /// If the local cloud does not know such an event, or a value is missing.
    pub fn of(function: &str, name: &str, event: &Value, scope: &Scope) -> Result<Self, String> {
        let properties = &event["Properties"];
        let text = |name: &str| scope.text(&properties[name]);
        let needs = |name: &str| text(name)?.ok_or_else(|| format!("it has no {name}"));
        let (function, named) = (function.to_owned(), name.to_owned());
        let is_off = text("Enabled")?.is_some_and(|enabled| enabled == "false")
            || text("State")?.is_some_and(|state| state == "DISABLED");
        if is_off {
            return Ok(Self::Nothing);
        }
        let kinds = scope.value(&properties["FunctionResponseTypes"])?;
        let reports_failures = kinds.is_some_and(|kinds| kinds[0] == REPORTS);
        Ok(match event["Type"].as_str().unwrap_or_default() {
            "HttpApi" => {
                let route = match (text("Method")?, text("Path")?) {
                    (None, None) => Route::default_of(function),
                    (method, path) => {
                        let method = method.map_or_else(|| "ANY".to_owned(), |method| method.to_uppercase());
                        let path = path.ok_or("it has no Path")?;
                        Route::parse(&format!("{} {path}={function}", method.replace('*', "ANY")))?
                    }
                };
                Self::Route(route)
            }
            "SQS" => {
                refuse(scope, properties, &[("FilterCriteria", "")])?;
                let batch = text("BatchSize")?.map_or(Ok(MAX_BATCH), |size| size.parse::<i32>());
                Self::Queue(Mapping {
                    function,
                    event: named,
                    queue_arn: needs("Queue")?,
                    batch: batch.map_err(|_| "its BatchSize is no number")?.clamp(1, MAX_BATCH),
                    reports_failures,
                })
            }
            "DynamoDB" => {
                let criteria = scope.value(&properties["FilterCriteria"])?.unwrap_or_default();
                let filters = criteria["Filters"].as_array().into_iter().flatten().map(|filter| {
                    let pattern = serde_json::from_str(filter["Pattern"].as_str().unwrap_or_default());
                    let pattern = pattern.map_err(|error| format!("a filter's Pattern: {error}"))?;
                    pattern::check(&pattern).map(|()| pattern)
                });
                let gathers = text("MaximumBatchingWindowInSeconds")?.is_some_and(|window| window != "0");
                let destination = scope.value(&properties["DestinationConfig"])?.unwrap_or_default();
                Self::Stream(StreamMapping {
                    function,
                    event: named,
                    stream_arn: needs("Stream")?,
                    filters: filters.collect::<Result<_, String>>()?,
                    reports_failures,
                    gathers,
                    bisects: scope.is_true(&properties["BisectBatchOnFunctionError"])?,
                    max_retries: number(scope, properties, RETRIES)?.and_then(|most| most.try_into().ok()),
                    max_age: number(scope, properties, AGE)?
                        .and_then(|seconds| seconds.try_into().ok())
                        .map(Duration::from_secs),
                    dead_letters_arn: destination["OnFailure"]["Destination"].as_str().map(str::to_owned),
                })
            }
            kind @ ("Kinesis" | "MSK" | "SelfManagedKafka") => {
                Self::Poller(Poller::of(function, named, kind, properties, reports_failures, scope)?)
            }
            "Schedule" | "ScheduleV2" => {
                let expression = match text("ScheduleExpression")? {
                    Some(expression) => expression,
                    None => needs("Schedule")?,
                };
                let input = text("Input")?.map_or(Ok(json!({})), |input| serde_json::from_str(&input));
                let input = input.map_err(|error| format!("its Input: {error}"))?;
                Self::Schedule(Schedule { function, period: period(&expression)?, input })
            }
            kind => {
                return Err(format!(
                    "the local cloud does not know events of type {kind:?}: it knows HttpApi, SQS, DynamoDB, Kinesis, MSK, SelfManagedKafka, Schedule and ScheduleV2"
                ));
            }
        })
    }
}

/// The period of `rate(5 minutes)`; `None` of `cron(…)` and `at(…)`.
fn period(expression: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("the local cloud cannot read the schedule {expression:?}");
    let (kind, rest) = expression.split_once('(').ok_or_else(wrong)?;
    let inner = rest.strip_suffix(')').ok_or_else(wrong)?;
    match kind {
        "cron" | "at" => Ok(None),
        "rate" => {
            let (number, unit) = inner.trim().split_once(' ').ok_or_else(wrong)?;
            let seconds = match unit.trim().trim_end_matches('s') {
                "minute" => 60,
                "hour" => 3_600,
                "day" => 86_400,
                _ => return Err(wrong()),
            };
            let number = number.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
            Ok(Some(Duration::from_secs(u64::from(number) * seconds)))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_periods_and_times_of_a_day_are_none() {
        let period = |text| super::period(text).ok();
        assert_eq!(period("rate(1 minute)"), Some(Some(Duration::from_secs(60))));
        assert_eq!(period("rate(2 days)"), Some(Some(Duration::from_secs(172_800))));
        assert_eq!(period("cron(0 3 * * ? *)"), Some(None));
        for wrong in ["", "rate(0 minutes)", "rate(1 week)", "rate(1)", "every(1 minute)", "rate(1 minute"] {
            assert_eq!(period(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_event_that_cannot_run_here_says_why() {
        let scope = Scope::default();
        let of = |kind: &str, properties: Value| {
            Event::of("pay", "In", &json!({ "Type": kind, "Properties": properties }), &scope)
        };
        for (kind, properties, named) in [
            ("Api", json!({ "Method": "post", "Path": "/pay" }), "\"Api\""),
            ("HttpApi", json!({ "Method": "POST" }), "Path"),
            ("SQS", json!({}), "Queue"),
            ("SQS", json!({ "Queue": "q", "BatchSize": "many" }), "BatchSize"),
            ("SQS", json!({ "Queue": { "Ref": "Other" } }), "Other"),
            (
                "SQS",
                json!({ "Queue": "q", "FilterCriteria": { "Filters": [{ "Pattern": "{}" }] } }),
                "FilterCriteria",
            ),
            (
                "DynamoDB",
                json!({ "Stream": "s", "FilterCriteria": { "Filters": [{ "Pattern": "{" }] } }),
                "Pattern",
            ),
            ("DynamoDB", json!({ "Stream": "s", "MaximumRetryAttempts": 10_001 }), "MaximumRetryAttempts"),
            ("DynamoDB", json!({ "Stream": "s", "MaximumRecordAgeInSeconds": 0 }), "from 60 to 604800"),
            ("Kinesis", json!({}), "Stream"),
            ("Kinesis", json!({ "Stream": "orders" }), "the ARN of a stream"),
            (
                "Kinesis",
                json!({ "Stream": "arn:aws:kinesis:a:1:stream/s", "BatchSize": "many" }),
                "BatchSize",
            ),
            (
                "Kinesis",
                json!({ "Stream": "arn:aws:kinesis:a:1:stream/s", "TumblingWindowInSeconds": 5 }),
                "Tumbling",
            ),
            (
                "Kinesis",
                json!({ "Stream": "arn:aws:kinesis:a:1:stream/s", "MaximumRecordAgeInSeconds": 59 }),
                "from 60 to 604800",
            ),
            ("Kinesis", json!({ "Stream": "arn:aws:kinesis:a:1:stream/s", "BatchSize": -1 }), "BatchSize"),
            ("MSK", json!({ "Stream": "arn" }), "Topics"),
            (
                "MSK",
                json!({ "Topics": ["a"], "MaximumRetryAttempts": 5 }),
                "MaximumRetryAttempts needs a ProvisionedPollerConfig",
            ),
            (
                "SelfManagedKafka",
                json!({ "Topics": ["a"], "BisectBatchOnFunctionError": true }),
                "BisectBatchOnFunctionError needs a ProvisionedPollerConfig",
            ),
            ("SelfManagedKafka", json!({ "Topics": ["a", "b"] }), "one topic"),
            (
                "MSK",
                json!({ "Topics": ["a"], "FunctionResponseTypes": [REPORTS] }),
                "FunctionResponseTypes needs a ProvisionedPollerConfig",
            ),
            ("Schedule", json!({ "Schedule": "rate(5)" }), "rate(5)"),
            ("ScheduleV2", json!({ "ScheduleExpression": "rate(1 hour)", "Input": "{" }), "Input"),
        ] {
            let error = of(kind, properties).expect_err("it cannot run");
            assert!(error.contains(named), "{kind}: {error}");
        }
        assert_eq!(of("SQS", json!({ "Queue": "q", "Enabled": false })), Ok(Event::Nothing));
        let off = json!({ "ScheduleExpression": "rate(1 hour)", "State": "DISABLED" });
        assert_eq!(of("ScheduleV2", off), Ok(Event::Nothing));
        let any = of("HttpApi", json!({ "Path": "/pay", "Method": "any" }));
        assert_eq!(any, Ok(Event::Route(Route::parse("ANY /pay=pay").unwrap())));
    }

    #[test]
    fn mappings_of_streams_and_topics_become_arguments_of_their_pollers() {
        let of = |kind: &str, properties: Value| {
            let event = Event::of(
                "ship",
                "In",
                &json!({ "Type": kind, "Properties": properties }),
                &Scope::default(),
            );
            let Ok(Event::Poller(poller)) = event else { panic!("{kind}: {event:?}") };
            (format!("{} {}", poller.program, poller.arguments.join(" ")), poller.dropped_arn)
        };
        let mapping = json!({
            "Stream": "arn:aws:kinesis:eu-central-1:123456789012:stream/orders/consumer/fast:1",
            "StartingPosition": "TRIM_HORIZON",
            "BatchSize": 7,
            "MaximumRetryAttempts": -1,
            "MaximumRecordAgeInSeconds": 64_800,
            "BisectBatchOnFunctionError": true,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "DestinationConfig": { "OnFailure": { "Type": "SQS", "Destination": "arn:dropped" } },
        });
        let expected = "kinesis-stream follow --function ship --stream orders --batch-size 7 --max-retries -1 --max-age 64800 \
                        --bisect --report-failures";
        assert_eq!(of("Kinesis", mapping), (expected.to_owned(), Some("arn:dropped".to_owned())));
        let topic = json!({ "Stream": "arn:cluster", "Topics": ["orders"] });
        let expected = "kafka-topic follow --function ship --topic orders --cluster arn:cluster";
        assert_eq!(of("MSK", topic), (expected.to_owned(), None));
        // Lambda retries ten times before it drops something, unless the mapping says how often.
        let topic = json!({
            "Topics": ["orders"],
            "MaximumRetryAttempts": -1,
            "DestinationConfig": { "OnFailure": { "Type": "SQS", "Destination": "arn:dropped" } },
        });
        let expected = "kafka-topic follow --function ship --topic orders --max-retries 10";
        assert_eq!(of("SelfManagedKafka", topic), (expected.to_owned(), Some("arn:dropped".to_owned())));
        let topic = json!({ "Topics": ["orders"], "KafkaBootstrapServers": ["a:9092"] });
        let expected = "kafka-topic follow --function ship --topic orders";
        assert_eq!(of("SelfManagedKafka", topic), (expected.to_owned(), None));
    }
}
