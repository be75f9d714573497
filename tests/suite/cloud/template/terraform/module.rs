//! What Terraform makes of the module, for given variables.

use std::{collections::BTreeMap, fs, path::Path};

use hcl_edit::structure::{Block, Body, Structure};
use serde_json::{Map, Value, json};

use super::{
    evaluated::{self, Scope},
    expressions::snake_case,
    stack::{ACCOUNT, NAME, PARTITION, REGION, Stack, plain},
};

/// The files of the module as one body.
pub struct Module {
    body: Body,
}

/// A resource that Terraform would create.
#[derive(Debug)]
pub struct Planned {
    pub kind: String,
    pub name: String,
    pub attributes: Value,
}

impl Module {
    pub fn read() -> Self {
        Self::of(&super::folder())
    }

    pub fn of(folder: &Path) -> Self {
        let mut structures = Vec::<Structure>::new();
        for entry in fs::read_dir(folder).expect("the module") {
            let path = entry.expect("a file").path();
            if path.extension().is_some_and(|extension| extension == "tf") {
                let body = parsed(&fs::read_to_string(&path).expect("a text"));
                structures.extend(body);
            }
        }
        Self { body: Body::from_iter(structures) }
    }

    /// The blocks of this kind, by their last label.
    pub fn blocks(&self, kind: &'static str) -> impl Iterator<Item = (&str, &Block)> {
        let blocks = self.body.blocks().filter(move |block| block.ident.as_str() == kind);
        blocks.map(|block| (block.labels.last().map_or("", |label| label.as_str()), block))
    }

    /// The resources and outputs with these variables. The attributes that AWS sets are the stack's.
    pub fn plan(
        &self,
        given: &[(&'static str, Value)],
        stack: &Stack<'_>,
    ) -> (Vec<Planned>, BTreeMap<String, Value>) {
        let scope = self.scope(given, stack);
        let of = |block: &Block| {
            evaluated::body(&block.body, &scope).unwrap_or_else(|error| panic!("{:?}: {error}", block.labels))
        };
        let mut planned = Vec::new();
        for (name, block) in self.blocks("resource") {
            let count = block.body.get_attribute("count");
            let count = count.map(|count| evaluated::value(&count.value, &scope).expect("a count"));
            if count.is_none_or(|count| count == 1) {
                let mut attributes = of(block);
                attributes.as_object_mut().expect("attributes").remove("count");
                planned.push(Planned {
                    kind: block.labels[0].as_str().to_owned(),
                    name: name.to_owned(),
                    attributes,
                });
            }
        }
        let outputs = self.blocks("output").filter_map(|(name, block)| {
            let value = of(block)["value"].take();
            (!value.is_null()).then(|| (name.to_owned(), value))
        });
        (planned, outputs.collect())
    }

    /// What it gives to the module that it calls.
    pub fn call(&self, given: &[(&'static str, Value)], stack: &Stack<'_>) -> Value {
        let (_, call) = self.blocks("module").next().expect("a call");
        evaluated::body(&call.body, &self.scope(given, stack)).expect("its arguments")
    }

    /// The first validation that refuses these variables: its error.
    pub fn refusal(&self, given: &[(&'static str, Value)], stack: &Stack<'_>) -> Option<String> {
        let scope = self.scope(given, stack);
        let validations = self.blocks("variable").flat_map(|(_, block)| block.body.blocks());
        let mut results =
            validations.map(|block| evaluated::body(&block.body, &scope).expect("a validation"));
        results.find(|result| result["condition"] == false).map(|result| plain(&result["error_message"]))
    }

    fn scope(&self, given: &[(&'static str, Value)], stack: &Stack<'_>) -> Scope {
        let mut variables = Map::new();
        for (name, block) in self.blocks("variable") {
            let default = block.body.get_attribute("default");
            let default = default.map(|default| evaluated::value(&default.value, &Scope::new()));
            variables.insert(name.to_owned(), default.transpose().expect("a default").unwrap_or_default());
        }
        let own =
            [("name", json!(NAME)), ("stale_zip", json!("stale.zip")), ("outbox_zip", json!("outbox.zip"))];
        // Who calls the module has no variables for its zips.
        let own: Vec<_> = own.iter().filter(|(name, _)| variables.contains_key(*name)).collect();
        for (name, value) in own.into_iter().chain(given) {
            assert!(variables.insert((*name).to_owned(), value.clone()).is_some(), "no variable {name}");
        }
        let mut scope = attributes(stack);
        scope.insert("var".to_owned(), Value::Object(variables));
        scope.insert("path".to_owned(), json!({ "module": "." }));
        let data = json!({
            "aws_caller_identity": { "current": { "account_id": ACCOUNT } },
            "aws_partition": { "current": { "partition": PARTITION } },
            "aws_region": { "current": { "region": REGION } },
        });
        scope.insert("data".to_owned(), data);
        self.add_locals(&mut scope);
        scope
    }

    /// Each after those that it names.
    fn add_locals(&self, scope: &mut Scope) {
        let mut left: Vec<_> = self.blocks("locals").flat_map(|(_, block)| block.body.attributes()).collect();
        scope.insert("local".to_owned(), json!({}));
        while !left.is_empty() {
            let mut errors = Vec::new();
            let before = left.len();
            left.retain(|local| match evaluated::value(&local.value, scope) {
                Ok(value) => {
                    scope["local"][local.key.as_str()] = value;
                    false
                }
                Err(error) => {
                    errors.push(format!("local.{}: {error}", &*local.key));
                    true
                }
            });
            assert!(left.len() < before, "{}", errors.join("\n"));
        }
    }
}

/// A text of HCL.
pub fn parsed(text: &str) -> Body {
    hcl_edit::parser::parse_body(text).unwrap_or_else(|error| panic!("{error}"))
}

/// What AWS sets, by type and name: `aws_sqs_queue.checks_queue.arn`. A resource under a condition is in a list.
fn attributes(stack: &Stack<'_>) -> Scope {
    let mut all = Map::new();
    for (name, kind, is_conditional) in stack.names() {
        let of = |attribute: &str| stack.attribute(&format!("{name}.{attribute}"));
        let (kind, attributes) = match kind {
            "AWS::SQS::Queue" => {
                ("aws_sqs_queue", json!({ "url": of("Ref"), "arn": of("Arn"), "name": of("QueueName") }))
            }
            "AWS::DynamoDB::Table" => (
                "aws_dynamodb_table",
                json!({ "name": of("Ref"), "arn": of("Arn"), "stream_arn": of("StreamArn") }),
            ),
            "AWS::IAM::Role" => ("aws_iam_role", json!({ "name": of("Ref"), "arn": of("Arn") })),
            // As the provider's documentation has it, without `:*`.
            "AWS::Logs::LogGroup" => {
                let arn = of("Arn");
                let arn = arn.strip_suffix(":*").expect("CloudFormation's");
                ("aws_cloudwatch_log_group", json!({ "name": of("Ref"), "arn": arn }))
            }
            "AWS::Serverless::Function" => (
                "aws_lambda_function",
                json!({ "function_name": of("Ref"), "arn": of("Arn"), "invoke_arn": format!("to invoke {}", of("Arn")) }),
            ),
            "AWS::Serverless::HttpApi" => {
                all.insert(
                    "aws_apigatewayv2_authorizer".to_owned(),
                    json!({ snake_case(name): { "id": of("Auth") } }),
                );
                (
                    "aws_apigatewayv2_api",
                    json!({ "id": of("Ref"), "api_endpoint": of("ApiEndpoint"), "execution_arn": of("Calls") }),
                )
            }
            "AWS::Serverless::Application" => {
                let outputs = stack
                    .nested_outputs()
                    .map(|output| (snake_case(&output), json!(of(&format!("Outputs.{output}")))));
                ("module", Value::Object(outputs.collect()))
            }
            "AWS::CloudWatch::Alarm" => ("aws_cloudwatch_metric_alarm", json!({ "arn": of("Arn") })),
            _ => continue,
        };
        let attributes = match (is_conditional, stack.is_there(name)) {
            (false, _) => attributes,
            (true, true) => json!([attributes]),
            (true, false) => json!([]),
        };
        let resources = all.entry(kind).or_insert_with(|| json!({}));
        resources[snake_case(name)] = attributes;
    }
    let functions = all["aws_lambda_function"].as_object().expect("functions").iter();
    let integrations = functions.map(|(name, function)| (name.clone(), json!({ "id": function["arn"] })));
    let integrations = integrations.collect();
    all.insert("aws_apigatewayv2_integration".to_owned(), Value::Object(integrations));
    all
}
