//! What is kept of a request that is executed later, and the claim of its worker.

#[cfg(feature = "lambda")]
mod read;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue,
    header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE},
    request::Parts,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[cfg(feature = "lambda")]
pub(crate) use read::read;

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
    fn of(parts: &Parts, also: impl Fn(&HeaderName) -> bool) -> Self {
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let kept = parts.headers.iter().filter(|(name, _)| HEADERS.contains(name) || also(name));
        let kept = Self {
            method: parts.method.to_string(),
            uri: original_uri(parts).to_string(),
            headers: kept.filter_map(text).collect(),
            rest: None,
            http: None,
            stage: tenant::stage(parts).map(str::to_owned),
            host: tenant::host(parts),
            signer: None,
            path: Vec::new(),
        };
        #[cfg(feature = "lambda-http")]
        let kept = kept.with_event(parts);
        kept
    }

    /// With what the event says besides.
    #[cfg(feature = "lambda-http")]
    fn with_event(mut self, parts: &Parts) -> Self {
        use lambda_http::{RequestExt, request::RequestContext};

        match parts.request_context_ref() {
            Some(RequestContext::ApiGatewayV1(context)) => {
                let signer = (context.identity.account_id.clone(), context.identity.user_arn.clone());
                self.signer = Some(signer).filter(|(account, arn)| account.is_some() || arn.is_some());
                // What the authorizer serializes as is not what it deserializes from.
                self.rest = serde_json::to_value(&context.authorizer.fields).ok();
            }
            Some(RequestContext::ApiGatewayV2(context)) => {
                self.http = serde_json::to_value(&context.authorizer).ok();
            }
            _ => {}
        }
        self.path = parts.path_parameters().iter().map(|(name, value)| (name.into(), value.into())).collect();
        self
    }
}

/// The request as it is kept: what is before the body, in one line, and the body. `also` are other headers that its handler needs.
pub(super) fn kept(
    parts: &Parts,
    body: &[u8],
    also: impl Fn(&HeaderName) -> bool,
) -> serde_json::Result<Bytes> {
    let mut kept = serde_json::to_vec(&Kept::of(parts, also))?;
    kept.push(SEPARATOR);
    kept.extend_from_slice(body);
    Ok(kept.into())
}
