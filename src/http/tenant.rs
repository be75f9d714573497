//! Finds the caller's tenant in what verified the caller: never in the body, the path or a plain header.

use std::sync::OnceLock;

use http::request::Parts;

use super::front;
use crate::key::Tenant;

/// The challenge of callers that are verified by a token.
pub(super) const BEARER: &str = "Bearer";

/// Finds the verified caller of a request. If there is none, the request is refused with 401.
///
/// A function `Fn(&Parts) -> Option<Tenant>` is a resolver too. A tenant must not come from what a client can set.
pub trait TenantResolver: Send + Sync + 'static {
    /// The caller's tenant.
    fn tenant(&self, request: &Parts) -> Option<Tenant>;

    /// The `WWW-Authenticate` of that 401: the scheme by which callers are verified
    /// ([RFC 9110, section 11.6.1](https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1)). Default: `Bearer`, as for JWT. So is one that is not of
    /// visible ASCII characters and spaces.
    fn challenge(&self) -> &'static str {
        BEARER
    }
}

impl<F> TenantResolver for F
where
    F: Fn(&Parts) -> Option<Tenant> + Send + Sync + 'static,
{
    fn tenant(&self, request: &Parts) -> Option<Tenant> {
        self(request)
    }
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

/// What separates a stage or a host from the tenant within it. Neither has a bar in its name, so no two pairs share a tenant.
const ENDS: char = '|';

/// The tenant of this resolver, within a stage or a host.
fn within(name: &str, resolver: &impl TenantResolver, request: &Parts) -> Option<Tenant> {
    parse(&format!("{name}{ENDS}{}", resolver.tenant(request)?.as_str()))
}

/// The domain by which the API was called, as its front verified it.
pub(super) fn host(request: &Parts) -> Option<String> {
    let domain = front::context(request)?.domain?.to_ascii_lowercase();
    Some(domain).filter(|domain| !domain.is_empty() && !domain.contains(ENDS))
}

/// The stage of API Gateway through which a request comes: `$default`, if it has no name.
pub(super) fn stage(request: &Parts) -> Option<&str> {
    front::context(request)?.stage
}

/// Whether this is a tenant of [`PerStage`] or [`PerHost`], or of one within the other.
pub(super) fn is_within(tenant: &Tenant, name: &str) -> bool {
    let mut names = tenant.as_str().split(ENDS);
    // The last is the tenant's own.
    names.next_back();
    names.any(|within| within == name)
}

/// One explicit tenant: all callers of this API share one space of keys. Right if there is one caller.
///
/// With several, a caller that sends another's key and request gets the other's answer, and two callers that choose the
/// same key, such as `order-1`, collide. Behind a load balancer or a function URL without IAM, the caller is not
/// verified: verify a token in a layer outside the guard, and take the tenant from it by a custom resolver.
#[derive(Clone, Debug)]
pub struct SingleTenant(Tenant);

impl SingleTenant {
    /// The tenant of every request.
    ///
    /// # Panics
    /// If `name` is not 1 to 255 bytes without control characters.
    pub fn new(name: &str) -> Self {
        Self(Tenant::parse(name).unwrap_or_else(|error| panic!("single tenant {name:?}: {error}")))
    }
}

impl TenantResolver for SingleTenant {
    fn tenant(&self, _: &Parts) -> Option<Tenant> {
        Some(self.0.clone())
    }
}

pub(super) fn parse(text: &str) -> Option<Tenant> {
    Tenant::parse(text).ok()
}
