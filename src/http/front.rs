//! What a front of Lambda (API Gateway, a function URL, a load balancer) says of a request that it passes on. All that the guard reads of
//! `lambda_http` is here, and in the tenants that authorizers verify: without the feature `lambda-http`, no request has a front.

use std::borrow::Cow;

use http::{Extensions, request::Parts};

use crate::time::Timestamp;

/// What the front of a request takes of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "lambda-http"), expect(dead_code, reason = "no request has a front"))]
pub(crate) enum Front {
    /// A REST API, or an HTTP API in payload format 1.0: all lines of a header.
    AllLines,
    /// An HTTP API or a function URL, in format 2.0: one line of each name, and a list of cookies.
    OneLine,
    /// One line of each name, or all, as its target group is set.
    LoadBalancer,
}

/// What the front says.
pub(super) struct Context<'a> {
    /// The stage of API Gateway: `$default`, if it has no name.
    pub(super) stage: Option<&'a str>,
    /// The domain by which the API was called.
    pub(super) domain: Option<&'a str>,
    /// The route by which the request came: `POST /orders/{id}` or `$default`, of a REST API `/orders/{id}`.
    pub(super) route: Option<&'a str>,
    /// The path, with the stage that may precede it, if this front decodes paths: an HTTP API in both payload formats, and function URLs.
    pub(super) decoded: Option<&'a str>,
    /// The path as the client wrote it, of a REST API: it has the stage if the client's has.
    pub(super) client_path: Option<&'a str>,
}

#[cfg(feature = "lambda-http")]
mod lambda {
    use lambda_http::{RequestExt, request::RequestContext};

    use super::{Context, Cow, Extensions, Front, Parts, Timestamp};

    impl Front {
        /// The front of a request; `None` outside Lambda.
        pub(crate) fn of(request: &Extensions) -> Option<Self> {
            Some(match request.get()? {
                RequestContext::Alb(_) => Self::LoadBalancer,
                RequestContext::ApiGatewayV2(_) => Self::OneLine,
                _ => Self::AllLines,
            })
        }
    }

    /// What the front says; `None` outside Lambda.
    pub(in crate::http) fn context(request: &Parts) -> Option<Context<'_>> {
        Some(match request.request_context_ref()? {
            RequestContext::ApiGatewayV2(said) => Context {
                stage: said.stage.as_deref(),
                domain: said.domain_name.as_deref(),
                route: said.route_key.as_deref(),
                decoded: said.http.path.as_deref(),
                client_path: None,
            },
            RequestContext::ApiGatewayV1(said) => Context {
                stage: said.stage.as_deref(),
                domain: said.domain_name.as_deref(),
                route: said.resource_path.as_deref(),
                // A REST API's request has a resource.
                decoded: raw_path(request).filter(|_| said.resource_id.is_none()),
                client_path: said.path.as_deref(),
            },
            _ => Context { stage: None, domain: None, route: None, decoded: None, client_path: None },
        })
    }

    /// The path in the event, as the front passes it on; `None` outside Lambda.
    pub(in crate::http) fn raw_path(request: &Parts) -> Option<&str> {
        Some(request.raw_http_path()).filter(|path| !path.is_empty())
    }

    /// The query's parameters in the event, decoded, if there are any.
    pub(in crate::http) fn parameters(request: &Parts) -> Option<Vec<(Cow<'_, str>, Cow<'_, str>)>> {
        let parameters = request.query_string_parameters_ref()?;
        Some(parameters.iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// When Lambda ends this invocation.
    pub(in crate::http) fn deadline(request: &Parts) -> Option<Timestamp> {
        request.lambda_context_ref().map(|context| Timestamp::from_millis(context.deadline))
    }
}

#[cfg(not(feature = "lambda-http"))]
mod lambda {
    use super::{Context, Cow, Extensions, Front, Parts, Timestamp};

    impl Front {
        pub(crate) const fn of(_: &Extensions) -> Option<Self> {
            None
        }
    }

    pub(in crate::http) const fn context(_: &Parts) -> Option<Context<'_>> {
        None
    }

    pub(in crate::http) const fn raw_path(_: &Parts) -> Option<&str> {
        None
    }

    pub(in crate::http) const fn parameters(_: &Parts) -> Option<Vec<(Cow<'_, str>, Cow<'_, str>)>> {
        None
    }

    pub(in crate::http) const fn deadline(_: &Parts) -> Option<Timestamp> {
        None
    }
}

pub(super) use lambda::{context, deadline, parameters, raw_path};
