//! Times as values of headers.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;

use crate::time::Timestamp;

/// The instant as an HTTP date (RFC 9110, section 5.6.7), which ends with the year 9999.
pub(super) fn http_date(at: Timestamp) -> String {
    const LAST: u64 = 253_402_300_799_000;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(at.as_millis().min(LAST)))
}

/// A span in whole seconds, rounded up, at least one.
pub(super) fn seconds(span: Duration) -> HeaderValue {
    HeaderValue::from(u64::try_from(span.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1))
}
