//! Each alarm watches a metric that exists, and sends notifications.

use std::collections::{BTreeMap, BTreeSet};

use lambda_idempotency::{telemetry, time_budget::DEFAULT_NOT_FOUND_GRACE};
use serde_json::{Value, json};

use super::{
    ALARM, FUNCTION, IDEMPOTENCY, QUEUE, Resource, SAMPLE, STREAMS, list, members, referred, resource,
    resources, resources_of, starter,
};
use crate::support::command::PROGRAM;

/// The functions' metrics, each with the statistic that counts its events. A metric without dimensions is a total over all operations:
/// see `lambda`.
const OURS: &[(&str, &str)] = &[
    (telemetry::ZOMBIE_KEY, "Sum"),
    (telemetry::UNKNOWN_OLDEST, "Maximum"),
    (telemetry::UNKNOWN_ESCALATED, "Maximum"),
    (telemetry::ESCALATED, "Sum"),
    (telemetry::TABLE_SETTING_OFF, "Sum"),
    (telemetry::RECONCILE_ASSUMED, "Sum"),
    // What no question has settled all the time.
    (telemetry::UNKNOWN_COUNT, "Minimum"),
    (telemetry::COMPLETION_INCONCLUSIVE, "Sum"),
    (telemetry::CONTRADICTION_UNSENT, "Sum"),
    (telemetry::CONTRADICTION_SENT, "Sum"),
    // What no retry has ended all the time.
    (telemetry::BETWEEN_WORKERS_COUNT, "Minimum"),
    (telemetry::STORE_ERROR, "Sum"),
    (telemetry::STORE_THROTTLED, "Sum"),
    (telemetry::RESERVE_KEY_MISUSE, "Sum"),
    (telemetry::LOOK_UP_OVER_BOUND, "Sum"),
    (telemetry::RESERVE_STOPPED, "Sum"),
    (telemetry::RESERVE_CREATED, "Sum"),
    (telemetry::RESERVE_FAILED_RETRY, "Sum"),
    (telemetry::RESERVE_REPLAY, "Sum"),
    (telemetry::RESERVE_TOO_LATE, "Sum"),
    (telemetry::TRANSACTION_COMMITTED, "Sum"),
    (telemetry::PHASE_MISMATCH, "Sum"),
    (telemetry::DOUBLE_EXECUTION, "Sum"),
    (telemetry::COMPLETION_UNWRITTEN, "Sum"),
    (telemetry::DEFERRED_AGE, "Maximum"),
    (telemetry::COMPLETION_DENIED, "Sum"),
    (telemetry::TRANSACTION_UNCONFIRMED, "Sum"),
    (telemetry::STREAM_BATCH, "Sum"),
    (telemetry::STREAM_BEGAN, "Sum"),
    (telemetry::SWEEP_COMPLETED, "Sum"),
    (telemetry::OUTBOX_PUBLISHED, "Sum"),
    (telemetry::RESERVE_ACCEPTED, "Sum"),
    (telemetry::OUTBOX_BATCH, "Sum"),
    (telemetry::OUTBOX_NOT_DELIVERED, "Sum"),
    (telemetry::OUTBOX_UNDELIVERED, "Maximum"),
    (telemetry::WORK_WAITING, "Maximum"),
    (telemetry::WORK_ABANDONED, "Sum"),
    (telemetry::RECONCILE_POLL, "Sum"),
    (telemetry::WEBHOOK_UNSIGNED, "Sum"),
    (telemetry::WEBHOOK_REFUSED, "Sum"),
    (telemetry::WEBHOOK_UNREADABLE, "Sum"),
    (telemetry::WEBHOOK_AGAIN, "Sum"),
    (ledgers::metrics::COMPARE_COMPLETED, "Sum"),
    (ledgers::metrics::COMPARE_DIFFERENCES, "Sum"),
];

/// The metrics of a queue's messages, which have the dimension `queue`. All count events.
const OF_MESSAGES: &[&str] =
    &[telemetry::MESSAGE_HELD, telemetry::MESSAGE_NOT_BURIED, telemetry::MESSAGE_CUT];

/// AWS's metrics: namespace, metric, statistics, the one dimension, and the type of resource that the dimension names.
///
/// - <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html>
/// - <https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html>
const OF_AWS: &[(&str, &str, &[&str], &str, &str)] = &[
    // Dead letters are one at some moment; a queue is long all the time.
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", &["Maximum", "Minimum"], "QueueName", QUEUE),
    ("AWS/SQS", "ApproximateAgeOfOldestMessage", &["Maximum"], "QueueName", QUEUE),
    ("AWS/SQS", "ApproximateNumberOfMessagesNotVisible", &["Maximum"], "QueueName", QUEUE),
    // It counts messages that a service sends, but not those that a redrive policy moves.
    ("AWS/SQS", "NumberOfMessagesSent", &["Sum"], "QueueName", QUEUE),
    ("AWS/Lambda", "IteratorAge", &["Maximum"], "FunctionName", FUNCTION),
    // Of Kafka, in records.
    ("AWS/Lambda", "OffsetLag", &["Maximum"], "FunctionName", FUNCTION),
    ("AWS/Lambda", "Errors", &["Sum"], "FunctionName", FUNCTION),
    ("AWS/Lambda", "Throttles", &["Sum"], "FunctionName", FUNCTION),
    ("AWS/Lambda", "DestinationDeliveryFailures", &["Sum"], "FunctionName", FUNCTION),
];

/// The alarms for what must not go unnoticed and for what must happen, with the metrics that they watch.
const ALARMS: &[(&str, &[&str])] = &[
    ("DeadWorkers", &[telemetry::ZOMBIE_KEY]),
    ("OldestUnknown", &[telemetry::UNKNOWN_OLDEST]),
    ("UnknownGrow", &[telemetry::UNKNOWN_COUNT]),
    ("OutcomesEscalated", &[telemetry::UNKNOWN_ESCALATED]),
    ("EscalatedGrow", &[telemetry::ESCALATED]),
    ("OutcomesAssumed", &[telemetry::RECONCILE_ASSUMED]),
    ("AnswersInconclusive", &[telemetry::COMPLETION_INCONCLUSIVE]),
    ("Contradictions", &[telemetry::CONTRADICTION_SENT]),
    ("ContradictionsOld", &["ApproximateNumberOfMessagesVisible ContradictionsQueue"]),
    ("ContradictionsWaiting", &["ApproximateNumberOfMessagesVisible ContradictionsQueue"]),
    ("ContradictionsUnsent", &[telemetry::CONTRADICTION_UNSENT]),
    ("OperationsWaiting", &[telemetry::BETWEEN_WORKERS_COUNT]),
    ("OperationsWaitingGrow", &[telemetry::BETWEEN_WORKERS_COUNT]),
    ("DeadLettersWaiting", &["ApproximateNumberOfMessagesVisible DeadLettersQueue"]),
    (
        "DeadLettersGrow",
        &[
            "ApproximateNumberOfMessagesNotVisible DeadLettersQueue",
            "ApproximateNumberOfMessagesVisible DeadLettersQueue",
        ],
    ),
    ("DeadLettersOld", &["ApproximateNumberOfMessagesVisible DeadLettersQueue"]),
    ("ReportsDeadOld", &["ApproximateNumberOfMessagesVisible DeferredReportsDeadLettersQueue"]),
    ("QuestionsLate", &["ApproximateAgeOfOldestMessage ReconcileQueue"]),
    ("ReportsLate", &[telemetry::DEFERRED_AGE, "ApproximateAgeOfOldestMessage DeferredReportsQueue"]),
    (
        "ReportsGrow",
        &[
            "ApproximateNumberOfMessagesNotVisible DeferredReportsQueue",
            "ApproximateNumberOfMessagesVisible DeferredReportsQueue",
        ],
    ),
    ("ReportsDead", &["ApproximateNumberOfMessagesVisible DeferredReportsDeadLettersQueue"]),
    (
        "ReportsDeadGrow",
        &[
            "ApproximateNumberOfMessagesNotVisible DeferredReportsDeadLettersQueue",
            "ApproximateNumberOfMessagesVisible DeferredReportsDeadLettersQueue",
        ],
    ),
    ("ChecksLate", &["ApproximateAgeOfOldestMessage ChecksQueue"]),
    ("SweepLate", &["ApproximateAgeOfOldestMessage SweepQueue"]),
    ("SweepMissing", &[telemetry::SWEEP_COMPLETED]),
    ("StreamLate", &["IteratorAge StaleFunction"]),
    ("StreamSilent", &[telemetry::RESERVE_CREATED, telemetry::STREAM_BATCH]),
    (
        "MetricsSilent",
        &[
            telemetry::RESERVE_CREATED,
            telemetry::RESERVE_FAILED_RETRY,
            telemetry::RESERVE_STOPPED,
            telemetry::RESERVE_TOO_LATE,
            telemetry::STREAM_BEGAN,
        ],
    ),
    ("StaleErrors", &["Errors StaleFunction"]),
    ("StaleThrottled", &["Throttles StaleFunction"]),
    ("OutboxOld", &["ApproximateAgeOfOldestMessage OutboxQueue"]),
    ("OutboxFailing", &[telemetry::OUTBOX_NOT_DELIVERED]),
    ("OutboxDead", &["ApproximateNumberOfMessagesVisible OutboxDeadLettersQueue"]),
    (
        "OutboxDeadGrow",
        &[
            "ApproximateNumberOfMessagesNotVisible OutboxDeadLettersQueue",
            "ApproximateNumberOfMessagesVisible OutboxDeadLettersQueue",
        ],
    ),
    ("OutboxUndelivered", &[telemetry::OUTBOX_UNDELIVERED]),
    ("OutboxStreamLate", &["IteratorAge OutboxFunction"]),
    (
        "OutboxStreamSilent",
        &[telemetry::OUTBOX_PUBLISHED, telemetry::RESERVE_ACCEPTED, telemetry::OUTBOX_BATCH],
    ),
    ("OutboxErrors", &["Errors OutboxFunction"]),
    ("OutboxThrottled", &["Throttles OutboxFunction"]),
    ("WorkOld", &["ApproximateAgeOfOldestMessage WorkQueue"]),
    ("WorkWaiting", &[telemetry::WORK_WAITING]),
    ("WorkAbandoned", &[telemetry::WORK_ABANDONED]),
    ("WorkDead", &["ApproximateNumberOfMessagesVisible WorkDeadLettersQueue"]),
    (
        "WorkDeadGrow",
        &[
            "ApproximateNumberOfMessagesNotVisible WorkDeadLettersQueue",
            "ApproximateNumberOfMessagesVisible WorkDeadLettersQueue",
        ],
    ),
    ("RunsFailed", &["NumberOfMessagesSent FailedRunsQueue"]),
    ("StoreErrors", &[telemetry::STORE_ERROR]),
    ("StoreThrottled", &[telemetry::STORE_THROTTLED]),
    ("KeyMisuse", &[telemetry::LOOK_UP_OVER_BOUND, telemetry::RESERVE_KEY_MISUSE]),
    (
        "ClientLoops",
        &[
            telemetry::RESERVE_ACCEPTED,
            telemetry::RESERVE_CREATED,
            telemetry::RESERVE_REPLAY,
            telemetry::TRANSACTION_COMMITTED,
        ],
    ),
    ("PhasesMismatched", &[telemetry::PHASE_MISMATCH]),
    ("TableSettingsOff", &[telemetry::TABLE_SETTING_OFF]),
    ("DoubleExecutions", &[telemetry::DOUBLE_EXECUTION]),
    ("ReportsUnwritten", &[telemetry::COMPLETION_UNWRITTEN]),
    ("WritesRefused", &[telemetry::COMPLETION_DENIED]),
    ("TransactionsUnconfirmed", &[telemetry::TRANSACTION_UNCONFIRMED]),
    ("OrdersDead", &["ApproximateNumberOfMessagesVisible OrdersDeadLettersQueue"]),
    (
        "OrdersDeadGrow",
        &[
            "ApproximateNumberOfMessagesNotVisible OrdersDeadLettersQueue",
            "ApproximateNumberOfMessagesVisible OrdersDeadLettersQueue",
        ],
    ),
    ("OrdersDeadOld", &["ApproximateNumberOfMessagesVisible OrdersDeadLettersQueue"]),
    ("OrdersNotBuried", &["api.idempotency.message.not_buried.count OrdersQueue"]),
    ("OutboxNotBuried", &["api.idempotency.message.not_buried.count OutboxQueue"]),
    ("WorkNotBuried", &["api.idempotency.message.not_buried.count WorkQueue"]),
    ("OrdersHeld", &["api.idempotency.message.held.count OrdersQueue"]),
    ("OrdersLate", &["ApproximateAgeOfOldestMessage OrdersQueue"]),
    ("OrdersQueued", &["ApproximateNumberOfMessagesVisible OrdersQueue"]),
    ("OrderQueueErrors", &["Errors OrderQueueFunction"]),
    ("OrderQueueThrottled", &["Throttles OrderQueueFunction"]),
    ("PaymentsErrors", &["Errors PaymentsFunction"]),
    ("PaymentsThrottled", &["Throttles PaymentsFunction"]),
    ("OrdersErrors", &["Errors OrdersFunction"]),
    ("OrdersThrottled", &["Throttles OrdersFunction"]),
    ("ReportsErrors", &["Errors ReportsFunction"]),
    ("ReportsThrottled", &["Throttles ReportsFunction"]),
    ("ShipmentsNotBuried", &["api.idempotency.message.not_buried.count ShipmentsQueue"]),
    ("ShippingErrors", &["Errors ShippingFunction"]),
    ("ShippingThrottled", &["Throttles ShippingFunction"]),
    ("ReportWorkerErrors", &["Errors ReportWorkerFunction"]),
    ("ReportWorkerThrottled", &["Throttles ReportWorkerFunction"]),
    ("ShipmentsDead", &["ApproximateNumberOfMessagesVisible ShipmentsDeadLettersQueue"]),
    (
        "ShipmentsDeadGrow",
        &[
            "ApproximateNumberOfMessagesNotVisible ShipmentsDeadLettersQueue",
            "ApproximateNumberOfMessagesVisible ShipmentsDeadLettersQueue",
        ],
    ),
    ("ShipmentsDeadOld", &["ApproximateNumberOfMessagesVisible ShipmentsDeadLettersQueue"]),
    ("ShipmentsLate", &["ApproximateAgeOfOldestMessage ShipmentsQueue"]),
    ("PollMissing", &[telemetry::RECONCILE_POLL]),
    ("EventsUnsigned", &[telemetry::WEBHOOK_UNSIGNED]),
    ("EventsRefused", &[telemetry::WEBHOOK_REFUSED]),
    ("EventsUnreadable", &[telemetry::WEBHOOK_UNREADABLE]),
    ("EventsNotProcessed", &[telemetry::WEBHOOK_AGAIN]),
    ("WebhookErrors", &["Errors WebhookFunction"]),
    ("CompareMissing", &[ledgers::metrics::COMPARE_COMPLETED]),
    ("LedgersDiffer", &[ledgers::metrics::COMPARE_DIFFERENCES]),
];

/// A metric that an alarm watches.
struct Metric {
    namespace: Value,
    name: String,
    dimensions: Vec<Value>,
    statistic: String,
    period: u64,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// How many periods an alarm looks at. A parameter counts with its default.
fn periods(alarm: &Value) -> u64 {
    let periods = &alarm["EvaluationPeriods"];
    match periods["Ref"].as_str() {
        Some(parameter) => number(&super::template(super::IDEMPOTENCY)["Parameters"][parameter]["Default"]),
        None => number(periods),
    }
}

fn metrics(alarm: &Value) -> Vec<Metric> {
    let metric = |of: &Value, statistic: &Value, period: &Value| Metric {
        namespace: of["Namespace"].clone(),
        name: text(&of["MetricName"]),
        dimensions: list(&of["Dimensions"]).into_iter().cloned().collect(),
        statistic: text(statistic),
        period: number(period),
    };
    if alarm["Metrics"].is_null() {
        return vec![metric(alarm, &alarm["Statistic"], &alarm["Period"])];
    }
    let stats =
        list(&alarm["Metrics"]).into_iter().map(|of| &of["MetricStat"]).filter(|stat| !stat.is_null());
    stats.map(|stat| metric(&stat["Metric"], &stat["Stat"], &stat["Period"])).collect()
}

/// The name of a queue, as the templates write it.
fn queue_name(queue: &str) -> Value {
    json!({ "Fn::GetAtt": format!("{queue}.QueueName") })
}

/// The metric's name. If it is a metric of AWS, with its resource. Panics if nothing emits such a metric.
fn emitted(metric: &Metric) -> String {
    if let Value::String(namespace) = &metric.namespace {
        let found = OF_AWS.iter().find(|(of, name, ..)| of == namespace && *name == metric.name);
        let (_, name, statistics, dimension, kind) = found.unwrap_or_else(|| panic!("{}", metric.name));
        assert!(statistics.contains(&&*metric.statistic), "{name}: {}", metric.statistic);
        let [only] = &metric.dimensions[..] else { panic!("{name}: {:?}", metric.dimensions) };
        assert_eq!(only["Name"], *dimension);
        let named = referred(&only["Value"]);
        let _ = resource(kind, &named);
        return format!("{name} {named}");
    }
    assert_eq!(referred(&metric.namespace), "MetricsNamespace");
    if let Some(name) = OF_MESSAGES.iter().find(|name| **name == metric.name) {
        assert_eq!(metric.statistic, "Sum");
        let [only] = &metric.dimensions[..] else { panic!("{name}: {:?}", metric.dimensions) };
        // The consumer names its queue by the last part of its URL, which is the queue's name; a stream, a table or a topic by its name.
        let queues = ["OrdersQueue", "OutboxQueue", "ShipmentsQueue", "WorkQueue"];
        let streams = ["KafkaTopic", "OrdersStream", "ProductsTable"];
        let queue = queues.into_iter().find(|queue| only["Value"] == queue_name(queue));
        let of =
            queue.or_else(|| streams.into_iter().find(|stream| only["Value"] == json!({ "Ref": stream })));
        assert_eq!(only["Name"], "queue");
        return format!("{name} {}", of.expect("what a consumer consumes"));
    }
    assert!(metric.dimensions.is_empty(), "{}: {:?}", metric.name, metric.dimensions);
    let found = OURS.iter().find(|(name, _)| *name == metric.name);
    let (name, statistic) = found.unwrap_or_else(|| panic!("nothing counts {}", metric.name));
    assert_eq!(metric.statistic, *statistic);
    (*name).to_owned()
}

/// The names of the metrics that an alarm watches, those of AWS with their resource.
pub fn looks_at(alarm: &Value) -> BTreeSet<String> {
    metrics(alarm).iter().map(emitted).collect()
}

/// The alarms of all templates, those that are copied too.
fn all_alarms() -> Vec<Resource> {
    resources_of(&[IDEMPOTENCY, SAMPLE, STREAMS], ALARM)
}

// T50
#[test]
fn every_alarm_looks_at_a_metric_that_is_emitted() {
    let looked_at = resources(ALARM).into_iter().map(|alarm| {
        let names = looks_at(&alarm.properties);
        (alarm.name, names)
    });
    let expected = ALARMS.iter().map(|(alarm, metrics)| {
        ((*alarm).to_owned(), metrics.iter().map(|&metric| metric.to_owned()).collect())
    });
    assert_eq!(looked_at.collect::<BTreeMap<_, _>>(), expected.collect::<BTreeMap<_, BTreeSet<_>>>());
}

// The alarms of one stack do not react to another.
#[test]
fn every_function_counts_in_the_namespace_of_the_alarms() {
    for function in resources(FUNCTION) {
        let globals = &super::template(function.template)["Globals"]["Function"]["Environment"]["Variables"];
        assert_eq!(referred(&globals["METRICS_NAMESPACE"]), "MetricsNamespace", "{}", function.name);
        assert!(function.properties["Environment"]["Variables"]["METRICS_NAMESPACE"].is_null());
    }
    let nested = &super::template(super::SAMPLE)["Resources"][super::NESTED]["Properties"]["Parameters"];
    assert_eq!(nested["MetricsNamespace"], json!({ "Fn::Sub": "lambda-idempotency/${AWS::StackName}" }));
}

#[test]
fn every_alarm_notifies_when_it_begins_and_ends() {
    let topic = json!({ "Fn::If": ["Notifies", [{ "Ref": "AlarmTopicArn" }], { "Ref": "AWS::NoValue" }] });
    let ours = all_alarms().into_iter().map(|Resource { name, properties, .. }| (name, properties));
    for (name, properties) in ours.chain(alarms_of_starter()) {
        assert_eq!(properties["AlarmActions"], topic, "{name}");
        assert_eq!(properties["OKActions"], topic, "{name}");
        assert!(text(&properties["AlarmDescription"]).contains(" Begin with "), "{name}");
    }
}

/// The starter's own alarms.
fn alarms_of_starter() -> Vec<(String, Value)> {
    let starter = starter();
    let alarms = members(&starter["Resources"]).filter(|(_, resource)| resource["Type"] == ALARM);
    alarms.map(|(name, alarm)| (name.clone(), alarm["Properties"].clone())).collect()
}

#[test]
fn the_starters_alarms_watch_its_route_and_its_poll() {
    let alarms: BTreeMap<_, _> = alarms_of_starter().into_iter().collect();
    let names: Vec<_> = alarms.keys().map(|name| format!("`{name}`")).collect();
    let [errors, fail, poll] = &names[..] else { panic!("{names:?}") };
    let page = super::text("docs/alarms.md");
    assert!(page.contains(&format!("{errors}, {fail} and {poll}. ")), "{names:?}");
    assert_eq!(alarms["PollMissing"], resource(ALARM, "PollMissing"));
    let errors = metrics(&alarms["ChargesErrors"]).remove(0);
    assert_eq!(
        (&*errors.name, referred(&errors.dimensions[0]["Value"])),
        ("Errors", "ChargesFunction".to_owned())
    );
    // A function that is throttled has no errors, and a provider that is away none either: their clients get 5xx.
    // https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
    let fail = metrics(&alarms["ChargesFail"]).remove(0);
    assert_eq!((&fail.namespace, &*fail.name, &*fail.statistic), (&json!("AWS/ApiGateway"), "5xx", "Sum"));
    assert_eq!(fail.dimensions, [json!({ "Name": "ApiId", "Value": { "Ref": "HttpApi" } })]);
    assert_eq!((fail.period, number(&alarms["ChargesFail"]["Threshold"])), (900, 2));
}

/// Each level, which stays on for as long as something waits, with the alarm on its growth.
pub const LEVELS: &[(&str, &str)] = &[
    ("ChangesParked", "ChangesParkedGrow"),
    ("DeadLettersWaiting", "DeadLettersGrow"),
    ("KafkaParked", "KafkaParkedGrow"),
    ("KinesisParked", "KinesisParkedGrow"),
    ("OldestUnknown", "UnknownGrow"),
    ("OperationsWaiting", "OperationsWaitingGrow"),
    ("OrdersDead", "OrdersDeadGrow"),
    ("OutboxDead", "OutboxDeadGrow"),
    ("OutcomesEscalated", "EscalatedGrow"),
    ("ReportsDead", "ReportsDeadGrow"),
    ("ReportsLate", "ReportsGrow"),
    ("ShipmentsDead", "ShipmentsDeadGrow"),
    ("WorkDead", "WorkDeadGrow"),
];

/// The queues of dead letters that an alarm watches.
fn dead_letters(alarm: &Value) -> BTreeSet<String> {
    let queues = metrics(alarm).into_iter().filter(|metric| metric.namespace == "AWS/SQS");
    let queues = queues.map(|metric| referred(&metric.dimensions[0]["Value"]));
    queues.filter(|queue| queue.ends_with("DeadLettersQueue")).collect()
}

// T57: `growth` shows that the alarms on growth come.
#[test]
fn every_level_of_dead_letters_has_an_alarm_on_its_growth() {
    let sources = resources(QUEUE).into_iter().map(|queue| queue.properties["RedrivePolicy"].clone());
    let sources = sources.filter(|policy| !policy.is_null());
    let with_dead_letters: BTreeSet<_> =
        sources.map(|policy| referred(&policy["deadLetterTargetArn"])).collect();
    let watched = |names: fn(&(&str, &str)) -> String| -> BTreeSet<_> {
        LEVELS.iter().flat_map(|level| dead_letters(&resource(ALARM, &names(level)))).collect()
    };
    assert_eq!(watched(|(level, _)| (*level).to_owned()), with_dead_letters);
    assert_eq!(watched(|(_, growth)| (*growth).to_owned()), with_dead_letters);
    for (level, growth) in LEVELS {
        let [level_alarm, alarm] = [level, growth].map(|name| resource(ALARM, name));
        assert_eq!(dead_letters(&level_alarm), dead_letters(&alarm), "{growth}");
        assert!(text(&alarm["AlarmDescription"]).contains(level), "{growth} names its level");
    }
}

// A provider that sends one event a minute, and fails with each.
#[test]
fn events_that_fail_once_a_minute_raise_their_alarms_within_an_hour() {
    let once_a_minute = |alarm: &Value| {
        assert_eq!(number(&alarm["EvaluationPeriods"]), 1);
        let period = metrics(alarm)[0].period;
        assert!(period <= 3600);
        period / 60
    };
    for name in ["EventsRefused", "EventsUnreadable", "EventsNotProcessed"] {
        let alarm = resource(ALARM, name);
        assert!(once_a_minute(&alarm) > 0);
        assert_eq!(number(&alarm["Threshold"]), 0, "{name}: each is signed");
    }
    // Anybody can send those.
    let unsigned = resource(ALARM, "EventsUnsigned");
    assert_eq!(unsigned["Threshold"], json!({ "Ref": "EventsUnsignedTolerated" }));
    let tolerated =
        number(&super::template(super::SAMPLE)["Parameters"]["EventsUnsignedTolerated"]["Default"]);
    assert!((10..once_a_minute(&unsigned)).contains(&tolerated), "{tolerated}");
}

// T50: a dead function emits no metrics.
#[test]
fn missing_data_alarm_only_if_something_must_happen() {
    for Resource { name, properties, .. } in all_alarms() {
        let must_happen = properties["ComparisonOperator"] == "LessThanThreshold";
        let states = [
            "OldestUnknown",
            "OutcomesEscalated",
            "OperationsWaiting",
            "ContradictionsWaiting",
            "ContradictionsOld",
            "DeadLettersWaiting",
            "DeadLettersOld",
            "ReportsDead",
            "ReportsDeadOld",
            "OrdersDead",
            "OrdersDeadOld",
            "ShipmentsDead",
            "ShipmentsDeadOld",
            "OutboxDead",
            "OutboxUndelivered",
            "WorkDead",
            "WorkWaiting",
            "ChangesParked",
            "ChangesParkedOld",
            "KafkaParked",
            "KafkaParkedOld",
            "KinesisParked",
            "KinesisParkedOld",
        ];
        let is_state = states.contains(&&*name);
        let expected = match (must_happen, is_state) {
            (true, _) => "breaching",
            (_, true) => "ignore",
            _ => "notBreaching",
        };
        assert_eq!(properties["TreatMissingData"], expected, "{name}");
    }
}

#[test]
fn no_alarm_looks_back_further_than_cloudwatch_does() {
    for Resource { name, properties, .. } in all_alarms() {
        let periods = periods(&properties);
        for metric in metrics(&properties) {
            // https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
            let most = if metric.period < 3600 { 86_400 } else { 604_800 };
            assert!(metric.period * periods <= most, "{name}");
            assert!(metric.period.is_multiple_of(60), "{name}");
        }
    }
}

// T50
#[test]
fn a_schedule_that_does_not_run_raises_an_alarm_in_time() {
    let window = |name, counts| {
        let alarm = resource(ALARM, name);
        let [metric] = &metrics(&alarm)[..] else { panic!("{name} watches one metric") };
        // A function that does not run counts nothing.
        assert_eq!((&*metric.name, &*metric.statistic), (counts, "Sum"), "{name}");
        let comes = ["ComparisonOperator", "TreatMissingData"].map(|property| text(&alarm[property]));
        assert_eq!(comes, ["LessThanThreshold", "breaching"], "{name}");
        assert_eq!(number(&alarm["Threshold"]), 1, "{name}");
        metric.period * periods(&alarm)
    };
    assert_eq!(window("PollMissing", telemetry::RECONCILE_POLL), 5 * 60);
    for (daily, counts) in [
        ("SweepMissing", telemetry::SWEEP_COMPLETED),
        ("CompareMissing", ledgers::metrics::COMPARE_COMPLETED),
    ] {
        // Longer than the time to the next run, shorter than the time to the one after it.
        assert!((24 * 3600 + 1..48 * 3600).contains(&window(daily, counts)), "{daily}");
    }
}

// An operator must be able to react to a deferred report before its effect counts as "not found".
#[test]
fn waiting_reports_raise_an_alarm_in_time() {
    let alarm = resource(ALARM, "ReportsLate");
    let (period, threshold) = (metrics(&alarm)[0].period, number(&alarm["Threshold"]));
    assert_eq!(number(&alarm["DatapointsToAlarm"]), 1);
    // Each wait of a report that fails is twice as long as the one before, and perhaps a quarter shorter: see `HANDED_BACK` in
    // docs/durations.md. The age is recorded between two of them.
    let waits = (0..).map(|tries| 1_u64 << tries);
    let last = waits.take_while(|wait| (wait - 1) * 3 / 4 <= threshold).last().expect("a wait");
    let after = threshold + last + period;
    assert!(2 * after < DEFAULT_NOT_FOUND_GRACE.as_secs(), "{after}");
    // Otherwise the alarm would end while the report still fails.
    assert!(period * number(&alarm["EvaluationPeriods"]) > 15 * 60 + period);
}

// Otherwise the alarm would end while an order is still held.
#[test]
fn a_held_order_keeps_its_alarm_on() {
    let held = resource(ALARM, "OrdersHeld");
    // It is received, and counted, each half hour at least; see `HELD` in docs/durations.md.
    assert!(metrics(&held)[0].period * number(&held["EvaluationPeriods"]) >= 2 * 30 * 60);
    for name in ["OrdersNotBuried", "OutboxNotBuried", "ShipmentsNotBuried", "WorkNotBuried"] {
        let buried = resource(ALARM, name);
        assert!(metrics(&buried)[0].period * number(&buried["EvaluationPeriods"]) >= 2 * 15 * 60, "{name}");
    }
}

// Otherwise the alarm would end while the message still fails.
#[test]
fn a_message_that_always_fails_keeps_its_alarm_on() {
    let failing = resource(ALARM, "OutboxFailing");
    // It is tried each quarter of an hour at least; see `HANDED_BACK` in docs/durations.md. Three of four tries are certainly in the window.
    let window = metrics(&failing)[0].period * number(&failing["EvaluationPeriods"]);
    assert!(window / (15 * 60) - 1 > number(&failing["Threshold"]));
}

// A dead letter is lost with its message after 14 days.
#[test]
fn old_dead_letters_raise_an_alarm_a_week_before_they_are_lost() {
    for (alarm, queue) in [
        ("ContradictionsOld", "ContradictionsQueue"),
        ("DeadLettersOld", "DeadLettersQueue"),
        ("OrdersDeadOld", "OrdersDeadLettersQueue"),
        ("ShipmentsDeadOld", "ShipmentsDeadLettersQueue"),
        ("ChangesParkedOld", "ChangesParkedQueue"),
        ("KafkaParkedOld", "KafkaParkedQueue"),
        ("KinesisParkedOld", "KinesisParkedQueue"),
    ] {
        let alarm = resource(ALARM, alarm);
        let after = metrics(&alarm)[0].period * number(&alarm["EvaluationPeriods"]);
        let kept = number(&resource(QUEUE, queue)["MessageRetentionPeriod"]);
        assert_eq!((after, kept), (7 * 24 * 3600, 14 * 24 * 3600));
    }
}

// T57: the next comparison, a day later, must notify again.
#[test]
fn differences_of_one_day_end_their_alarm_before_the_next() {
    let alarm = resource(ALARM, "LedgersDiffer");
    assert!(metrics(&alarm)[0].period * number(&alarm["EvaluationPeriods"]) <= 12 * 3600);
    // A dead letter has spent four of its fourteen days in the queue of deferred reports.
    let old = resource(ALARM, "ReportsDeadOld");
    assert_eq!(metrics(&old)[0].period * number(&old["EvaluationPeriods"]), 4 * 24 * 3600);
}

// A wrong threshold, period or expression is an alarm that never comes.
#[test]
fn every_alarm_on_something_wrong_comes_at_the_first_of_it() {
    // Those of which a few are normal, and ages.
    let tolerate = [
        "AnswersInconclusive",
        "ChangesBehind",
        "ChecksLate",
        "ClientLoops",
        "DeadWorkers",
        "EventsUnsigned",
        "KafkaBehind",
        "KeyMisuse",
        "KinesisBehind",
        "OldestUnknown",
        "OperationsWaiting",
        "OperationsWaitingGrow",
        "OrdersLate",
        "OrdersQueued",
        "OutboxFailing",
        "OutboxOld",
        "OutboxStreamLate",
        "OutcomesAssumed",
        "QuestionsLate",
        "ReportsLate",
        "ShipmentsLate",
        "StoreErrors",
        "StoreThrottled",
        "StreamLate",
        "SweepLate",
        "TransactionsUnconfirmed",
        "WorkOld",
    ];
    let mut tolerating = BTreeSet::new();
    for Resource { name, properties, .. } in all_alarms() {
        if properties["ComparisonOperator"] == "GreaterThanThreshold" && properties["Threshold"] != 0 {
            tolerating.insert(name);
        }
    }
    assert_eq!(tolerating, tolerate.map(str::to_owned).into());
}

/// The rows of the page about alarms: the alarms, what they mean, and what to do.
fn rows() -> Vec<Vec<String>> {
    let page = super::text("docs/alarms.md");
    let rows =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |").map(str::to_owned));
    rows.map(|row| row.split(" | ").map(|cell| cell.trim_matches('`').to_owned()).collect()).collect()
}

/// The names in a cell. Alarms that are alike share a row.
fn names(cell: &str) -> impl Iterator<Item = String> {
    cell.split("`, `").map(str::to_owned)
}

#[test]
fn the_page_about_alarms_has_each_alarm_once() {
    let written: Vec<_> = rows().iter().flat_map(|row| names(&row[0])).collect();
    let unique: BTreeSet<_> = written.iter().cloned().collect();
    assert_eq!(unique.len(), written.len());
    assert_eq!(unique, all_alarms().into_iter().map(|alarm| alarm.name).collect());
    let alarms = all_alarms().into_iter();
    let alarms: BTreeMap<_, _> = alarms.map(|alarm| (alarm.name, metrics(&alarm.properties))).collect();
    for row in rows() {
        assert_eq!(row.len(), 4, "{row:?}");
        for name in names(&row[0]) {
            let looks_at = alarms[&name].iter().map(|metric| metric.name.clone());
            assert_eq!(names(&row[1]).collect::<BTreeSet<_>>(), looks_at.collect(), "{name}");
        }
    }
}

/// The alarms that a table of the page names, by column.
fn named(header: &str) -> Vec<BTreeSet<String>> {
    let page = super::text("docs/alarms.md");
    let (_, table) = page.split_once(header).unwrap_or_else(|| panic!("no table: {header}"));
    // Behind the rest of the header, and the line below it.
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let mut columns = vec![BTreeSet::new(); header.matches(" | ").count() + 1];
    for row in rows {
        let cells: Vec<_> = row.split(" | ").collect();
        assert_eq!(cells.len(), columns.len(), "{row}");
        for (column, cell) in columns.iter_mut().zip(cells) {
            column.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    columns
}

/// Whether an alarm exists whatever `Alarms` says.
fn is_essential(alarm: &Value) -> bool {
    match alarm["Condition"].as_str() {
        None => true,
        Some("HasAllAlarms" | "HasOutboxAlarms" | "HasOutboxFunctionAlarms") => false,
        Some(other) => panic!("{other}"),
    }
}

// An alarm that is left out must not be the only one that reports a stuck record.
#[test]
fn the_page_says_which_alarms_are_essential_and_what_reports_the_rest() {
    let template = super::template(super::IDEMPOTENCY);
    let alarms = members(&template["Resources"]).filter(|(_, resource)| resource["Type"] == ALARM);
    let (essential, left_out): (Vec<_>, Vec<_>) = alarms.partition(|(_, alarm)| is_essential(alarm));
    let [essential, left_out] = [essential, left_out]
        .map(|alarms| alarms.into_iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>());
    assert_eq!(named("| what must not be missed | essential alarms |")[1], essential);
    // Otherwise an old incident would hide the new ones.
    for (level, growth) in LEVELS.iter().filter(|(level, _)| essential.contains(*level)) {
        assert!(essential.contains(*growth), "{level}");
    }
    let columns = named("| what is reported later, or not at all | left out | what reports it |");
    assert_eq!(columns[1], left_out);
    // This one watches the poll, which is the user's.
    let known: BTreeSet<_> = essential.iter().cloned().chain(["PollMissing".to_owned()]).collect();
    assert!(columns[2].is_subset(&known), "{:?}", columns[2]);
    let numbers = format!(
        "is `all` ({} alarms) or `essential` ({} alarms)",
        essential.len() + left_out.len(),
        essential.len()
    );
    assert!(super::text("docs/alarms.md").contains(&numbers), "{numbers}");
}

#[test]
fn every_alarm_exists_unless_the_parameter_leaves_it_out() {
    let template = super::template(super::IDEMPOTENCY);
    let parameter = &template["Parameters"]["Alarms"];
    assert_eq!(parameter["Default"], "all");
    assert_eq!(parameter["AllowedValues"], json!(["all", "essential"]));
    let conditions = &template["Conditions"];
    assert_eq!(conditions["HasAllAlarms"], json!({ "Fn::Equals": [{ "Ref": "Alarms" }, "all"] }));
    for has in ["HasOutbox", "HasOutboxFunction"] {
        let both = json!({ "Fn::And": [{ "Condition": has }, { "Condition": "HasAllAlarms" }] });
        assert_eq!(conditions[format!("{has}Alarms")], both);
    }
    // The sample publishes and accepts work. One small route does not.
    let passed =
        |template: &Value| template["Resources"][super::NESTED]["Properties"]["Parameters"]["Alarms"].clone();
    assert_eq!(passed(&super::template(super::SAMPLE)), Value::Null);
    assert_eq!(passed(&starter()), "essential");
}

// CloudWatch charges for each metric of an alarm.
#[test]
fn the_page_about_costs_counts_the_metrics_of_alarms() {
    let count = |template: &Value, counts: fn(&Value) -> bool| -> usize {
        let alarms = members(&template["Resources"]).map(|(_, resource)| resource);
        let alarms = alarms.filter(|resource| resource["Type"] == ALARM && counts(resource));
        alarms.map(|alarm| metrics(&alarm["Properties"]).len()).sum()
    };
    let (nested, own) = (super::template(super::IDEMPOTENCY), count(&starter(), |_| true));
    let costs = [count(&nested, is_essential), count(&nested, |_| true)].map(|nested| {
        let metrics = nested + own;
        format!("{metrics} metrics: ${}.{}0", metrics / 10, metrics % 10)
    });
    let row = format!("| alarms | {} |", costs.join(" | "));
    assert!(super::text("docs/costs.md").contains(&row), "{row}");
}

/// The commands of the operators' command line that a text quotes in backticks.
fn commands(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|quoted| quoted.starts_with("idempotency ")).map(str::to_owned).collect()
}

// An operator types what the alarm says.
#[tokio::test]
async fn every_command_that_an_alarm_names_exists() {
    let described = all_alarms().into_iter().map(|alarm| text(&alarm.properties["AlarmDescription"]));
    let named: BTreeSet<_> =
        described.chain([super::text("docs/alarms.md")]).flat_map(|text| commands(&text)).collect();
    assert!(named.len() > 4, "{named:?}");
    for command in named {
        // The arguments before `--help` are parsed first.
        let arguments = command.split(' ').skip(1).chain(["--help"]);
        let ran = tokio::process::Command::new(PROGRAM).args(arguments).output().await;
        assert!(ran.expect("the command line can be run").status.success(), "{command}");
    }
}
