//! Each role may do what its function does, and nothing else.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FUNCTION, Resource, calls::recorded, list, members, referred, resource, resources};

pub const ROLE: &str = "AWS::IAM::Role";

/// The queues whose functions put messages off by sending them anew. Those of the others hide what they hand back.
const SENT_ANEW: &[&str] = &["ChecksQueue", "ReconcileQueue", "SweepQueue"];

/// What Lambda needs to read a stream of Kinesis: <https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-create.html>
const OF_KINESIS: &[&str] = &[
    "kinesis:DescribeStream",
    "kinesis:DescribeStreamSummary",
    "kinesis:GetRecords",
    "kinesis:GetShardIterator",
    "kinesis:ListShards",
    "kinesis:SubscribeToShard",
];

/// What it needs to read a topic of MSK: <https://docs.aws.amazon.com/lambda/latest/dg/with-msk-permissions.html>
const OF_CLUSTERS: &[&str] = &[
    "kafka:DescribeCluster",
    "kafka:DescribeClusterV2",
    "kafka:GetBootstrapBrokers",
    "kafka-cluster:Connect",
    "kafka-cluster:DescribeClusterDynamicConfiguration",
];
const OF_TOPICS: &[&str] = &["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData"];
const OF_GROUPS: &[&str] = &["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"];
const OF_NETWORKS: &[&str] = &[
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
];

/// The permissions of a role, each an action and its resource.
pub fn rights(role: &Value) -> BTreeSet<String> {
    assert!(role["ManagedPolicyArns"].is_null(), "managed policies are not in the template");
    let policies = list(&role["Policies"]);
    let statements = policies.iter().flat_map(|policy| list(&policy["PolicyDocument"]["Statement"]));
    // One under a condition, as if the condition held.
    let statements = statements
        .map(|statement| if statement["Fn::If"].is_null() { statement } else { &statement["Fn::If"][1] });
    let rights = statements.flat_map(|statement| {
        assert_eq!(statement["Effect"], "Allow");
        let resources: Vec<_> = list(&statement["Resource"]).into_iter().map(referred).collect();
        let actions = list(&statement["Action"]);
        let pairs = actions.into_iter().flat_map(move |action| {
            let action = action.as_str().expect("an action");
            resources.iter().map(|resource| format!("{action} {resource}")).collect::<Vec<_>>()
        });
        pairs.collect::<Vec<_>>()
    });
    rights.collect()
}

/// The permissions that a function needs because of its variables, its triggers and the destination of its failures, besides those that
/// its recorded calls need.
pub fn needed(function: &Resource) -> BTreeSet<String> {
    let properties = &function.properties;
    let mut needed = BTreeSet::new();
    let mut need = |actions: &[&str], resource: &str| {
        needed.extend(actions.iter().map(|action| format!("{action} {resource}")));
    };
    let events = members(&properties["Events"]).map(|(_, event)| &event["Properties"]["Queue"]);
    let received: Vec<_> = events.filter(|queue| !queue.is_null()).map(referred).collect();
    for (name, value) in members(&properties["Environment"]["Variables"]) {
        if name.ends_with("_QUEUE_URL") {
            let queue = referred(value);
            // A function that knows the address of a queue sends to it, or hides what it receives from it. `outbox` sends wakes and
            // consumes them.
            let hides = received.contains(&queue) && !SENT_ANEW.contains(&&*queue);
            if hides {
                need(&["sqs:ChangeMessageVisibility"], &queue);
            }
            if !hides || function.name == "OutboxFunction" {
                need(&["sqs:SendMessage"], &queue);
            }
        }
    }
    let mut failures = vec![&properties["EventInvokeConfig"]];
    for (_, event) in members(&properties["Events"]) {
        let event_properties = &event["Properties"];
        match event["Type"].as_str().expect("a type") {
            "SQS" => need(
                &["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
                &referred(&event_properties["Queue"]),
            ),
            "DynamoDB" => {
                let reading = ["DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"];
                for action in reading.map(|action| format!("dynamodb:{action}")) {
                    need(&[&action], &referred(&event_properties["Stream"]));
                }
                failures.push(event_properties);
            }
            "Kinesis" => {
                need(OF_KINESIS, &referred(&event_properties["Stream"]));
                failures.push(event_properties);
            }
            "MSK" => {
                let cluster = referred(&event_properties["Stream"]);
                let within =
                    |kind: &str, name: &str| format!("{}/{name}", cluster.replace(":cluster/", kind));
                need(OF_CLUSTERS, &cluster);
                for topic in list(&event_properties["Topics"]).into_iter().map(referred) {
                    need(OF_TOPICS, &within(":topic/", &format!("${{{topic}}}")));
                }
                let group = event_properties["ConsumerGroupId"]["Fn::Sub"].as_str().expect("a group");
                need(OF_GROUPS, &within(":group/", group));
                need(OF_NETWORKS, "*");
                failures.push(event_properties);
            }
            "ScheduleV2" | "HttpApi" => {}
            other => panic!("{other}"),
        }
    }
    for failure in failures.iter().map(|config| &config["DestinationConfig"]["OnFailure"]) {
        if !failure.is_null() {
            assert_eq!(failure["Type"], "SQS");
            need(&["sqs:SendMessage"], &referred(&failure["Destination"]));
        }
    }
    let logs = referred(&properties["LoggingConfig"]["LogGroup"]);
    need(&["logs:CreateLogStream", "logs:PutLogEvents"], &logs);
    needed
}

#[tokio::test]
async fn each_function_may_do_what_it_does_and_nothing_else() {
    let calls = recorded().await;
    let (mut functions, mut differences) = (BTreeSet::new(), Vec::new());
    for function in resources(FUNCTION) {
        let name = kebab(function.name.trim_end_matches("Function"));
        let mut needed = needed(&function);
        needed.extend(calls.get(&name).into_iter().flatten().cloned());
        let role = resource(ROLE, &referred(&function.properties["Role"]));
        let rights = rights(&role);
        differences.extend(needed.difference(&rights).map(|right| format!("{name} lacks {right}")));
        differences.extend(rights.difference(&needed).map(|right| format!("{name} never uses {right}")));
        functions.insert(name);
    }
    assert!(differences.is_empty(), "{differences:#?}");
    let strangers: Vec<_> = calls.keys().filter(|name| !functions.contains(*name)).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

/// `ReportWorker` as `report-worker`.
fn kebab(name: &str) -> String {
    let words = name.char_indices().map(|(at, letter)| match letter.is_uppercase() && at > 0 {
        true => format!("-{}", letter.to_lowercase()),
        false => letter.to_lowercase().to_string(),
    });
    words.collect()
}

#[test]
fn schedules_may_invoke_their_functions_and_send_dead_letters() {
    let mut needed = BTreeSet::new();
    let mut allowed = BTreeSet::new();
    for function in resources(FUNCTION) {
        for (_, event) in members(&function.properties["Events"]) {
            if event["Type"] == "ScheduleV2" {
                let template = function.template;
                needed.insert(format!("{template}: lambda:InvokeFunction {}", function.name));
                let dead_letters = referred(&event["Properties"]["DeadLetterConfig"]["Arn"]);
                needed.insert(format!("{template}: sqs:SendMessage {dead_letters}"));
                assert_eq!(referred(&event["Properties"]["RoleArn"]), "SchedulesRole");
            }
        }
    }
    for role in resources(ROLE).into_iter().filter(|role| role.name == "SchedulesRole") {
        let template = role.template;
        allowed.extend(rights(&role.properties).into_iter().map(|right| format!("{template}: {right}")));
    }
    assert_eq!(allowed, needed);
}
