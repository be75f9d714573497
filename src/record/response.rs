//! The answer that a record keeps for replays.

use std::fmt;

use bytes::Bytes;
use uuid::Uuid;

use super::nonce;

nonce! {
    /// The mark of a body that is kept outside its record. Fresh for each, so that no two writers can meet in one.
    BodyId
}

/// A response as it is kept: status, the headers that may be kept, and the body or where it is.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptResponse {
    /// The status code.
    pub status: u16,
    /// Name and value of each kept header, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: KeptBody,
}

impl fmt::Debug for KeptResponse {
    /// Without the headers' values: a location can name what nobody else should know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptResponse({}, {} headers, {:?})", self.status, self.headers.len(), self.body)
    }
}

/// Where the body of a kept response is.
#[derive(Clone, PartialEq, Eq)]
pub enum KeptBody {
    /// In the record.
    Inline {
        /// The body, encoded.
        bytes: Bytes,
        /// How.
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
    /// Nowhere: it was too large for every place there is. Replays have status and headers only.
    Omitted {
        /// The length that it had.
        length: u64,
    },
}

impl KeptBody {
    /// How long the body is, or was, before encoding.
    pub const fn length(&self) -> u64 {
        match self {
            Self::Inline { length, .. } | Self::Outside { length, .. } | Self::Omitted { length } => *length,
        }
    }
}

impl fmt::Debug for KeptBody {
    /// Without the bytes: bodies do not belong into logs.
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
#[non_exhaustive]
pub enum Place {
    /// In an item beside the record.
    Beside,
    /// In S3.
    S3,
}

impl Place {
    /// The place's name in items.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Beside => "beside",
            Self::S3 => "s3",
        }
    }

    /// Reads a [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Beside, Self::S3].into_iter().find(|place| place.name() == name)
    }
}

/// How a kept body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// As it is.
    Identity,
    /// zlib (RFC 1950).
    Zlib,
}

impl Encoding {
    /// The encoding's name in items.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Zlib => "zlib",
        }
    }

    /// Reads a [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Identity, Self::Zlib].into_iter().find(|encoding| encoding.name() == name)
    }
}
