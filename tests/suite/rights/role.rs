//! The role of the template, and the sessions that assume it.

use std::{collections::BTreeMap, fs};

use local::yaml;
use serde_json::{Value, json};

use super::{
    call::Call,
    context::{Context, Key},
    policy::{Asked, Policy},
};

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/tenant-role.yaml");

/// The role of the function that serves the clients.
pub const FUNCTION: &str = "arn:aws:iam::123456789012:role/payments";

/// The role, deployed with some parameters.
#[derive(Clone, Debug)]
pub struct Role {
    trust: Policy,
    pub policy: Policy,
}

/// Credentials of the role.
#[derive(Clone, Debug)]
pub struct Session {
    role: Role,
    context: Context,
}

impl Role {
    /// The role on this table of records, with these parameters besides.
    pub fn on(table_arn: &str, parameters: &[(&str, &str)]) -> Self {
        let deployed = Deployed::new(table_arn, parameters);
        let role = deployed.template["Resources"]["TenantRole"]["Properties"].clone();
        let members: Vec<_> = role.as_object().expect("an object").keys().map(String::as_str).collect();
        // Another one, such as a managed policy, would allow more than what is evaluated here.
        assert_eq!(members, ["AssumeRolePolicyDocument", "Policies"]);
        let policies = role["Policies"].as_array().expect("a list");
        let [policy] = &policies[..] else { panic!("{} policies", policies.len()) };
        let read = |document: &Value| Policy::read(deployed.value(document).expect("a policy"));
        Self { trust: read(&role["AssumeRolePolicyDocument"]), policy: read(&policy["PolicyDocument"]) }
    }

    /// The session that this principal gets, if it gets one, with this tag `tenant` if there is one.
    pub fn assumed_by(&self, principal: &str, tag: Option<&str>) -> Option<Session> {
        if !tag.is_none_or(is_tag) {
            return None;
        }
        let context = Context::default().with(Key::RequestTenant, tag);
        let asked = |action| Asked { action, resource: None, principal: Some(principal), context: &context };
        let is_allowed = self.trust.allows(&asked("sts:AssumeRole"))
            && (tag.is_none() || self.trust.allows(&asked("sts:TagSession")));
        is_allowed.then(|| self.tagged(tag))
    }

    /// A session that the trust policy may not have let begin.
    pub fn tagged(&self, tag: Option<&str>) -> Session {
        Session { role: self.clone(), context: Context::default().with(Key::PrincipalTenant, tag) }
    }

    /// The session of a tenant.
    pub fn of(&self, tenant: &str) -> Session {
        self.assumed_by(FUNCTION, Some(tenant)).unwrap_or_else(|| panic!("{tenant} has no session"))
    }
}

impl Session {
    pub fn may(&self, call: &Call) -> bool {
        let context = match &call.leading_keys {
            Some(keys) => self.context.clone().with(Key::LeadingKeys, keys),
            None => self.context.clone(),
        };
        let (action, resource) = (&*call.action, Some(&*call.resource));
        self.role.policy.allows(&Asked { action, resource, principal: None, context: &context })
    }
}

/// Whether STS takes this as a tag's value. Its pattern is `[\p{L}\p{Z}\p{N}_.:/=+\-@]*`, of at most 256 characters:
/// <https://docs.aws.amazon.com/STS/latest/APIReference/API_Tag.html>
fn is_tag(value: &str) -> bool {
    let is_taken = |char: char| {
        char.is_alphanumeric() || char.is_whitespace() && !char.is_control() || "_.:/=+-@".contains(char)
    };
    value.chars().count() <= 256 && value.chars().all(is_taken)
}

/// The template with its parameters, as CloudFormation resolves it.
struct Deployed {
    template: Value,
    parameters: BTreeMap<String, Value>,
}

impl Deployed {
    fn new(table_arn: &str, given: &[(&str, &str)]) -> Self {
        let text = fs::read_to_string(TEMPLATE).expect("the template");
        let template = yaml::parse(&text).expect("YAML");
        let mut given: BTreeMap<_, _> = given.iter().copied().collect();
        given.extend([("TableArn", table_arn), ("FunctionRoleArn", FUNCTION)]);
        let declared = template["Parameters"].as_object().expect("parameters");
        let parameters = declared.iter().map(|(name, parameter)| {
            let value = given.remove(&**name).or_else(|| parameter["Default"].as_str()).expect("a value");
            let value = match parameter["Type"].as_str() {
                Some("String") => json!(value),
                Some("CommaDelimitedList") => value.split(',').collect(),
                other => panic!("{name}: {other:?}"),
            };
            (name.clone(), value)
        });
        let parameters = parameters.collect();
        assert!(given.is_empty(), "no such parameters: {given:?}");
        Self { template, parameters }
    }

    /// `None` if it is `AWS::NoValue`.
    fn value(&self, value: &Value) -> Option<Value> {
        match value {
            Value::Array(values) => Some(values.iter().filter_map(|value| self.value(value)).collect()),
            Value::Object(members) => {
                let call = members.iter().next().filter(|(name, _)| members.len() == 1 && is_function(name));
                if let Some((name, argument)) = call {
                    return self.called(name, argument);
                }
                let members = members.iter();
                Some(members.filter_map(|(name, value)| Some((name.clone(), self.value(value)?))).collect())
            }
            other => Some(other.clone()),
        }
    }

    fn called(&self, name: &str, argument: &Value) -> Option<Value> {
        match (name, argument) {
            ("Ref", Value::String(name)) if name == "AWS::NoValue" => None,
            ("Ref", Value::String(name)) => Some(self.parameters[name].clone()),
            ("Fn::If", Value::Array(branches)) => {
                let condition = &self.template["Conditions"][branches[0].as_str().expect("a condition")];
                self.value(&branches[if self.holds(condition) { 1 } else { 2 }])
            }
            ("Fn::Sub", Value::String(text)) => {
                let filled = self.parameters.iter().fold(text.clone(), |text, (name, value)| {
                    text.replace(&format!("${{{name}}}"), value.as_str().unwrap_or_default())
                });
                assert!(!filled.contains("${"), "{filled}");
                Some(json!(filled))
            }
            ("Fn::Join", Value::Array(of)) => {
                let (between, texts) = (of[0].as_str().expect("a text"), self.value(&of[1])?);
                let texts: Vec<_> = texts.as_array()?.iter().filter_map(Value::as_str).collect();
                Some(json!(texts.join(between)))
            }
            _ => panic!("{name} is not resolved here: {argument}"),
        }
    }

    fn holds(&self, condition: &Value) -> bool {
        match (&condition["Fn::Not"], &condition["Fn::Equals"]) {
            (Value::Array(not), Value::Null) => !self.holds(&not[0]),
            (Value::Null, Value::Array(sides)) => self.value(&sides[0]) == self.value(&sides[1]),
            _ => panic!("{condition} is not resolved here"),
        }
    }
}

fn is_function(name: &str) -> bool {
    name == "Ref" || name.starts_with("Fn::")
}
