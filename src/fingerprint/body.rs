//! Reads a body by its meaning: unpacked, and in canonical form, in fields or in parts.

use std::{borrow::Cow, io::Read};

use flate2::read::MultiGzDecoder;

use super::{
    canonical::{self, JsonPointer},
    content::{Content, is_json},
    form::{self, Field},
    media_type::{self, Parameter},
    multipart,
};

/// The longest body after unpacking: as long as a plain one may be. A longer one is hashed by its packed bytes, so that a few
/// kilobytes of gzip take no more memory than a plain body can.
const MAX_UNPACKED: u64 = 6 * 1024 * 1024;

/// A body without its gzip packing, whose header holds the time at which it was made.
pub(super) struct Unpacked<'a> {
    /// Without its parameters.
    pub(super) media_type: Cow<'a, str>,
    /// The media type's parameters.
    parameters: Vec<Parameter>,
    /// The content coding that is left; empty if there is none.
    pub(super) coding: String,
    body: Cow<'a, [u8]>,
}

/// The form in which a body is hashed.
pub(super) enum Form<'a> {
    Json(Vec<u8>),
    Fields(Vec<Field<'a>>),
    Multipart(Vec<&'a [u8]>),
    Bytes(&'a [u8]),
}

impl<'a> Unpacked<'a> {
    pub(super) fn of(content: &Content<'a>) -> Self {
        let coding = (content.header)("content-encoding").unwrap_or_default().trim().to_ascii_lowercase();
        let unpacked = matches!(&*coding, "gzip" | "x-gzip").then(|| gunzip(content.body)).flatten();
        let (coding, body) = match unpacked {
            Some(body) => (String::new(), Cow::Owned(body)),
            None => (coding, Cow::Borrowed(content.body)),
        };
        let content_type = content.content_type();
        let media_type = media_type::essence(&content_type);
        Self { media_type, parameters: media_type::parameters(&content_type), coding, body }
    }

    /// The media type's parameters, except for those that the form makes redundant.
    pub(super) fn parameters(&self, form: &Form<'_>) -> impl Iterator<Item = &Parameter> + Clone {
        let redundant = match form {
            Form::Json(_) => Some("charset"),
            Form::Multipart(_) => Some("boundary"),
            Form::Fields(_) | Form::Bytes(_) => None,
        };
        self.parameters.iter().filter(move |(name, _)| Some(&**name) != redundant)
    }

    /// The boundary of a multipart body. None if there are several: parsers do not agree on which counts.
    fn boundary(&self) -> Option<&str> {
        let mut named = self.parameters.iter().filter(|(name, _)| name == "boundary");
        match (named.next(), named.next()) {
            (Some((_, boundary)), None) if self.media_type.starts_with("multipart/") => {
                Some(&**boundary).filter(|boundary| !boundary.is_empty())
            }
            _ => None,
        }
    }

    /// The form in which the body is hashed, without these members of a JSON document.
    pub(super) fn form(&self, left_out: &[JsonPointer]) -> Form<'_> {
        let body = &*self.body;
        let form = if is_json(&self.media_type) {
            canonical::canonical_json(body, left_out).map(Form::Json)
        } else if form::is_form(&self.media_type) {
            form::fields(body).map(Form::Fields)
        } else {
            self.boundary().and_then(|boundary| multipart::pieces(body, boundary)).map(Form::Multipart)
        };
        form.unwrap_or(Form::Bytes(body))
    }
}

fn gunzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(body).take(MAX_UNPACKED + 1).read_to_end(&mut unpacked);
    (read.is_ok() && unpacked.len() as u64 <= MAX_UNPACKED).then_some(unpacked)
}
