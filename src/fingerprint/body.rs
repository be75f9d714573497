//! Reads a body by its meaning: unpacked, and in canonical form, in fields or in parts.
//!
//! A body has a canonical form only if it is strictly valid in its own type. Every other one counts by its bytes: a client may have
//! named the wrong type, and a handler may not look at it.

use std::{borrow::Cow, io::Read};

use flate2::bufread::GzDecoder;

use super::{
    canonical::{self, JsonPointer},
    content::{Content, is_json},
    form::{self, Field},
    media_type::{MediaType, Parameter, WHITE_SPACE},
    multipart,
};

/// The longest body after unpacking: as long as a plain one may be. A longer one is hashed by its packed bytes, so that a few
/// kilobytes of gzip take no more memory than a plain body can.
const MAX_UNPACKED: u64 = 6 * 1024 * 1024;

/// A body without its gzip packing, whose header holds the time at which it was made.
pub(super) struct Unpacked<'a> {
    pub(super) media_type: MediaType<'a>,
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
        let coding = (content.header)("content-encoding").unwrap_or_default();
        let coding = coding.trim_matches(WHITE_SPACE).to_ascii_lowercase();
        let unpacked = matches!(&*coding, "gzip" | "x-gzip").then(|| gunzip(content.body)).flatten();
        let (coding, body) = match unpacked {
            Some(body) => (String::new(), Cow::Owned(body)),
            None => (coding, Cow::Borrowed(content.body)),
        };
        Self { media_type: MediaType::of(&content.content_type()), coding, body }
    }

    /// The media type's parameters, except for those that the form makes redundant.
    pub(super) fn parameters(&self, form: &Form<'_>) -> impl Iterator<Item = &Parameter> + Clone {
        let redundant = match form {
            Form::Json(_) => Some("charset"),
            Form::Multipart(_) => Some("boundary"),
            Form::Fields(_) | Form::Bytes(_) => None,
        };
        self.media_type.parameters.iter().filter(move |(name, _)| Some(&**name) != redundant)
    }

    /// The form in which the body is hashed, without these members of a JSON document.
    pub(super) fn form(&self, left_out: &[JsonPointer]) -> Form<'_> {
        self.canonical(left_out).unwrap_or(Form::Bytes(&self.body))
    }

    /// The canonical form; `None` if the body is not what its type says, or may not be.
    fn canonical(&self, left_out: &[JsonPointer]) -> Option<Form<'_>> {
        let Self { media_type, coding, body } = self;
        let is_readable = coding.is_empty() && media_type.is_well_formed;
        match &*media_type.essence {
            _ if !is_readable => None,
            json if is_json(json) && media_type.is_utf_8() => {
                canonical::canonical_json(body, left_out).map(Form::Json)
            }
            form if form::is_form(form) && media_type.is_utf_8() => form::fields(body).map(Form::Fields),
            _ => {
                let boundary = media_type.boundary().filter(|boundary| multipart::is_boundary(boundary))?;
                multipart::parts(body, boundary).map(Form::Multipart)
            }
        }
    }
}

/// The content of a single gzip member. Of several members, or of anything behind the first, unpackers read different bodies.
fn gunzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    let mut member = GzDecoder::new(body);
    let read = member.by_ref().take(MAX_UNPACKED + 1).read_to_end(&mut unpacked);
    let is_whole = unpacked.len() as u64 <= MAX_UNPACKED && member.into_inner().is_empty();
    (read.is_ok() && is_whole).then_some(unpacked)
}
