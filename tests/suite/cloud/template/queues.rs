//! Failures are kept where an operator finds them, and slow work is not delivered twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use local::yaml;
use protocol::backoff::Backoff;
use serde_json::{Value, json};

use super::{FUNCTION, QUEUE, Resource, list, members, referred, resource, resources};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The waits of a message that is handed back: see `HANDED_BACK` in docs/durations.md.
const HANDED_BACK: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, max: Duration::from_secs(15 * 60) };

/// The queue of deferred reports.
const REPORTS: &str = "DeferredReportsQueue";

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// A name or an ARN as the template writes it, perhaps with a part that differs in each stack of the same name.
fn name_of(value: &Value) -> String {
    let value = &value["Fn::Sub"];
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no name: {value}")).to_owned();
    let Value::Array(parts) = value else { return text(value) };
    assert_eq!(parts[1], json!({ "Instance": instance() }));
    text(&parts[0])
}

/// The first part of the unique id in the stack's ARN: <https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/pseudo-parameter-reference.html>
fn instance() -> Value {
    let id = json!({ "Fn::Select": [2, { "Fn::Split": ["/", { "Ref": "AWS::StackId" }] }] });
    json!({ "Fn::Select": [0, { "Fn::Split": ["-", id] }] })
}

/// The events of this type for all functions.
fn events(kind: &str) -> Vec<(Resource, Value)> {
    let functions = resources(FUNCTION).into_iter();
    let events = functions.flat_map(|function| {
        let of_kind = members(&function.properties["Events"]).filter(|(_, event)| event["Type"] == kind);
        let found: Vec<_> = of_kind.map(|(_, event)| event["Properties"].clone()).collect();
        found
            .into_iter()
            .map(move |event| {
                let Resource { template, name, properties } = &function;
                (Resource { template, name: name.clone(), properties: properties.clone() }, event)
            })
            .collect::<Vec<_>>()
    });
    events.collect()
}

// T50
#[test]
fn a_failed_scheduled_run_becomes_a_dead_letter() {
    let scheduled = events("ScheduleV2");
    assert_eq!(scheduled.len(), 3);
    for (function, event) in scheduled {
        let failed = "FailedRunsQueue";
        let config = &function.properties["EventInvokeConfig"];
        assert_eq!(
            referred(&config["DestinationConfig"]["OnFailure"]["Destination"]),
            failed,
            "{}",
            function.name
        );
        assert_eq!(referred(&event["DeadLetterConfig"]["Arn"]), failed, "{}", function.name);
        // A late job is left to the next scheduled run. It must not begin hours late.
        assert!(number(&config["MaximumEventAgeInSeconds"]) <= 6 * 3600);
        assert!(number(&event["RetryPolicy"]["MaximumEventAgeInSeconds"]) <= 3600);
    }
}

// T19
#[test]
fn a_batch_of_changes_that_cannot_be_read_becomes_a_dead_letter() {
    for (_, event) in events("DynamoDB") {
        assert_eq!(event["BisectBatchOnFunctionError"], true);
        // Kills and outages are over in time, however many tries they cost. The stream keeps a change for a day.
        assert_eq!(event["MaximumRetryAttempts"], -1);
        assert!((3_600..=6 * 3_600).contains(&number(&event["MaximumRecordAgeInSeconds"])));
        assert_eq!(event["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
        assert_eq!(referred(&event["DestinationConfig"]["OnFailure"]["Destination"]), "DeadLettersQueue");
    }
}

// https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html: more than two readers of a shard are throttled.
#[test]
fn two_functions_read_the_stream() {
    let readers = events("DynamoDB").into_iter().map(|(function, _)| function.name);
    assert_eq!(readers.collect::<Vec<_>>(), ["OutboxFunction", "StaleFunction"]);
}

// T65: without it, Lambda takes every answer for a success, and deletes what was handed back.
#[test]
fn each_mapping_of_every_template_reports_its_failures() {
    let mut mappings = 0;
    for folder in ["infra", "starter", "starter/infra", "starter-events", "starter-events/infra"] {
        let path = format!("{}/../{folder}", env!("CARGO_MANIFEST_DIR"));
        let files = fs::read_dir(path).expect("a folder").map(|file| file.expect("a file").path());
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
            let template = yaml::parse(&fs::read_to_string(&file).expect("text")).expect("YAML");
            for (name, resource) in members(&template["Resources"]) {
                let properties = &resource["Properties"];
                let events = members(&properties["Events"]).map(|(_, event)| event);
                let of_a_batch = |event: &&Value| {
                    let kinds = ["SQS", "DynamoDB", "Kinesis", "MSK", "SelfManagedKafka"].map(Value::from);
                    kinds.contains(&event["Type"]) || event["Type"] == "AWS::Lambda::EventSourceMapping"
                };
                for mapping in events.chain([resource]).filter(of_a_batch) {
                    let kinds = &mapping["Properties"]["FunctionResponseTypes"];
                    assert_eq!(kinds, &json!(["ReportBatchItemFailures"]), "{name} in {}", file.display());
                    mappings += 1;
                }
            }
        }
    }
    assert_eq!(
        mappings, 28,
        "infra and both starters each have five in idempotency.yaml, and eight, two or three of their own"
    );
}

#[test]
fn messages_being_processed_are_not_delivered_twice() {
    let events = events("SQS");
    assert_eq!(events.len(), 8);
    for (function, event) in events {
        // A consumer buries its dead messages itself, and counts its attempts itself: a receive is none.
        let (dead_letters, receives) = match &*function.name {
            "OrderQueueFunction" => ("OrdersDeadLettersQueue", 1_000),
            "OutboxFunction" => ("OutboxDeadLettersQueue", 1_000),
            "ReportWorkerFunction" => ("WorkDeadLettersQueue", 1_000),
            "ShippingFunction" => ("ShipmentsDeadLettersQueue", 1_000),
            _ if referred(&event["Queue"]) == REPORTS => ("DeferredReportsDeadLettersQueue", 400),
            _ => ("DeadLettersQueue", 5),
        };
        assert_eq!(event["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
        let queue = resource(QUEUE, &referred(&event["Queue"]));
        // Recommended by Lambda's documentation, so that throttled polls do not use up the receives:
        // https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
        let hidden = &queue["VisibilityTimeout"];
        let nested = &super::template(super::SAMPLE)["Resources"][super::NESTED]["Properties"]["Parameters"];
        let hidden = hidden["Ref"].as_str().map_or(hidden, |parameter| &nested[parameter]);
        assert_eq!(number(hidden), 6 * number(&function.properties["Timeout"]), "{}", function.name);
        assert_eq!(referred(&queue["RedrivePolicy"]["deadLetterTargetArn"]), dead_letters);
        assert_eq!(number(&queue["RedrivePolicy"]["maxReceiveCount"]), receives);
    }
}

// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
#[test]
fn a_fifo_queue_has_fifo_dead_letters_and_a_fifo_name() {
    let mut fifo = 0;
    for Resource { name, properties, .. } in resources(QUEUE) {
        let is_fifo = properties["FifoQueue"] == true;
        fifo += u32::from(is_fifo);
        // CloudFormation gives the others their suffix.
        if !properties["QueueName"].is_null() {
            assert_eq!(name_of(&properties["QueueName"]).ends_with(".fifo"), is_fifo, "{name}");
        }
        if !properties["RedrivePolicy"].is_null() {
            let dead_letters =
                resource(QUEUE, &referred(&properties["RedrivePolicy"]["deadLetterTargetArn"]));
            assert_eq!(dead_letters["FifoQueue"] == true, is_fifo, "{name}");
        }
    }
    assert_eq!(fifo, 4);
    for (_, event) in events("SQS") {
        // https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
        assert!(number(&event["BatchSize"]) <= 10);
        assert!((2..=1_000).contains(&number(&event["ScalingConfig"]["MaximumConcurrency"])));
    }
}

#[test]
fn dead_letters_come_from_every_queue_and_stay_longest() {
    let mut sources = BTreeMap::<String, BTreeSet<String>>::new();
    for Resource { properties, .. } in resources(QUEUE) {
        // A queue without a RedrivePolicy sends no dead letters.
        if !properties["RedrivePolicy"].is_null() {
            let target = referred(&properties["RedrivePolicy"]["deadLetterTargetArn"]);
            sources.entry(target).or_default().insert(name_of(&properties["QueueName"]));
        }
    }
    assert_eq!(sources.len(), 6);
    for (target, sources) in sources {
        let dead_letters = resource(QUEUE, &target);
        assert_eq!(number(&dead_letters["MessageRetentionPeriod"]), 14 * 24 * 3600);
        let allowed = list(&dead_letters["RedriveAllowPolicy"]["sourceQueueArns"])
            .into_iter()
            .map(|arn| name_of(arn).split_once("${AWS::AccountId}:").expect("an account").1.to_owned());
        assert_eq!(allowed.collect::<BTreeSet<_>>(), sources);
    }
}

// T54: each may be the only trace of an effect. SQS deletes what is in a queue for too long, and makes no dead letter of it.
#[test]
fn deferred_reports_are_tried_for_days_and_die_before_sqs_deletes_them() {
    let queue = resource(QUEUE, REPORTS);
    let kept = Duration::from_secs(number(&queue["MessageRetentionPeriod"]));
    assert_eq!(kept, 7 * DAY);
    let receives = number(&queue["RedrivePolicy"]["maxReceiveCount"]);
    let tried = |longest: bool| {
        let waits = (1..receives).map(|receives| {
            let jitter = if longest { [0; 16] } else { [255; 16] };
            HANDED_BACK.after(receives.try_into().unwrap(), jitter)
        });
        waits.sum::<Duration>()
    };
    assert!(3 * DAY < tried(false), "a weekend: {:?}", tried(false));
    // Besides, each may wait for its function and be killed with it.
    assert!(tried(true) + DAY < kept, "{:?}", tried(true));
    // Their clock runs from the first send.
    let dead_letters = &resource(QUEUE, "DeferredReportsDeadLettersQueue")["MessageRetentionPeriod"];
    assert!(Duration::from_secs(number(dead_letters)) >= tried(true) + 7 * DAY);
}

// Questions and provider reports may wait on purpose: among them, nobody would see a report that is late.
#[test]
fn workers_send_reports_to_a_queue_of_their_own() {
    let guards = [
        "OrderQueueFunction",
        "OrdersFunction",
        "PaymentsFunction",
        "ReportWorkerFunction",
        "ReportsFunction",
    ];
    for function in resources(FUNCTION) {
        let variables = &function.properties["Environment"]["Variables"];
        let is_guard = guards.contains(&&*function.name);
        let reads =
            ["DEFERRED_REPORTS_QUEUE_URL", "RECONCILE_QUEUE_URL"].map(|name| !variables[name].is_null());
        let expected = match &*function.name {
            "ReconcileFunction" => [true, true],
            "WebhookFunction" => [false, true],
            _ => [is_guard, false],
        };
        assert_eq!(reads, expected, "{}", function.name);
        if reads[0] {
            assert_eq!(referred(&variables["DEFERRED_REPORTS_QUEUE_URL"]), REPORTS, "{}", function.name);
        }
    }
}

// What is held waits in its queue until its outcome is settled.
#[test]
fn queues_of_orders_and_work_keep_messages_as_long_as_sqs_can() {
    for queue in ["OrdersQueue", "OrdersDeadLettersQueue", "WorkQueue", "WorkDeadLettersQueue"] {
        assert_eq!(number(&resource(QUEUE, queue)["MessageRetentionPeriod"]), 14 * 24 * 3600, "{queue}");
    }
}

// The outbox has removed what the bus has accepted.
#[test]
fn an_event_that_its_queue_refuses_becomes_a_dead_letter() {
    let rules = resources("AWS::Events::Rule");
    for rule in rules {
        assert_eq!(referred(&rule.properties["EventBusName"]), "ShopBus");
        for target in list(&rule.properties["Targets"]) {
            let queue = resource(QUEUE, &referred(&target["Arn"]));
            let dead_letters = referred(&queue["RedrivePolicy"]["deadLetterTargetArn"]);
            assert_eq!(referred(&target["DeadLetterConfig"]["Arn"]), dead_letters, "{}", rule.name);
        }
    }
}

// A stack that goes must not take the only traces of effects with it. One that comes again finds the names of its queues free.
#[test]
fn reports_and_dead_letters_outlive_their_stack() {
    let mut retained = BTreeSet::new();
    for template in [super::IDEMPOTENCY, super::SAMPLE].map(super::template) {
        for (name, queue) in members(&template["Resources"]).filter(|(_, it)| it["Type"] == QUEUE) {
            let is_kept =
                [REPORTS, "ContradictionsQueue"].contains(&&**name) || name.ends_with("DeadLettersQueue");
            let expected = if is_kept { json!("Retain") } else { Value::Null };
            assert_eq!(queue["DeletionPolicy"], expected, "{name}");
            assert_eq!(queue["UpdateReplacePolicy"], expected, "{name}");
            // Without a name, CloudFormation makes one that no queue has.
            let queue_name = &queue["Properties"]["QueueName"];
            let is_fresh = queue_name.is_null() || name_of(queue_name).ends_with("-${Instance}");
            assert_eq!(is_fresh, is_kept, "{name}");
            if is_kept {
                retained.insert(name.clone());
            }
        }
    }
    assert_eq!(retained.len(), 8, "{retained:?}");
}

/// The functions whose concurrency can be reserved, each with the parameter of the template that has it.
const RESERVED: &[(&str, &str)] = &[
    ("OutboxFunction", "OutboxConcurrency"),
    ("ReconcileFunction", "ReconcileConcurrency"),
    ("StaleFunction", "StaleConcurrency"),
    ("WebhookFunction", "WebhookConcurrency"),
];

// An account may have a quota of 10, of which nothing can be reserved.
#[test]
fn no_concurrency_is_reserved_unless_a_parameter_says_so() {
    let mut reserved = BTreeMap::new();
    for function in resources(FUNCTION) {
        let value = &function.properties["ReservedConcurrentExecutions"];
        if value.is_null() {
            continue;
        }
        let (_, parameter) = RESERVED.iter().find(|(name, _)| *name == function.name).expect("it can be");
        let condition = format!("Reserves{}", function.name.trim_end_matches("Function"));
        let expected = json!({ "Fn::If": [condition, { "Ref": parameter }, { "Ref": "AWS::NoValue" }] });
        assert_eq!(*value, expected, "{}", function.name);
        let template = super::template(function.template);
        // Zero reserved executions would stop the function.
        let is_set = json!({ "Fn::Not": [{ "Fn::Equals": [{ "Ref": parameter }, 0] }] });
        assert_eq!(template["Conditions"][&condition], is_set);
        let parameter = &template["Parameters"][parameter];
        assert_eq!((number(&parameter["Default"]), number(&parameter["MinValue"])), (0, 0));
        reserved.insert(function.name, text(&parameter["Description"]));
    }
    assert_eq!(
        reserved.keys().collect::<Vec<_>>(),
        RESERVED.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    // T50: all pollers, one for a schedule, and at least one for a shard of the stream.
    let mut pollers = BTreeMap::<String, u64>::new();
    for (function, event) in events("SQS") {
        *pollers.entry(function.name).or_default() += number(&event["ScalingConfig"]["MaximumConcurrency"]);
    }
    for (name, more) in [("ReconcileFunction", 1), ("StaleFunction", 2), ("OutboxFunction", 1)] {
        let least = format!("{} or more", pollers[name] + more);
        assert!(reserved[name].contains(&least), "{name}: {least}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

// A large table needs a sweep that is faster, or one that may take longer.
#[test]
fn the_sweeps_pace_schedule_and_alarm_are_parameters() {
    let stale = resource(FUNCTION, "StaleFunction");
    let variables = &stale["Environment"]["Variables"];
    assert_eq!(variables["SWEEP_UNITS_PER_SECOND"], json!({ "Ref": "SweepUnitsPerSecond" }));
    let schedule = &stale["Events"]["Sweep"]["Properties"]["ScheduleExpression"];
    assert_eq!(*schedule, json!({ "Ref": "SweepSchedule" }));
    let alarm = resource("AWS::CloudWatch::Alarm", "SweepMissing");
    assert_eq!(alarm["EvaluationPeriods"], json!({ "Ref": "SweepMissingHours" }));
    let templates = [super::IDEMPOTENCY, super::SAMPLE].map(super::template);
    for name in ["SweepUnitsPerSecond", "SweepSchedule", "SweepMissingHours"] {
        let [ours, samples] = templates.each_ref().map(|template| &template["Parameters"][name]);
        assert!(!ours["Default"].is_null() && ours["Default"] == samples["Default"], "{name}");
        let nested = &templates[1]["Resources"][super::NESTED]["Properties"]["Parameters"];
        assert_eq!(nested[name], json!({ "Ref": name }));
    }
    // The longest that CloudWatch looks back is a week.
    assert_eq!(number(&templates[0]["Parameters"]["SweepMissingHours"]["MaxValue"]), 7 * 24);
}

// The worker is the user's, with a time-out of its own: at most Lambda's.
#[test]
fn the_queue_of_work_suits_a_worker_of_any_timeout() {
    assert_eq!(resource(QUEUE, "WorkQueue")["VisibilityTimeout"], json!({ "Ref": "WorkVisibilitySeconds" }));
    let parameter = &super::template(super::IDEMPOTENCY)["Parameters"]["WorkVisibilitySeconds"];
    assert_eq!((number(&parameter["Default"]), number(&parameter["MinValue"])), (6 * 900, 6));
}

#[test]
fn queues_are_encrypted_and_take_nothing_unencrypted() {
    let policies = resources("AWS::SQS::QueuePolicy");
    for queue in resources(QUEUE) {
        assert_eq!(queue.properties["SqsManagedSseEnabled"], true, "{}", queue.name);
        let policy = policies.iter().find(|policy| referred(&policy.properties["Queues"][0]) == queue.name);
        let policy = policy.unwrap_or_else(|| panic!("{} has no policy", queue.name));
        let statements = list(&policy.properties["PolicyDocument"]["Statement"]);
        let (statement, allowed) = statements.split_first().expect("a statement");
        // A service has no role of this account: it is allowed here, for one source.
        for allowed in allowed {
            assert!(queue.name.starts_with("Shipments"), "{}", queue.name);
            assert_eq!(allowed["Principal"], json!({ "Service": "events.amazonaws.com" }));
            assert_eq!(
                (&allowed["Action"], referred(&allowed["Resource"])),
                (&json!("sqs:SendMessage"), queue.name.clone())
            );
            assert_eq!(referred(&allowed["Condition"]["ArnEquals"]["aws:SourceArn"]), "ShipmentsRule");
        }
        assert_eq!(statement["Effect"], "Deny");
        assert_eq!(statement["Action"], "sqs:*");
        assert_eq!(referred(&statement["Resource"]), queue.name);
        assert_eq!(statement["Condition"], json!({ "Bool": { "aws:SecureTransport": "false" } }));
    }
}
