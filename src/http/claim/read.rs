//! The request of accepted work, as its worker's service gets it.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use lambda_http::{
    RequestExt,
    aws_lambda_events::{
        apigw::{ApiGatewayProxyRequestContext, ApiGatewayV2httpRequestContext},
        query_map::QueryMap,
    },
    request::RequestContext,
};

use super::{Claim, Kept, SEPARATOR};
use crate::{key::RecordKey, record::BodyId};

/// The request that was kept, with the claim of its record; `None` if it is not as this version keeps it.
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
    let query: QueryMap = read.uri.split_once('?').map_or("", |(_, query)| query).parse().ok()?;
    let path: HashMap<String, String> = read.path.into_iter().collect();
    Some(built.with_query_string_parameters(query).with_path_parameters(path))
}

impl Kept {
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
