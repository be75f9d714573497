//! The rules by which requests become fingerprints.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    Content, Fingerprint,
    body::{Form, Unpacked},
    canonical::JsonPointer,
    content::is_header_name,
};

/// The version of the hashed form. A change to the hashing below, to `body` or to `canonical` needs a new number here, and the
/// old form must be kept, as in `earlier`, for as long as its records can live.
const FORM: u8 = 2;

/// How requests become fingerprints: which parts of a request are the caller's intent.
///
/// JSON bodies count by their value (RFC 8785, with numbers compared by their exact decimal value), multipart bodies by their
/// parts, gzip by the unpacked body, everything else by its bytes and its content coding. Members such as client timestamps and
/// trace ids can be left out; headers that your API declares to be intent can be included.
///
/// ```
/// use lambda_idempotency::fingerprint::FingerprintRule;
///
/// let rule = FingerprintRule::new()
///     .leave_out("/clientTime")
///     .leave_out("/meta/traceId")
///     .header("api-version");
/// ```
#[derive(Clone)]
pub struct FingerprintRule(Kind);

#[derive(Clone)]
enum Kind {
    Request { left_out: Vec<JsonPointer>, headers: Vec<String> },
    Custom { id: u32, intent: Arc<Intent> },
}

type Intent = dyn Fn(&Content<'_>) -> Vec<u8> + Send + Sync;

impl Default for FingerprintRule {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FingerprintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Request { left_out, headers } => f
                .debug_struct("FingerprintRule")
                .field("left_out", left_out)
                .field("headers", headers)
                .finish(),
            Kind::Custom { id, .. } => f.debug_tuple("FingerprintRule::custom").field(id).finish(),
        }
    }
}

impl FingerprintRule {
    /// The whole body counts, and the media type is the only header that does.
    pub fn new() -> Self {
        Self(Kind::Request { left_out: Vec::new(), headers: Vec::new() })
    }

    /// A rule of your own: two requests to the operation are the same if `intent` returns the same for both; nothing else
    /// counts. For bodies that only your code can read, such as one that is encrypted anew for each try.
    ///
    /// `id` is the rule's number, kept in each record. Another function needs another number: under the same number the two
    /// are compared with each other. Keep the old one as a [former rule](crate::operation::Operation::formerly) for as long
    /// as records are retained.
    ///
    /// ```
    /// use lambda_idempotency::fingerprint::FingerprintRule;
    ///
    /// // The path and the first line count; the lines below are a receipt.
    /// let rule = FingerprintRule::custom(1, |request| {
    ///     let line = request.body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    ///     [request.path, b"\n", line].concat()
    /// });
    /// ```
    pub fn custom(id: u32, intent: impl Fn(&Content<'_>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Kind::Custom { id, intent: Arc::new(intent) })
    }

    /// Leaves the value at `pointer`, an RFC 6901 JSON Pointer, out of JSON bodies.
    ///
    /// # Panics
    /// If `pointer` is invalid, or the rule is [your own](Self::custom): a mistake in the program, found at start-up.
    #[must_use]
    pub fn leave_out(mut self, pointer: &str) -> Self {
        match (JsonPointer::parse(pointer), &mut self.0) {
            (Ok(pointer), Kind::Request { left_out, .. }) => left_out.push(pointer),
            (Ok(_), Kind::Custom { .. }) => {
                panic!("leave_out({pointer:?}): the rule is a function of your own")
            }
            (Err(error), _) => panic!("leave_out({pointer:?}): {error}"),
        }
        self
    }

    /// Includes this header, because it is part of the caller's intent, as `Prefer` or `API-Version` can be. It must not differ
    /// from try to try. If a header was sent in several lines, a REST API passes on the last one only.
    ///
    /// # Panics
    /// If `name` is not a valid header name, or the rule is [your own](Self::custom): a mistake in the program, found at start-up.
    #[must_use]
    pub fn header(mut self, name: &str) -> Self {
        match &mut self.0 {
            Kind::Request { headers, .. } if is_header_name(name) => headers.push(name.to_ascii_lowercase()),
            Kind::Request { .. } => panic!("header({name:?}): this is not a valid header name"),
            Kind::Custom { .. } => panic!("header({name:?}): the rule is a function of your own"),
        }
        self
    }

    /// The rule's number, kept in each record. It is derived from the rule's settings, so that it changes with the rule; for a
    /// rule of your own, from its number alone.
    pub fn id(&self) -> u32 {
        let mut hash = Sha256::new_with_prefix([FORM]);
        match &self.0 {
            Kind::Custom { id, .. } => {
                hash.update(b"f");
                hash.update(id.to_be_bytes());
            }
            Kind::Request { headers, .. } => {
                hash.update(b"r");
                list(&mut hash, &self.sorted_pointers().unwrap_or_default());
                list(&mut hash, &sorted(headers.iter().map(String::as_str)));
            }
        }
        number(hash)
    }

    /// The fingerprint of `content` sent to `operation`; `body` is its body.
    pub(super) fn fingerprint(
        &self,
        operation: &str,
        content: &Content<'_>,
        body: &Unpacked<'_>,
        form: &Form<'_>,
    ) -> Fingerprint {
        let mut hash = Sha256::new_with_prefix([FORM]);
        match &self.0 {
            Kind::Custom { intent, .. } => {
                hash.update(b"f");
                part(&mut hash, operation.as_bytes());
                part(&mut hash, &intent(content));
            }
            Kind::Request { headers, .. } => {
                hash.update(b"r");
                for bytes in [operation.as_bytes(), content.method.as_bytes(), content.path] {
                    part(&mut hash, bytes);
                }
                let query = content.query.iter().flat_map(|(name, value)| [&**name, &**value]);
                list(&mut hash, &query.collect::<Vec<_>>());
                for name in sorted(headers.iter().map(String::as_str)) {
                    let value = (content.header)(name);
                    hash.update([u8::from(value.is_some())]);
                    part(&mut hash, value.unwrap_or_default().as_bytes());
                }
                part(&mut hash, body.media_type().as_bytes());
                part(&mut hash, body.coding().as_bytes());
                match form {
                    Form::Json(canonical) => {
                        hash.update(b"j");
                        part(&mut hash, canonical);
                    }
                    Form::Multipart(pieces) => {
                        hash.update(b"m");
                        list(&mut hash, pieces);
                    }
                    Form::Bytes(bytes) => {
                        hash.update(b"b");
                        part(&mut hash, bytes);
                    }
                }
            }
        }
        Fingerprint { rule: self.id(), digest: hash.finalize().into() }
    }

    /// The members left out of JSON bodies, unless the rule is a function.
    pub(super) fn left_out(&self) -> Option<&[JsonPointer]> {
        match &self.0 {
            Kind::Request { left_out, .. } => Some(left_out),
            Kind::Custom { .. } => None,
        }
    }

    /// The same as text, sorted.
    pub(super) fn sorted_pointers(&self) -> Option<Vec<&str>> {
        Some(sorted(self.left_out()?.iter().map(JsonPointer::as_str)))
    }
}

fn sorted<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut sorted: Vec<_> = texts.collect();
    sorted.sort_unstable();
    sorted
}

/// Hashes a part with its length, so that no two lists of parts are the same bytes.
pub(super) fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

fn list<T: AsRef<[u8]>>(hash: &mut Sha256, parts: &[T]) {
    hash.update((parts.len() as u64).to_be_bytes());
    for bytes in parts {
        part(hash, bytes.as_ref());
    }
}

/// The first four bytes as a number.
pub(super) fn number(hash: Sha256) -> u32 {
    let digest = hash.finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}
