//! Instants as HTTP dates.

use std::time::{Duration, UNIX_EPOCH};

use crate::time::Timestamp;

/// The instant as an HTTP date (RFC 9110, section 5.6.7), which ends with the year 9999.
pub(super) fn http_date(at: Timestamp) -> String {
    const LAST: u64 = 253_402_300_799_000;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(at.as_millis().min(LAST)))
}
