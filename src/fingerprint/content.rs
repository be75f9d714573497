//! The parts of a request that its fingerprint can cover.

use std::borrow::Cow;

use super::media_type::essence;

/// The parts of a request that its fingerprint can cover, and the argument of a
/// [custom rule](super::FingerprintRule::custom).
#[derive(Clone, Copy, derive_more::Debug)]
// Without data of the caller.
#[debug("Content {{ method: {method:?}, .. }}")]
#[non_exhaustive]
#[must_use]
pub struct Content<'a> {
    /// The method.
    pub method: &'a str,
    /// The path without the stage of an HTTP API's own domain, percent-decoded once: an encoded slash is a slash.
    pub path: &'a [u8],
    /// The query's parameters, decoded and sorted by name; those of one name keep their order.
    pub query: &'a [(Cow<'a, str>, Cow<'a, str>)],
    /// The query as it was sent, if the sorted parameters may not tell all of it, and the front passes it on.
    pub raw_query: Option<&'a str>,
    /// Finds a header by its name in lower case. Several lines are joined by a comma, as gateways join them.
    pub header: &'a (dyn Fn(&str) -> Option<Cow<'a, str>> + Sync),
    /// The body as it came.
    pub body: &'a [u8],
}

impl<'a> Content<'a> {
    /// A request with this method, path and body, and without query or headers, which are fields to set.
    pub fn new(method: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        Self { method, path: path.as_bytes(), query: &[], raw_query: None, header: &|_| None, body }
    }

    /// The same, with these headers.
    pub fn headers(self, header: &'a (dyn Fn(&str) -> Option<Cow<'a, str>> + Sync)) -> Self {
        Self { header, ..self }
    }

    /// The same, as a JSON document, with no other header.
    pub fn json(self) -> Self {
        let header = &|name: &str| (name == "content-type").then_some(Cow::Borrowed("application/json"));
        Self { header, ..self }
    }

    /// The media type in lower case, without its parameters; empty if there is none.
    pub fn media_type(&self) -> Cow<'a, str> {
        essence(&self.content_type())
    }

    /// The `Content-Type`; empty if there is none.
    pub(super) fn content_type(&self) -> Cow<'a, str> {
        (self.header)("content-type").unwrap_or_default()
    }
}

/// Whether this can be the name of a header: a token of RFC 9110, section 5.6.2.
pub(crate) fn is_header_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Whether bodies of this media type are JSON.
pub(super) fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || media_type.ends_with("+json")
}
