//! The headers of a replay: the kept headers of the answer, and the headers that the guard adds.

use crate::fingerprint::is_header_name;

/// The header with the client's key.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The header that marks a replay.
pub(crate) const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";

/// The header of an answer without its body.
pub(crate) const IDEMPOTENT_REPLAYED_BODY: &str = "idempotent-replayed-body";

/// The header that says until when an answer is replayed.
pub(crate) const IDEMPOTENCY_EXPIRES: &str = "idempotency-expires";

/// The header that says how long answers are replayed.
pub(crate) const IDEMPOTENCY_RETENTION: &str = "idempotency-retention";

/// The only headers kept with an answer by default: those that describe the content and its location. Headers of one
/// connection, one moment or one caller (`Set-Cookie`, `Authorization`, `Date`, hop-by-hop headers) are not replayed. Add
/// your own with [`Operation::keep_header`](crate::operation::Operation::keep_header).
///
/// `Content-Security-Policy` and `X-Content-Type-Options` are kept because they describe this content (a policy can name a
/// nonce in the body), `Allow`, `Accept`, `Accept-Patch`, `Accept-Post` and `Content-Range` because a 405, 415, 206 or 416 must have them,
/// `Preference-Applied` because the answer depends on it, and `Idempotent-Replayed-Body` because a body that another service
/// left out stays missing. `X-Lambda-Http-Content-Encoding` says to `lambda_http` whether the body is text. Not kept: CORS headers, which answer
/// the origin of one request (a CORS layer belongs outside the guard); `Age`, `Date` and `Retry-After`, which describe one moment;
/// `WWW-Authenticate`, which is a challenge to one request; request and trace ids, because each request has its own. Nor is `Cache-Control`:
/// a replay is `no-store`.
pub const SAFE_HEADERS: [&str; 22] = [
    "accept",
    "accept-patch",
    "accept-post",
    "allow",
    "content-digest",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-security-policy",
    "content-type",
    "etag",
    IDEMPOTENT_REPLAYED_BODY,
    "last-modified",
    "link",
    "location",
    "preference-applied",
    "repr-digest",
    "vary",
    "x-content-type-options",
    "x-lambda-http-content-encoding",
];

/// Headers that are never kept, whatever the configuration.
const NEVER_KEPT: [&str; 21] = [
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-length",
    "cookie",
    "date",
    IDEMPOTENCY_EXPIRES,
    IDEMPOTENCY_KEY,
    IDEMPOTENCY_RETENTION,
    IDEMPOTENT_REPLAYED,
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

/// Whether a header may be kept at all, given its name in lower case. By default only [`SAFE_HEADERS`] are.
pub fn may_be_kept(name: &str) -> bool {
    is_header_name(name) && !NEVER_KEPT.contains(&name)
}

/// Whether this header is kept, if the operation keeps `also`.
pub(crate) fn is_kept(name: &str, also: &[String]) -> bool {
    let is = |kept: &str| name.eq_ignore_ascii_case(kept);
    SAFE_HEADERS.into_iter().any(is) || also.iter().any(|kept| is(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    // T26
    #[test]
    fn headers_of_one_connection_or_one_caller_are_never_kept() {
        for name in [
            "age",
            "authorization",
            "cache-control",
            "connection",
            "content-length",
            "cookie",
            "date",
            "idempotency-expires",
            "idempotency-key",
            "idempotency-retention",
            "idempotent-replayed",
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
        ] {
            assert!(!may_be_kept(name) && !is_kept(name, &[]), "{name}");
        }
        assert!(may_be_kept("x-request-id") && !is_kept("x-request-id", &[]));
        for name in [
            "Accept",
            "Accept-Patch",
            "Accept-Post",
            "Allow",
            "Content-Digest",
            "Content-Disposition",
            "Content-Encoding",
            "Content-Language",
            "Content-Location",
            "Content-Range",
            "Content-Security-Policy",
            "Content-Type",
            "ETag",
            "Idempotent-Replayed-Body",
            "Last-Modified",
            "Link",
            "Location",
            "Preference-Applied",
            "Repr-Digest",
            "Vary",
            "X-Content-Type-Options",
            "X-Lambda-Http-Content-Encoding",
        ] {
            assert!(may_be_kept(&name.to_ascii_lowercase()) && is_kept(name, &[]), "{name}");
        }
        for invalid in ["", "two words", "colon:", "l\u{f6}we"] {
            assert!(!may_be_kept(invalid), "{invalid:?}");
        }
    }
}
