//! What is kept of a request that is executed later, and the claim of its worker.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};
use lambda_http::{
    RequestExt,
    aws_lambda_events::apigw::{ApiGatewayProxyRequestContext, ApiGatewayV2httpRequestContext},
    request::RequestContext,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{target::original_uri, tenant};
use crate::{key::RecordKey, record::BodyId};

/// The request headers that a worker gets: those that say what the body is and what the client wants. Never credentials.
const HEADERS: [HeaderName; 4] = [CONTENT_TYPE, CONTENT_ENCODING, ACCEPT, ACCEPT_LANGUAGE];

/// The work that the worker of a request claims. Only this crate makes one.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct Claim {
    pub(crate) key: RecordKey,
    /// The body item with the request.
    pub(crate) request: BodyId,
}

/// What is kept of a request, besides its body.
#[derive(Serialize, Deserialize)]
struct Kept {
    method: String,
    uri: String,
    headers: Vec<(String, String)>,
    /// What the authorizer verified, by the payload format of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<Value>,
    /// The stage of the API through which it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    /// The domain by which it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// The account and the ARN of its signer, of a REST API. In a later format, the authorizer has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signer: Option<(Option<String>, Option<String>)>,
    /// What API Gateway found in the path, by the names in its route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    path: Vec<(String, String)>,
}

/// Separates the body from what is before it, which is JSON in one line.
const SEPARATOR: u8 = b'\n';

impl Kept {
    fn of(parts: &Parts) -> Self {
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let kept = parts.headers.iter().filter(|(name, _)| HEADERS.contains(name));
        let authorizer = |verified: serde_json::Result<Value>| verified.ok();
        let (rest, signer, http) = match parts.request_context_ref() {
            Some(RequestContext::ApiGatewayV1(context)) => {
                let signer = (context.identity.account_id.clone(), context.identity.user_arn.clone());
                // What it serializes as is not what it deserializes from.
                (authorizer(serde_json::to_value(&context.authorizer.fields)), Some(signer), None)
            }
            Some(RequestContext::ApiGatewayV2(context)) => {
                (None, None, authorizer(serde_json::to_value(&context.authorizer)))
            }
            _ => (None, None, None),
        };
        let signer = signer.filter(|(account, arn)| account.is_some() || arn.is_some());
        Self {
            method: parts.method.to_string(),
            uri: original_uri(parts).to_string(),
            headers: kept.filter_map(text).collect(),
            rest,
            http,
            stage: tenant::stage(parts).map(str::to_owned),
            host: tenant::host(parts),
            signer,
            path: parts.path_parameters().iter().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }

    /// What a resolver of the tenant, or a handler, reads of the event.
    fn context(&self) -> serde_json::Result<Option<RequestContext>> {
        if let Some(verified) = &self.rest {
            let mut context = ApiGatewayProxyRequestContext::default();
            context.authorizer.fields = serde_json::from_value(verified.clone())?;
            context.stage = self.stage.clone();
            context.domain_name = self.host.clone();
            (context.identity.account_id, context.identity.user_arn) =
                self.signer.clone().unwrap_or_default();
            return Ok(Some(RequestContext::ApiGatewayV1(context)));
        }
        if self.http.is_none() && self.stage.is_none() && self.host.is_none() {
            return Ok(None);
        }
        let mut context = ApiGatewayV2httpRequestContext::default();
        // `null`, and so absent here, if the route has no authorizer.
        context.authorizer = self.http.clone().map(serde_json::from_value).transpose()?;
        context.stage = self.stage.clone();
        context.domain_name = self.host.clone();
        Ok(Some(RequestContext::ApiGatewayV2(context)))
    }
}

/// The request as it is kept: what is before the body, in one line, and the body.
pub(super) fn kept(parts: &Parts, body: &[u8]) -> serde_json::Result<Bytes> {
    let mut kept = serde_json::to_vec(&Kept::of(parts))?;
    kept.push(SEPARATOR);
    kept.extend_from_slice(body);
    Ok(kept.into())
}

/// The request that was kept, with the claim of its record; `None` if it is not as this version keeps it.
#[cfg(feature = "lambda")]
pub(crate) fn read(key: RecordKey, request: BodyId, kept: &Bytes) -> Option<Request<Bytes>> {
    let end = kept.iter().position(|byte| *byte == SEPARATOR)?;
    let read: Kept = serde_json::from_slice(&kept[..end]).ok()?;
    let mut headers = HeaderMap::new();
    for (name, value) in &read.headers {
        headers.append(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
    }
    let mut built = Request::new(kept.slice(end + 1..));
    *built.method_mut() = Method::try_from(&*read.method).ok()?;
    *built.uri_mut() = Uri::try_from(&*read.uri).ok()?;
    *built.headers_mut() = headers;
    if let Some(context) = read.context().ok()? {
        built.extensions_mut().insert(context);
    }
    built.extensions_mut().insert(Claim { key, request });
    let query: lambda_http::aws_lambda_events::query_map::QueryMap =
        read.uri.split_once('?').map_or("", |(_, query)| query).parse().ok()?;
    let path: std::collections::HashMap<String, String> = read.path.into_iter().collect();
    Some(built.with_query_string_parameters(query).with_path_parameters(path))
}
