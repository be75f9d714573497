//! Which headers are kept, and how a kept response becomes a response again.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION,
        CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK, LOCATION, VARY,
    },
};
use http_body_util::Full;

use super::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY};
use crate::{executor::Replay, time::Timestamp};

/// The headers that are kept with a response, and no others: they describe the content and where it is. What
/// belongs to one connection, one moment or one caller (`Set-Cookie`, `Authorization`, `Date`, hop-by-hop headers) is
/// not replayed. Add your own with [`Idempotency::keep_header`](super::Idempotency::keep_header).
pub const SAFE_HEADERS: [HeaderName; 11] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LOCATION,
    CONTENT_TYPE,
    ETAG,
    LAST_MODIFIED,
    LINK,
    LOCATION,
    VARY,
];

/// What no configuration can make kept.
const NEVER_KEPT: [&str; 18] = [
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "date",
    "idempotency-expires",
    "idempotent-replayed",
    "idempotent-replayed-body",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// Whether a header may be kept at all.
pub(super) fn may_be_kept(name: &HeaderName) -> bool {
    !NEVER_KEPT.contains(&name.as_str())
}

/// The headers of a response that are kept: safe ones, and `also`, where their values are text.
pub(super) fn kept_headers(headers: &HeaderMap, also: &[HeaderName]) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, _)| SAFE_HEADERS.contains(name) || also.contains(name))
        .filter_map(|(name, value)| {
            let value = std::str::from_utf8(value.as_bytes()).ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        })
        .collect()
}

/// The response that was kept, byte for byte, and marked as a replay.
pub(super) fn response(replay: Replay) -> Response<Full<Bytes>> {
    // A body that was too large to be kept is missing, and says so.
    let omitted = replay.body.is_none();
    let mut response = Response::new(Full::new(replay.body.unwrap_or_default()));
    *response.status_mut() = StatusCode::from_u16(replay.response.status).unwrap_or_default();
    let headers = response.headers_mut();
    for (name, value) in &replay.response.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.append(name, value);
        }
    }
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    if omitted {
        headers.insert(IDEMPOTENT_REPLAYED_BODY, HeaderValue::from_static("omitted"));
    }
    tell_expiry(headers, replay.expires_at);
    response
}

/// Tells until when the answer is replayed.
pub(super) fn tell_expiry(headers: &mut HeaderMap, expires_at: Timestamp) {
    if let Ok(date) = HeaderValue::try_from(expires_at.to_http_date()) {
        headers.insert(IDEMPOTENCY_EXPIRES, date);
    }
}
