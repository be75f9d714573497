//! The answer of an operation, and what of it is kept.

use std::fmt;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::Head;
use crate::{
    headers::is_kept,
    json::{self, JsonError},
};

/// What of an answer is kept besides its status.
#[derive(Clone, Debug)]
pub(crate) struct Keeps {
    /// Names of headers besides the safe ones, in lower case.
    pub(crate) headers: Vec<String>,
    /// Whether its body is kept.
    pub(crate) body: bool,
}

impl Keeps {
    /// What is kept of this head.
    pub(crate) fn of(&self, head: &Head) -> Head {
        head.with_headers(|name| is_kept(name, &self.headers))
    }
}

impl Default for Keeps {
    fn default() -> Self {
        Self { headers: Vec::new(), body: true }
    }
}

/// The answer of an operation, in the one form that handlers, reconcilers and operators produce and replays return.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status and headers, if there are any.
    pub head: Head,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// An answer over HTTP.
    pub fn http(status: u16, headers: Vec<(String, String)>, body: impl Into<Bytes>) -> Self {
        Self { head: Head::Http { status, headers: headers.into() }, body: body.into() }
    }

    /// What a function returned, as JSON.
    ///
    /// # Errors
    /// If JSON cannot carry it.
    pub fn payload(value: &impl Serialize) -> Result<Self, JsonError> {
        Ok(Self { head: Head::Payload, body: json::to_string(value)?.into() })
    }

    /// The same, and what each later caller reads there.
    ///
    /// # Errors
    /// If that is not this value, or nothing.
    pub(crate) fn round_trip<T: Serialize + DeserializeOwned>(value: &T) -> Result<(Self, T), JsonError> {
        let (json, read) = json::round_trip(value)?;
        Ok((Self { head: Head::Payload, body: json.into() }, read))
    }

    /// What a function returned, without the value: JSON cannot carry it. It is kept as an answer whose body is too large (T69).
    pub(crate) const fn without_value() -> Self {
        Self { head: Head::Payload, body: Bytes::new() }
    }

    /// Whether it is that: the JSON of a value is never empty.
    pub(crate) fn has_no_value(&self) -> bool {
        self.head == Head::Payload && self.body.is_empty()
    }

    /// Why a function refuses its input for good.
    pub fn refusal(reason: impl Into<String>) -> Self {
        Self { head: Head::Refusal, body: reason.into().into() }
    }

    /// A JSON document over HTTP.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::http(status, vec![("content-type".to_owned(), "application/json".to_owned())], body)
    }
}

impl fmt::Debug for Answer {
    /// Without headers and body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({:?}, {} bytes)", self.head, self.body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_a_function_is_no_effect() {
        let (payload, refusal) = (Answer::payload(&1).unwrap(), Answer::refusal("no such address"));
        assert_eq!((&payload.body[..], &refusal.body[..]), (&b"1"[..], &b"no such address"[..]));
        assert!(payload.head.is_effect() && !refusal.head.is_effect());
        let without_value = Answer::without_value();
        assert!(without_value.head.is_effect() && without_value.has_no_value() && !payload.has_no_value());
        assert!(payload.head.is_final() && refusal.head.is_final());
    }

    #[test]
    fn debug_output_never_shows_headers_or_body_of_an_answer() {
        let answer = Answer::http(201, vec![("location".into(), "card 4242".into())], "card 4242");
        let shown = format!("{answer:?}");
        assert!(!shown.contains("4242"), "{shown}");
        assert!(shown.contains("201") && shown.contains("9 bytes"), "{shown}");
    }

    // T26
    #[test]
    fn an_answer_keeps_safe_headers_and_those_of_its_operation() {
        let pair = |name: &str| (name.to_owned(), "value".to_owned());
        let headers = ["Location", "Set-Cookie", "X-Request-Id", "x-other"].map(pair);
        let keeps = Keeps { headers: vec!["x-request-id".to_owned()], ..Keeps::default() };
        let head = keeps.of(&Head::Http { status: 201, headers: headers.into() });
        assert_eq!(head, Head::Http { status: 201, headers: ["Location", "X-Request-Id"].map(pair).into() });
        assert_eq!(Keeps::default().of(&Head::Payload), Head::Payload);
    }
}
