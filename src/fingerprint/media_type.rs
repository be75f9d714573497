//! A `Content-Type`, in parts.
//!
//! 1. The type counts in lower case.
//! 2. Parameters count in any order: names in lower case, values as sent, but without quotes. Parameters of one name keep their
//!    order.
//! 3. Parameters that are not well-formed count as they were sent. So do two lines of the header, which gateways join with a comma.

use std::borrow::Cow;

use mediatype::ReadParams;

/// The white space around a header's value and its parts (RFC 9110, section 5.6.3). `trim` takes more for it.
pub(super) const WHITE_SPACE: [char; 2] = [' ', '\t'];

/// A name and a value.
pub(super) type Parameter = (String, String);

/// A media type with its parameters.
pub(super) struct MediaType<'a> {
    /// The type in lower case, without the parameters; empty if there is none.
    pub(super) essence: Cow<'a, str>,
    /// Sorted by name. If they are not well-formed, all of them as the value of an empty name.
    pub(super) parameters: Vec<Parameter>,
    /// Whether the header is one media type by RFC 9110. If not, the body has no type, whatever the header begins with.
    pub(super) is_well_formed: bool,
}

impl<'a> MediaType<'a> {
    pub(super) fn of(content_type: &Cow<'a, str>) -> Self {
        let essence = essence(content_type);
        let parsed = mediatype::MediaType::parse(content_type.trim_matches(WHITE_SPACE)).ok();
        // `x=` is no parameter, and must not be taken for `x=""`. Not all parsers read escapes.
        let is_plain =
            |value: mediatype::Value<'_>| !value.as_str().is_empty() && !value.as_str().contains('\\');
        let parsed = parsed.filter(|parsed| parsed.params().all(|(_, value)| is_plain(value)));
        let Some(parsed) = parsed else {
            let sent = content_type
                .split_once(';')
                .map(|(_, sent)| (String::new(), sent.trim_matches(WHITE_SPACE).to_owned()));
            return Self { essence, parameters: sent.into_iter().collect(), is_well_formed: false };
        };
        let parameter = |(name, value): (mediatype::Name<'_>, mediatype::Value<'_>)| {
            (name.as_str().to_ascii_lowercase(), value.unquoted_str().into_owned())
        };
        let mut parameters: Vec<_> = parsed.params().map(parameter).collect();
        parameters.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self { essence, parameters, is_well_formed: true }
    }

    /// The values of the parameters of this name.
    fn values(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.parameters.iter().filter(move |(named, _)| named == name).map(|(_, value)| &**value)
    }

    /// Whether no charset but UTF-8 is named.
    pub(super) fn is_utf_8(&self) -> bool {
        self.values("charset")
            .all(|charset| charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8"))
    }

    /// The boundary of a multipart type. None if there are several: parsers do not agree on which counts.
    pub(super) fn boundary(&self) -> Option<&str> {
        let mut named = self.values("boundary");
        let boundary = named.next().filter(|_| self.essence.starts_with("multipart/"));
        boundary.filter(|_| named.next().is_none())
    }
}

/// The media type in lower case, without its parameters; empty if there is none.
pub(super) fn essence<'a>(content_type: &Cow<'a, str>) -> Cow<'a, str> {
    let essence = |text: &'a str| text.split(';').next().unwrap_or_default().trim_matches(WHITE_SPACE);
    match content_type {
        Cow::Borrowed(text) if !text.bytes().any(|byte| byte.is_ascii_uppercase()) => essence(text).into(),
        text => {
            text.split(';').next().unwrap_or_default().trim_matches(WHITE_SPACE).to_ascii_lowercase().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(content_type: &str) -> Vec<Parameter> {
        MediaType::of(&Cow::Borrowed(content_type)).parameters
    }

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
            "a/b; x=\"\"",
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
