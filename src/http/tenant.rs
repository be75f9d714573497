//! Finds the caller's tenant in what verified the caller: never in the body, the path or a plain header.

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

/// What separates a stage or a host from the tenant within it. Neither has a bar in its name, so no two pairs share a tenant.
pub(super) const ENDS: char = '|';

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
