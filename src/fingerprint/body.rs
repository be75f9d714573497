//! Reads a body by its meaning: unpacked, and in canonical form or in parts.

use std::{borrow::Cow, io::Read};

use flate2::read::MultiGzDecoder;

use super::{
    canonical::{self, JsonPointer},
    content::{Content, is_json},
    multipart,
};

/// The longest body after unpacking: as long as a plain one may be. A longer one is hashed by its packed bytes, so that a few
/// kilobytes of gzip take no more memory than a plain body can.
const MAX_UNPACKED: u64 = 6 * 1024 * 1024;

/// A body without its gzip packing, whose header holds the time at which it was made.
pub(super) struct Unpacked<'a> {
    media_type: String,
    boundary: Option<String>,
    /// The content coding that is left; empty if there is none.
    coding: String,
    body: Cow<'a, [u8]>,
}

/// The form in which a body is hashed.
pub(super) enum Form<'a> {
    Json(Vec<u8>),
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
        let media_type = content.media_type();
        let multipart = media_type.starts_with("multipart/");
        let content_type = multipart.then(|| (content.header)("content-type")).flatten();
        let boundary = content_type.and_then(|value| multipart::boundary(&value));
        Self { media_type, boundary, coding, body }
    }

    /// The media type, without its parameters.
    pub(super) fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The content coding that the body still has.
    pub(super) fn coding(&self) -> &str {
        &self.coding
    }

    /// Whether the body came packed.
    pub(super) fn was_packed(&self) -> bool {
        matches!(self.body, Cow::Owned(_))
    }

    /// The form in which the body is hashed, without these members of a JSON document.
    pub(super) fn form(&self, left_out: &[JsonPointer]) -> Form<'_> {
        let body = &*self.body;
        let json = is_json(&self.media_type).then(|| canonical::canonical_json(body, left_out)).flatten();
        let pieces = || multipart::pieces(body, self.boundary.as_deref()?);
        match json {
            Some(canonical) => Form::Json(canonical),
            None => pieces().map_or(Form::Bytes(body), Form::Multipart),
        }
    }
}

fn gunzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(body).take(MAX_UNPACKED + 1).read_to_end(&mut unpacked);
    (read.is_ok() && unpacked.len() as u64 <= MAX_UNPACKED).then_some(unpacked)
}
