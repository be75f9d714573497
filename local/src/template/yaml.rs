//! A template's text as JSON. Intrinsic functions have their long form: `!Ref Name` is `{"Ref": "Name"}`.

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// The one document in this text.
///
/// # Errors
/// If it is not YAML, with the line; or if it has a value that no template has.
pub fn parse(text: &str) -> Result<Value, String> {
    let documents = Yaml::load_from_str(text).map_err(|error| {
        let (line, info) = (error.marker().line(), error.info());
        format!("line {line}: {info}")
    })?;
    match &documents[..] {
        [document] => json(document),
        all => Err(format!("it has {} YAML documents in place of one", all.len())),
    }
}

fn json(yaml: &Yaml<'_>) -> Result<Value, String> {
    Ok(match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => json!(value),
        Yaml::Value(Scalar::Integer(value)) => json!(value),
        Yaml::Value(Scalar::FloatingPoint(value)) => json!(value.into_inner()),
        Yaml::Value(Scalar::String(value)) => json!(value),
        Yaml::Sequence(values) => values.iter().map(json).collect::<Result<_, _>>()?,
        Yaml::Mapping(members) => {
            let members = members.iter().map(|(name, value)| Ok((text_of(name)?, json(value)?)));
            Value::Object(members.collect::<Result<_, String>>()?)
        }
        Yaml::Tagged(tag, value) => {
            let prefix = if ["Ref", "Condition"].contains(&&*tag.suffix) { "" } else { "Fn::" };
            Value::Object(Map::from_iter([(format!("{prefix}{}", tag.suffix), json(value)?)]))
        }
        other => return Err(format!("it has a value that the local cloud cannot read: {other:?}")),
    })
}

/// The name of a member. Those of an alarm's or a bus's own may be numbers.
fn text_of(yaml: &Yaml<'_>) -> Result<String, String> {
    match yaml {
        Yaml::Value(Scalar::Integer(number)) => Ok(number.to_string()),
        _ => yaml.as_str().map(str::to_owned).ok_or_else(|| format!("a member's name is no text: {yaml:?}")),
    }
}
