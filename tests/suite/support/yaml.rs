//! YAML as JSON. The intrinsic functions of templates have their long form: `!Ref Name` is `{"Ref": "Name"}`.

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// The document in this text.
pub fn parse(text: &str) -> Value {
    json(&Yaml::load_from_str(text).expect("YAML")[0])
}

fn json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => json!(value),
        Yaml::Value(Scalar::Integer(value)) => json!(value),
        Yaml::Value(Scalar::String(value)) => json!(value),
        Yaml::Sequence(values) => values.iter().map(json).collect(),
        Yaml::Mapping(members) => members.iter().map(|(name, value)| (text_of(name), json(value))).collect(),
        Yaml::Tagged(tag, value) => {
            let function = if tag.suffix == "Ref" { "Ref".to_owned() } else { format!("Fn::{}", tag.suffix) };
            Value::Object(Map::from_iter([(function, json(value))]))
        }
        other => panic!("our documents have no such values: {other:?}"),
    }
}

fn text_of(yaml: &Yaml<'_>) -> String {
    yaml.as_str().expect("names are text").to_owned()
}
