//! Who may call an address of this cloud: programs of this machine, and its own page.
//!
//! Each address listens on the loopback alone, and a browser calls that for any site. A site whose name leads to 127.0.0.1 (DNS
//! rebinding) is known by its `Host`, another site by its `Origin`.

use axum::{
    Json, Router,
    extract::Request,
    http::{HeaderMap, StatusCode},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// The names of this machine.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The router of an address that only programs call.
pub fn guarded(router: Router) -> Router {
    router.layer(from_fn(from_here))
}

/// Refuses requests for another host. Functions get requests of every site, as on AWS.
pub async fn for_here(request: Request, next: Next) -> Response {
    match is_for_here(request.headers()) {
        true => next.run(request).await,
        false => refused("the local cloud takes requests for 127.0.0.1 and localhost, and for no other host"),
    }
}

/// Refuses also what another site makes a browser send to this one.
pub async fn from_here(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = text(headers, "host").unwrap_or_default();
    let is_own = text(headers, "origin").is_none_or(|origin| origin.strip_prefix("http://") == Some(host));
    let is_own =
        is_own && ["same-origin", "none"].contains(&text(headers, "sec-fetch-site").unwrap_or("none"));
    match is_own && is_for_here(headers) {
        true => next.run(request).await,
        false => refused("the local cloud takes requests from its own page, and from no other site"),
    }
}

/// A request without `Host` is no browser's.
fn is_for_here(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all("host").iter();
    hosts.all(|host| {
        let host = host.to_str().unwrap_or_default();
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
        NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
    })
}

fn refused(message: &str) -> Response {
    (StatusCode::FORBIDDEN, Json(json!({ "message": message }))).into_response()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_for_here() {
        let is_for_here = |hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append("host", host.parse().unwrap());
            }
            super::is_for_here(&headers)
        };
        for host in ["127.0.0.1", "127.0.0.1:9000", "localhost", "LocalHost:1", "[::1]", "[::1]:9000"] {
            assert!(is_for_here(&[host]), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9000",
            "127.0.0.1.evil.example",
            "localhost:",
            "::1",
            "127.0.0.2",
            "a@localhost",
        ] {
            assert!(!is_for_here(&[host]), "{host}");
        }
        assert!(is_for_here(&[]), "no browser's");
        assert!(!is_for_here(&["localhost", "evil.example"]));
    }
}
