//! The template's values as expressions of HCL.

use serde_json::Value;

use super::{
    super::{list, members},
    layout,
};

/// A value of the template that has a local of its own.
pub struct Known {
    pub value: Value,
    pub local: &'static str,
}

/// Writes the values of a template.
pub struct Writer<'a> {
    pub template: &'a Value,
    pub known: Vec<Known>,
}

/// A part of a text.
enum Part {
    Text(String),
    Expression(String),
    /// Present under a condition.
    If(String, Vec<Part>),
}

impl Writer<'_> {
    pub fn expression(&self, value: &Value) -> String {
        if let Some(known) = self.known.iter().find(|known| known.value == *value) {
            return format!("local.{}", known.local);
        }
        match value {
            Value::String(text) if text.contains('\n') => heredoc(&[Part::Text(text.clone())]),
            Value::String(text) => quoted(&[Part::Text(text.clone())]),
            Value::Array(values) => self.list(values),
            Value::Object(object) => match function(value) {
                Some(("Ref", Value::String(name))) => self.reference(name, None),
                Some(("Fn::GetAtt", Value::String(path))) => self.attribute(path),
                Some(("Fn::Sub", argument)) => self.text(argument),
                Some(("Fn::If", Value::Array(branches))) => {
                    let [Value::String(condition), then, otherwise] = &branches[..] else {
                        panic!("not If: {value}")
                    };
                    let [then, otherwise] = [then, otherwise].map(|branch| self.expression(branch));
                    format!("local.{} ? {then} : {otherwise}", snake_case(condition))
                }
                Some(("Fn::Join", Value::Array(arguments))) => {
                    let [between, Value::Array(values)] = &arguments[..] else { panic!("not Join: {value}") };
                    let values: Vec<_> = values.iter().map(|value| self.expression(value)).collect();
                    format!("join({}, compact({}))", self.expression(between), layout::list(&values))
                }
                Some(_) => panic!("it has no form in HCL: {value}"),
                None => {
                    let members = object.iter().map(|(name, value)| (name.clone(), self.expression(value)));
                    layout::object(members)
                }
            },
            scalar => scalar.to_string(),
        }
    }

    /// A list. Elements under a condition become lists of their own.
    fn list(&self, values: &[Value]) -> String {
        let condition = |value: &Value| match list(&value["Fn::If"])[..] {
            [Value::String(condition), then, otherwise] if is_no_value(otherwise) => {
                Some((condition.clone(), then.clone()))
            }
            _ => None,
        };
        let mut parts = vec![Vec::new()];
        let mut lists = Vec::new();
        for value in values {
            match condition(value) {
                None => parts.last_mut().expect("a list").push(self.expression(value)),
                Some((condition, then)) => {
                    lists.push(layout::list(&parts.pop().expect("a list")));
                    let then = layout::list(&[self.expression(&then)]);
                    lists.push(format!("local.{} ? {then} : []", snake_case(&condition)));
                    parts.push(Vec::new());
                }
            }
        }
        let last = layout::list(&parts.pop().expect("a list"));
        if lists.is_empty() {
            return last;
        }
        lists.push(last);
        format!("concat{}", layout::arguments(&lists))
    }

    /// A parameter, a pseudo parameter, or an attribute of a resource; without one, what `Ref` returns.
    fn reference(&self, name: &str, attribute: Option<&str>) -> String {
        match name {
            "AWS::NoValue" => return "null".to_owned(),
            "AWS::AccountId" => return "local.account_id".to_owned(),
            "AWS::Partition" => return "local.partition".to_owned(),
            "AWS::Region" => return "local.region".to_owned(),
            "AWS::StackName" => return "var.name".to_owned(),
            _ => {}
        }
        let resource = &self.template["Resources"][name];
        let Some(kind) = resource["Type"].as_str() else {
            assert!(!self.template["Parameters"][name].is_null(), "nothing is {name}");
            return format!("var.{}", snake_case(name));
        };
        let index = if resource["Condition"].is_null() { "" } else { "[0]" };
        let (kind, of_ref) = terraform_kind(kind);
        let attribute = attribute.unwrap_or(of_ref);
        format!("{kind}.{}{index}.{attribute}", snake_case(name))
    }

    fn attribute(&self, path: &str) -> String {
        let (name, attribute) = path.split_once('.').expect("a resource and its attribute");
        let expression = |attribute| self.reference(name, Some(attribute));
        match attribute {
            // CloudFormation's ends with `:*`, as permissions on the group's streams need it, and Terraform's does not.
            "Arn" if self.template["Resources"][name]["Type"] == "AWS::Logs::LogGroup" => {
                quoted(&[Part::Expression(expression("arn")), Part::Text(":*".to_owned())])
            }
            "Arn" => expression("arn"),
            "StreamArn" => expression("stream_arn"),
            "QueueName" => expression("name"),
            other => panic!("{other} has no name in Terraform"),
        }
    }

    /// What `Fn::Sub` returns. A text of several lines is written as such.
    fn text(&self, argument: &Value) -> String {
        let parts = self.parts(argument);
        let is_long = parts.iter().any(|part| matches!(part, Part::Text(text) if text.contains('\n')));
        if is_long { heredoc(&parts) } else { quoted(&parts) }
    }

    fn parts(&self, argument: &Value) -> Vec<Part> {
        let text = list(argument)[0].as_str().expect("a text");
        let own = |name: &str| list(argument).get(1).map(|own| &own[name]).filter(|own| !own.is_null());
        let mut pieces = text.split("${");
        let mut parts = vec![Part::Text(pieces.next().unwrap_or_default().to_owned())];
        for piece in pieces {
            let (name, after) = piece.split_once('}').expect("the end of a name");
            parts.push(match own(name) {
                Some(own) => self.part(own),
                None if name.contains('.') => Part::Expression(self.attribute(name)),
                None => Part::Expression(self.reference(name, None)),
            });
            parts.push(Part::Text(after.to_owned()));
        }
        parts
    }

    /// A text's own value.
    fn part(&self, value: &Value) -> Part {
        match list(&value["Fn::If"])[..] {
            [Value::String(condition), then, otherwise] if otherwise == "" => {
                Part::If(format!("local.{}", snake_case(condition)), self.parts(&then["Fn::Sub"]))
            }
            _ => Part::Expression(self.expression(value)),
        }
    }

    /// A condition of the template as an expression.
    pub fn condition(&self, value: &Value) -> String {
        match function(value) {
            Some(("Fn::Equals", _)) => self.compared(value, "=="),
            Some(("Fn::Not", argument)) => self.opposite(list(argument)[0]),
            Some(("Fn::And", argument)) => {
                let all: Vec<_> = list(argument).into_iter().map(|value| self.condition(value)).collect();
                all.join(" && ")
            }
            Some(("Condition", Value::String(name))) => format!("local.{}", snake_case(name)),
            _ => panic!("no condition: {value}"),
        }
    }

    /// The opposite of a condition.
    pub fn opposite(&self, value: &Value) -> String {
        match function(value) {
            Some(("Fn::Equals", _)) => self.compared(value, "!="),
            Some(("Fn::Not", argument)) => self.condition(list(argument)[0]),
            _ => format!("!({})", self.condition(value)),
        }
    }

    fn compared(&self, value: &Value, sign: &str) -> String {
        let [left, right] = list(&value["Fn::Equals"])[..] else { panic!("{value} has not two sides") };
        // Of a truth value, which is no text in Terraform.
        if let (Some(name), true) = (left["Ref"].as_str(), right == "true") {
            let not = if sign == "==" { "" } else { "!" };
            return format!("{not}{}", self.reference(name, None));
        }
        let sides: Vec<_> = [left, right].into_iter().map(|side| self.expression(side)).collect();
        sides.join(&format!(" {sign} "))
    }
}

/// The resource's type in Terraform, and the attribute that is what `Ref` returns.
pub fn terraform_kind(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "AWS::CloudWatch::Alarm" => ("aws_cloudwatch_metric_alarm", "alarm_name"),
        "AWS::CloudWatch::Dashboard" => ("aws_cloudwatch_dashboard", "dashboard_name"),
        "AWS::DynamoDB::Table" => ("aws_dynamodb_table", "name"),
        "AWS::IAM::Role" => ("aws_iam_role", "name"),
        "AWS::Logs::LogGroup" => ("aws_cloudwatch_log_group", "name"),
        "AWS::Logs::QueryDefinition" => ("aws_cloudwatch_query_definition", "query_definition_id"),
        "AWS::SQS::Queue" => ("aws_sqs_queue", "url"),
        "AWS::SQS::QueuePolicy" => ("aws_sqs_queue_policy", "id"),
        "AWS::Serverless::Function" => ("aws_lambda_function", "function_name"),
        other => panic!("the module has no form for {other}: write it"),
    }
}

/// The members of an object by their names. What is built besides decides in which order the JSON has them.
pub fn ordered(value: &Value) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = members(value).collect();
    all.sort_by_key(|(name, _)| *name);
    all
}

fn is_no_value(value: &Value) -> bool {
    value["Ref"] == "AWS::NoValue"
}

/// A text in quotes.
pub fn text(text: &str) -> String {
    quoted(&[Part::Text(text.to_owned())])
}

/// An intrinsic function and its argument.
fn function(value: &Value) -> Option<(&str, &Value)> {
    let (name, argument) = members(value).next()?;
    let is_function =
        name.starts_with("Fn::") || (name == "Ref" || name == "Condition") && argument.is_string();
    is_function.then_some((name, argument))
}

/// `${` and `%{` begin expressions.
fn escaped(text: &str) -> String {
    text.replace("${", "$${").replace("%{", "%%{")
}

fn quoted(parts: &[Part]) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => escaped(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"),
        Part::Expression(expression) => format!("${{{expression}}}"),
        Part::If(..) => panic!("a part under a condition needs lines of its own"),
    };
    match parts {
        // `"${x}"` is `x`.
        [Part::Text(before), Part::Expression(expression), Part::Text(after)]
            if before.is_empty() && after.is_empty() =>
        {
            expression.clone()
        }
        parts => format!("\"{}\"", parts.iter().map(part).collect::<String>()),
    }
}

/// A text of several lines.
fn heredoc(parts: &[Part]) -> String {
    let text = lines(parts);
    assert!(text.ends_with('\n'), "a text of several lines ends with one: {text}");
    let text: String = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("<<-EOT\n{text}EOT")
}

fn lines(parts: &[Part]) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => escaped(text),
        Part::Expression(expression) => format!("${{{expression}}}"),
        Part::If(condition, parts) => format!("%{{if {condition}}}{}%{{endif}}", lines(parts)),
    };
    parts.iter().map(part).collect()
}

/// `OKActions` becomes `ok_actions`.
pub fn snake_case(name: &str) -> String {
    let chars: Vec<_> = name.chars().collect();
    let mut snake = String::new();
    for (at, char) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let begins = before.is_some_and(|before| !before.is_ascii_uppercase())
            || before.is_some() && chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if char.is_ascii_uppercase() && begins {
            snake.push('_');
        }
        snake.push(char.to_ascii_lowercase());
    }
    snake
}
