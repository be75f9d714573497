//! What is wrong with the key of a request.

use http::HeaderName;

use crate::key::{IdempotencyKey, KeyError, Place, is_hash, refusal::KeyRefusal};

/// What is wrong with a key: one stable word, and what the problem says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: &'static str,
    says: &'static str,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident: $reason:literal, $says:literal;)*) => {
        impl Fault {
            $($(#[$doc])* pub(super) const $fault: Self = Self { reason: $reason, says: $says };)*
        }
    };
}

faults! {
    MISSING: "missing", "is missing";
    REPEATED: "repeated", "is there more than once";
    /// It may also be several lines that a gateway joined.
    LIST: "list", "is a list";
    PARAMETERS: "parameters", "has parameters";
    NOT_A_STRING: "not-a-string", "must be a string in double quotes";
    QUOTED: "quoted", "is in quotes, which this operation does not take";
    MALFORMED: "malformed", "begins with a double quote and is not a well-formed string";
    CHARACTER: "character", "contains a byte outside visible ASCII";
    CONTROL: "character", "contains a control character";
    /// A front, or a parser, has put it in place of bytes that are no text: different keys look the same then.
    NOT_UTF8: "character", "is not valid UTF-8";
    EMPTY: "empty", "is empty";
    TOO_LONG: "too-long", "is longer than 255 characters";
    /// It could be the key of a message, whose parts were hashed.
    RESERVED: "reserved", "has a form that the service makes itself: sha256: and 43 digits";
    NOT_A_TEXT: "not-a-string", "is not a string";
    NOT_JSON: "missing", "is missing: the body is not JSON";
}

impl Fault {
    /// Of a key in this place.
    pub(super) fn at(self, place: &Place) -> KeyRefusal {
        let key = match place {
            Place::Header(name) => format!("The header {}", written(name)),
            Place::Query(name) => format!("The query parameter {name}"),
            Place::Path(pattern) => format!("The key in the path, {},", pattern.text),
            #[cfg(feature = "lambda-http")]
            Place::Claim(name) => format!("The claim {name} of the token"),
            Place::Body(pointer) => format!("The body's key at {}", pointer.as_str()),
            _ => "The idempotency key".to_owned(),
        };
        KeyRefusal { reason: self.reason, detail: format!("{key} {}", self.says).into() }
    }
}

/// The name of a header as documents write it.
fn written(name: &HeaderName) -> String {
    let words = name.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}

/// A key that a client can have made.
pub(super) fn valid(text: &str) -> Result<IdempotencyKey, Fault> {
    if text.contains('\u{fffd}') {
        return Err(Fault::NOT_UTF8);
    }
    if is_hash(text) {
        return Err(Fault::RESERVED);
    }
    IdempotencyKey::parse(text).map_err(|error| match error {
        KeyError::Empty => Fault::EMPTY,
        KeyError::TooLong { .. } => Fault::TOO_LONG,
        _ => Fault::CONTROL,
    })
}
