//! The module's resources, as the template has them.

use serde_json::{Value, json};

use super::{
    super::list,
    expressions::{Writer, ordered, snake_case, terraform_kind},
    layout::{self, Body},
};

pub fn queues(writer: &Writer<'_>) -> Vec<(String, Body)> {
    let mut blocks = Vec::new();
    for (name, queue) in resources(writer, "AWS::SQS::Queue") {
        let mut body = begun(queue);
        let properties = &queue["Properties"];
        if properties["QueueName"].is_null() || is_unique(&properties["QueueName"]) {
            body.set(
                "name_prefix",
                format!("\"${{var.name}}-{}-\"", kebab_case(name.trim_end_matches("Queue"))),
            );
        }
        for (property, value) in ordered(properties) {
            let value = match &**property {
                "RedriveAllowPolicy" => continue,
                "QueueName" if is_unique(value) => continue,
                "RedrivePolicy" => format!("jsonencode({})", writer.expression(value)),
                _ => writer.expression(value),
            };
            body.set(&attribute(property), value);
        }
        keep(queue, &mut body);
        blocks.push((header("aws_sqs_queue", name), body));
        if !properties["RedriveAllowPolicy"].is_null() {
            // A resource of its own: the queues refer to each other.
            blocks.push((
                header("aws_sqs_queue_redrive_allow_policy", name),
                redrive_allow_policy(writer, name, queue),
            ));
        }
    }
    for (name, policy) in resources(writer, "AWS::SQS::QueuePolicy") {
        let mut body = begun(policy);
        let [queue] = list(&policy["Properties"]["Queues"])[..] else { panic!("{name} is not of one queue") };
        body.set("queue_url", writer.expression(queue));
        body.set("policy", json(writer, &policy["Properties"]["PolicyDocument"]));
        blocks.push((header("aws_sqs_queue_policy", name), body));
    }
    blocks
}

/// Its sources are the queues whose dead letters this one gets.
fn redrive_allow_policy(writer: &Writer<'_>, name: &str, queue: &Value) -> Body {
    let policy = &queue["Properties"]["RedriveAllowPolicy"];
    let mut allowed = vec![("redrivePermission".to_owned(), writer.expression(&policy["redrivePermission"]))];
    if !policy["sourceQueueArns"].is_null() {
        let target = format!("{name}.Arn");
        let sources = resources(writer, "AWS::SQS::Queue").into_iter();
        let sources = sources.filter(|(_, queue)| {
            queue["Properties"]["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"] == *target
        });
        let arns: Vec<_> = sources
            .map(|(name, _)| writer.expression(&json!({ "Fn::GetAtt": format!("{name}.Arn") })))
            .collect();
        allowed.push(("sourceQueueArns".to_owned(), layout::list(&arns)));
    }
    let mut body = begun(queue);
    body.set("queue_url", writer.expression(&json!({ "Ref": name })));
    body.set("redrive_allow_policy", format!("jsonencode({})", layout::object(allowed)));
    body
}

pub fn roles(writer: &Writer<'_>) -> Vec<(String, Body)> {
    let mut blocks = Vec::new();
    for (name, role) in resources(writer, "AWS::IAM::Role") {
        let properties = &role["Properties"];
        let mut body = begun(role);
        body.set("name_prefix", format!("\"${{var.name}}-{}-\"", kebab_case(name.trim_end_matches("Role"))));
        body.set("assume_role_policy", json(writer, &properties["AssumeRolePolicyDocument"]));
        blocks.push((header("aws_iam_role", name), body));
        let [policy] = list(&properties["Policies"])[..] else { panic!("{name} has not one policy") };
        let mut body = begun(role);
        body.set("name", writer.expression(&policy["PolicyName"]));
        body.set("role", writer.expression(&json!({ "Ref": name })));
        body.set("policy", json(writer, &policy["PolicyDocument"]));
        blocks.push((header("aws_iam_role_policy", name), body));
    }
    blocks
}

pub fn alarms(writer: &Writer<'_>) -> Vec<(String, Body)> {
    let alarms = resources(writer, "AWS::CloudWatch::Alarm").into_iter();
    let block = |(name, alarm): (&String, &Value)| {
        let mut body = begun(alarm);
        body.set("alarm_name", format!("\"${{var.name}}-{name}\""));
        for (property, value) in ordered(&alarm["Properties"]) {
            match &**property {
                "Metrics" => {
                    for query in list(value) {
                        body.block("metric_query", metric_query(writer, query));
                    }
                }
                "Dimensions" => body.set("dimensions", dimensions(writer, value)),
                _ => body.set(&attribute(property), writer.expression(value)),
            }
        }
        (header("aws_cloudwatch_metric_alarm", name), body)
    };
    alarms.map(block).collect()
}

fn metric_query(writer: &Writer<'_>, query: &Value) -> Body {
    let mut body = Body::default();
    for (property, value) in ordered(query).into_iter().filter(|(property, _)| **property != "MetricStat") {
        body.set(&attribute(property), writer.expression(value));
    }
    // CloudFormation returns what says nothing, and Terraform does not.
    if query["ReturnData"].is_null() {
        body.set("return_data", "true");
    }
    let stat = &query["MetricStat"];
    if !stat.is_null() {
        let mut metric = Body::default();
        for (property, value) in ordered(&stat["Metric"]) {
            match &**property {
                "Dimensions" => metric.set("dimensions", dimensions(writer, value)),
                _ => metric.set(&attribute(property), writer.expression(value)),
            }
        }
        for (property, value) in ordered(stat).into_iter().filter(|(property, _)| **property != "Metric") {
            metric.set(&attribute(property), writer.expression(value));
        }
        body.block("metric", metric);
    }
    body
}

fn dimensions(writer: &Writer<'_>, dimensions: &Value) -> String {
    let pair = |dimension: &&Value| {
        let name = dimension["Name"].as_str().expect("a dimension's name").to_owned();
        (name, writer.expression(&dimension["Value"]))
    };
    layout::object(list(dimensions).iter().map(pair))
}

pub fn dashboard(writer: &Writer<'_>) -> Vec<(String, Body)> {
    let all = ["AWS::CloudWatch::Dashboard", "AWS::Logs::QueryDefinition"];
    let resources = all
        .into_iter()
        .flat_map(|kind| resources(writer, kind).into_iter().map(move |(name, it)| (kind, name, it)));
    let block = |(kind, name, resource): (&str, &String, &Value)| {
        let mut body = begun(resource);
        for (property, value) in ordered(&resource["Properties"]) {
            body.set(&attribute(property), writer.expression(value));
        }
        (header(terraform_kind(kind).0, name), body)
    };
    resources.map(block).collect()
}

/// The resources of this type, by their names.
fn resources<'a>(writer: &Writer<'a>, kind: &str) -> Vec<(&'a String, &'a Value)> {
    let resources = ordered(&writer.template["Resources"]).into_iter();
    resources.filter(|(_, resource)| resource["Type"] == kind).collect()
}

/// The body of a resource, with its condition.
fn begun(resource: &Value) -> Body {
    let mut body = Body::default();
    if let Some(condition) = resource["Condition"].as_str() {
        body.set("count", format!("local.{} ? 1 : 0", snake_case(condition)));
    }
    body
}

fn json(writer: &Writer<'_>, document: &Value) -> String {
    format!("jsonencode({})", writer.expression(document))
}

fn header(kind: &str, name: &str) -> String {
    format!("resource \"{kind}\" \"{}\"", snake_case(name))
}

/// What removing the stack would leave behind cannot be destroyed.
fn keep(resource: &Value, body: &mut Body) {
    if resource["DeletionPolicy"] == "Retain" {
        let mut lifecycle = Body::default();
        lifecycle.set("prevent_destroy", "true");
        body.block("lifecycle", lifecycle);
    }
}

/// The provider's name of a property.
fn attribute(property: &str) -> String {
    match property {
        "QueueName" => "name".to_owned(),
        "VisibilityTimeout" => "visibility_timeout_seconds".to_owned(),
        "MessageRetentionPeriod" => "message_retention_seconds".to_owned(),
        other => snake_case(other),
    }
}

/// A name that has a part of the stack's id.
fn is_unique(name: &Value) -> bool {
    name.to_string().contains("AWS::StackId")
}

fn kebab_case(name: &str) -> String {
    snake_case(name).replace('_', "-")
}
