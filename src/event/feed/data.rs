//! The data of a record: bytes in base64, which are text, perhaps compressed.

use std::io::Read;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::GzDecoder;

/// As gzip begins. No text in UTF-8 begins so.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// As an aggregate of the Kinesis Producer Library begins.
const AGGREGATE: [u8; 4] = [0xf3, 0x89, 0x9a, 0xc2];

/// The longest text.
const MAX: usize = 8 * 1024 * 1024;

/// The text.
///
/// # Errors
/// Why there is none.
pub(super) fn text(base64: &str) -> Result<String, &'static str> {
    let bytes = BASE64_STANDARD.decode(base64).map_err(|_| "its data is not base64")?;
    if bytes.starts_with(&AGGREGATE) {
        return Err(
            "it holds several records of the Kinesis Producer Library, which would be several effects of one record: switch its aggregation off",
        );
    }
    let bytes = if bytes.starts_with(&GZIP) { unpacked(&bytes)? } else { bytes };
    String::from_utf8(bytes).map_err(|_| "its data is no text in UTF-8")
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut unpacked = Vec::new();
    let most = u64::try_from(MAX).unwrap_or(u64::MAX).saturating_add(1);
    GzDecoder::new(bytes).take(most).read_to_end(&mut unpacked).map_err(|_| "its data is no valid gzip")?;
    if unpacked.len() > MAX { Err("its data is longer than 8 MiB unpacked") } else { Ok(unpacked) }
}
