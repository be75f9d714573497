//! The data of a record: bytes in base64, which are text, perhaps compressed.

use std::io::Read;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::MultiGzDecoder;

use crate::event::disposition::{Again, Disposition};

/// As gzip begins. No text in UTF-8 begins so.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// As an aggregate of the Kinesis Producer Library begins.
const AGGREGATE: [u8; 4] = [0xf3, 0x89, 0x9a, 0xc2];

/// The longest data that is unpacked.
const MAX: usize = 8 * 1024 * 1024;

/// How much the data of a batch may have together, once it is unpacked: a few kilobytes can say that they are megabytes.
const MAX_OF_BATCH: usize = 8 * MAX;

/// What is left for the data of a batch that is unpacked.
pub(in crate::event) struct Room(usize);

impl Room {
    /// All of it.
    pub(in crate::event) fn of_batch() -> Self {
        Self(MAX_OF_BATCH)
    }
}

fn never(reason: &str) -> Disposition {
    Disposition::Dead(reason.to_owned())
}

/// The bytes.
pub(super) fn bytes(base64: &str) -> Result<Vec<u8>, Disposition> {
    BASE64_STANDARD.decode(base64).map_err(|_| never("its data is not base64"))
}

/// The text.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, Disposition> {
    String::from_utf8(bytes).map_err(|_| never("its data is no text in UTF-8"))
}

/// The text of a record of Kinesis.
pub(super) fn of_kinesis(base64: &str, room: &mut Room) -> Result<String, Disposition> {
    let bytes = bytes(base64)?;
    if bytes.starts_with(&AGGREGATE) {
        return Err(never(
            "it holds several records of the Kinesis Producer Library, which would be several effects of one record: switch its aggregation off",
        ));
    }
    text(if bytes.starts_with(&GZIP) { unpacked(&bytes, room)? } else { bytes })
}

/// The text that is compressed there.
pub(super) fn compressed(base64: &str, room: &mut Room) -> Result<String, Disposition> {
    text(unpacked(&bytes(base64)?, room)?)
}

/// What is in this gzip, of all its members. What is read counts, though it may be of no use.
fn unpacked(bytes: &[u8], Room(left): &mut Room) -> Result<Vec<u8>, Disposition> {
    let mut unpacked = Vec::new();
    let most = MAX.min(*left);
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut unpacked);
    *left = left.saturating_sub(unpacked.len());
    match read {
        Err(_) => Err(never("its data is no valid gzip")),
        Ok(_) if unpacked.len() > MAX => Err(never("its data is longer than 8 MiB unpacked")),
        // In the next batch it is nearer to the front.
        Ok(_) if unpacked.len() > most => Err(Disposition::Again(Again::NoRoom)),
        Ok(_) => Ok(unpacked),
    }
}
