//! What a request addresses, the same through every front (T45).
//!
//! 1. The path comes from the event and not from the URI, which ends at a `#` that an HTTP API has decoded.
//! 2. HTTP APIs hand paths over decoded, the other fronts as the client wrote them. So it is decoded once, whoever does it,
//!    and an encoded slash counts as a slash. An HTTP API cuts a path at an encoded `?`; nobody behind it sees the rest.
//! 3. HTTP APIs put a named stage before the path, unless the request came through a custom domain. It does not count.
//! 4. The query's parameters count decoded, in the order of their names: REST APIs and load balancers hand them over in no
//!    order. Those of one name keep theirs.
//!
//! Seen in events that were captured from live services
//! ([hotsock/voker](https://github.com/hotsock/voker/tree/main/vokerhttp/testdata)).

use std::borrow::Cow;

use http::{Uri, request::Parts};
use lambda_http::{RequestExt, request::RequestContext};

type Query<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// What a request addresses.
pub(super) struct Target<'a> {
    pub(super) path: Cow<'a, [u8]>,
    pub(super) query: Query<'a>,
    /// As the first version of fingerprints had it.
    pub(super) earlier: String,
}

impl<'a> Target<'a> {
    pub(super) fn of(parts: &'a Parts) -> Self {
        Self { path: path(parts), query: query(parts), earlier: earlier(parts) }
    }
}

/// The path without the stage, decoded.
pub(super) fn path(parts: &Parts) -> Cow<'_, [u8]> {
    let raw = Some(parts.raw_http_path()).filter(|path| !path.is_empty());
    let encoded =
        || percent_encoding::percent_decode_str(raw.unwrap_or_else(|| original_uri(parts).path())).into();
    match parts.request_context_ref() {
        // Decoded by HTTP APIs and function URLs alike, as `rawPath` is not.
        Some(RequestContext::ApiGatewayV2(context)) => match &context.http.path {
            Some(path) => without_stage(path, context.stage.as_deref(), context.route_key.as_deref()),
            None => encoded(),
        },
        // An HTTP API in payload format 1.0; a REST API's request has a resource.
        Some(RequestContext::ApiGatewayV1(context)) if context.resource_id.is_none() => match raw {
            Some(path) => without_stage(path, context.stage.as_deref(), context.resource_path.as_deref()),
            None => encoded(),
        },
        _ => encoded(),
    }
}

/// A decoded path without the stage before it. `route` is the route that it came by.
fn without_stage<'a>(path: &'a str, stage: Option<&str>, route: Option<&str>) -> Cow<'a, [u8]> {
    let cut = |path: &'a str| {
        let rest = path.strip_prefix('/')?.strip_prefix(stage?)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    };
    // A route that begins with the name of the stage, through a custom domain, which puts no stage before it.
    let route_path = route.and_then(|route| route.split_once('/')).map(|(_, path)| path);
    let first = route_path.and_then(|path| path.split('/').next());
    let of_route = first.is_some_and(|first| Some(first) == stage);
    let stripped = cut(path).filter(|rest| !of_route || cut(rest).is_some());
    match stripped {
        Some("") => Cow::Borrowed(b"/"),
        Some(rest) => Cow::Borrowed(rest.as_bytes()),
        None => Cow::Borrowed(path.as_bytes()),
    }
}

/// The query's parameters, decoded, in the order of their names.
pub(super) fn query(parts: &Parts) -> Query<'_> {
    let mut query: Query<'_> = match parts.query_string_parameters_ref() {
        Some(parameters) => parameters.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        // Made of an event that has none. What the URI has then is a part of the path, decoded.
        None if !parts.raw_http_path().is_empty() => Vec::new(),
        None => form_urlencoded::parse(original_uri(parts).query().unwrap_or_default().as_bytes()).collect(),
    };
    query.sort_by(|(a, _), (b, _)| a.cmp(b));
    query
}

fn earlier(parts: &Parts) -> String {
    let uri = original_uri(parts);
    let path = Some(parts.raw_http_path()).filter(|path| !path.is_empty()).unwrap_or_else(|| uri.path());
    let mut parameters: Vec<&str> = uri.query().unwrap_or_default().split('&').collect();
    parameters.sort_by_key(|parameter| parameter.split('=').next());
    format!("{} {path}?{}", parts.method, parameters.join("&"))
}

/// A router that nests strips its prefix, and with it what tells `/accounts/1/payments` from `/accounts/2/payments`.
#[cfg(feature = "axum")]
fn original_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<::axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn original_uri(parts: &Parts) -> &Uri {
    &parts.uri
}
