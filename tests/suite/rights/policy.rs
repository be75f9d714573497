//! An evaluator of IAM policies, for exactly what the template uses. An element, operator, condition key or variable that it does not
//! know fails the test.
//!
//! 1. A call is allowed if a statement allows it and none denies it.
//!    <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html>
//! 2. All operators and keys of a condition must hold; of several values in the policy, one.
//! 3. `ForAllValues` holds if each value of the request matches, so it holds if there is none. `Null` says whether there is one.
//!    <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition_examples-multi-valued-context-keys.html>
//! 4. Without a value for its variable, a pattern matches nothing. The characters of the value are no wildcards.
//!    <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html>

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::context::{Context, Key};

/// An action on a resource. Trust policies name no resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<'a> {
    pub action: &'a str,
    pub resource: Option<&'a str>,
    /// Only a trust policy names who asks.
    pub principal: Option<&'a str>,
    pub context: &'a Context,
}

#[derive(Clone, Debug)]
pub struct Policy(Vec<Statement>);

#[derive(Clone, Debug)]
struct Statement {
    allows: bool,
    actions: Vec<String>,
    resources: Vec<String>,
    principal: Option<String>,
    conditions: Vec<Condition>,
}

/// An operator on one key.
#[derive(Clone, Debug)]
enum Condition {
    Null { key: Key, expected: bool },
    Text { key: Key, patterns: Vec<Vec<Part>> },
}

/// A part of a value in a policy.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Char(char),
    AnyChar,
    AnyText,
    Variable(Key),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Document {
    version: String,
    statement: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Element {
    #[serde(rename = "Sid")]
    _sid: String,
    effect: String,
    action: Values,
    #[serde(default)]
    resource: Values,
    principal: Option<Principal>,
    #[serde(default)]
    condition: BTreeMap<String, BTreeMap<String, Values>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Principal {
    #[serde(rename = "AWS")]
    aws: String,
}

/// A text, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Many(Vec<String>),
}

impl Default for Values {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Values {
    fn all(self) -> Vec<String> {
        match self {
            Self::One(value) => vec![value],
            Self::Many(values) => values,
        }
    }
}

impl Policy {
    pub fn read(document: Value) -> Self {
        let document: Document = serde_json::from_value(document).expect("a policy");
        // Before this version, IAM knew no variables.
        assert_eq!(document.version, "2012-10-17");
        Self(document.statement.into_iter().map(Statement::read).collect())
    }

    pub fn allows(&self, asked: &Asked<'_>) -> bool {
        let applies = |allows: bool| self.0.iter().any(|it| it.allows == allows && it.applies(asked));
        applies(true) && !applies(false)
    }

    /// Each action with each resource of the statements that allow something.
    pub fn allowed(&self) -> impl Iterator<Item = (&str, &str)> {
        let allowing = self.0.iter().filter(|statement| statement.allows);
        allowing.flat_map(|statement| {
            let pairs = statement.actions.iter().map(move |action| (action, &statement.resources));
            pairs.flat_map(|(action, resources)| {
                resources.iter().map(move |resource| (action.as_str(), resource.as_str()))
            })
        })
    }
}

impl Statement {
    fn read(statement: Value) -> Self {
        let element: Element = serde_json::from_value(statement).expect("a statement");
        let allows = match &*element.effect {
            "Allow" => true,
            "Deny" => false,
            other => panic!("no effect: {other}"),
        };
        let (actions, resources) = (element.action.all(), element.resource.all());
        for text in actions.iter().chain(&resources) {
            assert!(!text.contains(['*', '?', '$']), "{text}: wildcards are not evaluated here");
        }
        let conditions = element.condition.into_iter().flat_map(|(operator, keys)| {
            keys.into_iter().map(move |(key, values)| Condition::read(&operator, &key, &values.all()))
        });
        let (principal, conditions) = (element.principal.map(|it| it.aws), conditions.collect());
        Self { allows, actions, resources, principal, conditions }
    }

    fn applies(&self, asked: &Asked<'_>) -> bool {
        self.actions.iter().any(|action| action.eq_ignore_ascii_case(asked.action))
            && asked.resource.is_none_or(|resource| self.resources.iter().any(|own| own == resource))
            && self.principal.as_deref() == asked.principal
            && self.conditions.iter().all(|condition| condition.holds(asked.context))
    }
}

impl Condition {
    fn read(operator: &str, key: &str, values: &[String]) -> Self {
        let key = Key::named(key);
        let (set, operator) = match operator.split_once(':') {
            Some(("ForAllValues", operator)) => (true, operator),
            Some((set, _)) => panic!("the set operator {set} is not evaluated here"),
            None => (false, operator),
        };
        if operator == "Null" {
            assert!(!set, "Null has no set operator");
            let [expected] = values else { panic!("of Null, one value: {values:?}") };
            return Self::Null { key, expected: expected.parse().expect("true or false") };
        }
        assert_eq!(set, key.has_several_values(), "{key:?} needs a set operator if it has several values");
        let has_wildcards = match operator {
            "StringLike" => true,
            "StringEquals" => false,
            other => panic!("the operator {other} is not evaluated here"),
        };
        Self::Text { key, patterns: values.iter().map(|value| parts(value, has_wildcards)).collect() }
    }

    fn holds(&self, context: &Context) -> bool {
        match self {
            Self::Null { key, expected } => context.values(*key).is_empty() == *expected,
            Self::Text { key, patterns } => {
                let values = context.values(*key);
                // Only `ForAllValues` holds for a key that the request does not have.
                (key.has_several_values() || !values.is_empty())
                    && values.iter().all(|value| patterns.iter().any(|it| matches(it, value, context)))
            }
        }
    }
}

fn parts(mut text: &str, has_wildcards: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some(first) = text.chars().next() {
        if let Some(rest) = text.strip_prefix("${") {
            let (name, rest) = rest.split_once('}').expect("the end of a variable");
            parts.push(match name {
                "*" | "?" | "$" => Part::Char(name.chars().next().expect("a character")),
                name => Part::Variable(Key::named(name)),
            });
            text = rest;
            continue;
        }
        parts.push(match first {
            '*' if has_wildcards => Part::AnyText,
            '?' if has_wildcards => Part::AnyChar,
            other => Part::Char(other),
        });
        text = &text[first.len_utf8()..];
    }
    parts
}

fn matches(parts: &[Part], text: &str, context: &Context) -> bool {
    let Some((first, rest)) = parts.split_first() else { return text.is_empty() };
    let (next, after) =
        (text.chars().next(), text.chars().next().map_or("", |next| &text[next.len_utf8()..]));
    match first {
        Part::Char(char) => next == Some(*char) && matches(rest, after, context),
        Part::AnyChar => next.is_some() && matches(rest, after, context),
        Part::AnyText => matches(rest, text, context) || next.is_some() && matches(parts, after, context),
        Part::Variable(key) => match context.values(*key) {
            [value] => text.strip_prefix(&**value).is_some_and(|text| matches(rest, text, context)),
            [] => false,
            several => panic!("a variable has one value: {several:?}"),
        },
    }
}
