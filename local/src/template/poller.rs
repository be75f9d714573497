//! The events of a function that a program of the package `pollers` brings: the records of Kinesis and of Kafka.

use super::{
    number::{AGE, BATCH_SIZE, RETRIES, number},
    scope::{Scope, is_default, refuse},
};
use serde_json::Value;

/// The programs.
pub const KINESIS: &str = "kinesis-stream";
const KAFKA: &str = "kafka-topic";

/// What would change the event here, with the value that it has if it is missing.
const REFUSED: [(&str, &str); 3] =
    [("FilterCriteria", ""), ("TumblingWindowInSeconds", "0"), ("SchemaRegistryConfig", "")];

/// What a mapping of Kafka may only set with provisioned pollers
/// (<https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html>), with the value that it has if it is missing.
const OF_PROVISIONED: [(&str, &str); 4] = [
    ("FunctionResponseTypes", ""),
    ("MaximumRetryAttempts", "-1"),
    ("MaximumRecordAgeInSeconds", "-1"),
    ("BisectBatchOnFunctionError", "false"),
];

/// How often Lambda retries a batch of Kafka that has a destination if it is dropped, and no limit.
const RETRIES_BEFORE_DROPPED: i64 = 10;

/// A stream of Kinesis or a topic of Kafka, and the function that gets its records.
#[derive(Clone, Debug, PartialEq)]
pub struct Poller {
    pub function: String,
    /// Its name in the template.
    pub event: String,
    /// The program that polls.
    pub program: &'static str,
    /// Its arguments, without those that depend on this cloud's addresses.
    pub arguments: Vec<String>,
    /// Whether the function names the records that failed.
    pub reports_failures: bool,
    /// The queue of what is dropped.
    pub dropped_arn: Option<String>,
}

impl Poller {
    /// Reads an event of this type.
    ///
    /// # Errors
    /// If a value is missing, or would matter and is not known here.
    pub fn of(
        function: String,
        event: String,
        kind: &str,
        properties: &Value,
        reports_failures: bool,
        scope: &Scope,
    ) -> Result<Self, String> {
        refuse(scope, properties, &REFUSED)?;
        let text = |name: &str| scope.text(&properties[name]);
        let mut arguments = vec!["follow".to_owned(), "--function".to_owned(), function.clone()];
        let mut add = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
        let program = match kind {
            "Kinesis" => {
                let arn = text("Stream")?.ok_or("it has no Stream")?;
                let of_consumer = arn.split("/consumer/").next().unwrap_or_default();
                let (_, stream) =
                    of_consumer.split_once(":stream/").ok_or("its Stream must be the ARN of a stream")?;
                add("--stream", stream);
                KINESIS
            }
            _ => {
                let topics = scope.value(&properties["Topics"])?.unwrap_or_default();
                let [Value::String(topic)] = topics.as_array().map_or(&[][..], Vec::as_slice) else {
                    return Err("its Topics must be one topic".to_owned());
                };
                add("--topic", topic);
                if kind == "MSK" {
                    // A cluster in the template has no ARN here.
                    let cluster = text("Stream").ok().flatten();
                    add(
                        "--cluster",
                        cluster
                            .as_deref()
                            .unwrap_or("arn:aws:kafka:eu-central-1:123456789012:cluster/local/1"),
                    );
                }
                let pollers = scope.value(&properties["ProvisionedPollerConfig"])?.unwrap_or_default();
                for (property, default) in OF_PROVISIONED {
                    let value = scope.value(&properties[property])?.unwrap_or_default();
                    if pollers.is_null() && !is_default(&value, default) {
                        return Err(format!("its {property} needs a ProvisionedPollerConfig"));
                    }
                }
                KAFKA
            }
        };
        let destination = scope.value(&properties["DestinationConfig"])?.unwrap_or_default();
        let dropped_arn = destination["OnFailure"]["Destination"].as_str().map(str::to_owned);
        let retries = number(scope, properties, RETRIES)?;
        let retries = match retries {
            None | Some(-1) if program == KAFKA && dropped_arn.is_some() => Some(RETRIES_BEFORE_DROPPED),
            retries => retries,
        };
        let (size, age) = (number(scope, properties, BATCH_SIZE)?, number(scope, properties, AGE)?);
        for (number, argument) in [(size, "--batch-size"), (retries, "--max-retries"), (age, "--max-age")] {
            if let Some(number) = number {
                add(argument, &number.to_string());
            }
        }
        if scope.is_true(&properties["BisectBatchOnFunctionError"])? {
            arguments.push("--bisect".to_owned());
        }
        if reports_failures {
            arguments.push("--report-failures".to_owned());
        }
        Ok(Self { function, event, program, arguments, reports_failures, dropped_arn })
    }
}
