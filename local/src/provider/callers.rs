//! Who calls the provider, and how late it answers.

use crate::journal::Shared;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, Method, Uri},
    response::{IntoResponse, Response},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time;
use tower::ServiceExt;

/// How late the provider answers requests that change something.
#[derive(Clone, Debug, Default)]
pub struct Slowness(Arc<AtomicU64>);

impl Slowness {
    pub fn set(&self, delay: Duration) {
        self.0.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The provider's URL for this environment.
pub fn from(url: &str, function: &str, number: usize) -> String {
    format!("{url}/from/{function}/{number}")
}

/// The provider, which answers late, and whose calls are recorded in the journal.
pub fn recorded(provider: Router, journal: Shared, slowness: Slowness) -> Router {
    Router::new().fallback(call).with_state(Recorded { provider, journal, slowness })
}

#[derive(Clone)]
struct Recorded {
    provider: Router,
    journal: Shared,
    slowness: Slowness,
}

async fn call(State(state): State<Recorded>, mut request: Request) -> Response {
    let environment = take_environment(request.uri_mut());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let open = key(request.headers(), &path).and_then(|key| {
        let timeline = state.journal.called(environment.as_deref(), &key, &asked(&method, &path))?;
        Some(OpenCall { journal: state.journal.clone(), timeline, is_answered: false })
    });
    let Recorded { provider, slowness, .. } = state;
    let delay = slowness.get();
    let answer = match method == Method::POST && !delay.is_zero() {
        // In a task of its own: what has begun is done, even if its caller leaves.
        true => tokio::spawn(async move {
            time::sleep(delay).await;
            provider.oneshot(request).await
        })
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())),
        false => provider.oneshot(request).await,
    };
    let answer = answer.into_response();
    if let Some(mut open) = open {
        open.is_answered = true;
        open.journal.provider(open.timeline, &format!("answers {}", answer.status().as_u16()));
    }
    answer
}

/// A call that the journal has, until it is answered.
struct OpenCall {
    journal: Shared,
    timeline: u64,
    is_answered: bool,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.is_answered {
            self.journal.provider(self.timeline, "has not answered: its caller is gone");
        }
    }
}

/// The key of a call: that of its header, or the end of its path.
fn key(headers: &HeaderMap, path: &str) -> Option<String> {
    let header = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let key = header.or_else(|| path.trim_start_matches('/').split_once('/').map(|(_, key)| key))?;
    Some(key.to_owned()).filter(|key| !key.is_empty())
}

/// What a call asks for, without its key.
fn asked(method: &Method, path: &str) -> String {
    let what = path.split('/').nth(1).unwrap_or_default();
    match *method {
        Method::GET => format!("asks the provider: GET /{what}/…"),
        _ => format!("calls the provider: {method} /{what}"),
    }
}

/// Takes the environment off the path that [`from`] has made.
fn take_environment(uri: &mut Uri) -> Option<String> {
    let all = uri.path_and_query()?.as_str().strip_prefix("/from/")?;
    let mut parts = all.splitn(3, '/');
    let (function, number, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let environment = format!("{function}#{number}");
    *uri = format!("/{rest}").parse().ok()?;
    Some(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_key_of_its_header_or_path() {
        let mut headers = HeaderMap::new();
        let key = |headers: &HeaderMap, path: &str| super::key(headers, path);
        assert_eq!(key(&headers, "/charges/k-1").as_deref(), Some("k-1"));
        assert_eq!((key(&headers, "/charges"), key(&headers, "/charges/")), (None, None));
        headers.insert("idempotency-key", "k-2".parse().unwrap());
        assert_eq!(key(&headers, "/charges").as_deref(), Some("k-2"));
    }

    #[test]
    fn an_environment_is_taken_off_the_path() {
        for (path, environment, rest) in [
            ("/from/payments/2/charges/a%2Fb?x=1", Some("payments#2"), "/charges/a%2Fb?x=1"),
            ("/charges?x=/from/a/1/", None, "/charges?x=/from/a/1/"),
            ("/from/payments", None, "/from/payments"),
        ] {
            let mut uri: Uri = path.parse().unwrap();
            assert_eq!((take_environment(&mut uri).as_deref(), &*uri.to_string()), (environment, rest));
        }
        let url = from("http://127.0.0.1:1", "payments", 2);
        assert_eq!(url, "http://127.0.0.1:1/from/payments/2");
    }
}
