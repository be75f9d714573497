//! What CloudFormation and SAM make of the template, for given parameters.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::{list, members};

pub const ACCOUNT: &str = "111122223333";
pub const PARTITION: &str = "aws";
pub const REGION: &str = "eu-central-1";
pub const NAME: &str = "shop";

/// A stack of the template.
pub struct Stack<'a> {
    template: &'a Value,
    parameters: BTreeMap<&'a str, Value>,
}

/// A resource of a stack, or what SAM makes of a function's events.
#[derive(Debug)]
pub struct Made {
    pub kind: String,
    pub name: String,
    pub properties: Value,
    /// Whether it stays if the stack is deleted.
    pub is_kept: bool,
}

impl<'a> Stack<'a> {
    /// With these parameters, and the defaults of the others.
    pub fn new(template: &'a Value, given: &[(&'static str, Value)]) -> Self {
        let mut parameters: BTreeMap<_, _> = members(&template["Parameters"])
            .map(|(name, parameter)| (&**name, parameter["Default"].clone()))
            .collect();
        for (name, value) in given {
            assert!(parameters.insert(name, value.clone()).is_some(), "no parameter {name}");
        }
        Self { template, parameters }
    }

    pub fn meets(&self, condition: &Value) -> bool {
        let both = |argument: &Value| {
            let sides: Vec<_> = list(argument).into_iter().map(|side| self.value(side)).collect();
            sides[0] == sides[1]
        };
        match members(condition).next().map(|(name, argument)| (&**name, argument)) {
            Some(("Fn::Equals", sides)) => both(sides),
            Some(("Fn::Not", argument)) => !self.meets(&argument[0]),
            Some(("Fn::And", all)) => list(all).into_iter().all(|one| self.meets(one)),
            Some(("Condition", Value::String(name))) => self.has(name),
            _ => panic!("no condition: {condition}"),
        }
    }

    fn has(&self, condition: &str) -> bool {
        self.meets(&self.template["Conditions"][condition])
    }

    fn is_made(&self, part: &Value) -> bool {
        part["Condition"].as_str().is_none_or(|condition| self.has(condition))
    }

    /// The value of an expression. None if it is `AWS::NoValue`.
    fn value(&self, value: &Value) -> Option<Value> {
        let Value::Object(object) = value else {
            return Some(match value {
                Value::Array(values) => values.iter().filter_map(|value| self.value(value)).collect(),
                scalar => scalar.clone(),
            });
        };
        let text = |value: &Value| self.value(value).map(|value| plain(&value)).expect("a text");
        let texts = |value: &Value| match self.value(value) {
            Some(Value::Array(values)) => values.iter().map(plain).collect::<Vec<_>>(),
            other => panic!("no list: {other:?}"),
        };
        Some(match object.iter().next().map(|(name, argument)| (&**name, argument)) {
            Some(("Ref", Value::String(name))) if name == "AWS::NoValue" => return None,
            Some(("Ref", Value::String(name))) => self.reference(name),
            Some(("Fn::GetAtt", Value::String(path))) => json!(self.attribute(path)),
            Some(("Fn::If", branches)) => {
                let condition = branches[0].as_str().expect("a condition");
                return self.value(&branches[if self.has(condition) { 1 } else { 2 }]);
            }
            Some(("Fn::Join", arguments)) => json!(texts(&arguments[1]).join(&text(&arguments[0]))),
            Some(("Fn::Split", arguments)) => {
                let between = text(&arguments[0]);
                json!(text(&arguments[1]).split(&between).collect::<Vec<_>>())
            }
            Some(("Fn::Select", arguments)) => {
                let place = arguments[0].as_u64().and_then(|place| usize::try_from(place).ok());
                json!(texts(&arguments[1])[place.expect("a place")])
            }
            Some(("Fn::Sub", argument)) => json!(self.substituted(argument)),
            Some((name, _)) if name.starts_with("Fn::") => panic!("unknown: {value}"),
            _ => {
                let members =
                    object.iter().filter_map(|(name, value)| Some((name.clone(), self.value(value)?)));
                Value::Object(members.collect())
            }
        })
    }

    fn substituted(&self, argument: &Value) -> String {
        let mut text = list(argument)[0].as_str().expect("a text");
        let mut result = String::new();
        while let Some((before, rest)) = text.split_once("${") {
            let (name, after) = rest.split_once('}').expect("the end of a name");
            let own = list(argument).get(1).map(|own| &own[name]).filter(|own| !own.is_null());
            let value = match own {
                Some(own) => self.value(own).expect("a value"),
                None if name.contains('.') => json!(self.attribute(name)),
                None => self.reference(name),
            };
            result += before;
            result += &plain(&value);
            text = after;
        }
        result + text
    }

    fn reference(&self, name: &str) -> Value {
        json!(match name {
            "AWS::AccountId" => ACCOUNT.to_owned(),
            "AWS::Partition" => PARTITION.to_owned(),
            "AWS::Region" => REGION.to_owned(),
            "AWS::StackName" => NAME.to_owned(),
            "AWS::StackId" =>
                format!("arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{NAME}/instance-of-it"),
            _ => match self.parameters.get(name) {
                Some(value) => return value.clone(),
                None => self.attribute(&format!("{name}.Ref")),
            },
        })
    }

    /// What a resource has after it was created. A queue without a name is called as its resource.
    pub fn attribute(&self, path: &str) -> String {
        let (name, attribute) = path.split_once('.').expect("a resource and its attribute");
        let resource = &self.template["Resources"][name];
        let arn = |service: &str, rest: &str| format!("arn:{PARTITION}:{service}:{REGION}:{ACCOUNT}:{rest}");
        let own_name = |property: &str| {
            let own = &resource["Properties"][property];
            if own.is_null() { name.to_owned() } else { plain(&self.value(own).expect("a name")) }
        };
        match (resource["Type"].as_str().unwrap_or_default(), attribute) {
            ("AWS::SQS::Queue", "QueueName") => own_name("QueueName"),
            ("AWS::SQS::Queue", "Arn") => arn("sqs", &own_name("QueueName")),
            ("AWS::SQS::Queue", "Ref") => {
                format!("https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{}", own_name("QueueName"))
            }
            ("AWS::DynamoDB::Table", "Arn") => arn("dynamodb", &format!("table/{name}")),
            ("AWS::DynamoDB::Table", "StreamArn") => arn("dynamodb", &format!("table/{name}/stream/now")),
            ("AWS::Logs::LogGroup", "Ref") => own_name("LogGroupName"),
            // As CloudFormation's documentation has it, with `:*` behind it.
            ("AWS::Logs::LogGroup", "Arn") => {
                arn("logs", &format!("log-group:{}:*", own_name("LogGroupName")))
            }
            ("AWS::DynamoDB::Table" | "AWS::IAM::Role" | "AWS::Serverless::Function", "Ref") => {
                name.to_owned()
            }
            ("AWS::IAM::Role", "Arn") => format!("arn:{PARTITION}:iam::{ACCOUNT}:role/{name}"),
            ("AWS::Serverless::Function", "Arn") => arn("lambda", &format!("function:{name}")),
            ("AWS::Serverless::HttpApi", "Ref" | "ApiEndpoint" | "Auth" | "Calls") => {
                format!("{name}.{attribute}")
            }
            // An output of the nested stack.
            ("AWS::Serverless::Application", output) => output.to_owned(),
            ("AWS::CloudWatch::Alarm", "Arn") => arn("cloudwatch", &format!("alarm:{name}")),
            (kind, _) => panic!("no attribute {path} of {kind}"),
        }
    }

    /// The names and types of the resources under their conditions.
    pub fn names(&self) -> impl Iterator<Item = (&'a String, &'a str, bool)> {
        members(&self.template["Resources"]).map(|(name, resource)| {
            (name, resource["Type"].as_str().expect("a type"), !resource["Condition"].is_null())
        })
    }

    /// The outputs of the nested stack that are named here.
    pub fn nested_outputs(&self) -> impl Iterator<Item = String> {
        let text = self.template.to_string();
        let named = text.split("Idempotency.Outputs.").skip(1);
        let named = named.map(|rest| {
            rest.split(|char: char| !char.is_alphanumeric()).next().unwrap_or_default().to_owned()
        });
        named.collect::<Vec<_>>().into_iter()
    }

    pub fn is_there(&self, name: &str) -> bool {
        self.is_made(&self.template["Resources"][name])
    }

    /// The resources that exist.
    pub fn resources(&self) -> Vec<Made> {
        let mut all = Vec::new();
        for (name, resource) in members(&self.template["Resources"]).filter(|(_, it)| self.is_made(it)) {
            let kind = resource["Type"].as_str().expect("a type");
            let properties = self.value(&resource["Properties"]).expect("properties");
            let is_kept = resource["DeletionPolicy"] == "Retain";
            self.add(&mut all, Made { kind: kind.to_owned(), name: name.clone(), properties, is_kept });
        }
        all
    }

    /// A resource, and those that are a part of it here and separate in Terraform.
    fn add(&self, all: &mut Vec<Made>, mut made: Made) {
        let part = |kind: &str, name: String, properties: Value| Made {
            kind: kind.to_owned(),
            name,
            properties,
            is_kept: false,
        };
        let name = made.name.clone();
        let mut take = |property: &str| made.properties.as_object_mut().expect("properties").remove(property);
        match &*made.kind {
            "AWS::SQS::Queue" => {
                if let Some(policy) = take("RedriveAllowPolicy") {
                    let properties = json!({ "Queue": self.reference(&name), "Policy": policy });
                    all.push(part("RedriveAllowPolicy", name, properties));
                }
            }
            "AWS::IAM::Role" => {
                let policies = take("Policies").expect("policies");
                let properties = json!({ "Role": self.reference(&name), "Policies": policies });
                all.push(part("RolePolicy", name, properties));
            }
            "AWS::Serverless::HttpApi" => {
                let id = self.reference(&name);
                let mut auth = take("Auth").expect("callers are known")["Authorizers"]["Jwt"].take();
                auth["ApiId"] = id.clone();
                all.push(part("HttpApiAuthorizer", name.clone(), auth));
                let stage =
                    ["DefaultRouteSettings", "AccessLogSettings"].map(|settings| (settings, take(settings)));
                let mut stage = json!(BTreeMap::from(stage));
                // API Gateway takes a log group's ARN with `:*` and without. The format is compared by its structure.
                let log = &mut stage["AccessLogSettings"];
                log["DestinationArn"] = json!(plain(&log["DestinationArn"]).trim_end_matches(":*"));
                log["Format"] = serde_json::from_str(&plain(&log["Format"])).expect("JSON");
                stage["ApiId"] = id;
                all.push(part("HttpApiStage", name, stage));
            }
            "AWS::Serverless::Function" => {
                let arn = self.attribute(&format!("{name}.Arn"));
                let events = take("Events").expect("events");
                for (event, made) in members(&events) {
                    let kind = made["Type"].as_str().expect("a type");
                    let mut properties = made["Properties"].clone();
                    if kind == "HttpApi" {
                        properties = self.route(&properties, &arn);
                    } else {
                        properties["Function"] = json!(arn);
                    }
                    all.push(part(kind, format!("{name}{event}"), properties));
                }
                if let Some((_, route)) = members(&events).find(|(_, event)| event["Type"] == "HttpApi") {
                    let api = &route["Properties"]["ApiId"];
                    let called = json!({ "ApiId": api, "Function": format!("to invoke {arn}") });
                    // Of any route: SAM writes one permission for each.
                    let source = format!("{}/*/*", self.attribute("HttpApi.Calls"));
                    all.push(part("HttpApiIntegration", name.clone(), called));
                    let called = json!({ "Source": source, "Function": self.reference(&name) });
                    all.push(part("HttpApiPermission", name.clone(), called));
                }
                if let Some(mut config) = take("EventInvokeConfig") {
                    config["Function"] = self.reference(&name);
                    all.push(part("EventInvokeConfig", format!("{name}EventInvokeConfig"), config));
                }
                let globals = self.value(&self.template["Globals"]["Function"]).expect("globals");
                made.properties = merged(&globals, &made.properties);
            }
            _ => {}
        }
        all.push(made);
    }

    /// A route of an API, whose default authorizer it has.
    fn route(&self, event: &Value, function: &str) -> Value {
        json!({
            "ApiId": event["ApiId"],
            "RouteKey": format!("{} {}", plain(&event["Method"]), plain(&event["Path"])),
            "Target": format!("integrations/{function}"),
            "Authorizer": self.attribute("HttpApi.Auth"),
        })
    }

    /// The outputs that exist.
    pub fn outputs(&self) -> BTreeMap<&'a str, Value> {
        let outputs = members(&self.template["Outputs"]).filter(|(_, output)| self.is_made(output));
        outputs.map(|(name, output)| (&**name, self.value(&output["Value"]).expect("a value"))).collect()
    }
}

/// A function's properties over those of all functions.
fn merged(all: &Value, own: &Value) -> Value {
    let (Value::Object(all), Value::Object(own)) = (all, own) else { return own.clone() };
    let mut result: Map<_, _> = all.clone();
    for (name, value) in own {
        let value = all.get(name).map_or_else(|| value.clone(), |all| merged(all, value));
        result.insert(name.clone(), value);
    }
    Value::Object(result)
}

/// A scalar as text.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // Whole numbers have one form.
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
            format!("{:.0}", number.as_f64().expect("a number"))
        }
        scalar => scalar.to_string(),
    }
}
