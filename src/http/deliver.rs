//! What the runtime and the front of an API can deliver: headers that are text, in lines that the front takes (T73), and a body within its bound,
//! which counts the encoded response, with JSON's escapes or base64 (T59).

use std::mem;

use super::{IDEMPOTENT_REPLAYED_BODY, front::Front};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, SET_COOKIE, TRAILER},
    request::Parts,
};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};

/// What Lambda takes from a function
/// (<https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html>).
const OF_LAMBDA: usize = 6 * 1024 * 1024;

/// What a load balancer takes from a function, "1 MB"
/// (<https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html>).
const OF_LOAD_BALANCER: usize = 1_000_000;

/// The document around head and body, and what a front adds to it.
const AROUND: usize = 16 * 1024;

/// The longest encoding of one byte in JSON: `\u001f`.
const LONGEST_ESCAPE: usize = 6;

impl Front {
    /// How long an encoded response it takes.
    fn limit(self) -> usize {
        if self == Self::LoadBalancer { OF_LOAD_BALANCER } else { OF_LAMBDA }
    }
}

/// The response to this request, as its front takes it: for a response that no guard returns, such as
/// [`operation_status`](super::operation_status). A body that the front would refuse is left out, and the response has
/// [`Idempotent-Replayed-Body: omitted`](IDEMPOTENT_REPLAYED_BODY). Lambda takes 6 MiB, and a load balancer 1 MB, of the encoded response. A
/// request that does not come from Lambda has no bound.
pub fn deliverable(request: &Parts, response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    deliver(Front::of(&request.extensions), false, response)
}

/// A response as this front takes it. Its body has any size if something outside makes it shorter, or streams it.
pub(super) fn deliver(
    front: Option<Front>,
    any_size: bool,
    mut response: Response<Full<Bytes>>,
) -> Response<Full<Bytes>> {
    clean(response.headers_mut(), front);
    within(front.filter(|_| !any_size).map(Front::limit), response)
}

/// Leaves out what cannot be sent, and joins lines of one name for a front that takes one line (T73).
///
/// A value that is not UTF-8 fails `lambda_runtime`, which then ends the process. A cookie that is not ASCII becomes an empty one in format
/// 2.0. Bodies are sent whole, so there are no trailers to announce.
pub(crate) fn clean(headers: &mut HeaderMap, front: Option<Front>) {
    let is_sent = |name: &HeaderName, value: &HeaderValue| match front {
        Some(Front::OneLine) if name == SET_COOKIE => value.to_str().is_ok(),
        _ => std::str::from_utf8(value.as_bytes()).is_ok(),
    };
    headers.remove(TRAILER);
    let joins = matches!(front, Some(Front::OneLine | Front::LoadBalancer));
    let is_joined = !joins || headers.len() == headers.keys_len();
    if is_joined && headers.iter().all(|(name, value)| is_sent(name, value)) {
        return;
    }
    let set = mem::take(headers);
    for name in set.keys() {
        let (sent, unsent): (Vec<_>, Vec<_>) =
            set.get_all(name).iter().partition(|value| is_sent(name, value));
        if !unsent.is_empty() {
            tracing::warn!(header = %name, "this header cannot be sent, because it is not UTF-8, or a cookie that is not ASCII: it is left out");
        }
        if joins && name != SET_COOKIE && sent.len() > 1 {
            let lines: Vec<&[u8]> = sent.iter().map(|line| line.as_bytes()).collect();
            headers.extend(
                HeaderValue::from_bytes(&lines.join(&b", "[..])).ok().map(|joined| (name.clone(), joined)),
            );
        } else {
            for line in sent {
                headers.append(name, line.clone());
            }
        }
    }
}

/// The response, without its body if it is longer than this, encoded: its client would get an error instead of the operation's answer.
fn within(limit: Option<usize>, response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let Some(limit) = limit else { return response };
    let length = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    let rest = AROUND.saturating_add(head(response.headers()));
    // Of most responses it need not be counted.
    if length.saturating_mul(LONGEST_ESCAPE).saturating_add(rest) <= limit {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = body.collect().now_or_never().and_then(Result::ok).map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    let encoded = encoded(&parts.headers, &body).unwrap_or(usize::MAX);
    if encoded.saturating_add(rest) <= limit {
        return Response::from_parts(parts, Full::new(body));
    }
    tracing::error!(encoded, limit, "the front of this API cannot deliver this answer's body: it is omitted");
    omit(&mut parts.headers);
    Response::from_parts(parts, Full::new(Bytes::new()))
}

/// Says that there is no body, and nothing else of it: not its length, coding, range or digest
/// ([RFC 9530](https://www.rfc-editor.org/rfc/rfc9530#section-2)).
pub(super) fn omit(headers: &mut HeaderMap) {
    for name in [CONTENT_LENGTH.as_str(), CONTENT_ENCODING.as_str(), CONTENT_RANGE.as_str(), "content-digest"]
    {
        headers.remove(name);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(IDEMPOTENT_REPLAYED_BODY, HeaderValue::from_static("omitted"));
}

/// At most how many bytes the headers have: a load balancer gets each twice.
fn head(headers: &HeaderMap) -> usize {
    let lengths = headers.iter().map(|(name, value)| name.as_str().len() + 2 * value.len() + 8);
    2 * lengths.sum::<usize>()
}

/// How long the body is in Lambda's response, as `lambda_http` writes it there.
#[cfg(feature = "lambda-http")]
fn encoded(headers: &HeaderMap, body: &Bytes) -> Option<usize> {
    use lambda_http::{Body, IntoResponse};

    let mut response = Response::new(Full::new(body.clone()));
    *response.headers_mut() = headers.clone();
    Some(match response.into_response().now_or_never()?.into_body() {
        Body::Text(text) => serde_json::to_string(&text).ok()?.len(),
        Body::Binary(bytes) => 4 * bytes.len().div_ceil(3),
        _ => 0,
    })
}

#[cfg(not(feature = "lambda-http"))]
fn encoded(_: &HeaderMap, body: &Bytes) -> Option<usize> {
    Some(body.len())
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;

    use super::*;

    // T73
    #[test]
    fn only_a_front_of_one_line_gets_joined_lines_and_no_cookies() {
        let set = |value: &'static [u8]| HeaderValue::from_bytes(value).unwrap();
        for (front, links, cookies) in [
            (None, 2, 3),
            (Some(Front::AllLines), 2, 3),
            (Some(Front::LoadBalancer), 1, 3),
            // There, a cookie that is not ASCII would be an empty one.
            (Some(Front::OneLine), 1, 2),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("link", &b"</1>"[..]),
                ("link", b"</2>"),
                ("link", b"<\xff>"),
                ("set-cookie", b"a=1"),
                ("set-cookie", b"b=2"),
                ("set-cookie", "c=\u{e9}".as_bytes()),
                ("x-alone", b"\xff"),
                ("trailer", b"x"),
                ("x-empty", b""),
            ] {
                headers.append(name, set(value));
            }
            clean(&mut headers, front);
            assert_eq!(headers.get_all("link").iter().count(), links, "{front:?}");
            assert_eq!(headers.get("link").unwrap(), if links == 1 { "</1>, </2>" } else { "</1>" });
            assert_eq!(headers.get_all("set-cookie").iter().count(), cookies, "{front:?}");
            assert_eq!(headers.get("x-empty").unwrap(), "");
            assert!(!headers.contains_key("x-alone") && !headers.contains_key("trailer"));
        }
    }

    // T59
    #[test]
    fn a_body_is_counted_as_lambda_http_encodes_it() {
        for (kind, coding, body, length) in [
            (None, None, &b"plain"[..], 7),
            (Some("application/json"), None, b"\"a\\b\n\x01", 16),
            (Some("application/json"), Some("gzip"), b"1234", 8),
            (Some("application/octet-stream"), None, b"1234", 8),
            // Converted: two bytes of UTF-8 for each of Latin 1.
            (Some("text/html; charset=iso-8859-1"), None, b"\xfc\xfc", 6),
            (Some("application/problem+json ; charset=utf-8"), None, b"1234", 8),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [(CONTENT_TYPE, kind), (CONTENT_ENCODING, coding)] {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            assert_eq!(
                encoded(&headers, &Bytes::from_static(body)),
                Some(length),
                "{kind:?} {coding:?} {body:?}"
            );
        }
    }

    // T59
    #[test]
    fn a_body_is_omitted_only_beyond_the_fronts_bound() {
        let of = |length: usize, kind: &'static str| {
            let mut response = Response::new(Full::new(Bytes::from(vec![b'"'; length])));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            response
        };
        let (half, third) = ((OF_LAMBDA - AROUND) / 2, (OF_LAMBDA - AROUND) / 4 * 3);
        for (response, limit, omitted) in [
            (of(half - 200, "application/json"), Some(OF_LAMBDA), false),
            (of(half, "application/json"), Some(OF_LAMBDA), true),
            (of(half, "application/json"), None, false),
            (of(third - 200, "image/png"), Some(OF_LAMBDA), false),
            (of(third, "image/png"), Some(OF_LAMBDA), true),
            (of(OF_LOAD_BALANCER / 2, "text/plain"), Some(OF_LOAD_BALANCER), true),
            (of(OF_LOAD_BALANCER / 4, "text/plain"), Some(OF_LOAD_BALANCER), false),
        ] {
            let length = response.body().size_hint().lower();
            let delivered = within(limit, response);
            let says = delivered.headers().get(IDEMPOTENT_REPLAYED_BODY).is_some();
            assert_eq!(
                (says, delivered.body().size_hint().lower()),
                (omitted, if omitted { 0 } else { length })
            );
            assert_eq!(delivered.headers().contains_key(CONTENT_LENGTH), !omitted);
        }
    }
}
