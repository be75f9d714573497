//! Reads the event of an HTTP function, in front of `lambda_http`, which fails on some events that clients can cause, and panics on others
//! (T74). Either is a failed invocation: a 5xx that says "retry", and an alarm.
//!
//! 1. What `lambda_http` reads is not touched, but for query and path: only an event that it refuses is looked at.
//! 2. There, members that are null are left out. A claim that is a number or a boolean becomes text, as AWS's own authorizer writes it.
//!    Lists, objects and fractions are left out: written as text, they could be another caller's name.
//! 3. A query that holds what no URI can hold is percent-encoded, so it means the same: function URLs pass `a+b` on with a space. So are `#` and
//!    `?` in a path that an HTTP API has decoded, which would end the path.
//! 4. A request that can still not be served gets 400, if a client can have caused that. An event that is no request at all, or that cannot be
//!    read whatever its client sent, is an error of its sender.

use std::{borrow::Cow, sync::OnceLock};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header::HOST, uri::Authority};
use lambda_http::{
    aws_lambda_events::{
        alb::AlbTargetGroupRequest,
        apigw::{ApiGatewayProxyRequest, ApiGatewayV2httpRequest},
        query_map::QueryMap,
    },
    request::LambdaRequest,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use url::Url;

/// What a query cannot hold: `http` refuses these, or ends the query there. `%` stays, because the rest is encoded already.
const NOT_IN_QUERIES: AsciiSet = CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// What would end a path, and no front leaves in one that it has not decoded.
const NOT_IN_PATHS: AsciiSet = AsciiSet::EMPTY.add(b'#').add(b'?');

/// The longest path and query, encoded: `http` takes URIs of 65,534 bytes, with host and stage.
const MAX_ADDRESS: usize = 63 * 1024;

/// How many bytes one byte has at most once it is encoded.
const ENCODED: usize = 3;

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What an event is.
pub(super) enum Read {
    Request(LambdaRequest),
    /// A request that cannot be served, for this reason. It is answered in the form of this empty request's front.
    Malformed(LambdaRequest, &'static str),
    /// No request of a front that we know.
    Foreign,
}

/// Reads an event.
pub(super) fn read(event: &str) -> Read {
    let read = of_latest_format(event).or_else(|| serde_json::from_str(event).ok());
    let read = read.map_or_else(|| mended(event), Read::Request);
    let Read::Request(mut request) = read else { return read };
    let empty = match &request {
        LambdaRequest::ApiGatewayV1(_) => LambdaRequest::ApiGatewayV1(ApiGatewayProxyRequest::default()),
        LambdaRequest::ApiGatewayV2(_) => LambdaRequest::ApiGatewayV2(ApiGatewayV2httpRequest::default()),
        LambdaRequest::Alb(_) => LambdaRequest::Alb(AlbTargetGroupRequest::default()),
        // Of a front whose feature of `lambda_http` is on in your program: nothing here knows what it sends, or takes.
        _ => return Read::Foreign,
    };
    match Parts::of(&mut request).map(Parts::check) {
        Some(Err(reason)) => Read::Malformed(empty, reason),
        _ => Read::Request(request),
    }
}

/// What names the format of an event.
#[derive(Deserialize)]
struct Format<'e> {
    #[serde(borrow)]
    version: Option<Cow<'e, str>>,
    #[serde(rename = "httpMethod")]
    method: Option<IgnoredAny>,
}

/// A request of an HTTP API or a function URL in format 2.0, which most are. `lambda_http` would first read it as a REST API's, in vain, because it
/// has no `httpMethod`.
fn of_latest_format(event: &str) -> Option<LambdaRequest> {
    let Format { version, method } = serde_json::from_str(event).ok()?;
    let is_latest = version.as_deref() == Some("2.0") && method.is_none();
    is_latest.then(|| serde_json::from_str(event).ok()).flatten().map(LambdaRequest::ApiGatewayV2)
}

/// An event that `lambda_http` refuses, with its claims as text.
fn mended(event: &str) -> Read {
    let Ok(mut event) = serde_json::from_str::<Value>(event) else { return Read::Foreign };
    let Some(front) = front(&event) else { return Read::Foreign };
    if let Value::Object(members) = &mut event {
        members.retain(|_, member| !member.is_null());
    }
    if let Some(Value::Object(jwt)) = event.pointer_mut("/requestContext/authorizer/jwt") {
        if let Some(Value::Object(claims)) = jwt.get_mut("claims") {
            claims.retain(|name, claim| is_text(name, claim));
        }
        // Without its scopes, a handler that asks for one refuses the caller.
        let are_text = |scopes: &Vec<Value>| scopes.iter().all(Value::is_string);
        if !jwt.get("scopes").and_then(Value::as_array).is_some_and(are_text) {
            jwt.remove("scopes");
        }
    }
    if let Ok(request) = serde_json::from_value(event.clone()) {
        return Read::Request(request);
    }
    without_what_clients_send(&mut event);
    match serde_json::from_value::<LambdaRequest>(event) {
        Ok(_) => Read::Malformed(front, "Its method, a header or another part of it is invalid"),
        // The front writes its events in another way now. Every request would be refused, and nobody would hear of it.
        Err(_) => Read::Foreign,
    }
}

/// The members that clients choose.
const OF_CLIENTS: [&str; 5] =
    ["headers", "multiValueHeaders", "queryStringParameters", "multiValueQueryStringParameters", "cookies"];

fn without_what_clients_send(event: &mut Value) {
    if let Value::Object(members) = event {
        members.retain(|name, _| !OF_CLIENTS.contains(&&**name));
    }
    for method in ["/httpMethod", "/requestContext/httpMethod", "/requestContext/http/method"] {
        if let Some(method) = event.pointer_mut(method) {
            *method = "GET".into();
        }
    }
}

/// Whether a claim is text, or is made text.
fn is_text(name: &str, claim: &mut Value) -> bool {
    match claim {
        Value::String(_) => return true,
        Value::Bool(_) => {}
        // Exact: of larger numbers, two could have one text.
        Value::Number(number) if number.is_u64() || number.is_i64() => {}
        Value::Null => return false,
        _ => {
            static LOGGED: OnceLock<()> = OnceLock::new();
            LOGGED.get_or_init(|| {
                tracing::warn!(name, "a claim that is a list, an object or no whole number is left out");
            });
            return false;
        }
    }
    *claim = claim.to_string().into();
    true
}

/// An empty request of the front that sent this event.
fn front(event: &Value) -> Option<LambdaRequest> {
    let context = event.get("requestContext")?;
    if context.get("elb").is_some() {
        Some(LambdaRequest::Alb(AlbTargetGroupRequest::default()))
    } else if context.get("http").is_some() {
        Some(LambdaRequest::ApiGatewayV2(ApiGatewayV2httpRequest::default()))
    } else {
        event.get("httpMethod")?;
        Some(LambdaRequest::ApiGatewayV1(ApiGatewayProxyRequest::default()))
    }
}

/// What `lambda_http` makes a URI and a body of.
struct Parts<'e> {
    headers: &'e mut HeaderMap,
    /// The API's own name, if the request has no `Host`.
    domain: Option<&'e str>,
    path: Option<&'e str>,
    /// The longest that it becomes.
    query: usize,
    body: Option<&'e str>,
    is_base64: bool,
}

impl<'e> Parts<'e> {
    /// The parts of a request, its query percent-encoded.
    fn of(request: &'e mut LambdaRequest) -> Option<Self> {
        Some(match request {
            LambdaRequest::ApiGatewayV1(it) => Self {
                headers: &mut it.headers,
                domain: it.request_context.domain_name.as_deref(),
                path: it.path.as_deref(),
                query: length(&it.query_string_parameters)
                    .max(length(&it.multi_value_query_string_parameters)),
                body: it.body.as_deref(),
                is_base64: it.is_base64_encoded,
            },
            LambdaRequest::ApiGatewayV2(it) => {
                if let Some(query) = &mut it.raw_query_string {
                    *query = utf8_percent_encode(query, &NOT_IN_QUERIES).to_string();
                }
                if let Some(path) = &mut it.raw_path {
                    *path = utf8_percent_encode(path, &NOT_IN_PATHS).to_string();
                }
                Self {
                    headers: &mut it.headers,
                    domain: it.request_context.domain_name.as_deref(),
                    path: it.raw_path.as_deref(),
                    query: it.raw_query_string.as_ref().map_or(0, String::len),
                    body: it.body.as_deref(),
                    is_base64: it.is_base64_encoded,
                }
            }
            LambdaRequest::Alb(it) => Self {
                headers: &mut it.headers,
                domain: None,
                path: it.path.as_deref(),
                query: length(&it.query_string_parameters)
                    .max(length(&it.multi_value_query_string_parameters)),
                body: it.body.as_deref(),
                is_base64: it.is_base64_encoded,
            },
            _ => return None,
        })
    }

    /// As an error, why `lambda_http` would panic, or take a part of the host for the path.
    fn check(self) -> Result<(), &'static str> {
        let path = self.path.unwrap_or_default();
        if !path.is_empty() && !path.starts_with('/') {
            return Err("Its path does not begin with a slash");
        }
        if path.len() * ENCODED + self.query > MAX_ADDRESS {
            return Err("Its path and query are too long");
        }
        let host = self.headers.get(HOST).and_then(|host| host.to_str().ok());
        if host.or(self.domain).is_some_and(|host| !is_host(host)) {
            return Err("Its Host is invalid");
        }
        // A proxy may add its own to what an earlier one says.
        let scheme = self.headers.get(X_FORWARDED_PROTO).and_then(|scheme| scheme.to_str().ok());
        if let Some(scheme) = scheme {
            let first = scheme.split(',').next().unwrap_or_default().trim();
            let known = ["http", "https"].into_iter().find(|known| first.eq_ignore_ascii_case(known));
            let known = HeaderValue::from_static(known.ok_or("Its X-Forwarded-Proto is invalid")?);
            self.headers.insert(X_FORWARDED_PROTO, known);
        }
        let body = self.body.filter(|_| self.is_base64);
        match body.is_none_or(|body| BASE64_STANDARD.decode(body).is_ok()) {
            true => Ok(()),
            false => Err("Its body is no base64"),
        }
    }
}

/// Whether `http` and `url` take this as host and port, and nothing else.
fn is_host(host: &str) -> bool {
    !host.contains('@')
        && host.parse::<Authority>().is_ok()
        && Url::parse(&format!("https://{host}/")).is_ok()
}

/// The longest that these parameters become.
fn length(query: &QueryMap) -> usize {
    query.iter().map(|(name, value)| (name.len() + value.len()) * ENCODED + 2).sum()
}
