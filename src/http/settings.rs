//! The settings of one guard.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, request::Parts};

use super::{
    IDEMPOTENCY_RETENTION, KeySyntax, Profile, TenantResolver, Webhook, claim::Claim, front::Front,
    problem_document::Shape, tenant,
};
use crate::{
    engine::{Execution, Executor, SingleTransaction},
    key::Tenant,
    operation::{Operation, ServerErrors},
    world::World,
};

/// The idempotent methods ([RFC 9110, section
/// 9.2.2](https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2)), the safe ones included. Every other method is
/// guarded, unknown ones too.
pub(super) const IDEMPOTENT: [Method; 6] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];

/// Decides whether a request is accepted.
pub(super) type Accept =
    Arc<dyn Fn(SingleTransaction, Parts, Bytes) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// When a handler runs, and when its record is written.
#[derive(Clone)]
pub(super) enum Executes {
    /// At once, after a reservation.
    Reserved,
    /// At once, and its writes commit with the record.
    InOneTransaction,
    /// Later, by a worker, once this has accepted the request; each is accepted if there is none.
    Later(Option<Accept>),
}

/// What was logged already: these lines come once, not with every request.
#[derive(Debug, Default)]
pub(super) struct Logged {
    no_documentation: OnceLock<()>,
    pub(super) passing: [OnceLock<()>; IDEMPOTENT.len()],
    no_context: OnceLock<()>,
    /// The stage of the first request, and that there is another one.
    stage: OnceLock<String>,
    stages: OnceLock<()>,
    /// The host of the first request, and that there is another one.
    host: OnceLock<String>,
    hosts: OnceLock<()>,
}

/// The longest bodies that are read, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Longest {
    pub(super) request: usize,
    pub(super) response: usize,
}

/// The major version of `lambda_http` whose requests are understood.
const LAMBDA_HTTP: &str = "1.x";

/// The settings of one guard.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) executor: Executor,
    pub(super) executes: Executes,
    pub(super) profile: Profile,
    /// The sender, if the requests are webhooks.
    pub(super) webhook: Option<Arc<Webhook>>,
    /// Idempotent methods that are guarded too.
    pub(super) also: Vec<Method>,
    pub(super) status_path: String,
    pub(super) longest: Longest,
    /// Whether an answer of any size can be delivered.
    pub(super) any_size: bool,
    pub(super) logged: Arc<Logged>,
    /// For how many seconds answers are kept.
    pub(super) retention: HeaderValue,
}

impl Settings {
    /// Sets the profile. A webhook has its key where its sender puts it, whatever the profile says.
    pub(super) fn set_profile(&mut self, profile: Profile) {
        self.profile = match &self.webhook {
            Some(webhook) => profile.key_from(webhook.key_from()).key_syntax(KeySyntax::Bare),
            None => profile,
        };
        self.assert_loses_no_event();
        self.executor.operation().assert_dates(&self.profile.key_from);
    }

    /// Sets the sender of webhooks.
    pub(super) fn receive(&mut self, webhook: Webhook) {
        self.webhook = Some(Arc::new(webhook));
        self.set_profile(self.profile.clone());
    }

    /// Panics if an event of a webhook could be lost, or have its effect twice: a mistake in the program, found at start-up.
    pub(super) fn assert_loses_no_event(&self) {
        let Some(webhook) = &self.webhook else { return };
        let operation = self.executor.operation();
        webhook.assert_for_events(operation);
        webhook.assert_remembered(operation);
        if self.executor.has_bounds() {
            webhook.assert_not_bounded(operation);
        }
        webhook.assert_no_failure_kept(operation, self.profile.server_errors);
        // In a single transaction, nothing is in flight.
        if matches!(self.executes, Executes::Reserved) {
            webhook.assert_not_turned_away(operation);
        }
    }

    /// Says how long answers are replayed.
    pub(super) fn announce(&self, headers: &mut HeaderMap) {
        headers.insert(IDEMPOTENCY_RETENTION, self.retention.clone());
    }

    /// Warns at start-up about what is missing.
    pub(super) fn check(&self) {
        #[cfg(not(feature = "lambda-http"))]
        if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
            let operation = self.executor.operation().name();
            tracing::error!(
                %operation,
                "this program runs on Lambda without the feature lambda-http: the guard sees no deadline, no front and no verified caller. Switch it on"
            );
        }
        // The sender of a webhook reads no documentation.
        let is_read = self.webhook.is_none();
        if is_read && self.profile.shape == Shape::Rfc9457 && self.profile.documentation.is_none() {
            self.logged.no_documentation.get_or_init(|| {
                let operation = self.executor.operation().name();
                tracing::warn!(
                    %operation,
                    "problems have no link to documentation, which the IETF draft asks for: see Profile::documentation"
                );
            });
        }
    }
}

/// The guard of one operation. Cheap to clone.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) settings: Arc<Settings>,
    pub(super) tenant: Arc<dyn TenantResolver>,
}

impl Guard {
    /// Logs why every request is refused, if none has a request context.
    pub(super) fn no_context(&self) {
        self.settings.logged.no_context.get_or_init(|| {
            let operation = self.operation().name();
            tracing::error!(
                %operation,
                "a request has neither a tenant nor a request context. On Lambda, that means it did not come through \
                 lambda_http {LAMBDA_HTTP}: if the program contains another major version of that crate, use the one that \
                 lambda_idempotency::http re-exports"
            );
        });
    }

    /// Logs that two stages share records, unless their tenants differ (T58).
    pub(super) fn sees_stage(&self, request: &Parts, tenant: &Tenant) {
        let Some(stage) = tenant::stage(request) else { return };
        let Logged { stage: first, stages, .. } = &*self.settings.logged;
        let first = first.get_or_init(|| stage.to_owned());
        if first == stage || tenant::is_within(tenant, stage) {
            return;
        }
        stages.get_or_init(|| {
            tracing::warn!(
                operation = %self.operation().name(), stage, first,
                "requests of two stages of an API share records: a retry in the one gets the answer of the other. If the stages are \
                 separate environments, wrap the tenant resolver in PerStage"
            );
        });
    }

    /// Logs that two hosts share records, unless their tenants differ. The API's own domain is another front of the same API.
    pub(super) fn sees_host(&self, request: &Parts, tenant: &Tenant) {
        let is_own = |host: &String| [".execute-api.", ".lambda-url."].iter().any(|own| host.contains(own));
        let Some(host) = tenant::host(request).filter(|host| !is_own(host)) else { return };
        let Logged { host: first, hosts, .. } = &*self.settings.logged;
        let first = first.get_or_init(|| host.clone());
        if *first == host || tenant::is_within(tenant, &host) {
            return;
        }
        hosts.get_or_init(|| {
            tracing::warn!(
                operation = %self.operation().name(), host, first,
                "requests to two hosts of an API share records: a retry to the one gets the answer of the other. If the hosts are separate \
                 shops or environments, wrap the tenant resolver in PerHost"
            );
        });
    }

    /// The front that an answer to this request goes to. A guard around this one, or a worker, delivers nothing to a front.
    pub(super) fn front<B>(&self, request: &Request<B>) -> Option<Front> {
        let known = request.extensions();
        let is_within = known.get::<Execution>().is_some()
            || known.get::<SingleTransaction>().is_some()
            || known.get::<Claim>().is_some();
        Front::of(known).filter(|_| !is_within)
    }

    pub(super) fn world(&self) -> &Arc<dyn World> {
        self.settings.executor.in_world()
    }

    pub(super) fn operation(&self) -> &Operation {
        self.settings.executor.operation()
    }

    /// What a handler's 5xx means: the operation's choice, or the profile's.
    pub(super) fn server_errors(&self) -> ServerErrors {
        if self.operation().effects().phases().is_some() {
            // It ended between two phases, and a retry resumes it.
            return ServerErrors::RetryFresh;
        }
        self.operation().server_errors.unwrap_or(self.settings.profile.server_errors)
    }
}
