//! The response that a client gets instead of an answer: a problem, with its status and headers.

use std::{
    panic::{self, AssertUnwindSafe},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, LINK, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::Full;

use super::{Problem, Profile, tenant::BEARER};
use crate::time_budget::DEFAULT_RETRY_AFTER;

impl Problem {
    /// The response, in the words of `profile`.
    pub fn into_response(self, profile: &Profile) -> Response<Full<Bytes>> {
        let response = self.standard(profile);
        let Some(words) = &profile.words else { return response.map(Full::new) };
        let (status, standard) = (response.status(), response.headers().clone());
        let own = panic::catch_unwind(AssertUnwindSafe(|| words.of(&self, response)));
        let Ok(mut own) = own else {
            tracing::error!("Profile::custom panicked: the problem has the words of the IETF draft");
            return self.standard(profile).map(Full::new);
        };
        for name in [CACHE_CONTROL, LINK, RETRY_AFTER, WWW_AUTHENTICATE] {
            if let (false, Some(value)) = (own.headers().contains_key(&name), standard.get(&name)) {
                own.headers_mut().insert(name, value.clone());
            }
        }
        let is_error = own.status().is_client_error() || own.status().is_server_error();
        let mut own = own.map(Full::new);
        if !is_error {
            // Clients would take the refusal for a success.
            tracing::error!(
                status = own.status().as_u16(),
                "Profile::custom gives a problem a status that is no error: it is not used"
            );
            *own.status_mut() = status;
        }
        own
    }

    fn standard(&self, profile: &Profile) -> Response<Bytes> {
        let Self { problem, reason, .. } = *self;
        let status = self.status.unwrap_or_else(|| profile.status_of(problem));
        let body = profile.shape.write(problem, status, &self.explained(), reason, profile.links());
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, profile.shape.content_type());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            // Required by RFC 9110, section 15.5.2. Callers are verified in front of the function, not by it.
            let challenge = HeaderValue::from_str(self.challenge);
            headers.insert(WWW_AUTHENTICATE, challenge.unwrap_or(HeaderValue::from_static(BEARER)));
        }
        let retry = problem.entry().retry.then_some(DEFAULT_RETRY_AFTER);
        if let Some(wait) = self.retry_after.or(retry) {
            headers.insert(RETRY_AFTER, seconds(wait));
        }
        if let Some(url) = &profile.documentation {
            let link = format!("<{url}>; rel=\"describedby\"; type=\"text/html\"");
            if let Ok(link) = HeaderValue::try_from(link) {
                headers.insert(LINK, link);
            }
        }
        response
    }
}

/// A duration in whole seconds, rounded up, at least one.
pub(super) fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1))
}
