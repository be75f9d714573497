//! The files of the module that are made from the template.

use serde_json::Value;

use super::{
    super::list,
    expressions::{Known, Writer, ordered, snake_case, text},
    layout::{self, Body},
    resources,
};

const HEADING: &str = "# Made from infra/idempotency.yaml, whose comments give the reasons. Do not edit it.";

/// The names and texts of the files.
pub fn files(template: &Value) -> Vec<(&'static str, String)> {
    let dashboard = &template["Resources"]["IdempotencyDashboard"]["Properties"]["DashboardBody"]["Fn::Sub"];
    let output = |name: &str| template["Outputs"][name]["Value"].clone();
    let notified = template["Resources"]["OldestUnknown"]["Properties"]["AlarmActions"].clone();
    let known = vec![
        Known { value: output("TableName"), local: "table_name" },
        Known { value: output("TableArn"), local: "table_arn" },
        Known { value: output("StreamArn"), local: "stream_arn" },
        Known { value: notified, local: "alarm_actions" },
        Known { value: dashboard[1]["Alarms"].clone(), local: "dashboard_alarms" },
    ];
    let writer = Writer { template, known };
    let file = |blocks: Vec<(String, Body)>| layout::file(HEADING, &blocks);
    vec![
        ("variables.tf", file(variables(&writer))),
        ("locals.tf", file(locals(&writer))),
        ("queues.tf", file(resources::queues(&writer))),
        ("roles.tf", file(resources::roles(&writer))),
        ("alarms.tf", file(resources::alarms(&writer))),
        ("dashboard.tf", file(resources::dashboard(&writer))),
        ("outputs.tf", file(outputs(&writer))),
    ]
}

fn variables(writer: &Writer<'_>) -> Vec<(String, Body)> {
    let parameters = ordered(&writer.template["Parameters"]).into_iter();
    parameters
        .map(|(name, parameter)| {
            (format!("variable {}", text(&snake_case(name))), variable(writer, name, parameter))
        })
        .collect()
}

fn variable(writer: &Writer<'_>, name: &str, parameter: &Value) -> Body {
    let variable = snake_case(name);
    let named = format!("var.{variable}");
    let is_truth_value = is_truth_value(parameter);
    let (kind, default) = match (&parameter["Type"], &parameter["Default"]) {
        (_, Value::String(default)) if is_truth_value => ("bool", default.clone()),
        (kind, default) if kind == "Number" => ("number", default.to_string()),
        (_, default) => ("string", writer.expression(default)),
    };
    let mut body = Body::default();
    body.set("description", text(&described(writer, &parameter["Description"])));
    body.set("type", kind);
    body.set("default", default);
    body.set("nullable", "false");
    let mut validate = |condition: String, error: String| {
        let mut validation = Body::default();
        validation.set("condition", condition);
        validation.set("error_message", text(&error));
        body.block("validation", validation);
    };
    if let Some(pattern) = parameter["AllowedPattern"].as_str() {
        let condition = format!("can(regex({}, {named}))", text(pattern));
        validate(condition, format!("{variable} must match {pattern}."));
    }
    if let (Value::Array(_), false) = (&parameter["AllowedValues"], is_truth_value) {
        let values = writer.expression(&parameter["AllowedValues"]);
        validate(
            format!("contains({values}, {named})"),
            format!("{variable} must be one of {}.", listed(&parameter["AllowedValues"])),
        );
    }
    if let Some(least) = parameter["MinLength"].as_u64() {
        validate(
            format!("length({named}) >= {least}"),
            format!("{variable} must have {least} characters or more."),
        );
    }
    let (least, most) = (&parameter["MinValue"], &parameter["MaxValue"]);
    if !least.is_null() {
        let (condition, bounds) = match most {
            Value::Null => (format!("{named} >= {least}"), format!("{least} or more")),
            most => (format!("{named} >= {least} && {named} <= {most}"), format!("from {least} to {most}")),
        };
        validate(condition, format!("{variable} must be {bounds}."));
    }
    for (condition, error) in rules_on(writer, name) {
        validate(condition, error);
    }
    body
}

/// The template's rules whose assertions are about this parameter.
fn rules_on(writer: &Writer<'_>, name: &str) -> Vec<(String, String)> {
    let rules = ordered(&writer.template["Rules"]).into_iter().flat_map(|(_, rule)| {
        list(&rule["Assertions"]).into_iter().map(move |assertion| (&rule["RuleCondition"], assertion))
    });
    let about = rules.filter(|(_, assertion)| parameters_in(&assertion["Assert"]) == [name]);
    let validations = about.map(|(condition, assertion)| {
        let unless = writer.opposite(condition);
        let holds = writer.condition(&assertion["Assert"]);
        (format!("{unless} || {holds}"), described(writer, &assertion["AssertDescription"]))
    });
    validations.collect()
}

/// A description with the names that Terraform's users see.
fn described(writer: &Writer<'_>, description: &Value) -> String {
    let template = writer.template;
    let is_name = |word: &str| {
        let capitals = word.chars().filter(char::is_ascii_uppercase).count();
        let is_known = ["Parameters", "Outputs"].iter().any(|kind| !template[kind][word].is_null());
        capitals > 1 && is_known
    };
    let words = description.as_str().expect("a description").split(' ').map(|word| {
        let name = word.trim_matches(|char: char| !char.is_ascii_alphanumeric());
        if is_name(name) { word.replace(name, &snake_case(name)) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The conditions, and the values that stand in several places.
fn locals(writer: &Writer<'_>) -> Vec<(String, Body)> {
    let mut conditions = Body::default();
    for (name, condition) in ordered(&writer.template["Conditions"]) {
        conditions.set(&snake_case(name), writer.condition(condition));
    }
    let mut values = Body::default();
    for (at, known) in writer.known.iter().enumerate() {
        // Only those before it are known to itself.
        let known_before =
            writer.known[..at].iter().map(|known| Known { value: known.value.clone(), local: known.local });
        let writer = Writer { template: writer.template, known: known_before.collect() };
        values.set(known.local, writer.expression(&known.value));
    }
    vec![("locals".to_owned(), conditions), ("locals".to_owned(), values)]
}

fn outputs(writer: &Writer<'_>) -> Vec<(String, Body)> {
    let outputs = ordered(&writer.template["Outputs"]).into_iter().map(|(name, output)| {
        let value = match output["Condition"].as_str() {
            Some(condition) => {
                format!("local.{} ? {} : null", snake_case(condition), writer.expression(&output["Value"]))
            }
            None => writer.expression(&output["Value"]),
        };
        let mut body = Body::default();
        body.set("description", text(&described(writer, &output["Description"])));
        body.set("value", value);
        (format!("output {}", text(&snake_case(name))), body)
    });
    outputs.collect()
}

pub fn is_truth_value(parameter: &Value) -> bool {
    parameter["AllowedValues"] == serde_json::json!(["true", "false"])
}

fn parameters_in(condition: &Value) -> Vec<&str> {
    match condition {
        Value::Object(object) => match object.get("Ref") {
            Some(Value::String(name)) => vec![name],
            _ => object.values().flat_map(parameters_in).collect(),
        },
        Value::Array(values) => values.iter().flat_map(parameters_in).collect(),
        _ => Vec::new(),
    }
}

fn listed(values: &Value) -> String {
    let values =
        list(values).into_iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    values.collect::<Vec<_>>().join(", ")
}
