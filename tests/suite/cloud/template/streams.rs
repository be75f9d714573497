//! The consumers of streams, to be copied: their mappings give up after the consumers, and lose nothing.

use std::{collections::BTreeSet, time::Duration};

use lambda_idempotency::{telemetry, time_budget::PARK_AFTER};
use serde_json::{Value, json};

use super::{
    ALARM, FUNCTION, QUEUE, Resource, STREAMS,
    alarms::looks_at,
    list, members, referred, resource, resources_of,
    rights::{ROLE, needed, rights},
    template,
};

/// The three parts of the template, each with the source that it declares or gets by a parameter.
const PARTS: [(&str, &str); 3] =
    [("Kinesis", "OrdersStream"), ("Changes", "ProductsTable"), ("Kafka", "KafkaTopic")];

const HOUR: Duration = Duration::from_secs(3600);

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or_else(|| panic!("no number: {value}")))
}

/// Each part's function.
fn functions() -> Vec<Resource> {
    let functions = resources_of(&[STREAMS], FUNCTION);
    let names: BTreeSet<_> = functions.iter().map(|function| function.name.clone()).collect();
    assert_eq!(names, PARTS.map(|(part, _)| format!("{part}Function")).into());
    functions
}

/// Each part's name, with the type and the properties of its mapping.
fn mappings() -> Vec<(String, String, Value)> {
    let mappings = functions().into_iter().map(|function| {
        let events: Vec<_> = members(&function.properties["Events"]).collect();
        let [(_, event)] = events[..] else { panic!("{} has one", function.name) };
        let part = function.name.trim_end_matches("Function").to_owned();
        (part, event["Type"].as_str().expect("a type").to_owned(), event["Properties"].clone())
    });
    mappings.collect()
}

/// For how long the source keeps a record. A table's stream does so for a day, and nothing can change that. A topic's retention is its own.
fn retention(kind: &str) -> Option<Duration> {
    match kind {
        "Kinesis" => {
            let hours = resource("AWS::Kinesis::Stream", "OrdersStream")["RetentionPeriodHours"].as_u64();
            hours.map(|hours| Duration::from_secs(hours * 3600))
        }
        "DynamoDB" => Some(24 * HOUR),
        _ => None,
    }
}

// T84: what the mapping gives up is a place in a stream, that ends soon. What the consumer gives up is a letter.
#[test]
fn each_mapping_outlasts_what_the_consumer_does_itself() {
    for (part, kind, mapping) in mappings() {
        let age = seconds(&mapping["MaximumRecordAgeInSeconds"]);
        assert_eq!(age, 3 * PARK_AFTER, "{part}");
        // Otherwise what is dropped could not be read any more.
        assert!(retention(&kind).is_none_or(|retention| retention >= age + 6 * HOUR), "{part}");
        // Executions are counted in the record, deliveries count for nothing.
        let endless = if kind == "MSK" { 10_000 } else { -1 };
        assert_eq!(mapping["MaximumRetryAttempts"], endless, "{part}");
        assert_eq!(mapping["BisectBatchOnFunctionError"], true, "{part}");
        assert_eq!(mapping["StartingPosition"], "TRIM_HORIZON", "{part}");
    }
}

// https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html: with a destination, Lambda makes 10 of -1.
#[test]
fn kafkas_retries_are_written_out() {
    let kafka = mappings().into_iter().find(|(_, kind, _)| kind == "MSK").expect("a topic").2;
    assert!(!kafka["DestinationConfig"].is_null());
    assert_eq!(kafka["MaximumRetryAttempts"], 10_000);
    // Without them, there is neither a partial answer nor a bound.
    assert!(kafka["ProvisionedPollerConfig"]["MinimumPollers"].as_u64() >= Some(1));
}

#[test]
fn what_a_mapping_drops_has_a_queue() {
    for (part, _, mapping) in mappings() {
        let destination = &mapping["DestinationConfig"]["OnFailure"];
        assert_eq!(destination["Type"], "SQS", "{part}");
        assert_eq!(referred(&destination["Destination"]), format!("{part}DroppedQueue"));
    }
}

// A stack that goes must not take the only traces of effects with it.
#[test]
fn parked_and_dropped_records_stay_longest_and_outlive_their_stack() {
    let template = template(STREAMS);
    for queue in
        PARTS.into_iter().flat_map(|(part, _)| ["Parked", "Dropped"].map(|kind| format!("{part}{kind}Queue")))
    {
        let queue = &template["Resources"][&queue];
        assert_eq!(queue["Type"], QUEUE);
        assert_eq!(
            (&queue["DeletionPolicy"], &queue["UpdateReplacePolicy"]),
            (&json!("Retain"), &json!("Retain"))
        );
        assert_eq!(seconds(&queue["Properties"]["MessageRetentionPeriod"]), 14 * 24 * HOUR);
    }
}

#[test]
fn queues_of_consumers_are_encrypted_and_take_nothing_unencrypted() {
    let policies = resources_of(&[STREAMS], "AWS::SQS::QueuePolicy");
    let covered: BTreeSet<_> =
        policies.iter().flat_map(|policy| list(&policy.properties["Queues"])).map(referred).collect();
    let queues = resources_of(&[STREAMS], QUEUE);
    assert!(queues.iter().all(|queue| queue.properties["SqsManagedSseEnabled"] == true));
    assert_eq!(covered, queues.into_iter().map(|queue| queue.name).collect());
    for policy in policies {
        let statement = json!([{
            "Sid": "EncryptedTransportOnly", "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*",
            "Condition": { "Bool": { "aws:SecureTransport": "false" } },
        }]);
        assert_eq!(policy.properties["PolicyDocument"]["Statement"], statement, "{}", policy.name);
    }
}

// What is longer than its queue takes is parked without its end.
#[test]
fn letters_take_a_megabyte() {
    for (part, _) in PARTS {
        assert_eq!(resource(QUEUE, &format!("{part}ParkedQueue"))["MaximumMessageSize"], 1 << 20, "{part}");
    }
}

#[test]
fn each_consumer_may_do_what_it_does_and_nothing_else() {
    let globals = template(STREAMS)["Globals"]["Function"]["Environment"]["Variables"].clone();
    let of_guards =
        ["dynamodb:GetItem IdempotencyTableArn", "dynamodb:PutItem IdempotencyTableArn"].map(str::to_owned);
    for function in functions() {
        assert_eq!(referred(&globals["IDEMPOTENCY_TABLE"]), "IdempotencyTable");
        let mut needed = needed(&function);
        needed.extend(of_guards.clone());
        if !globals["DEFERRED_REPORTS_QUEUE_URL"].is_null() {
            needed.insert("sqs:SendMessage DeferredReportsQueueArn".to_owned());
        }
        let role = resource(ROLE, &referred(&function.properties["Role"]));
        assert_eq!(rights(&role), needed, "{}", function.name);
    }
}

#[test]
fn each_consumer_has_the_same_alarms_on_its_own_metrics() {
    let globals = template(STREAMS)["Globals"]["Function"]["Environment"]["Variables"].clone();
    assert_eq!(referred(&globals["METRICS_NAMESPACE"]), "MetricsNamespace");
    let mut expected = BTreeSet::new();
    for (part, source) in PARTS {
        let lag = if part == "Kafka" { "OffsetLag" } else { "IteratorAge" };
        let visible = format!("ApproximateNumberOfMessagesVisible {part}ParkedQueue");
        let mut alarm = |name: &str, metric: String| expected.insert((format!("{part}{name}"), metric));
        alarm("Behind", format!("{lag} {part}Function"));
        alarm("Parked", visible.clone());
        alarm("ParkedOld", visible);
        alarm("ParkedGrow", format!("NumberOfMessagesSent {part}ParkedQueue"));
        alarm("Dropped", format!("NumberOfMessagesSent {part}DroppedQueue"));
        alarm("Lost", format!("DestinationDeliveryFailures {part}Function"));
        alarm("NotParked", format!("{} {source}", telemetry::MESSAGE_NOT_BURIED));
        alarm("Held", format!("{} {source}", telemetry::MESSAGE_HELD));
        alarm("Cut", format!("{} {source}", telemetry::MESSAGE_CUT));
    }
    let alarms = resources_of(&[STREAMS], ALARM).into_iter();
    let alarms = alarms.flat_map(|alarm| {
        let looks_at = looks_at(&alarm.properties).into_iter();
        looks_at.map(move |metric| (alarm.name.clone(), metric)).collect::<Vec<_>>()
    });
    assert_eq!(alarms.collect::<BTreeSet<_>>(), expected);
}

// Otherwise the alarm would end while the record still waits: it is counted with each invocation.
#[test]
fn a_record_that_waits_keeps_its_alarm_on() {
    let timeout = seconds(&template(STREAMS)["Globals"]["Function"]["Timeout"]);
    for name in
        PARTS.into_iter().flat_map(|(part, _)| ["Held", "NotParked"].map(|kind| format!("{part}{kind}")))
    {
        let alarm = resource(ALARM, &name);
        let window =
            seconds(&alarm["Period"]) * u32::try_from(alarm["EvaluationPeriods"].as_u64().unwrap()).unwrap();
        assert!(window >= 2 * timeout, "{name}");
    }
}

/// The part that has the resource of this name.
fn part_of(name: &str) -> &'static str {
    let part = PARTS.iter().find(|(part, source)| name.starts_with(part) || name == *source);
    part.unwrap_or_else(|| panic!("{name} is of no part")).0
}

/// The resources that a value refers to.
fn referred_to(value: &Value, resources: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let named = value.as_str().filter(|_| ["Ref", "Fn::GetAtt"].contains(&&**name));
                let named = named.map(|named| named.split('.').next().unwrap_or_default().to_owned());
                found.extend(named.filter(|named| resources.contains(named)));
                referred_to(value, resources, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| referred_to(value, resources, found)),
        _ => {}
    }
}

// Who needs one of them copies a third of the file.
#[test]
fn each_part_refers_to_no_other_part() {
    let template = template(STREAMS);
    let resources: BTreeSet<_> = members(&template["Resources"]).map(|(name, _)| name.clone()).collect();
    for (name, resource) in members(&template["Resources"]) {
        let mut found = BTreeSet::new();
        referred_to(resource, &resources, &mut found);
        for other in found {
            assert_eq!(part_of(&other), part_of(name), "{name} refers to {other}");
        }
    }
}
