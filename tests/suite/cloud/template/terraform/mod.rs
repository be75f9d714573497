//! The module for Terraform is the template in another form.
//!
//! Most of its files are made from the template: if that changes, write them anew and review the difference.
//! `WRITE=1 cargo test -p tests --test suite -- terraform::`

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use serde_json::{Value, json};

use self::{
    expressions::snake_case,
    module::{Module, Planned},
    stack::{Made, Stack},
};
use super::{IDEMPOTENCY, members, template, text};

mod compared;
mod evaluated;
mod expressions;
mod layout;
mod listed;
mod module;
mod pairs;
mod resources;
mod stack;
mod starter;
mod written;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../infra/terraform")
}

/// Parameters of the template that make each of its conditions true and false, and each other parameter unlike its default.
fn deployments(template: &Value) -> Vec<Vec<(&'static str, Value)>> {
    let topic = json!("arn:aws:sns:eu-central-1:111122223333:on-call");
    let existing = vec![
        ("ExistingTableName", json!("orders")),
        ("ExistingTableStream", json!("2026-01-01T00:00:00.000")),
        ("AlarmTopicArn", topic.clone()),
        ("Stopped", json!("true")),
    ];
    let essential = vec![
        ("Alarms", json!("essential")),
        ("AlarmTopicArn", topic),
        ("DeletionProtection", json!("false")),
        ("MetricsNamespace", json!("shop/charges")),
        ("OutboxTopics", json!("order.placed=bus:shop")),
        ("SweepSchedule", json!("rate(1 day)")),
    ];
    let without_outbox = vec![("Alarms", json!("essential")), ("Outbox", json!("off"))];
    vec![Vec::new(), existing, essential, without_outbox, vec![("Outbox", json!("own"))], numbers(template)]
}

/// A value of its own for each number.
fn numbers(template: &Value) -> Vec<(&'static str, Value)> {
    let parameters = members(&template["Parameters"]).filter(|(_, parameter)| parameter["Type"] == "Number");
    let number = |(place, (name, parameter)): (usize, (&String, &Value))| {
        let default = parameter["Default"].as_u64().expect("a number");
        let allowed = parameter["AllowedValues"].as_array().into_iter().flatten();
        let other = allowed.filter_map(Value::as_u64).find(|allowed| *allowed != default);
        let below = parameter["MaxValue"].as_u64().map(|most| most - 1);
        let other = other.or(below).unwrap_or(default + 7 + u64::try_from(place).expect("a place"));
        (leaked(name), json!(other))
    };
    parameters.enumerate().map(number).collect()
}

/// A name that lives as long as the tests.
fn leaked(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}

/// The same for the module.
fn variables(parameters: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    parameters.iter().map(|(name, value)| (leaked(&snake_case(name)), value.clone())).collect()
}

#[test]
fn the_module_and_the_list_are_made_from_the_template() {
    let template = template(IDEMPOTENCY);
    let list = [("../resources.md", listed::page(&template))];
    for (name, text) in written::files(&template).into_iter().chain(list) {
        let path = folder().join(name);
        if env::var_os("WRITE").is_some() {
            fs::write(&path, &text).expect("the file is written");
        }
        let is_same = fs::read_to_string(&path).is_ok_and(|current| current == text);
        assert!(
            is_same,
            "{name} is not what the template says: WRITE=1 cargo test -p tests --test suite -- terraform::"
        );
    }
}

#[test]
fn the_module_has_the_templates_resources_with_their_properties() {
    let template = template(IDEMPOTENCY);
    let module = Module::read();
    let mut seen = BTreeSet::new();
    for parameters in deployments(&template) {
        let stack = Stack::new(&template, &parameters);
        let (planned, _) = module.plan(&variables(&parameters), &stack);
        let names: BTreeSet<_> = own_names(&planned).collect();
        let table = if stack.is_there("IdempotencyTable") { vec!["shop-records"] } else { Vec::new() };
        assert_eq!(names, table.into_iter().chain(["shop-sweep"]).collect());
        seen.extend(same(stack.resources(), planned));
    }
    assert_eq!(seen.len(), 14, "{seen:?}");
}

/// The names of tables and schedules, which the template leaves to CloudFormation. Another one would replace what is deployed.
fn own_names(planned: &[Planned]) -> impl Iterator<Item = &str> {
    let named =
        planned.iter().filter(|it| ["aws_dynamodb_table", "aws_scheduler_schedule"].contains(&&*it.kind));
    named.map(|it| it.attributes["name"].as_str().expect("a name"))
}

/// Compares the resources of a stack with those of a module, and returns the types of the latter.
fn same(stack: Vec<Made>, mut planned: Vec<Planned>) -> BTreeSet<String> {
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for made in stack {
        let name = snake_case(&made.name);
        let twin = planned.iter().position(|it| it.name == name && compared::kind(&made, it).is_some());
        let Some(twin) = twin.map(|place| planned.swap_remove(place)) else {
            wrong.push(format!("{} {} is missing", made.kind, made.name));
            continue;
        };
        let kind = compared::kind(&made, &twin).expect("it was found");
        let differences = compared::differences(kind, &made, &twin);
        wrong.extend(differences.into_iter().map(|it| format!("{}.{}: {it}", twin.kind, twin.name)));
        seen.insert(twin.kind);
    }
    wrong.extend(planned.iter().map(|it| format!("{}.{} is not in the template", it.kind, it.name)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    seen
}

// A restored table must not be swept before what it forgot is held.
#[test]
fn a_stopped_stack_is_invoked_by_nothing() {
    let template = template(IDEMPOTENCY);
    for stopped in [false, true] {
        let stack = Stack::new(&template, &[("Stopped", json!(stopped.to_string()))]);
        let mut events = 0;
        for made in stack.resources() {
            match &*made.kind {
                "SQS" | "DynamoDB" => assert_eq!(made.properties["Enabled"], !stopped, "{}", made.name),
                "ScheduleV2" => assert_eq!(made.properties["State"] == "DISABLED", stopped, "{}", made.name),
                _ => continue,
            }
            events += 1;
        }
        assert_eq!(events, 6);
    }
}

#[test]
fn the_module_has_the_templates_outputs() {
    let template = template(IDEMPOTENCY);
    for parameters in deployments(&template) {
        let stack = Stack::new(&template, &parameters);
        let (_, outputs) = Module::read().plan(&variables(&parameters), &stack);
        let expected = stack.outputs().into_iter().map(|(name, value)| (snake_case(name), value));
        assert_eq!(outputs, expected.collect(), "{parameters:?}");
    }
}

#[test]
fn the_module_has_the_templates_parameters_and_refuses_what_it_refuses() {
    let template = template(IDEMPOTENCY);
    let module = Module::read();
    let stack = Stack::new(&template, &[]);
    let refusal = |name: &'static str, value: Value| module.refusal(&variables(&[(name, value)]), &stack);
    let variables_text = fs::read_to_string(folder().join("variables.tf")).expect("the variables");
    for (name, parameter) in members(&template["Parameters"]) {
        let name = leaked(name);
        assert_eq!(refusal(name, parameter["Default"].clone()), None, "{name}");
        let allowed = parameter["AllowedValues"].as_array();
        for value in allowed.into_iter().flatten().filter(|value| **value != "off") {
            assert_eq!(refusal(name, value.clone()), None, "{name}: {value}");
        }
        // It is true or false, so it refuses all else by its type.
        if allowed.is_some() && !written::is_truth_value(parameter) {
            assert!(refusal(name, json!("other")).is_some(), "{name}");
        }
        for (bound, beyond) in [("MinValue", -1), ("MaxValue", 1)] {
            if let Some(bound) = parameter[bound].as_i64() {
                assert_eq!(refusal(name, json!(bound)), None, "{name}: {bound}");
                assert!(refusal(name, json!(bound + beyond)).is_some(), "{name}: {}", bound + beyond);
            }
        }
        if let Some(pattern) = parameter["AllowedPattern"].as_str() {
            let pattern = format!("regex({}, var.{})", json!(pattern), snake_case(name));
            assert!(variables_text.contains(&pattern), "{pattern}");
        }
        if !parameter["MinLength"].is_null() {
            assert!(refusal(name, json!("")).is_some(), "{name}");
        }
    }
    // The template's rules.
    for refused in [
        vec![("ExistingTableName", json!("orders"))],
        vec![("Outbox", json!("off")), ("OutboxTopics", json!("order.placed=bus:shop"))],
    ] {
        let refusal = module.refusal(&variables(&refused), &stack);
        assert!(refusal.is_some(), "{refused:?}");
    }
    let without_zip = vec![("outbox_zip", Value::Null)];
    assert!(module.refusal(&without_zip, &stack).is_some());
    for parameters in deployments(&template) {
        assert_eq!(module.refusal(&variables(&parameters), &stack), None, "{parameters:?}");
    }
}

// Terraform adds 26 characters to a prefix, and to a FIFO queue's `.fifo`. The variable `name` takes 20.
#[test]
fn the_longest_name_fits_into_every_resource() {
    let template = template(IDEMPOTENCY);
    let name = json!("n".repeat(20));
    let (planned, _) = Module::read().plan(&[("name", name.clone())], &Stack::new(&template, &[]));
    assert_eq!(prefixes_that_fit(&planned), 9);
    let (planned, _) = starter::plan(&[("name", name)]);
    assert_eq!(prefixes_that_fit(&planned), 5);
    let main = fs::read_to_string(folder().join("main.tf")).expect("the variable");
    assert!(main.contains("{0,19}$\", var.name"), "another length of a name");
}

/// How many names Terraform completes: each fits.
fn prefixes_that_fit(planned: &[Planned]) -> usize {
    let mut prefixes = 0;
    for resource in planned {
        let is_fifo = resource.attributes["fifo_queue"] == true;
        let (added, most) = match &*resource.kind {
            // The provider's own bound.
            "aws_iam_role" => (0, 38),
            _ if is_fifo => (26 + ".fifo".len(), 80),
            _ => (26, 80),
        };
        if let Some(prefix) = resource.attributes["name_prefix"].as_str() {
            assert!(prefix.len() + added <= most, "{prefix}");
            prefixes += 1;
        }
    }
    prefixes
}

// Without its rights, Lambda refuses an event source mapping of a function, and its destination.
#[test]
fn each_function_waits_for_the_rights_of_its_role() {
    assert_eq!(waiting(&Module::read()), 3);
    assert_eq!(waiting(&starter::module()), 4);
}

/// How many functions and schedules there are, each of which waits for its role's policy.
fn waiting(module: &Module) -> usize {
    let kinds = ["aws_lambda_function", "aws_scheduler_schedule"];
    let blocks = module.blocks("resource").filter(|(_, block)| kinds.contains(&block.labels[0].as_str()));
    let mut seen = 0;
    for (name, block) in blocks {
        let waits =
            block.body.get_attribute("depends_on").unwrap_or_else(|| panic!("{name} waits for nothing"));
        let text = block.body.to_string();
        let (_, role) = text.split_once("aws_iam_role.").expect("a role");
        let role = role.split(['.', '[']).next().expect("its name");
        assert!(waits.value.to_string().contains(&format!("aws_iam_role_policy.{role}]")), "{name}: {role}");
        seen += 1;
    }
    seen
}

#[test]
fn the_documents_example_names_variables_and_outputs_of_the_module() {
    let page = text("docs/terraform.md");
    let (_, example) = page.split_once("```hcl\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let body = module::parsed(example);
    let module = Module::read();
    let names = |kind| module.blocks(kind).map(|(name, _)| name).collect::<BTreeSet<_>>();
    let call = body.get_blocks("module").next().expect("the module");
    for attribute in call.body.attributes().filter(|attribute| attribute.key.as_str() != "source") {
        assert!(names("variable").contains(attribute.key.as_str()), "{}", attribute.key.as_str());
    }
    let named = example.split("module.idempotency.").skip(1);
    let named: Vec<_> = named
        .filter_map(|rest| rest.split(|char: char| !char.is_alphanumeric() && char != '_').next())
        .collect();
    assert!(named.len() >= 5, "{named:?}");
    assert!(named.iter().all(|name| names("output").contains(name)), "{named:?}");
}
