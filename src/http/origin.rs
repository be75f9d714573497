//! Where a request came from, in one readable line: its method and its route.

use std::borrow::Cow;

use http::request::Parts;

use super::front;
use crate::record::Note;

/// `POST /payments/{id}`, by the router's route or the gateway's. The method alone if neither names one: the path itself
/// may be confidential.
///
/// If its key is a hash, then what that is made of: `key`.
pub(super) fn of(parts: &Parts, key: Option<&str>) -> Note {
    // Not `$default`, the gateway's catch-all.
    let route = route(parts).filter(|route| route.starts_with('/'));
    let method = parts.method.as_str();
    let from = route.map_or(Cow::Borrowed(method), |route| Cow::Owned(format!("{method} {route}")));
    key.map_or_else(|| Note::new(&from), |key| Note::new(&format!("{from} {key}")))
}

fn route(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "axum")]
    if let Some(matched) = parts.extensions.get::<axum::extract::MatchedPath>() {
        return Some(matched.as_str());
    }
    let route = front::context(parts)?.route?;
    Some(route.split_once(' ').map_or(route, |(_, path)| path))
}

#[cfg(test)]
#[cfg(feature = "lambda-http")]
mod tests {
    use http::Request;
    use lambda_http::aws_lambda_events::{
        alb::AlbTargetGroupRequestContext,
        apigw::{ApiGatewayProxyRequestContext, ApiGatewayV2httpRequestContext},
    };
    use lambda_http::request::RequestContext;

    use super::*;

    fn through(context: Option<RequestContext>) -> String {
        let mut request = Request::post("https://api.example/payments/of-somebody").body(()).unwrap();
        if let Some(context) = context {
            request.extensions_mut().insert(context);
        }
        of(&request.into_parts().0, None).as_str().to_owned()
    }

    fn rest_api(resource: Option<&str>) -> Option<RequestContext> {
        let mut context = ApiGatewayProxyRequestContext::default();
        context.resource_path = resource.map(str::to_owned);
        Some(RequestContext::ApiGatewayV1(context))
    }

    fn http_api(route_key: Option<&str>) -> Option<RequestContext> {
        let mut context = ApiGatewayV2httpRequestContext::default();
        context.route_key = route_key.map(str::to_owned);
        Some(RequestContext::ApiGatewayV2(context))
    }

    #[test]
    fn the_origin_is_the_method_and_the_route_and_never_the_path() {
        let by_id = "POST /payments/{id}";
        for (context, expected) in [
            (rest_api(Some("/payments/{id}")), by_id),
            (rest_api(Some("/{proxy+}")), "POST /{proxy+}"),
            (rest_api(None), "POST"),
            (http_api(Some("POST /payments/{id}")), by_id),
            (http_api(Some("ANY /payments/{id}")), by_id),
            (http_api(Some("$default")), "POST"),
            (http_api(None), "POST"),
            (Some(RequestContext::Alb(AlbTargetGroupRequestContext::default())), "POST"),
            (None, "POST"),
        ] {
            let shown = format!("{context:?}");
            assert_eq!(through(context), expected, "{shown}");
        }
    }
}
