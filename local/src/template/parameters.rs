//! What a template allows as values of its parameters. CloudFormation refuses the same.

use super::scope::scalar;
use regex_lite::Regex;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Checks the values that are given.
///
/// # Errors
/// One line for each that the template does not allow, or does not have.
pub fn check(given: &HashMap<String, Value>, declared: &Map<String, Value>) -> Result<(), String> {
    let mut names: Vec<_> = given.keys().collect();
    names.sort();
    let wrong = names.into_iter().filter_map(|name| {
        let Some(parameter) = declared.get(name) else { return Some(format!("it has no parameter {name}")) };
        let value = scalar(&given[name]).ok()?;
        let is_secret = parameter["NoEcho"] == true || parameter["NoEcho"] == "true";
        let shown = if is_secret { "…" } else { &*value };
        Some(format!("the parameter {name}={shown} must {}", must(parameter, &value)?))
    });
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// What the value must do, and does not.
fn must(parameter: &Value, value: &str) -> Option<String> {
    let text = |name: &str| scalar(&parameter[name]).ok();
    let kind = text("Type").unwrap_or_default();
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    let length = value.chars().count() as f64;
    // Each of a list, as CloudFormation checks them.
    let values: Vec<_> =
        if kind == "CommaDelimitedList" { value.split(',').map(str::trim).collect() } else { vec![value] };
    if kind == "Number" {
        let Ok(given) = value.parse::<f64>() else { return Some("be a number".to_owned()) };
        if let Some(min) = number("MinValue").filter(|min| given < *min) {
            return Some(format!("be at least {min}"));
        }
        if let Some(max) = number("MaxValue").filter(|max| given > *max) {
            return Some(format!("be at most {max}"));
        }
    }
    if let Some(min) = number("MinLength").filter(|min| length < *min) {
        return Some(format!("have at least {min} characters"));
    }
    if let Some(max) = number("MaxLength").filter(|max| length > *max) {
        return Some(format!("have at most {max} characters"));
    }
    if let Some(allowed) = parameter["AllowedValues"].as_array() {
        let allowed: Vec<_> = allowed.iter().filter_map(|allowed| scalar(allowed).ok()).collect();
        if !values.iter().all(|value| allowed.iter().any(|allowed| allowed == value)) {
            return Some(format!("be one of {}", allowed.join(", ")));
        }
    }
    // Java reads patterns that this reader does not know: those are left to CloudFormation.
    let pattern = text("AllowedPattern")?;
    let whole = Regex::new(&format!("^(?:{pattern})$")).ok()?;
    let matches = values.iter().all(|value| whole.is_match(value));
    (!matches).then(|| format!("match {pattern}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_values_that_cloudformation_takes_are_taken() {
        let wrong = |parameter: Value, value: &str| {
            let declared = Map::from_iter([("P".to_owned(), parameter)]);
            check(&HashMap::from([("P".to_owned(), json!(value))]), &declared).err()
        };
        let url = json!({ "Type": "String", "AllowedPattern": "https://\\S+" });
        let number = json!({ "Type": "Number", "MinValue": 1, "MaxValue": "9" });
        let length = json!({ "Type": "String", "MinLength": 2, "MaxLength": 3 });
        let one = json!({ "Type": "String", "AllowedValues": ["on", 1, true] });
        let list = json!({ "Type": "CommaDelimitedList", "AllowedPattern": "[a-z]+" });
        let secret = json!({ "Type": "String", "NoEcho": true, "MinLength": 9 });
        let unread = json!({ "Type": "String", "AllowedPattern": "(?!a)b" });
        for (parameter, value, expected) in [
            (&url, "https://a", None),
            (&url, "http://a", Some("P=http://a must match https://\\S+")),
            (&url, "see https://a", Some("must match")),
            (&number, "9", None),
            (&number, "0.5", Some("at least 1")),
            (&number, "10", Some("at most 9")),
            (&number, "many", Some("be a number")),
            (&length, "äö", None),
            (&length, "a", Some("at least 2 characters")),
            (&length, "abcd", Some("at most 3 characters")),
            (&one, "true", None),
            (&one, "off", Some("one of on, 1, true")),
            (&list, "a, b", None),
            (&list, "a,1", Some("must match")),
            (&secret, "short", Some("P=… must have")),
            (&unread, "a", None),
        ] {
            let wrong = wrong(parameter.clone(), value);
            match expected {
                None => assert_eq!(wrong, None, "{value}"),
                Some(expected) => {
                    assert!(wrong.as_ref().is_some_and(|wrong| wrong.contains(expected)), "{wrong:?}")
                }
            }
        }
        let given = HashMap::from(["B", "A"].map(|name| (name.to_owned(), json!("x"))));
        let error = check(&given, &Map::new()).expect_err("it has none");
        assert_eq!(error, "it has no parameter A\nit has no parameter B");
    }
}
