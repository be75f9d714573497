//! Finds the key of a request where its profile says that it is.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, request::Parts};
use serde_json::{Value, error::Category};

use super::{
    KeySyntax, Profile,
    key_fault::{Fault, valid},
    target,
};
use crate::{
    fingerprint::JsonPointer,
    key::{FoundKey, KeyFrom, Place, refusal::KeyRefusal},
};

/// The key of a request that another front makes: an extension of the request, if it has no `Idempotency-Key`, which cannot hold every key.
#[derive(Clone, Debug)]
pub(crate) struct GivenKey(pub(crate) FoundKey);

/// Why a request has several keys that differ.
fn different() -> KeyRefusal {
    KeyRefusal { reason: "different", detail: "The request has two idempotency keys that differ".into() }
}

/// A request, as far as a key may be in it.
#[derive(Clone, Copy)]
struct Source<'a> {
    syntax: KeySyntax,
    parts: &'a Parts,
    /// Nothing, before it is read.
    body: &'a [u8],
}

impl Profile {
    /// The key of this request, if its body is not needed for that.
    pub(super) fn key_before_body(&self, parts: &Parts) -> Result<Option<FoundKey>, KeyRefusal> {
        match self.key_from.needs_body() {
            true => Ok(None),
            false => self.key(parts, &[]).map(Some),
        }
    }

    /// The one key of this request.
    pub(super) fn key(&self, parts: &Parts, body: &[u8]) -> Result<FoundKey, KeyRefusal> {
        self.key_from.of_request(Source { syntax: self.key_syntax, parts, body })
    }

    /// Whether a request has a header for its key.
    pub(super) fn has_key_header(&self, headers: &HeaderMap) -> bool {
        self.key_from.header_that(&|name| headers.contains_key(name)).is_some()
    }

    /// The header with the key as the client wrote it.
    pub(super) fn key_header(&self, headers: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
        let name = self.key_from.header_that(&|name| headers.contains_key(name))?;
        let mut lines = headers.get_all(name).iter();
        let line = lines.next().filter(|_| lines.next().is_none())?;
        Some((name.clone(), line.clone()))
    }
}

impl KeyFrom {
    /// Panics if a request cannot have such a key: a mistake in the program, found at start-up.
    pub(super) fn assert_of_request(&self) {
        match &self.0 {
            Place::First(several) | Place::All(several) => several.iter().for_each(Self::assert_of_request),
            #[cfg(feature = "lambda")]
            Place::Attribute(_)
            | Place::Envelope
            | Place::RecordId
            | Place::DeduplicationId
            | Place::Content => {
                panic!("{self:?} is for messages: a request has its key elsewhere")
            }
            _ => {}
        }
    }

    /// Whether it is found in headers alone.
    pub(super) fn is_in_headers(&self) -> bool {
        match &self.0 {
            Place::First(several) | Place::All(several) => several.iter().all(Self::is_in_headers),
            place => matches!(place, Place::Header(_)),
        }
    }

    fn needs_body(&self) -> bool {
        match &self.0 {
            Place::First(several) | Place::All(several) => several.iter().any(Self::needs_body),
            place => matches!(place, Place::Body(_) | Place::Function(_)),
        }
    }

    /// The first of its headers of which this is so.
    fn header_that(&self, is_so: &dyn Fn(&HeaderName) -> bool) -> Option<&HeaderName> {
        match &self.0 {
            Place::Header(name) => Some(name).filter(|name| is_so(name)),
            Place::First(several) | Place::All(several) => {
                several.iter().find_map(|from| from.header_that(is_so))
            }
            _ => None,
        }
    }

    fn of_request(&self, source: Source<'_>) -> Result<FoundKey, KeyRefusal> {
        if !matches!(self.0, Place::First(_) | Place::All(_)) {
            // Without a list: it is on each request's way.
            let key = self.text(source).and_then(|text| valid(&text)).map_err(|fault| fault.at(&self.0))?;
            return Ok(FoundKey { shortest: key.as_str().chars().count(), key, parts: None });
        }
        let mut texts = Vec::new();
        self.collect_from_request(source, &mut texts)?;
        let texts: Vec<_> = texts.iter().map(|text| &**text).collect();
        FoundKey::of(&texts).map_err(|_| Fault::EMPTY.at(&self.0))
    }

    fn collect_from_request<'a>(
        &self,
        source: Source<'a>,
        texts: &mut Vec<Cow<'a, str>>,
    ) -> Result<(), KeyRefusal> {
        match &self.0 {
            Place::All(several) => {
                several.iter().try_for_each(|from| from.collect_from_request(source, texts))
            }
            Place::First(several) => {
                texts.extend(first(several, source)?);
                Ok(())
            }
            place => {
                let text = self.text(source).and_then(|text| valid(&text).map(|_| text));
                texts.push(text.map_err(|fault| fault.at(place))?);
                Ok(())
            }
        }
    }

    /// What is in this one place.
    fn text<'a>(&self, Source { syntax, parts, body }: Source<'a>) -> Result<Cow<'a, str>, Fault> {
        let text = match &self.0 {
            Place::Header(name) => syntax.text(&parts.headers, name)?,
            Place::Query(name) => query(parts, name)?,
            Place::Path(pattern) => pattern.key(&target::path(parts)).map(|key| key.to_owned().into()),
            #[cfg(feature = "lambda-http")]
            Place::Claim(name) => super::JwtClaim(name).value(parts),
            Place::Function(key) => key(parts, body).map(Cow::Owned),
            Place::Body(pointer) => in_body(pointer, body)?,
            #[cfg(feature = "lambda")]
            Place::Attribute(_)
            | Place::Envelope
            | Place::RecordId
            | Place::DeduplicationId
            | Place::Content => None,
            Place::First(_) | Place::All(_) => None,
        };
        text.ok_or(Fault::MISSING)
    }
}

/// The member of the body.
fn in_body<'a>(pointer: &JsonPointer, body: &'a [u8]) -> Result<Option<Cow<'a, str>>, Fault> {
    let body = std::str::from_utf8(body).unwrap_or_default();
    match pointer.find(body) {
        Ok(Some(Value::String(text))) => Ok(Some(text.into())),
        Ok(None) => Ok(None),
        Ok(Some(_)) => Err(Fault::NOT_A_TEXT),
        Err(error) if error.classify() == Category::Data => Err(Fault::REPEATED),
        Err(_) => Err(Fault::NOT_JSON),
    }
}

/// The first of these that is there. If others are too, they are the same.
fn first<'a>(several: &[KeyFrom], source: Source<'a>) -> Result<Vec<Cow<'a, str>>, KeyRefusal> {
    let mut found: Option<Vec<Cow<'a, str>>> = None;
    let mut missing = Vec::new();
    for from in several {
        let mut texts = Vec::new();
        match from.collect_from_request(source, &mut texts) {
            Ok(()) if found.as_ref().is_some_and(|found| *found != texts) => {
                return Err(different());
            }
            Ok(()) => found = Some(texts),
            Err(refusal) if refusal.reason == Fault::MISSING.reason => missing.push(refusal.detail),
            Err(refusal) => return Err(refusal),
        }
    }
    found.ok_or_else(|| KeyRefusal { reason: Fault::MISSING.reason, detail: missing.join("; ").into() })
}

/// The one parameter of this name.
fn query<'a>(parts: &'a Parts, name: &str) -> Result<Option<Cow<'a, str>>, Fault> {
    let mut values = target::query(parts).into_iter().filter(|(called, _)| called == name);
    let value = values.next().map(|(_, value)| value.into_owned().into());
    match values.next() {
        Some(_) => Err(Fault::REPEATED),
        None => Ok(value),
    }
}
