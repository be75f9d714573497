//! What the intrinsic functions of a template return: its parameters, its conditions, and its resources' names.
//!
//! Nothing is resolved before it is used. A parameter without a value is no error until something that runs here needs it.

use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// How deep values and conditions may lead to others. CloudFormation refuses a condition that leads to itself.
const MAX_DEPTH: u8 = 64;

/// What names mean in one template.
#[derive(Default)]
pub struct Scope {
    /// Parameters with a value.
    pub parameters: HashMap<String, Value>,
    /// Parameters, as they are declared.
    pub declared: Map<String, Value>,
    /// Conditions, as they are declared.
    pub conditions: Map<String, Value>,
    /// `Mappings`, as they are declared.
    pub mappings: Map<String, Value>,
    /// Whether the template has the transform `AWS::LanguageExtensions`.
    pub is_extended: bool,
    /// Resources, as they are declared, with those that are left out here.
    pub resources: Map<String, Value>,
    /// `Name` and `Name.Attribute` of resources; or why it has no value.
    pub references: HashMap<String, Result<Value, String>>,
}

impl Scope {
    /// The value, with all functions resolved. `None` is `AWS::NoValue`.
    ///
    /// # Errors
    /// If something in it has no value here.
    pub fn value(&self, value: &Value) -> Result<Option<Value>, String> {
        self.resolve(value, 0)
    }

    /// The same, as text: numbers and truth values too. `None` also if there is no such value.
    ///
    /// # Errors
    /// If it has no value here, or is no scalar.
    pub fn text(&self, value: &Value) -> Result<Option<String>, String> {
        match self.value(value)? {
            None | Some(Value::Null) => Ok(None),
            Some(value) => scalar(&value).map(Some),
        }
    }

    /// Whether a property is `true`; not if it is missing.
    ///
    /// # Errors
    /// If it has no value here, or is no truth value.
    pub fn is_true(&self, value: &Value) -> Result<bool, String> {
        match self.text(value)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(format!("{other} must be true or false")),
        }
    }

    /// What `Fn::If` chooses, with nothing in it resolved; [`Value::Null`] of `AWS::NoValue`.
    ///
    /// # Errors
    /// If a condition cannot be read.
    pub fn chosen<'a>(&self, mut value: &'a Value) -> Result<&'a Value, String> {
        while let Some([Value::String(condition), then, otherwise]) =
            value["Fn::If"].as_array().map(Vec::as_slice)
        {
            value = if self.holds(condition)? { then } else { otherwise };
        }
        Ok(if value["Ref"] == "AWS::NoValue" { &Value::Null } else { value })
    }

    /// Whether this condition holds.
    ///
    /// # Errors
    /// If something in it has no value here.
    pub fn holds(&self, condition: &str) -> Result<bool, String> {
        self.condition(condition, 0)
    }

    fn resolve(&self, value: &Value, depth: u8) -> Result<Option<Value>, String> {
        if depth > MAX_DEPTH {
            return Err("a value leads to itself".to_owned());
        }
        let part = |value| self.resolve(value, depth + 1);
        match value {
            Value::Array(values) => {
                let values = values.iter().filter_map(|value| part(value).transpose());
                Ok(Some(Value::Array(values.collect::<Result<_, _>>()?)))
            }
            Value::Object(members) => match single(members) {
                Some((function, argument)) => self.call(function, argument, depth + 1),
                None => {
                    let resolved = members.iter().filter_map(|(name, value)| {
                        part(value).transpose().map(|value| Ok::<_, String>((name.clone(), value?)))
                    });
                    Ok(Some(Value::Object(resolved.collect::<Result<_, _>>()?)))
                }
            },
            scalar => Ok(Some(scalar.clone())),
        }
    }

    fn call(&self, function: &str, argument: &Value, depth: u8) -> Result<Option<Value>, String> {
        let some = |value: &Value| {
            self.resolve(value, depth)?.ok_or_else(|| format!("{function} gets no value: {argument}"))
        };
        let misused = || format!("{function} cannot be called so: {argument}");
        match function {
            "Ref" => match argument.as_str().ok_or_else(misused)? {
                "AWS::NoValue" => Ok(None),
                name => self.reference(name).map(Some),
            },
            "Fn::GetAtt" => {
                let name = match argument {
                    Value::Array(parts) => {
                        let parts = parts.iter().map(|part| scalar(&some(part)?));
                        parts.collect::<Result<Vec<_>, _>>()?.join(".")
                    }
                    _ => scalar(argument)?,
                };
                self.reference(&name).map(Some)
            }
            "Fn::Sub" => {
                let (text, own) = match argument {
                    Value::Array(arguments) => match &arguments[..] {
                        [text, Value::Object(own)] => (text, Some(own)),
                        _ => return Err(misused()),
                    },
                    text => (text, None),
                };
                let value = |name: &str| match own.and_then(|own| own.get(name)) {
                    Some(own) => some(own),
                    None => self.reference(name),
                };
                substitute(text.as_str().ok_or_else(misused)?, value).map(|text| Some(json!(text)))
            }
            "Fn::If" => match argument.as_array().map(Vec::as_slice) {
                Some([Value::String(condition), then, otherwise]) => {
                    let chosen = if self.condition(condition, depth)? { then } else { otherwise };
                    self.resolve(chosen, depth)
                }
                _ => Err(misused()),
            },
            "Fn::Join" => match argument.as_array().map(Vec::as_slice) {
                Some([Value::String(between), values]) => {
                    let Value::Array(values) = some(values)? else { return Err(misused()) };
                    let values = values.iter().map(scalar).collect::<Result<Vec<_>, _>>()?;
                    Ok(Some(json!(values.join(between))))
                }
                _ => Err(misused()),
            },
            "Fn::Split" => match argument.as_array().map(Vec::as_slice) {
                Some([Value::String(between), value]) => {
                    let text = scalar(&some(value)?)?;
                    Ok(Some(json!(text.split(&**between).collect::<Vec<_>>())))
                }
                _ => Err(misused()),
            },
            "Fn::Select" => match argument.as_array().map(Vec::as_slice) {
                Some([place, values]) => {
                    let place = scalar(&some(place)?)?.parse::<usize>().map_err(|_| misused())?;
                    let values = some(values)?;
                    values.get(place).cloned().map(Some).ok_or_else(misused)
                }
                _ => Err(misused()),
            },
            "Fn::FindInMap" => match argument.as_array().map(Vec::as_slice) {
                Some([names @ .., Value::Object(last)]) if names.len() == 3 && self.is_extended => {
                    match (self.found(names, depth), last.get("DefaultValue")) {
                        (Err(_), Some(default)) => self.resolve(default, depth),
                        (found, _) => found.map(Some),
                    }
                }
                Some(names) if names.len() == 3 => self.found(names, depth).map(Some),
                _ => Err(misused()),
            },
            _ => Err(format!("the local cloud does not know the function {function}")),
        }
    }

    /// The value in `Mappings` by its three names.
    fn found(&self, names: &[Value], depth: u8) -> Result<Value, String> {
        let name = |value| self.resolve(value, depth)?.as_ref().map_or_else(|| Ok(String::new()), scalar);
        let names = names.iter().map(name).collect::<Result<Vec<_>, _>>()?;
        let found = self.mappings.get(&names[0]).map(|mapping| &mapping[&names[1]][&names[2]]);
        let none = || format!("the Mappings have no {}", names.join("."));
        found.filter(|found| !found.is_null()).cloned().ok_or_else(none)
    }

    fn condition(&self, name: &str, depth: u8) -> Result<bool, String> {
        let condition = self.conditions.get(name).ok_or_else(|| format!("there is no condition {name}"))?;
        self.meets(condition, depth + 1).map_err(|error| format!("condition {name}: {error}"))
    }

    fn meets(&self, condition: &Value, depth: u8) -> Result<bool, String> {
        if depth > MAX_DEPTH {
            return Err("it leads to itself".to_owned());
        }
        let wrong = || format!("the local cloud cannot read {condition}");
        let (function, argument) = condition.as_object().and_then(single).ok_or_else(wrong)?;
        let all = argument.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut each = all.iter().map(|condition| self.meets(condition, depth + 1));
        match (function, all) {
            ("Condition", _) => self.condition(argument.as_str().ok_or_else(wrong)?, depth),
            ("Fn::Equals", [one, other]) => {
                let text = |value| self.resolve(value, depth)?.as_ref().map(scalar).transpose();
                Ok(text(one)? == text(other)?)
            }
            ("Fn::Not", [other]) => Ok(!self.meets(other, depth + 1)?),
            ("Fn::And", [_, _, ..]) => each.try_fold(true, |before, holds| Ok(before & holds?)),
            ("Fn::Or", [_, _, ..]) => each.try_fold(false, |before, holds| Ok(before | holds?)),
            _ => Err(wrong()),
        }
    }

    /// What this name leads to.
    fn reference(&self, name: &str) -> Result<Value, String> {
        if let Some(known) = self.references.get(name) {
            return known.clone();
        }
        let Some(declared) = self.declared.get(name) else {
            let id = name.split('.').next().unwrap_or(name);
            return Err(match self.resources.contains_key(id) {
                true => format!("the local cloud has no value for {name}"),
                false => format!("the template has no resource or parameter {id}"),
            });
        };
        let kind = declared["Type"].as_str().unwrap_or_default();
        // Its default is the path of the value.
        let is_elsewhere = kind.starts_with("AWS::SSM::Parameter::Value");
        let default = declared.get("Default").filter(|_| !is_elsewhere);
        let given = self.parameters.get(name).or(default);
        let given = given.ok_or_else(|| {
            format!("the parameter {name} has no value: give it with --parameter {name}=VALUE")
        })?;
        let is_list = kind.contains("List");
        match given {
            Value::String(text) if is_list => Ok(text.split(',').map(|part| json!(part.trim())).collect()),
            given => Ok(given.clone()),
        }
    }
}

/// Properties that would make a difference here, each with the value that it has if it is missing.
///
/// # Errors
/// If one of them has another value.
pub fn refuse(scope: &Scope, properties: &Value, names: &[(&str, &str)]) -> Result<(), String> {
    for (name, default) in names {
        let value = scope.value(&properties[*name])?.unwrap_or_default();
        if !is_default(&value, default) {
            return Err(format!("the local cloud does not know {name}"));
        }
    }
    Ok(())
}

/// Whether a property with this value is as good as missing.
pub fn is_default(value: &Value, default: &str) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.values().all(|value| is_default(value, default)),
        scalar => self::scalar(scalar).is_ok_and(|text| text == default),
    }
}

/// The function and its argument, if this is a call.
fn single(members: &Map<String, Value>) -> Option<(&str, &Value)> {
    let (name, argument) = members.iter().next().filter(|_| members.len() == 1)?;
    (name == "Ref" || name == "Condition" || name.starts_with("Fn::")).then_some((name, argument))
}

/// A scalar as text.
pub fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(format!("this must be text: {value}")),
    }
}

/// Replaces `${Name}` by its value, and `${!Name}` by `${Name}`.
fn substitute(text: &str, value: impl Fn(&str) -> Result<Value, String>) -> Result<String, String> {
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("a ${{ is not closed in {text:?}"))?;
        done += before;
        match name.strip_prefix('!') {
            Some(literal) => done += &format!("${{{literal}}}"),
            None => done += &scalar(&value(name.trim())?)?,
        }
        rest = after;
    }
    Ok(done + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let object = |value: Value| value.as_object().expect("an object").clone();
        Scope {
            parameters: HashMap::from([("Given".to_owned(), json!("a,b"))]),
            declared: object(json!({
                "Given": { "Type": "CommaDelimitedList" },
                "Zero": { "Type": "Number", "Default": 0 },
                "Missing": { "Type": "String" },
                "Elsewhere": { "Type": "AWS::SSM::Parameter::Value<String>", "Default": "/a/path" },
            })),
            conditions: object(json!({
                "IsZero": { "Fn::Equals": [{ "Ref": "Zero" }, "0"] },
                "IsNot": { "Fn::Not": [{ "Condition": "IsZero" }] },
                "Both": { "Fn::And": [{ "Condition": "IsZero" }, { "Condition": "IsNot" }] },
                "Either": { "Fn::Or": [{ "Condition": "IsZero" }, { "Condition": "IsNot" }] },
                "Itself": { "Condition": "Itself" },
            })),
            references: HashMap::from([
                ("Table".to_owned(), Ok(json!("t"))),
                ("Table.Arn".to_owned(), Ok(json!("arn:t"))),
            ]),
            mappings: object(json!({ "Env": { "t": { "Timeout": 30, "Names": ["a"] } } })),
            is_extended: true,
            resources: object(json!({ "Table": {}, "LeftOut": {} })),
        }
    }

    #[test]
    fn each_function_returns_what_cloudformation_does() {
        for (value, expected) in [
            (json!({ "Ref": "Table" }), json!("t")),
            (json!({ "Ref": "Given" }), json!(["a", "b"])),
            (json!({ "Fn::GetAtt": "Table.Arn" }), json!("arn:t")),
            (json!({ "Fn::GetAtt": ["Table", "Arn"] }), json!("arn:t")),
            (json!({ "Fn::Sub": "${Table.Arn}/${!Table}-${Zero}" }), json!("arn:t/${Table}-0")),
            (json!({ "Fn::Sub": ["${Own}${Table}", { "Own": { "Ref": "Zero" } }] }), json!("0t")),
            (json!({ "Fn::If": ["IsNot", 1, { "Ref": "Table" }] }), json!("t")),
            (json!({ "Fn::Join": ["-", { "Ref": "Given" }] }), json!("a-b")),
            (json!({ "Fn::Select": [1, { "Fn::Split": ["/", "x/y"] }] }), json!("y")),
            (json!({ "Fn::FindInMap": ["Env", { "Ref": "Table" }, "Timeout"] }), json!(30)),
            (json!({ "Fn::FindInMap": ["Env", "t", { "Fn::Sub": "Names" }] }), json!(["a"])),
            (
                json!({ "Fn::FindInMap": ["Env", "u", "Names", { "DefaultValue": { "Ref": "Zero" } }] }),
                json!(0),
            ),
            (json!([{ "Ref": "AWS::NoValue" }, { "a": { "Ref": "AWS::NoValue" } }]), json!([{}])),
        ] {
            assert_eq!(scope().value(&value), Ok(Some(expected)), "{value}");
        }
        let holds = ["IsZero", "IsNot", "Both", "Either"].map(|name| scope().holds(name).unwrap());
        assert_eq!(holds, [true, false, false, true]);
    }

    #[test]
    fn a_part_is_chosen_before_its_values_are_needed() {
        let part = json!({ "Fn::If": ["IsZero", { "A": { "Ref": "Missing" } }, { "Ref": "AWS::NoValue" }] });
        assert_eq!(scope().chosen(&part), Ok(&json!({ "A": { "Ref": "Missing" } })));
        let part = json!({ "Fn::If": ["IsNot", 1, { "Fn::If": ["IsZero", { "Ref": "AWS::NoValue" }, 2] }] });
        assert_eq!(scope().chosen(&part), Ok(&Value::Null));
        assert!(scope().chosen(&json!({ "Fn::If": ["Unknown", 1, 2] })).is_err());
        let truth = [json!({ "Fn::If": ["IsZero", "true", "false"] }), json!(false), Value::Null];
        assert_eq!(truth.map(|value| scope().is_true(&value)), [Ok(true), Ok(false), Ok(false)]);
        assert!(scope().is_true(&json!("no")).is_err());
    }

    #[test]
    fn what_has_no_value_is_named() {
        for (value, named) in [
            (json!({ "Ref": "Missing" }), "--parameter Missing=VALUE"),
            (json!({ "Ref": "Elsewhere" }), "--parameter Elsewhere=VALUE"),
            (json!({ "Fn::GetAtt": "Other.Arn" }), "no resource or parameter Other"),
            (json!({ "Ref": "LeftOut" }), "no value for LeftOut"),
            (json!({ "Fn::GetAtt": "Table.Other" }), "no value for Table.Other"),
            (json!({ "Fn::Sub": "${Table" }), "is not closed"),
            (json!({ "Fn::Sub": ["${Table}"] }), "Fn::Sub"),
            (json!({ "Fn::If": ["Unknown", 1, 2] }), "condition Unknown"),
            (json!({ "Fn::If": ["Itself", 1, 2] }), "leads to itself"),
            (json!({ "Fn::Select": [7, ["a"]] }), "Fn::Select"),
            (json!({ "Fn::FindInMap": ["Env", "t", "Memory"] }), "Mappings have no Env.t.Memory"),
            (json!({ "Fn::FindInMap": ["Other", "t", "Memory"] }), "Mappings have no Other.t.Memory"),
            (json!({ "Fn::FindInMap": ["Env", "t"] }), "Fn::FindInMap"),
            (json!({ "Fn::Base64": "a" }), "Fn::Base64"),
        ] {
            let error = scope().value(&value).expect_err("it has no value");
            assert!(error.contains(named), "{value}: {error}");
        }
    }

    #[test]
    fn a_property_with_its_default_value_is_not_refused() {
        let refuse = |value: Value| refuse(&scope(), &json!({ "A": value }), &[("A", "0")]).is_err();
        for value in [
            json!(null),
            json!(0),
            json!("0"),
            json!([]),
            json!({}),
            json!({ "Filters": [] }),
            json!({ "Ref": "AWS::NoValue" }),
            json!({ "Ref": "Zero" }),
            json!({ "Fn::If": ["IsNot", 5, { "Ref": "AWS::NoValue" }] }),
        ] {
            assert!(!refuse(value.clone()), "{value}");
        }
        for value in [
            json!(5),
            json!("x"),
            json!(false),
            json!([1]),
            json!({ "Filters": [{}] }),
            json!({ "Ref": "Missing" }),
        ] {
            assert!(refuse(value.clone()), "{value}");
        }
    }

    #[test]
    fn a_default_of_a_mapping_needs_its_transform() {
        let scope = Scope { is_extended: false, ..scope() };
        let value = json!({ "Fn::FindInMap": ["Env", "u", "Names", { "DefaultValue": 1 }] });
        assert!(scope.value(&value).expect_err("CloudFormation refuses it").contains("cannot be called so"));
    }
}
