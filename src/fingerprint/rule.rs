//! The rules by which requests become fingerprints.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    Content, Fingerprint,
    body::{Form, Unpacked},
    canonical::JsonPointer,
    content::is_header_name,
};

/// The version of the hashed form. It is part of each rule's number, so fingerprints of another form cannot be compared. Once a
/// version is published, a change to what is hashed needs a new number here. The old form then stays for as long as its records
/// can live.
const FORM: u8 = 1;

/// The headers that count by default. A request with another condition or another range is another request.
const CONDITIONAL: [&str; 6] =
    ["content-range", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since"];

/// How requests become fingerprints: which parts of a request are the caller's intent.
///
/// JSON bodies count by their value (RFC 8785, with numbers compared by their exact decimal value), forms by their fields,
/// multipart bodies by their parts, gzip by the unpacked body. A body that is not strictly valid in its type, and every other body,
/// counts by its bytes and its content coding. Members such as client timestamps and trace ids can be left out of JSON. The media type
/// counts, and so do `If-*` conditions and `Content-Range`; other headers that your API declares to be intent can be included.
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
#[must_use]
pub struct FingerprintRule {
    /// The number that records keep, made from the settings once, not for each request.
    id: u32,
    /// Sorted, because their order does not count.
    left_out: Vec<JsonPointer>,
    /// Sorted too.
    headers: Vec<String>,
    /// What counts instead of the request, if the rule is custom.
    intent: Option<Arc<Intent>>,
}

type Intent = dyn Fn(&Content<'_>) -> Vec<u8> + Send + Sync;

impl Default for FingerprintRule {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FingerprintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.intent {
            Some(_) => write!(f, "FingerprintRule::custom({:08x})", self.id),
            None => write!(f, "FingerprintRule({:?}, {:?})", self.left_out, self.headers),
        }
    }
}

impl FingerprintRule {
    /// The whole body counts, and of the headers the media type, `If-*` conditions and `Content-Range`.
    pub fn new() -> Self {
        Self { id: 0, left_out: Vec::new(), headers: Vec::new(), intent: None }.numbered()
    }

    /// A custom rule: two requests to the operation are the same if `intent` returns the same for both. Nothing else counts.
    /// For bodies that only your code can read, such as a body that is encrypted anew for each try.
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
        let id = number(Sha256::new_with_prefix([FORM, b'f']).chain_update(id.to_be_bytes()));
        Self { id, intent: Some(Arc::new(intent)), ..Self::new() }
    }

    /// Leaves the value at `pointer`, an RFC 6901 JSON Pointer, out of JSON bodies. A body that counts by its bytes counts whole.
    ///
    /// # Panics
    /// If `pointer` is invalid, or the rule is [custom](Self::custom): a mistake in the program, found at start-up.
    pub fn leave_out(mut self, pointer: &str) -> Self {
        assert!(self.intent.is_none(), "leave_out({pointer:?}): the rule is custom");
        let parsed = JsonPointer::parse(pointer);
        self.left_out.push(parsed.unwrap_or_else(|error| panic!("leave_out({pointer:?}): {error}")));
        self.left_out.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        self.numbered()
    }

    /// Includes this header, because it is part of the caller's intent, as `Prefer` or `API-Version` can be. It must not differ
    /// from try to try. If a header was sent in several lines, only the last one counts behind a REST API.
    ///
    /// # Panics
    /// If `name` is not a valid header name, or the rule is [custom](Self::custom): a mistake in the program, found at start-up.
    pub fn header(mut self, name: &str) -> Self {
        assert!(self.intent.is_none(), "header({name:?}): the rule is custom");
        assert!(is_header_name(name), "header({name:?}): this is not a valid header name");
        self.headers.push(name.to_ascii_lowercase());
        self.headers.sort_unstable();
        self.numbered()
    }

    /// The same rule with the number that its settings give it.
    fn numbered(mut self) -> Self {
        let mut hash = Sha256::new_with_prefix([FORM, b'r']);
        list(&mut hash, self.left_out.iter().map(JsonPointer::as_str));
        list(&mut hash, self.headers.iter());
        self.id = number(hash);
        self
    }

    /// The rule's number, kept in each record. It is derived from the rule's settings, so that it changes with the rule; for a
    /// custom rule, from its number alone.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The fingerprint of `content` sent to `operation`; `body` is its body.
    pub(super) fn fingerprint(
        &self,
        operation: &str,
        content: &Content<'_>,
        body: &Unpacked<'_>,
    ) -> Fingerprint {
        let mut hash = Sha256::new_with_prefix([FORM]);
        if let Some(intent) = &self.intent {
            hash.update(b"f");
            part(&mut hash, operation.as_bytes());
            part(&mut hash, &intent(content));
        } else {
            hash.update(b"r");
            for bytes in [operation.as_bytes(), content.method.as_bytes(), content.path] {
                part(&mut hash, bytes);
            }
            pairs(&mut hash, content.query.iter());
            if let Some(raw) = content.raw_query {
                // A header's value, which comes next, begins with 0 or 1.
                hash.update([2]);
                part(&mut hash, raw.as_bytes());
            }
            for name in CONDITIONAL.into_iter().chain(self.headers.iter().map(String::as_str)) {
                let value = (content.header)(name);
                hash.update([u8::from(value.is_some())]);
                part(&mut hash, value.unwrap_or_default().as_bytes());
            }
            let form = body.form(&self.left_out);
            part(&mut hash, body.media_type.essence.as_bytes());
            pairs(&mut hash, body.parameters(&form));
            part(&mut hash, body.coding.as_bytes());
            match form {
                Form::Json(canonical) => {
                    hash.update(b"j");
                    part(&mut hash, &canonical);
                }
                Form::Fields(fields) => {
                    hash.update(b"u");
                    pairs(&mut hash, fields.iter());
                }
                Form::Multipart(pieces) => {
                    hash.update(b"m");
                    list(&mut hash, pieces.into_iter());
                }
                Form::Bytes(bytes) => {
                    hash.update(b"b");
                    part(&mut hash, bytes);
                }
            }
        }
        Fingerprint::new(self.id, hash.finalize().into())
    }
}

/// The number of a rule: the first bytes of the hash of its settings.
fn number(settings: Sha256) -> u32 {
    let digest = settings.finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// Hashes a part with its length, so that no two lists of parts are the same bytes.
fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

fn list<T: AsRef<[u8]>>(hash: &mut Sha256, parts: impl ExactSizeIterator<Item = T>) {
    hash.update((parts.len() as u64).to_be_bytes());
    for bytes in parts {
        part(hash, bytes.as_ref());
    }
}

/// Hashes names and values with their number.
fn pairs<'a, T: AsRef<str> + 'a>(hash: &mut Sha256, pairs: impl Iterator<Item = &'a (T, T)> + Clone) {
    hash.update((pairs.clone().count() as u64).to_be_bytes());
    for (name, value) in pairs {
        part(hash, name.as_ref().as_bytes());
        part(hash, value.as_ref().as_bytes());
    }
}
