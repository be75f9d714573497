//! What the names of a template lead to here.

use crate::queues::ACCOUNT;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};

/// Resources that no function calls here. What they do on AWS is left out.
pub const LEFT_OUT: [&str; 12] = [
    "AWS::ApplicationAutoScaling::",
    "AWS::CloudWatch::",
    "AWS::Events::EventBusPolicy",
    "AWS::IAM::",
    "AWS::KMS::",
    "AWS::Lambda::Permission",
    "AWS::Logs::",
    "AWS::MSK::",
    "AWS::S3::",
    "AWS::SecretsManager::",
    "AWS::SNS::",
    "AWS::SQS::QueuePolicy",
];

pub const APPLICATION: &str = "AWS::Serverless::Application";

/// Where a stack runs.
pub struct Place<'a> {
    /// The names of tables, queues and event buses begin with it.
    pub prefix: &'a str,
    pub region: &'a str,
    /// The URLs of queues begin with it.
    pub sqs: &'a str,
    /// Logical names of resources that are left out.
    pub ignored: &'a [String],
}

impl Place<'_> {
    /// The pseudo parameters.
    pub fn references(&self) -> HashMap<String, Result<Value, String>> {
        let name = self.stack_name();
        let id = format!(
            "arn:aws:cloudformation:{}:{ACCOUNT}:stack/{name}/00000000-0000-0000-0000-000000000000",
            self.region
        );
        let all = [
            ("AWS::AccountId", ACCOUNT.to_owned()),
            ("AWS::Partition", "aws".to_owned()),
            ("AWS::Region", self.region.to_owned()),
            ("AWS::StackId", id),
            ("AWS::StackName", name),
            ("AWS::URLSuffix", "amazonaws.com".to_owned()),
            // SAM's own API of events that name none. Its routes are here.
            ("ServerlessHttpApi", "local".to_owned()),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), Ok(json!(value)))).collect()
    }

    fn stack_name(&self) -> String {
        let name = self.prefix.trim_end_matches('-');
        if name.is_empty() { "local".to_owned() } else { name.to_owned() }
    }

    pub fn arn(&self, service: &str, resource: &str) -> String {
        format!("arn:aws:{service}:{}:{ACCOUNT}:{resource}", self.region)
    }
}

/// A resource's name here.
pub struct Named {
    /// Without prefix.
    pub name: String,
    /// With it.
    pub full_name: String,
}

impl Named {
    /// # Errors
    /// If the local cloud does not know such a resource.
    pub fn of(
        id: &str,
        kind: &str,
        is_fifo: bool,
        place: &Place<'_>,
        within: Option<&str>,
        taken: &mut BTreeSet<(String, String)>,
    ) -> Result<Self, String> {
        let suffix = match kind {
            "AWS::DynamoDB::Table" => "Table",
            "AWS::SQS::Queue" => "Queue",
            "AWS::Kinesis::Stream" => "Stream",
            "AWS::Events::EventBus" => "Bus",
            "AWS::Serverless::Function" => "Function",
            APPLICATION | "AWS::Serverless::HttpApi" | "AWS::Events::Rule" => "",
            _ => {
                return Err(format!(
                    "the local cloud does not know {kind}: if no function needs it here, add --ignore {id}"
                ));
            }
        };
        let mut name = kebab(id.strip_suffix(suffix).filter(|rest| !rest.is_empty()).unwrap_or(id));
        if taken.contains(&(kind.to_owned(), name.clone())) {
            let within = within.ok_or_else(|| format!("another {kind} is called {name} here: rename one"))?;
            name = format!("{}-{name}", kebab(within));
        }
        taken.insert((kind.to_owned(), name.clone()));
        let full_name = format!("{}{name}{}", place.prefix, if is_fifo { ".fifo" } else { "" });
        Ok(Self { name, full_name })
    }

    /// What `Ref` and `GetAtt` return for it.
    pub fn references(
        &self,
        id: &str,
        kind: &str,
        place: &Place<'_>,
    ) -> Vec<(String, Result<Value, String>)> {
        let Self { name, full_name } = self;
        let attribute = |attribute: &str, value: String| (format!("{id}.{attribute}"), Ok(json!(value)));
        let named = |value: String| (id.to_owned(), Ok(json!(value)));
        match kind {
            "AWS::DynamoDB::Table" => {
                let arn = place.arn("dynamodb", &format!("table/{full_name}"));
                vec![
                    named(full_name.clone()),
                    attribute("StreamArn", format!("{arn}/stream/latest")),
                    attribute("Arn", arn),
                ]
            }
            "AWS::SQS::Queue" => vec![
                named(self.url(place)),
                attribute("Arn", place.arn("sqs", full_name)),
                attribute("QueueName", full_name.clone()),
                attribute("QueueUrl", self.url(place)),
            ],
            "AWS::Kinesis::Stream" => vec![
                named(full_name.clone()),
                attribute("Arn", place.arn("kinesis", &format!("stream/{full_name}"))),
            ],
            "AWS::Events::EventBus" => vec![
                named(full_name.clone()),
                attribute("Name", full_name.clone()),
                attribute("Arn", place.arn("events", &format!("event-bus/{full_name}"))),
            ],
            "AWS::Serverless::Function" => {
                vec![named(name.clone()), attribute("Arn", place.arn("lambda", &format!("function:{name}")))]
            }
            _ => vec![named(full_name.clone())],
        }
    }

    pub fn url(&self, place: &Place<'_>) -> String {
        format!("{}/{ACCOUNT}/{}", place.sqs, self.full_name)
    }
}

/// `OrderQueue` as `order-queue`.
pub fn kebab(id: &str) -> String {
    let mut name = String::new();
    for char in id.chars() {
        if char.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(char.to_ascii_lowercase());
    }
    name
}
