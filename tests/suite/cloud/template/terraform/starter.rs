//! The stack of the second starter for Terraform is its template in another form.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use local::yaml;
use serde_json::{Value, json};

use super::{
    super::{members, text},
    expressions::snake_case,
    module::Module,
    same,
    stack::{Stack, plain},
    variables,
};

fn template() -> Value {
    yaml::parse(&text("starter-events/template.yaml")).expect("YAML")
}

pub fn module() -> Module {
    Module::of(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../starter-events/terraform"))
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

#[test]
fn the_starter_for_terraform_has_the_templates_resources_with_their_properties() {
    let template = template();
    let mut seen = BTreeSet::new();
    for parameters in deployments() {
        let stack = Stack::new(&template, &parameters);
        let (planned, _) = module().plan(&variables(&parameters), &stack);
        let mut resources = stack.resources();
        resources.retain(|made| made.kind != "AWS::Serverless::Application");
        seen.extend(same(resources, planned));
    }
    assert_eq!(seen.len(), 18, "{seen:?}");
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
        expected.insert("name".to_owned(), "shop".to_owned());
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
    let text = text("starter-events/terraform/variables.tf");
    for (name, pattern) in [("provider_url", r"^https://\S+$"), ("jwt_issuer", r"^https://\S+$")] {
        let parameter = members(&template["Parameters"]).find(|(parameter, _)| snake_case(parameter) == name);
        assert_eq!(parameter.expect(name).1["AllowedPattern"], pattern);
        let refusal = format!("can(regex({}, var.{name}))", json!(pattern));
        assert!(text.contains(&refusal), "{refusal}");
    }
    let variables: BTreeSet<_> = module.blocks("variable").map(|(name, _)| name.to_owned()).collect();
    let expected = members(&template["Parameters"]).map(|(name, _)| snake_case(name));
    assert_eq!(variables, expected.chain(["name".to_owned()]).collect());
}
