//! The stack of the second starter for Terraform is its template in another form.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use local::yaml;
use serde_json::{Value, json};

use super::{
    super::{members, text},
    expressions::snake_case,
    module::{Module, Planned},
    own_names, same,
    stack::{Made, NAME, Stack, plain},
    variables,
};

fn template() -> Value {
    yaml::parse(&text("starter-events/template.yaml")).expect("YAML")
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../starter-events/terraform")
}

pub fn module() -> Module {
    Module::of(&folder())
}

/// The resources and outputs with these variables besides.
pub fn plan(given: &[(&'static str, Value)]) -> (Vec<Planned>, BTreeMap<String, Value>) {
    let (template, [parameters, _]) = (template(), deployments());
    let variables = [&variables(&parameters)[..], given].concat();
    module().plan(&variables, &Stack::new(&template, &parameters))
}

fn deployments() -> [Vec<(&'static str, Value)>; 2] {
    let given = vec![
        ("ProviderUrl", json!("https://pay.example")),
        ("JwtIssuer", json!("https://issuer.example")),
        ("JwtAudience", json!(["shop", "desk"])),
        ("ExistingTableName", json!("no")),
    ];
    let mut restored = given.clone();
    restored.truncate(3);
    restored.extend([
        ("ExistingTableName", json!("orders")),
        ("ExistingTableStream", json!("2026-01-01T00:00:00.000")),
        ("AlarmTopicArn", json!("arn:aws:sns:eu-central-1:111122223333:on-call")),
        ("Stopped", json!("true")),
    ]);
    [given, restored]
}

/// What an apply would undo after an operator has stopped it by hand, and CloudFormation leaves as it is.
fn stop(made: &mut Made, [is_stopped, is_closed]: [bool; 2]) {
    let is_off = is_stopped || is_closed && !made.name.starts_with("Reconcile");
    let (property, value) = match &*made.kind {
        "SQS" => ("Enabled", json!(!is_off)),
        "ScheduleV2" => ("State", json!(if is_off { "DISABLED" } else { "ENABLED" })),
        "AWS::Serverless::Function" => ("ReservedConcurrentExecutions", json!(if is_off { 0 } else { -1 })),
        _ => return,
    };
    made.properties[property] = value;
}

#[test]
fn the_starter_for_terraform_has_the_templates_resources_with_their_properties() {
    let template = template();
    let mut seen = BTreeSet::new();
    let [new, restored] = deployments();
    for (parameters, is_stopped, is_closed) in
        [(&new, false, false), (&new, false, true), (&restored, true, false), (&restored, true, true)]
    {
        let stack = Stack::new(&template, parameters);
        let variables = [&variables(parameters)[..], &[("closed", json!(is_closed))]].concat();
        let (planned, _) = module().plan(&variables, &stack);
        assert_eq!(
            own_names(&planned).collect::<BTreeSet<_>>(),
            BTreeSet::from(["shop-orders", "shop-poll"])
        );
        let mut resources = stack.resources();
        resources.retain(|made| made.kind != "AWS::Serverless::Application");
        resources.iter_mut().for_each(|made| stop(made, [is_stopped, is_closed]));
        seen.extend(same(resources, planned));
    }
    assert_eq!(seen.len(), 18, "{seen:?}");
    for file in fs::read_dir(folder()).expect("a folder") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("a text");
        assert!(!text.contains(NAME), "a name that is not the variable: {text}");
    }
}

#[test]
fn each_function_of_the_starter_has_its_own_zip() {
    let (template, (planned, _)) = (template(), plan(&[]));
    let mut functions = 0;
    for function in planned.iter().filter(|it| it.kind == "aws_lambda_function") {
        let mut resources = members(&template["Resources"]);
        let (_, resource) = resources.find(|(name, _)| snake_case(name) == function.name).expect("the same");
        let binary = plain(&resource["Metadata"]["BuildProperties"]["Binary"]);
        let zip = format!("./../target/lambda/{binary}/bootstrap.zip");
        let attributes = &function.attributes;
        assert_eq!((&attributes["filename"], &attributes["source_code_hash"]), (&json!(zip), &json!(zip)));
        assert_eq!(attributes["function_name"], format!("{NAME}-{binary}"));
        functions += 1;
    }
    assert_eq!(functions, 3);
}

#[test]
fn the_module_gets_what_the_nested_stack_gets() {
    let template = template();
    for parameters in deployments() {
        let stack = Stack::new(&template, &parameters);
        let mut resources = stack.resources();
        let nested = resources.iter_mut().find(|made| made.kind == "AWS::Serverless::Application");
        let nested = nested.expect("a nested stack").properties["Parameters"].take();
        let texts =
            |values: &Value| members(values).map(|(name, value)| (snake_case(name), plain(value))).collect();
        let mut expected: BTreeMap<_, _> = texts(&nested);
        for (name, zip) in [("stale_zip", "stale"), ("outbox_zip", "outbox")] {
            expected.insert(name.to_owned(), format!("./../target/lambda/{zip}/bootstrap.zip"));
        }
        expected.insert("name".to_owned(), NAME.to_owned());
        expected.insert("source".to_owned(), "../infra/terraform".to_owned());
        assert_eq!(texts(&module().call(&variables(&parameters), &stack)), expected);
    }
}

#[test]
fn the_starter_for_terraform_has_the_templates_outputs_and_parameters() {
    let (template, module) = (template(), module());
    for parameters in deployments() {
        let stack = Stack::new(&template, &parameters);
        let (_, outputs) = module.plan(&variables(&parameters), &stack);
        let expected = stack.outputs().into_iter().map(|(name, value)| (snake_case(name), value));
        assert_eq!(outputs, expected.collect());
        assert_eq!(module.refusal(&variables(&parameters), &stack), None);
    }
    // What the called module does not refuse itself.
    for refused in ["provider_url", "jwt_issuer"] {
        let (_, variable) = module.blocks("variable").find(|(name, _)| *name == refused).expect(refused);
        let (_, parameter) =
            members(&template["Parameters"]).find(|(name, _)| snake_case(name) == refused).expect(refused);
        let condition =
            format!("condition     = can(regex({}, var.{refused}))\n", parameter["AllowedPattern"]);
        assert!(variable.body.to_string().contains(&condition), "{condition}");
    }
    let has_default = |block: &hcl_edit::structure::Block| block.body.get_attribute("default").is_some();
    let variables: BTreeMap<_, _> =
        module.blocks("variable").map(|(name, block)| (name.to_owned(), has_default(block))).collect();
    let parameters = members(&template["Parameters"]);
    let parameters = parameters.map(|(name, parameter)| (snake_case(name), !parameter["Default"].is_null()));
    let own = [("name".to_owned(), false), ("closed".to_owned(), true)];
    assert_eq!(variables, parameters.chain(own).collect());
}
