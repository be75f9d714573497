//! A `Content-Type`, in parts.
//!
//! 1. The type counts in lower case.
//! 2. Parameters count in any order: names in lower case, values as sent, but without quotes. Parameters of one name keep their
//!    order.
//! 3. Parameters that are not well-formed count as they were sent.

use std::borrow::Cow;

use mediatype::{MediaType, ReadParams};

/// A name and a value.
pub(super) type Parameter = (String, String);

/// The media type in lower case, without its parameters; empty if there is none.
pub(super) fn essence<'a>(content_type: &Cow<'a, str>) -> Cow<'a, str> {
    let essence = |text: &'a str| text.split(';').next().unwrap_or_default().trim();
    match content_type {
        Cow::Borrowed(text) if !text.bytes().any(|byte| byte.is_ascii_uppercase()) => essence(text).into(),
        text => text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().into(),
    }
}

/// The parameters, sorted by name. If they are not well-formed, all of them as the value of an empty name.
pub(super) fn parameters(content_type: &str) -> Vec<Parameter> {
    let Some((_, sent)) = content_type.split_once(';').filter(|(_, sent)| !sent.trim().is_empty()) else {
        return Vec::new();
    };
    let Ok(parsed) = MediaType::parse(content_type.trim()) else {
        return vec![(String::new(), sent.trim().to_owned())];
    };
    let parameter = |(name, value): (mediatype::Name<'_>, mediatype::Value<'_>)| {
        (name.as_str().to_ascii_lowercase(), value.unquoted_str().into_owned())
    };
    let mut parameters: Vec<_> = parsed.params().map(parameter).collect();
    parameters.sort_by(|(a, _), (b, _)| a.cmp(b));
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_read_in_lower_case_without_its_parameters() {
        for (sent, expected) in [
            ("application/json", "application/json"),
            (" Application/JSON ; Charset=UTF-8", "application/json"),
            ("a/b,c/d", "a/b,c/d"),
            (";a=b", ""),
            ("", ""),
        ] {
            assert_eq!(essence(&Cow::Borrowed(sent)), expected, "{sent}");
            assert_eq!(essence(&Cow::Owned(sent.to_owned())), expected, "{sent}");
        }
    }

    #[test]
    fn parameters_count_in_any_order_and_without_quotes() {
        for (a, b) in [
            ("a/b; x=1; y=2", "a/b;Y=2;X=\"1\""),
            ("a/b; x=\"q\\\"\"", "a/b;x=\"q\\\"\" "),
            ("a/b", "a/b;"),
            ("a/b", "a/b ; "),
        ] {
            assert_eq!(parameters(a), parameters(b), "{a} {b}");
        }
        assert_eq!(parameters("text/plain; charset=utf-8").len(), 1);
    }

    #[test]
    fn different_parameters_are_never_taken_for_one_another() {
        let long = format!("a/b; x={}", "y".repeat(100_000));
        let sent = [
            "a/b",
            "a/b; x=1",
            "a/b; x=2",
            "a/b; x=1; x=2",
            "a/b; x=2; x=1",
            "a/b; x=1; x=1",
            "a/b; x=\"1; y=2\"",
            "a/b; x=1; y=2",
            "a/b; x=A",
            "a/b; x=a",
            "a/b; x",
            "a/b; x=",
            "a/b; =x",
            "a/b; x=\"open",
            "a/b; x=\"\\",
            "a/b; x=é",
            "a/b; x=\0ÿ",
            "a/b;; ;",
            &long,
        ];
        for (index, one) in sent.iter().enumerate() {
            for other in &sent[index + 1..] {
                assert_ne!(parameters(one), parameters(other), "{one} {other}");
            }
        }
    }
}
