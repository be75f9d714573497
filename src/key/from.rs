//! Where an idempotency key is, in requests and in messages.

#[cfg(feature = "http")]
use std::sync::Arc;

use crate::fingerprint::JsonPointer;

/// Where the idempotency key is: what identifies the intended effect, by whichever sender, however often it is sent.
///
/// | | in a request | in a message |
/// | --- | --- | --- |
/// | a header | [`header`](Self::header) | [`attribute`](Self::attribute) |
/// | a member of the JSON body | [`body`](Self::body) | [`body`](Self::body) |
/// | a part of the path, the query | [`path`](Self::path), [`query`](Self::query) | |
/// | what the caller's token says | [`claim`](Self::claim) | |
/// | what carries it | | [`envelope`](Self::envelope), [`record_id`](Self::record_id), [`deduplication_id`](Self::deduplication_id) |
/// | anything else | [`function`](Self::function) | [`content`](Self::content) |
/// | several | [`first`](Self::first), [`all`](Self::all) | the same |
///
/// A request whose key is missing or invalid is refused with 400, and nothing is done. Such a message goes to the dead letters, with the reason.
///
/// ```
/// use lambda_idempotency::KeyFrom;
///
/// // `{"orderId": "o-1"}`
/// let order = KeyFrom::body("/orderId");
/// // An id that is unique only for its source needs the source too.
/// let event = KeyFrom::all([KeyFrom::body("/shop"), KeyFrom::body("/number")]);
/// ```
#[derive(Clone, Debug)]
pub struct KeyFrom(pub(crate) Place);

/// Where a key, or a part of it, is.
#[derive(Clone, derive_more::Debug)]
pub(crate) enum Place {
    #[cfg(feature = "http")]
    Header(http::HeaderName),
    #[cfg(feature = "http")]
    Query(String),
    #[cfg(feature = "http")]
    Path(PathPattern),
    #[cfg(feature = "lambda-http")]
    Claim(&'static str),
    #[cfg(feature = "http")]
    #[debug("Function")]
    Function(Function),
    Body(JsonPointer),
    #[cfg(feature = "lambda")]
    Attribute(String),
    #[cfg(feature = "lambda")]
    Envelope,
    #[cfg(feature = "lambda")]
    RecordId,
    #[cfg(feature = "lambda")]
    DeduplicationId,
    #[cfg(feature = "lambda")]
    Content,
    First(Vec<KeyFrom>),
    All(Vec<KeyFrom>),
}

/// Makes a key of a request and its whole body.
#[cfg(feature = "http")]
pub(crate) type Function = Arc<dyn Fn(&http::request::Parts, &[u8]) -> Option<String> + Send + Sync>;

/// A path with one place for the key.
#[cfg(feature = "http")]
#[derive(Clone, Debug)]
pub(crate) struct PathPattern {
    pub(crate) text: String,
    segments: Vec<Segment>,
}

#[cfg(feature = "http")]
#[derive(Clone, Debug)]
enum Segment {
    Is(String),
    Any,
    Key,
}

#[cfg(feature = "http")]
impl PathPattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let segments = text.strip_prefix('/').ok_or("a path begins with /")?.split('/');
        let segments: Vec<_> = segments
            .map(|segment| match segment {
                "{key}" => Segment::Key,
                _ if segment.starts_with('{') && segment.ends_with('}') => Segment::Any,
                _ => Segment::Is(segment.to_owned()),
            })
            .collect();
        match segments.iter().filter(|segment| matches!(segment, Segment::Key)).count() {
            1 => Ok(Self { text: text.to_owned(), segments }),
            _ => Err("it has one segment {key}"),
        }
    }

    /// The key in this path, which is decoded; `None` if it is another path.
    pub(crate) fn key<'a>(&self, path: &'a [u8]) -> Option<&'a str> {
        let mut called = path.strip_prefix(b"/")?.split(|byte| *byte == b'/');
        let mut key = None;
        for segment in &self.segments {
            let called = called.next()?;
            match segment {
                Segment::Is(name) if called != name.as_bytes() => return None,
                Segment::Is(_) | Segment::Any => {}
                Segment::Key => key = std::str::from_utf8(called).ok(),
            }
        }
        key.filter(|key| called.next().is_none() && !key.is_empty())
    }
}

impl KeyFrom {
    /// The member at this JSON Pointer (RFC 6901) of the body: a string that is not empty; in a message, a whole number too. A body with two
    /// members of that name has no key, because readers differ in which one counts.
    ///
    /// The member is a part of the body, so it counts for the [fingerprint](crate::fingerprint) too, unless the operation's rule leaves it out.
    ///
    /// # Panics
    /// If it is not a pointer to a member.
    pub fn body(pointer: impl AsRef<str>) -> Self {
        let pointer = pointer.as_ref();
        let parsed = JsonPointer::parse(pointer);
        Self(Place::Body(parsed.unwrap_or_else(|error| panic!("KeyFrom::body({pointer:?}): {error}"))))
    }

    /// The first of these that is there. If others are there too, they must be the same: otherwise a request is refused, and a message is a dead
    /// letter.
    ///
    /// A client that sends its key in another of these places next time sends another request, if the place is in the body: let the
    /// [fingerprint's rule](crate::fingerprint::FingerprintRule::leave_out) leave it out.
    ///
    /// # Panics
    /// If there are none.
    pub fn first(several: impl IntoIterator<Item = Self>) -> Self {
        Self(Place::First(some(several)))
    }

    /// Several together: all must be there. The key is a hash of them, which has no time: a guard whose operation
    /// [refuses old keys](crate::Operation::refuse_older_than) panics at start-up. [`min_key_length`](crate::Operation::min_key_length) is that of
    /// each part.
    ///
    /// # Panics
    /// If there are none. If one of them is in several places with different numbers of parts: then keys of different parts could be the same.
    pub fn all(several: impl IntoIterator<Item = Self>) -> Self {
        let several = some(several);
        for from in &several {
            assert!(
                from.count().is_some(),
                "KeyFrom::all: the places of {from:?} have different numbers of parts, so two keys could look the same"
            );
        }
        Self(Place::All(several))
    }

    /// How many parts it has, and how many ids of envelopes, each of which may have several; `None` if that differs between its places.
    fn count(&self) -> Option<[usize; 2]> {
        match &self.0 {
            Place::All(several) => several.iter().try_fold([0, 0], |[parts, ids], from| {
                let [more_parts, more_ids] = from.count()?;
                Some([parts + more_parts, ids + more_ids])
            }),
            Place::First(several) => {
                let mut counts = several.iter().map(Self::count);
                let first = counts.next()?;
                first.filter(|_| counts.all(|count| count == first))
            }
            #[cfg(feature = "lambda")]
            Place::Envelope | Place::RecordId => Some([0, 1]),
            _ => Some([1, 0]),
        }
    }

    /// Whether it is a hash in some place.
    pub(crate) fn may_be_hash(&self) -> bool {
        match &self.0 {
            Place::All(several) => several.len() > 1 || several.iter().any(Self::may_be_hash),
            Place::First(several) => several.iter().any(Self::may_be_hash),
            #[cfg(feature = "lambda")]
            Place::Content => true,
            _ => false,
        }
    }
}

fn some(several: impl IntoIterator<Item = KeyFrom>) -> Vec<KeyFrom> {
    let several: Vec<_> = several.into_iter().collect();
    assert!(!several.is_empty(), "a key has at least one part");
    several
}

/// In requests.
#[cfg(feature = "http")]
impl KeyFrom {
    /// The header of this name, as [`KeySyntax`](crate::http::KeySyntax) writes it. Default: `Idempotency-Key`.
    ///
    /// # Panics
    /// If it is not the name of a header.
    pub fn header(name: &str) -> Self {
        let parsed = http::HeaderName::try_from(name);
        Self(Place::Header(parsed.unwrap_or_else(|error| panic!("KeyFrom::header({name:?}): {error}"))))
    }

    /// The parameter of this name in the query.
    pub fn query(name: impl Into<String>) -> Self {
        Self(Place::Query(name.into()))
    }

    /// The segment `{key}` of this path, decoded. It is the whole path as the function sees it, with the base path of a custom domain. Other segments in braces may be anything: `/orders/{order}/captures/{key}`.
    ///
    /// # Panics
    /// If it is not a path with one segment `{key}`.
    pub fn path(pattern: &str) -> Self {
        let parsed = PathPattern::parse(pattern);
        Self(Place::Path(parsed.unwrap_or_else(|error| panic!("KeyFrom::path({pattern:?}): {error}"))))
    }

    /// A claim of the verified token, as in [`JwtClaim`](crate::JwtClaim), such as `jti` of a token for one use.
    #[cfg(feature = "lambda-http")]
    pub const fn claim(name: &'static str) -> Self {
        Self(Place::Claim(name))
    }

    /// What this makes of the request and its whole body. `None` if there is no key.
    pub fn function(
        key: impl Fn(&http::request::Parts, &[u8]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self(Place::Function(Arc::new(key)))
    }
}

/// In messages.
#[cfg(feature = "lambda")]
impl KeyFrom {
    /// The message attribute of this name, as text.
    pub fn attribute(name: impl Into<String>) -> Self {
        Self(Place::Attribute(name.into()))
    }

    /// The `source` and `id` of a [CloudEvent](https://cloudevents.io) in the body.
    pub fn cloud_event() -> Self {
        Self::all([Self::body("/source"), Self::body("/id")])
    }

    /// The id that the innermost [envelope](crate::event::Envelope) gives to the message.
    ///
    /// One of S3 is of the event. One of SNS or EventBridge is of a *publication*: a publisher that publishes one fact twice, such as
    /// one that repeats a call whose answer was lost, gives it two ids, and it has two effects. If the message itself says which fact it is, take that.
    pub const fn envelope() -> Self {
        Self(Place::Envelope)
    }

    /// Where a record is in its stream: of Kinesis, the stream, the shard and the sequence number; of a DynamoDB table, the stream and the change.
    ///
    /// One of a table is of the change. One of Kinesis is of a *publication*: a producer that puts one fact twice, such as one that repeats a call whose answer was
    /// lost, has two effects. If the record itself says which fact it is, take that.
    pub const fn record_id() -> Self {
        Self(Place::RecordId)
    }

    /// The deduplication id of a FIFO queue, if the producer chose it, or the queue by the content. SQS itself forgets it after 5 minutes.
    pub const fn deduplication_id() -> Self {
        Self(Place::DeduplicationId)
    }

    /// The hash of the whole content, of a CloudEvent too, by its value if it is JSON: the last choice. Two orders with the same content are one effect, even if both are meant.
    pub const fn content() -> Self {
        Self(Place::Content)
    }
}
