//! Which headers are kept, and how a kept response becomes a response again.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::{
    IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, IDEMPOTENT_REPLAYED_BODY, Outcome, Problem, ProblemType,
    Profile, date::http_date,
};
use crate::{
    engine::{Execution, Replay},
    record::{Answer, Head, is_kept, may_be_kept},
    time::Timestamp,
};

/// The headers of a response that are kept: safe ones, and `also`. One whose value is not UTF-8 cannot be, which is logged.
pub(super) fn kept_headers(
    execution: &Execution,
    headers: &HeaderMap,
    also: &[String],
) -> Vec<(String, String)> {
    let text = |name: &HeaderName, value: &HeaderValue| {
        let text = std::str::from_utf8(value.as_bytes()).inspect_err(|_| {
            let (key, operation) = (execution.record_key().hash(), execution.operation());
            tracing::warn!(%key, %operation, header = %name, "this header is not UTF-8: replays go without it");
        });
        text.ok().map(|text| (name.as_str().to_owned(), text.to_owned()))
    };
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str(), also));
    kept.filter_map(|(name, value)| text(name, value)).collect()
}

/// The answer that was kept, byte for byte, and marked as a replay. One that says that nobody began is said in the words of
/// `profile`.
pub(super) fn response(replay: Replay, profile: &Profile) -> Response<Full<Bytes>> {
    let Replay { answer: Answer { head, body }, body_omitted, expires_at } = replay;
    let mut response = match head {
        Head::Abandoned => Problem::new(ProblemType::Abandoned).into_response(profile),
        head => {
            let mut response = of_answer(Answer { head, body });
            if body_omitted {
                // A body that was too large to be kept is missing, and says so.
                let omitted = HeaderValue::from_static("omitted");
                response.headers_mut().insert(IDEMPOTENT_REPLAYED_BODY, omitted);
            }
            response
        }
    };
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    // To a guard around this one: whatever its status, it is the operation's answer.
    response.extensions_mut().insert(Outcome::Completed);
    tell_expiry(response.headers_mut(), expires_at);
    response
}

/// An answer as a response.
pub(super) fn of_answer(Answer { head, body }: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    let status = head.status().and_then(|status| StatusCode::from_u16(status).ok());
    *response.status_mut() = status.unwrap_or_default();
    // What an earlier version kept, or another hand wrote, is held to the same rule.
    let replayed = head.headers().iter().filter(|(name, _)| may_be_kept(&name.to_ascii_lowercase()));
    for (name, value) in replayed {
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// Tells until when the answer is replayed.
pub(super) fn tell_expiry(headers: &mut HeaderMap, expires_at: Timestamp) {
    if let Ok(date) = HeaderValue::try_from(http_date(expires_at)) {
        headers.insert(IDEMPOTENCY_EXPIRES, date);
    }
}
