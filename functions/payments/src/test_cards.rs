//! Test cards that make this function fail on purpose: for the local cloud, behind a feature that no deployment has.
//! The test cards of the provider make the *provider* fail. A transfer has the member `test` for that.

use axum::{
    Extension,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use reqwest::Url;

/// `tok_refused`: sends the charge to a closed port, so that the connection is really refused.
pub(crate) fn provider_url(source: &str, mut url: Url) -> Url {
    if source == "tok_refused" {
        // Port 1 of this machine (tcpmux) is privileged, and has no server.
        let _ = url.set_host(Some("127.0.0.1"));
        let _ = url.set_port(Some(1));
    }
    url
}

/// `tok_panic_before`, `tok_crash_before`.
pub(crate) fn before_charge(source: &str) {
    match source {
        "tok_panic_before" => panic!("test card: panic before the charge"),
        "tok_crash_before" => std::process::abort(),
        _ => {}
    }
}

/// `tok_panic_after`, `tok_crash_after`, `tok_error`.
pub(crate) fn after_charge(source: &str) -> Option<Response> {
    match source {
        "tok_panic_after" => panic!("test card: panic after the charge"),
        "tok_crash_after" => std::process::abort(),
        "tok_error" => {
            Some((StatusCode::INTERNAL_SERVER_ERROR, "test card: an error without a class").into_response())
        }
        _ => None,
    }
}

/// Kills the process once a response that carries it leaves the guard.
#[derive(Clone, Copy)]
struct CrashAfterCommit;

/// `crash_before`, `crash_after`.
pub(crate) fn of_transfer(test: Option<&str>, response: Response) -> Response {
    match test {
        Some("crash_before") => std::process::abort(),
        Some("crash_after") => (Extension(CrashAfterCommit), response).into_response(),
        _ => response,
    }
}

/// A layer outside of the guard.
pub(crate) async fn after_commit(response: Response) -> Response {
    if response.extensions().get::<CrashAfterCommit>().is_some() {
        std::process::abort();
    }
    response
}
