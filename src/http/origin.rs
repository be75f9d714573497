//! Where a request came from, in one line for people: its method and its route.

use http::request::Parts;
use lambda_http::{RequestExt, request::RequestContext};

use crate::record::Note;

/// `POST /payments/{id}`: by the router's route, or the gateway's. The method alone if neither names one: a path may hold
/// what is not for everybody's eyes.
pub(super) fn of(parts: &Parts) -> Note {
    let method = parts.method.as_str();
    match route(parts) {
        // The gateway's own word for everything that no route of its takes.
        Some(route) if route.starts_with('/') => Note::new(&format!("{method} {route}")),
        _ => Note::new(method),
    }
}

fn route(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "axum")]
    if let Some(matched) = parts.extensions.get::<axum::extract::MatchedPath>() {
        return Some(matched.as_str());
    }
    match parts.request_context_ref()? {
        RequestContext::ApiGatewayV1(context) => context.resource_path.as_deref(),
        RequestContext::ApiGatewayV2(context) => {
            let route = context.route_key.as_deref()?;
            Some(route.split_once(' ').map_or(route, |(_, path)| path))
        }
        _ => None,
    }
}
