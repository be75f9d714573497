//! API Gateway's translation: an HTTP request to an event in payload format 2.0, and a function's answer back to HTTP.

use crate::{journal::Sent, routes::Matched};
use aws_smithy_types::base64;
use axum::{
    body::Body,
    extract::Query,
    http::{
        HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header,
        request::Parts,
        response::{self, Builder},
    },
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// Headers that are not passed on, because the gateway's connections to client and function are separate.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The event that the function sees.
pub fn event(
    parts: &Parts,
    body: &Bytes,
    request_id: Uuid,
    route: &Matched,
    claims: &[(String, String)],
) -> Bytes {
    let now = SystemTime::now();
    // HTTP APIs pass the path decoded, and the query as it was sent.
    let path = percent_encoding::percent_decode_str(parts.uri.path()).decode_utf8_lossy();
    let user_agent = parts.headers.get(header::USER_AGENT).map(lossy).unwrap_or_default();
    let mut context = json!({
        "accountId": "123456789012",
        "apiId": "local",
        "domainName": "localhost",
        "domainPrefix": "localhost",
        "http": {
            "method": parts.method.as_str(),
            "path": path,
            "protocol": format!("{:?}", parts.version),
            "sourceIp": "127.0.0.1",
            "userAgent": user_agent,
        },
        "requestId": request_id.to_string(),
        "routeKey": route.key,
        "stage": "$default",
        "time": common_log_time(now),
        "timeEpoch": now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
    });
    if let Some(tenant) = tenant(&parts.headers) {
        let sub = [("sub", tenant)].into_iter();
        let claims = sub.chain(claims.iter().map(|(name, value)| (&**name, &**value)));
        let claims: BTreeMap<_, _> = claims.collect();
        context["authorizer"] = json!({ "jwt": { "claims": claims, "scopes": null } });
    }
    let mut event = json!({
        "version": "2.0",
        "routeKey": route.key,
        "rawPath": path,
        "rawQueryString": parts.uri.query().unwrap_or_default(),
        "headers": headers(&parts.headers, body.len()),
        "requestContext": context,
        "isBase64Encoded": false,
    });
    if !route.parameters.is_empty() {
        event["pathParameters"] = json!(route.parameters);
    }
    let cookies = cookies(&parts.headers);
    if !cookies.is_empty() {
        event["cookies"] = json!(cookies);
    }
    let query = query_parameters(parts);
    if !query.is_empty() {
        event["queryStringParameters"] = json!(query);
    }
    if !body.is_empty() {
        match std::str::from_utf8(body) {
            Ok(text) => event["body"] = json!(text),
            Err(_) => {
                event["body"] = json!(base64::encode(body));
                event["isBase64Encoded"] = json!(true);
            }
        }
    }
    event.to_string().into()
}

/// The name of a client, and its idempotency key, which may be a string of RFC 8941.
pub fn client(headers: &HeaderMap) -> Option<(&str, String)> {
    let key = headers.get("idempotency-key")?.to_str().ok()?.trim();
    let quoted = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
    let key = quoted.map_or_else(|| key.to_owned(), |key| key.replace("\\\"", "\"").replace("\\\\", "\\"));
    Some((tenant(headers).unwrap_or("nobody"), key))
}

/// A request, so that the page can send it again.
pub fn sent(parts: &Parts, client: &str, body: Option<&Bytes>) -> Sent {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    Sent {
        route: format!("{} {path}", parts.method),
        client: client.to_owned(),
        content_type: parts.headers.get(header::CONTENT_TYPE).map(lossy).unwrap_or_default(),
        body: body.filter(|body| body.len() <= Sent::MAX_BODY).cloned(),
    }
}

/// An answer in a few words: `answers 409 outcome-unknown`, `answers 201, replayed`.
pub fn described(parts: &response::Parts, body: &[u8]) -> String {
    let is_replayed = parts.headers.get("idempotent-replayed").is_some_and(|value| value == "true");
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let problem = problem["type"].as_str().and_then(|kind| kind.rsplit([':', '/']).next());
    let problem = problem.map(|problem| format!(" {problem}")).unwrap_or_default();
    format!("answers {}{problem}{}", parts.status.as_u16(), if is_replayed { ", replayed" } else { "" })
}

/// The client's response; `None` if API Gateway would not understand the function's answer.
pub fn response(payload: &[u8]) -> Option<Response<Body>> {
    let value: Value = serde_json::from_slice(payload).ok()?;
    if value.get("statusCode").is_none() {
        // Any other JSON is the body of a 200.
        return Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(payload.to_vec()))
            .ok();
    }
    let answer: Answer = serde_json::from_value(value).ok()?;
    let mut response = Response::builder().status(answer.status_code);
    for (name, value) in answer.headers.unwrap_or_default() {
        response = header(response, &name, &value)?;
    }
    for cookie in answer.cookies.unwrap_or_default() {
        response = response.header(header::SET_COOKIE, cookie);
    }
    let body = answer.body.unwrap_or_default();
    let body = if answer.is_base64_encoded { base64::decode(body).ok()? } else { body.into_bytes() };
    response.body(Body::from(body)).ok()
}

/// The gateway's own answers.
pub fn message(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(json!({ "message": message }).to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    headers: Option<Map<String, Value>>,
    cookies: Option<Vec<String>>,
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

fn header(response: Builder, name: &str, value: &Value) -> Option<Builder> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    // The server sets the length of what it sends.
    if HOP_BY_HOP.contains(&name) || name == header::CONTENT_LENGTH {
        return Some(response);
    }
    Some(match value {
        Value::String(text) => response.header(name, text),
        Value::Number(_) | Value::Bool(_) => response.header(name, value.to_string()),
        _ => return None,
    })
}

/// The caller that a JWT authorizer would name. Two tokens count as none, because it is not clear which one is valid.
fn tenant(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, tenant) = value.to_str().ok()?.split_once(' ')?;
    let tenant = tenant.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !tenant.is_empty()).then_some(tenant)
}

/// Names in lower case, and the values of a repeated name joined with commas, as in payload format 2.0.
fn headers(headers: &HeaderMap, length: usize) -> BTreeMap<String, String> {
    let mut joined = BTreeMap::new();
    for name in headers.keys() {
        if HOP_BY_HOP.contains(name) || name == header::COOKIE {
            continue;
        }
        let values: Vec<_> = headers.get_all(name).iter().map(lossy).collect();
        joined.insert(name.to_string(), values.join(","));
    }
    if length > 0 {
        joined.insert("content-length".to_owned(), length.to_string());
    }
    joined.insert("x-forwarded-for".to_owned(), "127.0.0.1".to_owned());
    joined.insert("x-forwarded-proto".to_owned(), "http".to_owned());
    joined
}

fn cookies(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(header::COOKIE).iter().map(lossy);
    lines
        .flat_map(|line| line.split(';').map(|cookie| cookie.trim().to_owned()).collect::<Vec<_>>())
        .collect()
}

fn query_parameters(parts: &Parts) -> BTreeMap<String, String> {
    let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) else {
        return BTreeMap::new();
    };
    let mut parameters: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in pairs {
        parameters
            .entry(name)
            .and_modify(|values| {
                values.push(',');
                values.push_str(&value);
            })
            .or_insert(value);
    }
    parameters
}

/// The value as text: an event is JSON, which cannot hold other bytes.
fn lossy(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// `Thu, 12 Mar 2020 19:03:58 GMT` as `12/Mar/2020:19:03:58 +0000`.
fn common_log_time(time: SystemTime) -> String {
    let date = httpdate::fmt_http_date(time);
    format!("{}/{}/{}:{} +0000", &date[5..7], &date[8..11], &date[12..16], &date[17..25])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_token_and_its_key() {
        let client = |pairs: &[(&'static str, &str)]| {
            let headers: HeaderMap = pairs
                .iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
                })
                .collect();
            super::client(&headers).map(|(client, key)| format!("{client} {key}"))
        };
        for (key, expected) in [
            ("k-1", Some("acme k-1")),
            ("\"k-1\"", Some("acme k-1")),
            (" \"a \\\"b\\\" \\\\\" ", Some("acme a \"b\" \\")),
            ("\"", Some("acme \"")),
            ("\u{e9}", None),
        ] {
            let known = client(&[("authorization", "Bearer acme"), ("idempotency-key", key)]);
            assert_eq!(known.as_deref(), expected, "{key}");
        }
        assert_eq!(client(&[("idempotency-key", "k-1")]).as_deref(), Some("nobody k-1"));
        assert_eq!(client(&[("authorization", "Bearer acme")]), None);
    }

    #[test]
    fn an_answer_is_described_by_its_problem() {
        let parts = |status: u16, replayed: bool| {
            let builder = Response::builder().status(status);
            let builder = if replayed { builder.header("idempotent-replayed", "true") } else { builder };
            builder.body(()).unwrap().into_parts().0
        };
        let problem = br#"{"type":"urn:lambda-idempotency:outcome-unknown"}"#;
        assert_eq!(described(&parts(409, false), problem), "answers 409 outcome-unknown");
        assert_eq!(described(&parts(201, true), b"text"), "answers 201, replayed");
    }
}
