//! The templates fit the library, the functions and each other.

use std::fs;

use serde_json::{Value, json};

use local::yaml;

mod alarms;
mod calls;
mod dashboard;
mod drills;
mod firing;
mod growth;
mod queries;
mod queues;
mod rights;
mod sample;
mod starters;
mod streams;
mod table;
mod terraform;
mod variables;
mod watched;

/// The template that users deploy.
const IDEMPOTENCY: &str = "idempotency";

/// The sample's template, in which the other one is nested under its name.
const SAMPLE: &str = "sample";
const NESTED: &str = "Idempotency";

/// The consumers of streams, to be copied: no stack here has them.
const STREAMS: &str = "streams";

const FUNCTION: &str = "AWS::Serverless::Function";
const QUEUE: &str = "AWS::SQS::Queue";
const ALARM: &str = "AWS::CloudWatch::Alarm";

/// A resource of a template.
struct Resource {
    template: &'static str,
    name: String,
    properties: Value,
}

/// A template, with its intrinsic functions in their long form: `!Ref Name` is `{"Ref": "Name"}`.
fn template(name: &str) -> Value {
    yaml::parse(&text(&format!("infra/{name}.yaml"))).expect("YAML")
}

/// The template of the starter, which has one small route.
fn starter() -> Value {
    yaml::parse(&text("starter/template.yaml")).expect("YAML")
}

/// A file of the repository.
fn text(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The resources of this type in both templates that are deployed together.
fn resources(kind: &str) -> Vec<Resource> {
    resources_of(&[IDEMPOTENCY, SAMPLE], kind)
}

/// The resources of this type in these templates.
fn resources_of(templates: &[&'static str], kind: &str) -> Vec<Resource> {
    let of = |name: &'static str| {
        let template = template(name);
        let resources = template["Resources"].as_object().expect("resources").clone();
        resources.into_iter().map(move |(name_, value)| (name, name_, value))
    };
    let found: Vec<_> = templates
        .iter()
        .copied()
        .flat_map(of)
        .filter(|(_, _, resource)| resource["Type"] == kind)
        .map(|(template, name, resource)| Resource {
            template,
            name,
            properties: resource["Properties"].clone(),
        })
        .collect();
    assert!(!found.is_empty(), "no {kind}");
    found
}

fn resource(kind: &str, name: &str) -> Value {
    let found = resources_of(&[IDEMPOTENCY, SAMPLE, STREAMS], kind);
    let found = found.into_iter().find(|resource| resource.name == name);
    found.unwrap_or_else(|| panic!("no {name}")).properties
}

/// The members of an object.
fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The elements of a list. A single value is a list of one.
fn list(value: &Value) -> Vec<&Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    }
}

/// What a value refers to, following the nested template's outputs: `ChecksQueue`, `PaymentsTable/index/days`. Name, URL and ARN are
/// treated alike.
fn referred(value: &Value) -> String {
    let (function, argument) = match value {
        Value::String(text) => return text.clone(),
        value => members(value).next().unwrap_or_else(|| panic!("it refers to nothing: {value}")),
    };
    match (&**function, argument) {
        ("Ref", Value::String(name)) => name.clone(),
        ("Fn::GetAtt", Value::String(path)) => attribute(path),
        // The branch with the stack's own table. The other branch is a parameter.
        ("Fn::If", Value::Array(branches)) => referred(&branches[1]),
        ("Fn::Sub", Value::String(pattern)) => {
            match pattern.strip_prefix("${").and_then(|rest| rest.split_once('}')) {
                Some((path, rest)) => attribute(path) + rest,
                None => pattern.clone(),
            }
        }
        _ => panic!("it refers to nothing: {value}"),
    }
}

fn attribute(path: &str) -> String {
    if let Some(output) = path.strip_prefix(NESTED).and_then(|path| path.strip_prefix(".Outputs.")) {
        let output = &template(IDEMPOTENCY)["Outputs"][output]["Value"];
        assert!(!output.is_null(), "no output {path}");
        return referred(output);
    }
    match path.split_once('.') {
        Some((name, "Arn" | "QueueName")) => name.to_owned(),
        Some((name, attribute)) => format!("{name}/{attribute}"),
        None => path.to_owned(),
    }
}

/// The functions of a template that have this variable, with what its value refers to.
fn having(template: &Value, variable: &str) -> Vec<(String, String)> {
    let of_all = &template["Globals"]["Function"]["Environment"]["Variables"][variable];
    let functions = members(&template["Resources"]).filter(|(_, resource)| resource["Type"] == FUNCTION);
    let values = functions.map(|(name, function)| {
        let own = &function["Properties"]["Environment"]["Variables"][variable];
        (name.clone(), if own.is_null() { of_all } else { own })
    });
    values.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name, referred(value))).collect()
}

#[test]
fn the_sample_passes_only_parameters_that_the_nested_template_has() {
    let nested = &template(SAMPLE)["Resources"][NESTED];
    assert_eq!(nested["Type"], "AWS::Serverless::Application");
    assert_eq!(nested["Properties"]["Location"], format!("{IDEMPOTENCY}.yaml"));
    let parameters = &template(IDEMPOTENCY)["Parameters"];
    for (name, _) in members(&nested["Properties"]["Parameters"]) {
        assert!(!parameters[name].is_null(), "{name}");
    }
    // Parameters for a change of stacks or a restore, and those that an operator must be able to set.
    for name in ["ExistingTableName", "ExistingTableStream", "Stopped", "AlarmTopicArn", "DeletionProtection"]
    {
        assert_eq!(nested["Properties"]["Parameters"][name], json!({ "Ref": name }));
    }
}

// A deployment without the outbox has none of its parts, and nothing else refers to them. One with an outbox of its own lacks the
// function: its queues, its sweep and their alarms are needed all the same.
#[test]
fn the_outbox_and_accepted_work_can_be_left_out() {
    let template = template(IDEMPOTENCY);
    let is = |value| json!({ "Fn::Equals": [{ "Ref": "Outbox" }, value] });
    assert_eq!(template["Conditions"]["HasOutbox"], json!({ "Fn::Not": [is("off")] }));
    assert_eq!(template["Conditions"]["HasOutboxFunction"], is("on"));
    let is_part = |name: &str| name.starts_with("Outbox") || name.starts_with("Work");
    let of_function = |name: &str| {
        let parts = [
            "Function",
            "FunctionName",
            "Role",
            "RoleName",
            "RoleArn",
            "Logs",
            "StreamLate",
            "Errors",
            "Throttled",
        ];
        name.strip_prefix("Outbox").is_some_and(|part| parts.contains(&part))
    };
    let has = |name: &str| if of_function(name) { "HasOutboxFunction" } else { "HasOutbox" };
    // They say that something is published or accepted all the same.
    let always = ["OutboxUndelivered", "WorkWaiting", "WorkAbandoned"];
    let (mut resources, mut outputs) = (0, 0);
    for (name, resource) in members(&template["Resources"]) {
        resources += u32::from(is_part(name));
        let is_alarm = resource["Type"] == ALARM;
        let condition = match is_part(name) && !always.contains(&&**name) {
            true if is_alarm => json!(format!("{}Alarms", has(name))),
            true => json!(has(name)),
            false if is_alarm && !resource["Condition"].is_null() => json!("HasAllAlarms"),
            false => Value::Null,
        };
        assert!(resource["Condition"] == condition || name == "IdempotencyTable", "{name}");
    }
    for (name, output) in members(&template["Outputs"]).filter(|(name, _)| is_part(name)) {
        outputs += 1;
        assert_eq!(output["Condition"], has(name), "{name}");
    }
    assert!(resources > 20 && outputs > 8, "{resources} {outputs}");
    let others = members(&template["Resources"]).filter(|(name, _)| !is_part(name));
    let may_be_left_out =
        |name: &str| is_part(name) && !always.contains(&name.strip_suffix(".Arn").unwrap_or(name));
    for (name, resource) in others {
        assert!(!refers_unconditionally(resource, &may_be_left_out), "{name}");
    }
    let queues = members(&template["Resources"]).filter(|(name, _)| !of_function(name));
    for (name, resource) in queues {
        assert!(!refers_unconditionally(resource, &of_function), "{name}");
    }
}

/// Whether it refers to such a resource outside of `Fn::If`.
fn refers_unconditionally(value: &Value, to: &impl Fn(&str) -> bool) -> bool {
    let refers = |name: &Value| name.as_str().is_some_and(to);
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| match &**name {
            "Fn::If" if value[0].as_str().is_some_and(|name| name.starts_with("HasOutbox")) => false,
            "Ref" | "Fn::GetAtt" => refers(value),
            _ => refers_unconditionally(value, to),
        }),
        Value::Array(values) => values.iter().any(|value| refers_unconditionally(value, to)),
        _ => false,
    }
}

// Functions of other stacks need only the outputs.
#[test]
fn every_output_that_another_template_uses_exists() {
    let others =
        ["infra/sample.yaml", "starter/template.yaml", "starter-events/template.yaml"].map(text).concat();
    let output = format!("{NESTED}.Outputs.");
    let taken = others.split(&output).skip(1);
    let taken: Vec<_> =
        taken.map(|rest| rest.split(|char: char| !char.is_alphanumeric()).next().expect("a name")).collect();
    assert!(!taken.is_empty());
    let outputs = &template(IDEMPOTENCY)["Outputs"];
    for name in taken {
        assert!(!outputs[name].is_null(), "{name}");
    }
}

/// `sam build` runs cargo-lambda in the function's folder, for the program that its metadata names.
#[test]
fn every_function_names_an_existing_program() {
    for name in [IDEMPOTENCY, SAMPLE] {
        let template = template(name);
        for (function, resource) in members(&template["Resources"]).filter(|(_, it)| it["Type"] == FUNCTION) {
            assert_eq!(resource["Metadata"]["BuildMethod"], "rust-cargolambda", "{function}");
            let folder = resource["Properties"]["CodeUri"].as_str().and_then(|path| path.strip_prefix("../"));
            let folder = folder.unwrap_or_else(|| panic!("{function} has no code"));
            let program = resource["Metadata"]["BuildProperties"]["Binary"].as_str().expect("a program");
            let is_packages =
                text(&format!("{folder}/Cargo.toml")).contains(&format!("name = \"{program}\""));
            let main = if is_packages { "main".to_owned() } else { format!("bin/{program}") };
            assert!(text(&format!("{folder}/src/{main}.rs")).contains("fn main()"), "{function}");
        }
    }
}

// It has no tables of its own.
#[test]
fn the_starters_roles_are_the_samples_without_its_tables() {
    let (starter, sample) = (starter(), template(SAMPLE));
    let rights = |template: &Value, role: &str, left_out: &[&str]| {
        let role = &template["Resources"][role]["Properties"];
        assert!(role["ManagedPolicyArns"].is_null(), "managed policies are not in the template");
        let statements = list(&role["Policies"][0]["PolicyDocument"]["Statement"]).into_iter();
        let kept = statements.filter(|it| !left_out.contains(&it["Sid"].as_str().expect("a name")));
        (role["AssumeRolePolicyDocument"].clone(), kept.cloned().collect::<Vec<_>>())
    };
    for (of_starter, left_out, of_sample, more) in [
        ("ReconcileRole", &[][..], "ReconcileRole", &["Payments", "Orders"][..]),
        (
            "ChargesRole",
            &["Logs"],
            "PaymentsRole",
            &["Bounds", "OpenRecords", "Payments", "Accounts", "Logs"],
        ),
        ("SchedulesRole", &["Polls"], "SchedulesRole", &["PollsAndComparisons"]),
    ] {
        let expected = rights(&sample, of_sample, more);
        assert_eq!(rights(&starter, of_starter, left_out), expected, "{of_starter}");
    }
    let mut functions = Vec::new();
    for (name, function) in members(&starter["Resources"]).filter(|(_, it)| it["Type"] == FUNCTION) {
        assert!(function["Properties"]["Policies"].is_null(), "{name}");
        let role = referred(&function["Properties"]["Role"]);
        let own = format!("{}Logs", role.strip_suffix("Role").expect("a role"));
        let logs = rights(&starter, &role, &[]).1.into_iter().find(|it| it["Sid"] == "Logs");
        assert_eq!(referred(&logs.expect("its log")["Resource"]), own);
        assert_eq!(referred(&function["Properties"]["LoggingConfig"]["LogGroup"]), own);
        functions.push(name.clone());
    }
    assert_eq!(functions, ["ChargesFunction", "ReconcileFunction"]);
}

// An operator of either reads the same page.
#[test]
fn the_starter_has_the_switches_and_outputs_that_operators_use() {
    let (starter, sample) = (starter(), template(SAMPLE));
    for parameter in ["AlarmTopicArn", "ExistingTableName", "ExistingTableStream", "Stopped"] {
        for property in ["Default", "AllowedValues", "AllowedPattern"] {
            let of = |template: &Value| template["Parameters"][parameter][property].clone();
            assert_eq!(of(&starter), of(&sample), "{parameter}");
        }
    }
    let reconcile = |template: &Value| template["Resources"]["ReconcileFunction"]["Properties"].clone();
    let [ours, theirs] = [reconcile(&starter), reconcile(&sample)];
    assert_eq!(ours["Events"], theirs["Events"]);
    assert_eq!(ours["EventInvokeConfig"], theirs["EventInvokeConfig"]);
    let api = |template: &Value| template["Resources"]["HttpApi"]["Properties"].clone();
    for property in ["DefaultRouteSettings", "AccessLogSettings"] {
        let expected = api(&sample)[property].clone();
        assert!(!expected.is_null() && api(&starter)[property] == expected, "{property}");
    }

    let page = text("docs/operate.md");
    let (_, table) = page.split_once("| output | variable | option |").expect("the table of outputs");
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| ")?.split_once(" | "));
    let outputs: Vec<_> = rows.flat_map(|(outputs, _)| outputs.split('`').skip(1).step_by(2)).collect();
    assert!(outputs.len() > 15, "{outputs:?}");
    // Of the nested template alone, and of a webhook, which the starter has not.
    let others = ["TableName", "idempotency.yaml", "WebhookFunctionName"];
    for output in outputs.into_iter().filter(|output| !others.contains(output)) {
        let value = &starter["Outputs"][output]["Value"];
        assert!(!value.is_null() && *value == sample["Outputs"][output]["Value"], "{output}");
    }
}
