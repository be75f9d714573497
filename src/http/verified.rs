//! Tenants that an authorizer of API Gateway, or the signature of a request, verified, and stages and hosts that keep them apart. Lambda passes
//! them on in the event.

use std::{borrow::Cow, sync::OnceLock};

use http::request::Parts;
use lambda_http::{RequestExt, request::RequestContext};
use serde_json::Value;

use super::{
    TenantResolver,
    tenant::{ENDS, host, stage},
};
use crate::key::Tenant;

/// The challenge of callers that sign their requests with AWS's Signature Version 4: the scheme of their `Authorization`.
const SIGNATURE_V4: &str = "AWS4-HMAC-SHA256";

/// A claim of the token that API Gateway's JWT authorizer (HTTP API) or Cognito authorizer (REST API) verified.
///
/// In a test, a request with a claim is made from an event. Its body is `lambda_http`'s, so for an axum router convert it:
///
/// ```
/// use axum::{Router, body::Body, routing::post};
/// use lambda_idempotency::{Idempotency, JwtClaim, MemoryStore, Operation, http::lambda_http::request};
/// use serde_json::json;
/// use tower::ServiceExt;
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() {
///     let guard = Idempotency::new(MemoryStore::new(), Operation::new("order")).tenant(JwtClaim("sub"));
///     let app: Router = Router::new().route("/orders", post(|| async { "ordered" }).route_layer(guard));
///     let replayed = async |subject: &str| {
///         let event = json!({
///             "version": "2.0",
///             "rawPath": "/orders",
///             "headers": { "idempotency-key": "k-1" },
///             "requestContext": {
///                 "http": { "method": "POST", "path": "/orders" },
///                 "authorizer": { "jwt": { "claims": { "sub": subject } } },
///             },
///         });
///         let order = request::from_str(&event.to_string()).unwrap().map(Body::new);
///         let answer = app.clone().oneshot(order).await.unwrap();
///         answer.headers().contains_key("idempotent-replayed")
///     };
///     assert!(!replayed("jane").await);
///     assert!(replayed("jane").await);
///     assert!(!replayed("john").await); // another tenant: the same key is another operation
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct JwtClaim(
    /// The claim's name, such as `sub`.
    pub &'static str,
);

impl JwtClaim {
    /// The same claim together with the token's issuer, for an API whose authorizers trust several issuers: the same `sub`
    /// from two issuers is two tenants.
    ///
    /// Choose before the first request comes: these are other tenants, and records of the former ones are not found. Issuer
    /// and claim may have 254 bytes together, and the issuer no `|`; any other caller is refused with 401.
    pub fn with_issuer(self) -> impl TenantResolver + Copy {
        move |request: &Parts| {
            let (issuer, claim) = (JwtClaim("iss").value(request)?, self.value(request)?);
            // An issuer is a URL, without a bar: the first bar separates the two, so no two pairs share a tenant.
            (!issuer.is_empty() && !issuer.contains('|') && !claim.is_empty())
                .then(|| parse(&format!("{issuer}|{claim}")))
                .flatten()
        }
    }

    pub(super) fn value(self, request: &Parts) -> Option<Cow<'_, str>> {
        match request.request_context_ref()? {
            RequestContext::ApiGatewayV2(context) => {
                let claims = &context.authorizer.as_ref()?.jwt.as_ref()?.claims;
                Some(claims.get(self.0)?.into())
            }
            RequestContext::ApiGatewayV1(context) => {
                text(self.0, context.authorizer.fields.get("claims")?.get(self.0)?)
            }
            _ => None,
        }
    }
}

impl TenantResolver for JwtClaim {
    fn tenant(&self, request: &Parts) -> Option<Tenant> {
        parse(&self.value(request)?)
    }
}

/// A string, or a whole number in its digits. Anything else identifies nobody.
fn text<'a>(name: &str, value: &'a Value) -> Option<Cow<'a, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) if number.is_u64() => Some(number.to_string().into()),
        other => {
            let kind = match other {
                Value::Null => "null",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number that is not a whole one",
                _ => "a list or an object",
            };
            tracing::error!(
                name,
                kind,
                "what the authorizer verified names no tenant: the request is refused"
            );
            None
        }
    }
}

/// A field that your Lambda authorizer put into its context.
#[derive(Clone, Copy, Debug)]
pub struct LambdaAuthorizer(
    /// The field's name, such as `tenantId`, or `principalId` for a REST API.
    pub &'static str,
);

impl TenantResolver for LambdaAuthorizer {
    fn tenant(&self, request: &Parts) -> Option<Tenant> {
        let authorizer = match request.request_context_ref()? {
            RequestContext::ApiGatewayV2(context) => context.authorizer.as_ref()?,
            RequestContext::ApiGatewayV1(context) => &context.authorizer,
            _ => return None,
        };
        parse(&text(self.0, authorizer.fields.get(self.0)?)?)
    }
}

/// The AWS account of a caller that signed the request (IAM authorizer, function URL with `AWS_IAM`).
#[derive(Clone, Copy, Debug)]
pub struct IamAccount;

impl TenantResolver for IamAccount {
    fn tenant(&self, request: &Parts) -> Option<Tenant> {
        match request.request_context_ref()? {
            RequestContext::ApiGatewayV2(context) => {
                parse(context.authorizer.as_ref()?.iam.as_ref()?.account_id.as_deref()?)
            }
            RequestContext::ApiGatewayV1(context) => {
                // Also set for requests with only an API key; the ARN is there only if a signature was checked.
                context.identity.user_arn.as_ref()?;
                parse(context.identity.account_id.as_deref()?)
            }
            _ => None,
        }
    }

    fn challenge(&self) -> &'static str {
        SIGNATURE_V4
    }
}

/// The IAM user or role of a caller that signed the request, as its ARN.
///
/// The session name of an assumed role is left out: a client that retries with new credentials is the same client. So all
/// callers with one role are one tenant, and can replay each other's answers. If a role is shared, as with a Cognito
/// identity pool or single sign-on, use a custom resolver.
#[derive(Clone, Copy, Debug)]
pub struct IamCaller;

impl TenantResolver for IamCaller {
    fn tenant(&self, request: &Parts) -> Option<Tenant> {
        let arn = match request.request_context_ref()? {
            RequestContext::ApiGatewayV2(context) => {
                context.authorizer.as_ref()?.iam.as_ref()?.user_arn.as_deref()?
            }
            RequestContext::ApiGatewayV1(context) => context.identity.user_arn.as_deref()?,
            _ => return None,
        };
        match arn.split_once(":assumed-role/") {
            Some((_, role_and_session)) => {
                let session = role_and_session.rsplit_once('/')?.1;
                parse(&arn[..arn.len() - session.len() - 1])
            }
            None => parse(arn),
        }
    }

    fn challenge(&self) -> &'static str {
        SIGNATURE_V4
    }
}

/// The tenant of a function in tenant isolation mode: `Context.tenant_id`.
///
/// **It is whatever the invoker puts into `X-Amz-Tenant-Id`**, and Lambda verifies none of it. Behind API Gateway, map that header from what the
/// authorizer verified, such as `context.authorizer.claims.sub` or `context.authorizer.tenantId`. Mapped from a header, a parameter or the path
/// of the request, the client chooses its tenant, and reads any other's answers by their keys.
pub fn context_tenant(request: &Parts) -> Option<Tenant> {
    parse(request.lambda_context_ref()?.tenant_id.as_deref()?)
}

/// The tenants of this resolver, apart in each stage of the API: `live|acme` and `sandbox|acme`, for example. For stages that are separate
/// environments and share a function and a table. By default they share records too, because a retry may come through another
/// front of the same API.
///
/// Choose before the first request comes: these are other tenants, and records of the former ones are not found. A request that comes through no
/// stage, such as one from a load balancer, is refused with 401; so is a tenant that has more than 255 bytes with its stage. Use the same resolver
/// for [`operation_key`](super::operation_key). Reconcilers and operators see the tenant with its stage.
///
/// **Only the name of the stage counts.** Two APIs that share function and table, each with a stage `$default` or `prod`, still share records.
#[derive(Clone, Copy, Debug)]
pub struct PerStage<R>(
    /// The resolver of the tenant within its stage.
    pub R,
);

impl<R: TenantResolver> TenantResolver for PerStage<R> {
    fn tenant(&self, request: &Parts) -> Option<Tenant> {
        let Some(stage) = stage(request) else {
            static LOGGED: OnceLock<()> = OnceLock::new();
            LOGGED.get_or_init(|| {
                tracing::error!(
                    "requests come through no stage of an API, and their tenants are apart in each stage: they are refused"
                );
            });
            return None;
        };
        within(stage, &self.0, request)
    }

    fn challenge(&self) -> &'static str {
        self.0.challenge()
    }
}

/// The tenants of this resolver, apart for each host of the API: `a.example.com|acme` and `b.example.com|acme`, for example. For several domains,
/// such as shops or countries, that share a function and a table. By default they share records too, because a retry may come through another
/// domain of the same API.
///
/// Choose before the first request comes, as with [`PerStage`]. The host is the domain by which API Gateway or the function URL was called
/// (`requestContext.domainName`), in lower case. It is not the `Host` that a client sends to a load balancer, which checks none: a request that
/// comes through one is refused with 401, and so is a tenant that has more than 255 bytes with its host.
///
/// The API's own domain (`….execute-api.…`) is a host too: a retry through it runs again. If your clients could use it, switch it off
/// (`DisableExecuteApiEndpoint`).
#[derive(Clone, Copy, Debug)]
pub struct PerHost<R>(
    /// The resolver of the tenant within its host.
    pub R,
);

impl<R: TenantResolver> TenantResolver for PerHost<R> {
    fn tenant(&self, request: &Parts) -> Option<Tenant> {
        let Some(host) = host(request) else {
            static LOGGED: OnceLock<()> = OnceLock::new();
            LOGGED.get_or_init(|| {
                tracing::error!(
                    "requests come through no domain of an API, and their tenants are apart for each host: they are refused"
                );
            });
            return None;
        };
        within(&host, &self.0, request)
    }

    fn challenge(&self) -> &'static str {
        self.0.challenge()
    }
}

/// The tenant of this resolver, within a stage or a host.
fn within(name: &str, resolver: &impl TenantResolver, request: &Parts) -> Option<Tenant> {
    parse(&format!("{name}{ENDS}{}", resolver.tenant(request)?.as_str()))
}

fn parse(text: &str) -> Option<Tenant> {
    Tenant::parse(text).ok()
}
