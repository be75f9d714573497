//! A template's text as JSON. Intrinsic functions have their long form: `!Ref Name` is `{"Ref": "Name"}`.
//!
//! SAM and CloudFormation read YAML 1.1, and this reader 1.2. What the two read differently is refused.

use saphyr::{Scalar, ScalarStyle, ScanError, Tag, Yaml, YamlLoader};
use saphyr_parser::{Event, Parser, SpannedEventReceiver};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// How deep values may be in others. No template is a tenth as deep.
const MAX_DEPTH: usize = 100;
/// How many values `*aliases` may copy.
const MAX_COPIES: usize = 10_000;

/// The one document in this text.
///
/// # Errors
/// If it is not YAML, with the line; or if it has a value that no template has, or that SAM reads differently.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut loader = YamlLoader::<Yaml<'_>>::default();
    // Whether a value is in quotes matters.
    loader.early_parse(false);
    loader.alias_limit(MAX_COPIES);
    let wrong = |error: &ScanError| format!("line {}: {}", error.marker().line(), error.info());
    let mut depth = 0_usize;
    // By events: what loads a whole document calls itself for each level.
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| wrong(&error))?;
        match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
            Event::MappingEnd | Event::SequenceEnd => depth -= 1,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("line {}: it is nested deeper than {MAX_DEPTH} levels", span.start.line()));
        }
        loader.on_event(event, span);
    }
    if let Some(error) = loader.error() {
        return Err(wrong(error));
    }
    match &loader.into_documents()[..] {
        [document] => json(document, 0),
        all => Err(format!("it has {} YAML documents in place of one", all.len())),
    }
}

fn json(yaml: &Yaml<'_>, depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(format!("with its aliases, it is nested deeper than {MAX_DEPTH} levels"));
    }
    let json = |yaml| json(yaml, depth + 1);
    Ok(match yaml {
        Yaml::Representation(text, style, tag) => match tag.as_ref().filter(|tag| !tag.is_yaml_core_schema())
        {
            // Of `!Sub 1.10` too, the argument is text.
            Some(tag) => call(tag, json!(text)),
            None => scalar(text, *style, tag.as_ref())?,
        },
        Yaml::Sequence(values) => values.iter().map(json).collect::<Result<_, _>>()?,
        Yaml::Mapping(members) => {
            let mut object = Map::new();
            for (name, value) in members {
                let Yaml::Representation(name, style, _) = name else {
                    return Err(format!("a member's name is no text: {name:?}"));
                };
                if *style == ScalarStyle::Plain && is_truth_value(name) {
                    return Err(format!("SAM reads the name {name} as true or false: put it in quotes"));
                }
                if name == "<<" {
                    return Err("the local cloud merges no members with <<: write them out".to_owned());
                }
                if object.insert(name.to_string(), json(value)?).is_some() {
                    return Err(format!("it has two members {name} in one place"));
                }
            }
            Value::Object(object)
        }
        Yaml::Tagged(tag, value) => call(tag, json(value)?),
        other => return Err(format!("it has a value that the local cloud cannot read: {other:?}")),
    })
}

/// An intrinsic function in its long form.
fn call(tag: &Tag, argument: Value) -> Value {
    let prefix = if ["Ref", "Condition"].contains(&&*tag.suffix) { "" } else { "Fn::" };
    Value::Object(Map::from_iter([(format!("{prefix}{}", tag.suffix), argument)]))
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Cow<'_, Tag>>) -> Result<Value, String> {
    let is_plain = style == ScalarStyle::Plain && tag.is_none();
    if is_plain
        && is_truth_value(text)
        && !["true", "false"].iter().any(|word| word.eq_ignore_ascii_case(text))
    {
        return Err(format!("SAM reads {text} as true or false: write that, or put it in quotes"));
    }
    let differs = || Err(format!("SAM may not read {text} as it is written: put it in quotes"));
    if is_plain && is_read_differently(text) {
        return differs();
    }
    match Scalar::parse_from_cow_and_metadata(text.into(), style, tag) {
        Some(Scalar::Null) => Ok(Value::Null),
        Some(Scalar::Boolean(value)) => Ok(json!(value)),
        Some(Scalar::Integer(value)) => Ok(json!(value)),
        Some(Scalar::String(value)) => Ok(json!(value)),
        Some(Scalar::FloatingPoint(value)) if value.is_finite() => Ok(json!(value.into_inner())),
        _ => differs(),
    }
}

/// Whether YAML 1.1 reads this as a truth value. Source: <https://yaml.org/type/bool.html>; PyYAML knows no single letters.
fn is_truth_value(text: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off"].iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// Whether the two versions may read a plain value differently: times, and numbers that are octal, binary, in base 60, or have `_` or
/// an exponent. Source: <https://yaml.org/type/int.html>, `float.html`, `timestamp.html`.
fn is_read_differently(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    let only = |also: &[u8]| digits.bytes().all(|byte| byte.is_ascii_digit() || also.contains(&byte));
    let begins = digits.trim_start_matches('.').starts_with(|first: char| first.is_ascii_digit());
    let is_integer = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
    let is_decimal = digits.split_once('.').is_some_and(|(whole, part)| {
        let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        !whole.is_empty() && is_digits(whole) && is_digits(part)
    });
    let is_based = ["0x", "0o", "0b"].iter().any(|base| digits.to_ascii_lowercase().starts_with(base));
    let has_exponent = text.parse::<f64>().is_ok() && digits.contains(['e', 'E']);
    // Addresses and versions have more points.
    let is_float = digits.matches('.').count() == 1 && only(b"._:");
    let is_time = text.contains(':') && only(b"-:.TtZz+ ") && text.split('-').count() >= 3;
    let is_number = only(b"_:") || has_exponent || is_float;
    let is_special = [".inf", ".nan"].iter().any(|name| name.eq_ignore_ascii_case(digits));
    is_special || begins && (is_based || is_time || is_number && !is_integer && !is_decimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_get_their_long_form() {
        let text = "{ a: !Ref B, c: !Sub '${D}', e: !GetAtt F.G, h: !If [I, 1, !Ref J], k: !Condition L }";
        let expected = json!({
            "a": { "Ref": "B" },
            "c": { "Fn::Sub": "${D}" },
            "e": { "Fn::GetAtt": "F.G" },
            "h": { "Fn::If": ["I", 1, { "Ref": "J" }] },
            "k": { "Condition": "L" },
        });
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn a_text_that_grows_without_bound_is_refused() {
        let doubled = |count: usize| {
            let lines =
                (1..count).map(|number| format!("a{number}: &a{number} [*a{0}, *a{0}]\n", number - 1));
            format!("a0: &a0 [x, x]\n{}", lines.collect::<String>())
        };
        assert!(parse(&doubled(8)).is_ok());
        let chained = |count: usize| {
            let lines = (1..count).map(|number| {
                format!("a{number}: &a{number} {}*a{}{}\n", "[".repeat(20), number - 1, "]".repeat(20))
            });
            format!("a0: &a0 x\n{}", lines.collect::<String>())
        };
        let flow = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (text, named) in [
            (doubled(40), "line 12: alias expansion exceeded"),
            ("- ".repeat(100_000) + "x", "line 1: it is nested deeper than 100 levels"),
            (flow, "line 1: it is nested deeper"),
            (chained(10), "with its aliases, it is nested deeper"),
        ] {
            let error = parse(&text).expect_err("it is no template");
            assert!(error.starts_with(named), "{error}");
        }
    }

    #[test]
    fn a_value_that_sam_reads_differently_is_refused() {
        for (text, expected) in [
            (
                "[true, -3, 1.5, ~, 2010-09-09, arn:aws:sqs]",
                json!([true, -3, 1.5, null, "2010-09-09", "arn:aws:sqs"]),
            ),
            ("['no', \"0123\", !!str 012]", json!(["no", "0123", "012"])),
            ("{ 90: a, 'on': b }", json!({ "90": "a", "on": "b" })),
            (
                "[!Sub 1.10, !Ref no, !Sub '']",
                json!([{ "Fn::Sub": "1.10" }, { "Ref": "no" }, { "Fn::Sub": "" }]),
            ),
            (
                "[10.0.0.1, 1.2.3, 2001:db8::1, 0a1b, 7e, 012-345]",
                json!(["10.0.0.1", "1.2.3", "2001:db8::1", "0a1b", "7e", "012-345"]),
            ),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for text in [
            "no",
            "On",
            "YES",
            "0123",
            "1_000",
            "12:30",
            "99999999999999999999",
            "123e4567",
            "1.5e3",
            "-.5",
            "1_000.5",
            "0o17",
            "0b101",
            "0x1_F",
            "12:30:45.6",
            "2020-01-01T00:00:00Z",
            "2020-01-01 00:00:00",
            ".inf",
            "-.INF",
            "!!int x",
        ] {
            let error = parse(text).expect_err("it is read differently");
            assert!(error.contains("quotes"), "{text}: {error}");
        }
        for (text, named) in [
            ("a: &a { b: 1 }\nc: { <<: *a }", "<<"),
            ("{ a: 1, 'a': 2 }", "two members a"),
            ("{ [a]: 1 }", "no text"),
            ("{ On: 1 }", "the name On"),
            ("---\na\n---\nb", "2 YAML documents"),
            ("a: [", "line"),
        ] {
            let error = parse(text).expect_err("it is no template");
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
