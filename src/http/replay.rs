//! Applies `headers.rs`: makes the answer to keep from a response, and a response from a kept answer.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::CACHE_CONTROL, response};
use http_body_util::Full;

use super::{
    IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, Outcome, Problem, ProblemType, Profile, deliver,
    guarded::{By, Guarded},
    settings::Guard,
};
use crate::{
    engine::Replay,
    headers::{is_kept, may_be_kept},
    operation::How,
    record::{Answer, Head},
    time::Timestamp,
};

impl Guard {
    /// The answer that is kept of a handler's response: its safe headers, and those that the operation keeps too. A header whose
    /// value is not UTF-8 is left out, as it is when the answer is [delivered](deliver::clean).
    pub(super) fn kept(&self, parts: &response::Parts, body: &Bytes) -> Answer {
        let text = |name: &HeaderName, value: &HeaderValue| {
            let text = std::str::from_utf8(value.as_bytes()).ok()?;
            Some((name.as_str().to_owned(), text.to_owned()))
        };
        let also = &self.operation().keeps.headers;
        let kept = parts.headers.iter().filter(|(name, _)| is_kept(name.as_str(), also));
        let headers = kept.filter_map(|(name, value)| text(name, value)).collect();
        Answer::http(parts.status.as_u16(), headers, body.clone())
    }
}

/// The answer of a refused domain write, to the request whose write was refused.
pub(super) fn first(answer: Answer, expires_at: Option<Timestamp>) -> Response<Full<Bytes>> {
    let mut response = of_answer(answer);
    response.extensions_mut().insert(Guarded::executed(Outcome::Completed));
    add_expiry(response.headers_mut(), expires_at);
    response
}

/// The kept answer, byte for byte, marked as a replay. For an abandoned operation, the problem in the words of `profile`.
pub(super) fn response(replay: Replay, profile: &Profile) -> Response<Full<Bytes>> {
    let Replay { answer: Answer { head, body }, body_omitted, first_at, expires_at } = replay;
    let mut response = match head {
        Head::Abandoned => Problem::new(ProblemType::Abandoned).into_response(profile),
        head => {
            let mut response = of_answer(Answer { head, body });
            if body_omitted {
                // The body was too large to be kept, or is never kept.
                deliver::omit(response.headers_mut());
            }
            response
        }
    };
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    // It may be a day old: a cache would store it as a fresh representation of its `Content-Location`, or of the operation's status (T82).
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // For a guard around this one: whatever its status, it is the operation's answer.
    response.extensions_mut().insert(Outcome::Completed);
    let by = By::Handler(How::Replayed { first_at }, Outcome::Completed);
    response.extensions_mut().insert(Guarded::of(by));
    add_expiry(response.headers_mut(), Some(expires_at));
    response
}

/// An answer as a response.
pub(super) fn of_answer(Answer { head, body }: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(head.http_status()).unwrap_or_default();
    // Checked again: a record that was edited by hand may have others.
    let replayed = head.headers().iter().filter(|(name, _)| may_be_kept(&name.to_ascii_lowercase()));
    for (name, value) in replayed {
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// The instant as an HTTP date (RFC 9110, section 5.6.7), which ends with the year 9999.
pub(super) fn http_date(at: Timestamp) -> String {
    const LAST: u64 = 253_402_300_799_000;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(at.as_millis().min(LAST)))
}

/// Adds the time until which the answer is replayed, if it is known.
pub(super) fn add_expiry(headers: &mut HeaderMap, expires_at: Option<Timestamp>) {
    if let Some(Ok(date)) = expires_at.map(|at| HeaderValue::try_from(http_date(at))) {
        headers.insert(IDEMPOTENCY_EXPIRES, date);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T26: a record that was edited by hand.
    #[test]
    fn no_kept_header_splits_an_answer() {
        let headers = [
            ("x-note", "a\r\nset-cookie: b"),
            ("x-note\r\nset-cookie", "b"),
            ("x-note", "a\nb"),
            ("x-note", "a\0b"),
            ("set-cookie", "a=1"),
            ("location", "/payments/1"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let response = of_answer(Answer::http(200, headers, Bytes::new()));
        let names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["location"]);
    }
}
