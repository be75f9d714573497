//! What a request addresses, the same through every front (T45). A front is what calls the function: API Gateway, a load balancer,
//! or a function URL.
//!
//! 1. The path comes from the event, not from the URI, which ends at a `#` that an HTTP API has decoded.
//! 2. HTTP APIs pass paths on decoded, the other fronts as the client wrote them. So each path is decoded exactly once,
//!    and an encoded slash counts as a slash. HTTP APIs are reported to cut a path at an encoded `?`; nothing behind them
//!    sees the rest.
//! 3. HTTP APIs put a named stage before the path at their own domain, but not at a custom one. The stage does not count.
//! 4. Query parameters count decoded and sorted by name, because REST APIs and load balancers pass them on in no order.
//!    Parameters of one name keep their order.
//! 5. If a reader may use the order of the names, that counts too, and if parameters do not tell all of the query, the query as it was sent.
//!    REST APIs and load balancers pass neither on.
//!
//! Observed in events captured from live services
//! ([hotsock/voker](https://github.com/hotsock/voker/tree/main/vokerhttp/testdata)).

use std::borrow::Cow;

use http::{Uri, request::Parts};

use super::front::{self, Front};
use crate::fingerprint::in_any_order;

type Query<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The path without the stage, decoded.
pub(super) fn path(parts: &Parts) -> Cow<'_, [u8]> {
    match decoded(parts) {
        Some((path, stage)) => Cow::Borrowed(stage.strip(path).as_bytes()),
        None => percent_encoding::percent_decode_str(encoded(parts)).into(),
    }
}

/// The prefix of the API's paths in URLs that its clients can use.
pub(super) fn mount(parts: &Parts) -> &str {
    if let Some((path, stage)) = decoded(parts) {
        let rest = stage.strip(path);
        return if rest.len() < path.len() { &path[..=stage.name.len()] } else { "" };
    }
    // A REST API's path never has the stage.
    let client_path = front::context(parts).and_then(|context| context.client_path);
    client_path
        .and_then(|whole| whole.strip_suffix(front::raw_path(parts).unwrap_or_default()))
        .unwrap_or_default()
}

/// The decoded path and the stage that may precede it, from a front that decodes paths.
fn decoded(parts: &Parts) -> Option<(&str, Stage<'_>)> {
    let context = front::context(parts)?;
    let name = context.stage.unwrap_or_default();
    Some((context.decoded?, Stage { name, route: context.route, domain: context.domain }))
}

/// The path as the front passes it on.
fn encoded(parts: &Parts) -> &str {
    front::raw_path(parts).unwrap_or_else(|| original_uri(parts).path())
}

/// The stage that may precede a path.
struct Stage<'a> {
    name: &'a str,
    /// The route by which the request came, such as `POST /orders/{id}`, or `$default`.
    route: Option<&'a str>,
    domain: Option<&'a str>,
}

impl Stage<'_> {
    /// The path without the stage. The API's own domain has a stage in the path, a custom domain does not.
    fn strip<'p>(&self, path: &'p str) -> &'p str {
        let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(self.name));
        let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let Some(rest) = rest.filter(|_| !matches!(self.name, "" | "$default")) else { return path };
        let stripped = if rest.is_empty() { "/" } else { rest };
        match self.domain.map(|domain| domain.contains(".execute-api.")) {
            Some(true) => stripped,
            Some(false) => path,
            // An event without a domain was not made by AWS. Its route may tell.
            None if self.is_routed_to(path) => path,
            None => stripped,
        }
    }

    /// Whether the route matches this path.
    fn is_routed_to(&self, path: &str) -> bool {
        let Some((_, route)) = self.route.and_then(|route| route.split_once('/')) else { return false };
        let (route, path) = (route.split('/'), path.trim_start_matches('/').split('/'));
        let is =
            |(route, path): (&str, &str)| route == path || (route.starts_with('{') && !route.ends_with("+}"));
        route.clone().count() == path.clone().count() && route.zip(path).all(is)
    }
}

/// The query's parameters, decoded, in the order of their names.
pub(super) fn query(parts: &Parts) -> Query<'_> {
    let mut query: Query<'_> = match front::parameters(parts) {
        Some(parameters) => parameters,
        // What looks like the URI's query is then a decoded part of the path.
        None if is_from_event(parts) => Vec::new(),
        None => form_urlencoded::parse(original_uri(parts).query().unwrap_or_default().as_bytes()).collect(),
    };
    query.sort_by(|(a, _), (b, _)| a.cmp(b));
    query
}

/// The query in the order in which it was sent, if that is there, and a reader may use it. It is escaped as a serializer does: fronts write
/// a space in two ways. But it is as it was sent if different queries decode to U+FFFD, or if parsers disagree about it: about a `%` without
/// two hex digits, a name without `=`, an empty pair. No escaped one is equal to such a one.
pub(super) fn raw_query<'a>(parts: &'a Parts, query: &Query<'_>) -> Option<Cow<'a, str>> {
    let passes_it_on = !is_from_event(parts) || Front::of(&parts.extensions) == Some(Front::OneLine);
    let raw = original_uri(parts).query().filter(|_| passes_it_on)?;
    let is_escape = |after: &str| matches!(after.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    let lossy = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| {
        name.contains('\u{FFFD}') || value.contains('\u{FFFD}')
    };
    if query.iter().any(lossy) || !raw.split('%').skip(1).all(is_escape) {
        return Some(raw.into());
    }
    if in_any_order(query.iter().map(|(name, _)| &**name)) {
        return None;
    }
    if !raw.split('&').all(|pair| pair.contains('=')) {
        return Some(raw.into());
    }
    let pairs = form_urlencoded::parse(raw.as_bytes());
    Some(form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish().into())
}

fn is_from_event(parts: &Parts) -> bool {
    front::raw_path(parts).is_some()
}

/// The URI before nested routers strip its prefix, which tells `/accounts/1/payments` from `/accounts/2/payments`.
#[cfg(feature = "axum")]
pub(super) fn original_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<::axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
pub(super) fn original_uri(parts: &Parts) -> &Uri {
    &parts.uri
}
