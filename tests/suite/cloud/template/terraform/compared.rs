//! A resource of the template beside the same of the module.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    super::{list, members},
    module::Planned,
    pairs::{KINDS, Kind},
    stack::{Made, NAME, plain},
};

/// The kind of both, if the module's is of the type that the template's needs.
pub fn kind(made: &Made, planned: &Planned) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.cloudformation == made.kind && kind.terraform == planned.kind)
}

/// What is different, each in a line.
pub fn differences(kind: &Kind, made: &Made, planned: &Planned) -> Vec<String> {
    let mut attributes = planned.attributes.clone();
    let mut found = Vec::new();
    let lifecycle = attributes.as_object_mut().expect("attributes").remove("lifecycle");
    let is_kept = lifecycle.is_some_and(|lifecycle| lifecycle == json!([{ "prevent_destroy": true }]));
    if is_kept != made.is_kept {
        found.push(format!("kept: {} became {is_kept}", made.is_kept));
    }
    let mut properties = made.properties.clone();
    same_prefix(&mut properties, &mut attributes, &mut found);
    set_defaults(&mut properties, &mut attributes);

    let mut expected = leaves(&properties);
    for (property, value) in kind.only_in_cloudformation {
        let actual = expected.remove(*property);
        if actual.is_some_and(|actual| *value != "*" && actual != *value) {
            found.push(format!("{property} is not {value}: the module must say so"));
        }
    }
    for (attribute, value) in leaves(&attributes) {
        let only = kind.only_in_terraform.iter().find(|(only, _)| *only == attribute);
        if let Some((_, expected)) = only {
            let expected = expected.replace("LOGICAL_ID", &made.name);
            if expected != "*" && expected != value {
                found.push(format!("{attribute}: {value} in place of {expected}"));
            }
            continue;
        }
        let Some(property) = kind.pairs.iter().find_map(|(from, to)| translated(&attribute, from, to)) else {
            found.push(format!("{attribute} is no property"));
            continue;
        };
        match expected.remove(&property) {
            Some(expected) if expected == value => {}
            Some(expected) => found.push(format!("{attribute}: {value} in place of {expected}")),
            None => found.push(format!("{attribute}: {value} in place of nothing")),
        }
    }
    found.extend(expected.into_iter().map(|(property, value)| format!("{property}: {value} is missing")));
    found
}

/// A name that CloudFormation completes, or that has a part of the stack's id: Terraform completes it too.
fn same_prefix(properties: &mut Value, attributes: &mut Value, found: &mut Vec<String>) {
    let Some(prefix) = attributes["name_prefix"].as_str().map(str::to_owned) else { return };
    if !prefix.starts_with(&format!("{NAME}-")) {
        found.push(format!("name_prefix: {prefix} does not begin with the name"));
    }
    if properties.get("FifoQueue").is_none() && properties.get("SqsManagedSseEnabled").is_none() {
        return;
    }
    let name = properties.as_object_mut().expect("properties").remove("QueueName");
    if name.as_ref().is_some_and(|name| !plain(name).starts_with(&prefix)) {
        found.push(format!("name_prefix: {prefix} in place of {name:?}"));
    }
    attributes.as_object_mut().expect("attributes").remove("name_prefix");
}

/// Both default values of `return_data`: CloudWatch's API has true, the provider false.
fn set_defaults(properties: &mut Value, attributes: &mut Value) {
    let set = |queries: &mut Value, name: &str, default: bool| {
        for query in queries.as_array_mut().into_iter().flatten() {
            query.as_object_mut().expect("a query").entry(name).or_insert_with(|| json!(default));
        }
    };
    if let Some(queries) = properties.get_mut("Metrics") {
        set(queries, "ReturnData", true);
    }
    if let Some(queries) = attributes.get_mut("metric_query") {
        set(queries, "return_data", false);
    }
}

/// Dimensions as an object, as in Terraform, and the sources of dead letters in order.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let member = |(name, value): (&String, &Value)| {
                let value = match &**name {
                    "Dimensions" => {
                        let pairs = list(value).into_iter();
                        let pairs = pairs.map(|pair| (plain(&pair["Name"]), pair["Value"].clone()));
                        Value::Object(pairs.collect::<Map<_, _>>())
                    }
                    "sourceQueueArns" => {
                        let mut arns: Vec<_> = list(value).into_iter().map(plain).collect();
                        arns.sort();
                        json!(arns)
                    }
                    _ => normal(value),
                };
                (name.clone(), value)
            };
            Value::Object(object.iter().map(member).collect())
        }
        Value::Array(values) => values.iter().map(normal).collect(),
        scalar => scalar.clone(),
    }
}

/// The scalars of a value by their paths, as texts: 1 and "1" are one to both. A text that is JSON is read, because white space does not
/// count in it.
fn leaves(value: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    add_leaves(&normal(value), "", &mut all);
    all
}

fn add_leaves(value: &Value, path: &str, all: &mut BTreeMap<String, String>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
    match value {
        Value::Object(_) => members(value).for_each(|(name, value)| add_leaves(value, &join(name), all)),
        Value::Array(values) => {
            let places = values.iter().enumerate();
            places.for_each(|(place, value)| add_leaves(value, &join(&place.to_string()), all));
        }
        scalar => {
            let text = plain(scalar);
            let document = serde_json::from_str::<Value>(&text).ok().filter(Value::is_object);
            all.insert(path.to_owned(), document.map_or(text, |document| document.to_string()));
        }
    }
}

/// The path of the property, if the path of the attribute begins with this one.
fn translated(attribute: &str, from: &str, to: &str) -> Option<String> {
    let mut rest = attribute.split('/');
    let mut places = Vec::new();
    for part in from.split('/') {
        let actual = rest.next()?;
        match part {
            "*" => places.push(actual),
            _ if part != actual => return None,
            _ => {}
        }
    }
    let mut places = places.into_iter();
    let to = to.split('/').map(|part| if part == "*" { places.next().expect("a place") } else { part });
    Some(to.chain(rest).collect::<Vec<_>>().join("/"))
}
