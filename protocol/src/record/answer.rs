//! The answer of an operation, and the form in which its record keeps it.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::{id::nonce, named_enum::names};

nonce! {
    /// The id of a body that is kept outside its record. Fresh for each body, so that no two writers can collide.
    BodyId
}

/// The part of an answer above its body.
#[derive(Clone, PartialEq, Eq)]
pub enum Head {
    /// Status and headers of an HTTP response.
    Http {
        /// The status code.
        status: u16,
        /// Name and value of each header, in order. Shared, because a record is cloned often.
        headers: Arc<[(String, String)]>,
    },
    /// Nothing: the body is what a function returned.
    Payload,
    /// Nothing: the body says why a function refused its input.
    Refusal,
    /// There is no answer: the work was accepted, but no worker began it in time. The front that replays it says so.
    Abandoned,
}

/// Whether a response with this status reports an effect rather than a refusal.
pub(crate) const fn is_effect(status: u16) -> bool {
    matches!(status, 200..=399)
}

impl Head {
    /// The status code, if the answer is an HTTP response.
    pub const fn status(&self) -> Option<u16> {
        if let Self::Http { status, .. } = self { Some(*status) } else { None }
    }

    /// The status code; if the answer is not an HTTP response, one that means the same.
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::Http { status, .. } => *status,
            Self::Payload => 200,
            Self::Refusal => 422,
            Self::Abandoned => 408,
        }
    }

    /// Whether it reports an effect rather than a refusal.
    pub const fn is_effect(&self) -> bool {
        match self {
            Self::Http { status, .. } => is_effect(*status),
            Self::Payload => true,
            Self::Refusal | Self::Abandoned => false,
        }
    }

    /// The headers; none if the answer is not an HTTP response.
    pub fn headers(&self) -> &[(String, String)] {
        if let Self::Http { headers, .. } = self { headers } else { &[] }
    }

    /// The same without its headers.
    #[must_use]
    pub fn without_headers(&self) -> Self {
        self.with_headers(|_| false)
    }

    /// The same, with only those headers whose names `keeps` takes.
    #[must_use]
    pub fn with_headers(&self, keeps: impl Fn(&str) -> bool) -> Self {
        let keeps = |(name, _): &&(String, String)| keeps(name);
        match self {
            Self::Http { status, headers } if !headers.iter().all(|header| keeps(&header)) => {
                Self::Http { status: *status, headers: headers.iter().filter(keeps).cloned().collect() }
            }
            _ => self.clone(),
        }
    }

    /// Whether it can head an answer: a status must be that of a final response (RFC 9110, section 15).
    pub fn is_final(&self) -> bool {
        match self {
            Self::Http { status, .. } => (200..600).contains(status),
            Self::Payload | Self::Refusal => true,
            Self::Abandoned => false,
        }
    }
}

impl fmt::Debug for Head {
    /// Without the headers: a location can name a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { status, headers } => write!(f, "{status}, {} headers", headers.len()),
            Self::Payload => f.write_str("payload"),
            Self::Refusal => f.write_str("refusal"),
            Self::Abandoned => f.write_str("abandoned"),
        }
    }
}

/// The kind of answer that the callers of an operation read. A record keeps answers of its own kind alone: its callers could not read
/// another one, however often they ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerKind {
    /// An HTTP response. Its callers send requests, or messages that stand for requests.
    Http,
    /// What a function returned, or why it refused its input. Its callers are programs, messages and direct invocations.
    Function,
}

names! { pub AnswerKind { Http: "http", Function: "function" } }

impl AnswerKind {
    /// What such an answer is, for operators.
    pub const fn described(self) -> &'static str {
        match self {
            Self::Http => "an HTTP response",
            Self::Function => "what a function returns, or why it refuses",
        }
    }

    /// Whether an answer with this head is of this kind. Each front says in its own words that work was abandoned.
    pub const fn takes(self, head: &Head) -> bool {
        match head {
            Head::Http { .. } => matches!(self, Self::Http),
            Head::Payload | Head::Refusal => matches!(self, Self::Function),
            Head::Abandoned => true,
        }
    }
}

/// An answer as its record keeps it: the head, and the body or its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Status and headers, if there are any.
    pub head: Head,
    /// The body, or its place.
    pub body: KeptBody,
}

impl KeptAnswer {
    /// The body's length before encoding, even if the body is gone.
    pub const fn body_length(&self) -> u64 {
        self.body.length()
    }

    /// Where the body is, by the name in items: `record`, `body_item`, `s3`; `omitted` if it is not kept.
    pub const fn body_place(&self) -> &'static str {
        match &self.body {
            KeptBody::Inline { .. } => KeptBody::IN_RECORD,
            KeptBody::Outside { place, .. } => place.name(),
            KeptBody::Omitted { .. } => KeptBody::OMITTED,
        }
    }

    /// The id of a body outside the record.
    pub const fn body_id(&self) -> Option<BodyId> {
        if let KeptBody::Outside { id, .. } = &self.body { Some(*id) } else { None }
    }

    /// The answer of work that no worker began.
    pub const fn abandoned() -> Self {
        Self { head: Head::Abandoned, body: KeptBody::Omitted { length: 0 } }
    }
}

/// Where the body of a kept answer is.
#[derive(Clone, PartialEq, Eq)]
pub enum KeptBody {
    /// In the record.
    Inline {
        /// The body, encoded.
        bytes: Bytes,
        /// How it is encoded.
        encoding: Encoding,
        /// Its length before encoding.
        length: u64,
    },
    /// Outside the record.
    Outside {
        /// Which body.
        id: BodyId,
        /// Where.
        place: Place,
        /// How it is encoded there.
        encoding: Encoding,
        /// Its length before encoding.
        length: u64,
    },
    /// Not kept: it was too large for every place, JSON cannot carry it, or it was removed. Replays return the head only.
    Omitted {
        /// Its original length.
        length: u64,
    },
}

impl KeptBody {
    /// The name of a body in its record, where no [`Place`] has one.
    pub const IN_RECORD: &str = "record";
    /// The name of a body that is not kept.
    pub const OMITTED: &str = "omitted";

    /// The body's length before encoding, even if the body is gone.
    pub const fn length(&self) -> u64 {
        match self {
            Self::Inline { length, .. } | Self::Outside { length, .. } | Self::Omitted { length } => *length,
        }
    }
}

impl fmt::Debug for KeptBody {
    /// Without the bytes: bodies do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline { encoding, length, .. } => write!(f, "Inline({}, {length} bytes)", encoding.name()),
            Self::Outside { id, place, length, .. } => {
                write!(f, "Outside({id:?}, {}, {length} bytes)", place.name())
            }
            Self::Omitted { length } => write!(f, "Omitted({length} bytes)"),
        }
    }
}

/// Where a body outside its record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a body item.
    BodyItem,
    /// In S3.
    S3,
}

names! { pub Place { BodyItem: "body_item", S3: "s3" } }

/// How a kept body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Not encoded.
    Identity,
    /// zlib (RFC 1950).
    Zlib,
}

names! { pub Encoding { Identity: "identity", Zlib: "zlib" } }

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(place: Place) -> KeptBody {
        KeptBody::Outside { id: BodyId::from([7; 16]), place, encoding: Encoding::Zlib, length: 9 }
    }

    // T36: records written today are read for as long as they can live.
    #[test]
    fn the_names_of_places_and_encodings_never_change() {
        assert!(Place::EACH.iter().map(|place| place.name()).eq(["body_item", "s3"]));
        assert_eq!(
            ["body_item", "s3", "record"].map(Place::parse),
            [Some(Place::BodyItem), Some(Place::S3), None]
        );
        assert!(Encoding::EACH.iter().map(|encoding| encoding.name()).eq(["identity", "zlib"]));
        let parsed = ["identity", "zlib", "br"].map(Encoding::parse);
        assert_eq!(parsed, [Some(Encoding::Identity), Some(Encoding::Zlib), None]);
    }

    #[test]
    fn a_stored_answer_records_its_bodys_place_and_length() {
        let inline =
            KeptBody::Inline { bytes: Bytes::from_static(b"{}"), encoding: Encoding::Identity, length: 2 };
        for (body, place, length, has_id) in [
            (inline, "record", 2, false),
            (outside(Place::BodyItem), "body_item", 9, true),
            (outside(Place::S3), "s3", 9, true),
            (KeptBody::Omitted { length: 5 }, "omitted", 5, false),
        ] {
            let kept = KeptAnswer { head: Head::Payload, body };
            assert_eq!((kept.body_place(), kept.body_length()), (place, length));
            assert_eq!(kept.body_id(), has_id.then_some(BodyId::from([7; 16])));
        }
    }

    #[test]
    fn only_the_status_of_a_final_response_can_head_an_answer() {
        for (status, is_final) in
            [(0, false), (100, false), (199, false), (200, true), (599, true), (600, false)]
        {
            assert_eq!(Head::Http { status, headers: [].into() }.is_final(), is_final, "{status}");
        }
        assert!(Head::Payload.is_final() && !Head::Abandoned.is_final());
    }

    #[test]
    fn a_record_keeps_only_answers_that_its_callers_can_read() {
        let (http, payload) = (Head::Http { status: 201, headers: [].into() }, Head::Payload);
        for (kind, takes) in [
            (AnswerKind::Http, [true, false, false, true]),
            (AnswerKind::Function, [false, true, true, true]),
        ] {
            let heads = [&http, &payload, &Head::Refusal, &Head::Abandoned];
            assert_eq!(heads.map(|head| kind.takes(head)), takes, "{kind:?}");
            assert_eq!(AnswerKind::parse(kind.name()), Some(kind));
        }
        assert!(AnswerKind::EACH.iter().map(|kind| kind.name()).eq(["http", "function"]));
        assert_eq!(AnswerKind::parse("queue"), None);
    }

    #[test]
    fn debug_output_never_shows_headers_or_body_of_a_kept_answer() {
        const TEXT: &str = "card 4242";
        let head = Head::Http { status: 201, headers: [("location".into(), TEXT.into())].into() };
        let bytes = Bytes::from_static(TEXT.as_bytes());
        let body = KeptBody::Inline { length: 9, bytes, encoding: Encoding::Identity };
        let shown = format!("{:?}", KeptAnswer { head, body });
        assert!(!shown.contains("4242"), "{shown}");
        assert!(shown.contains("201") && shown.contains("9 bytes") && shown.contains("identity"), "{shown}");
        assert_eq!(format!("{:?} {:?}", Head::Payload, Head::Abandoned), "payload abandoned");
        assert!(format!("{:?}", outside(Place::S3)).contains("s3"));
    }
}
