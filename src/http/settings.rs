//! What was chosen for one guard.

use std::sync::{Arc, OnceLock};

use http::{HeaderMap, Method};

use super::{IDEMPOTENCY_KEY, Profile, TenantResolver};
use crate::{engine::Executor, operation::Operation, telemetry::Count, world::World};

/// The methods that are idempotent by themselves ([RFC 9110, section
/// 9.2.2](https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2)), the safe ones among them. Every other one is guarded, also
/// one that nobody knows.
const IDEMPOTENT: [Method; 6] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];

/// What is logged once, and not with every request.
#[derive(Debug, Default)]
pub(super) struct Told {
    no_documentation: OnceLock<()>,
    passing: [OnceLock<()>; IDEMPOTENT.len()],
    no_context: OnceLock<()>,
}

/// The major version whose requests are understood.
const LAMBDA_HTTP: &str = "1.x";

/// What was chosen for one guard.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) executor: Executor,
    pub(super) profile: Profile,
    /// Guarded, although they are idempotent by themselves.
    pub(super) also: Vec<Method>,
    pub(super) status_path: String,
    pub(super) told: Arc<Told>,
}

impl Settings {
    /// Says at start-up what is missing.
    pub(super) fn check(&self) {
        if self.profile.wants_documentation() {
            self.told.no_documentation.get_or_init(|| {
                let operation = self.executor.operation().name();
                tracing::warn!(
                    %operation,
                    "problems have no link to a documentation, which the IETF draft asks for: see Profile::documentation"
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
    /// Whether a request runs unguarded: by its method, or without a key if the contract leaves that to clients.
    pub(super) fn lets_pass(&self, method: &Method, headers: &HeaderMap) -> bool {
        let keyed = headers.contains_key(IDEMPOTENCY_KEY);
        let idempotent = IDEMPOTENT.iter().position(|idempotent| idempotent == method);
        match idempotent.filter(|_| !self.settings.also.contains(method)) {
            Some(number) => {
                if keyed {
                    self.settings.told.passing[number].get_or_init(|| {
                        let operation = self.operation().name();
                        tracing::warn!(
                            %method, %operation,
                            "a request with an Idempotency-Key passes unguarded, because of its method: see Idempotency::guard_also"
                        );
                    });
                }
                true
            }
            None if !keyed && self.settings.profile.key_is_optional() => {
                Count::Unguarded.add(self.operation().name());
                true
            }
            None => false,
        }
    }

    /// Says why everybody is refused, if no request says who its caller is.
    pub(super) fn no_context(&self) {
        self.settings.told.no_context.get_or_init(|| {
            let operation = self.operation().name();
            tracing::error!(
                %operation,
                "a request has no tenant, and no request context either. On Lambda that means that it did not come through \
                 lambda_http {LAMBDA_HTTP}: if another major version of that crate is in the program, use the one that \
                 lambda_idempotency::http re-exports"
            );
        });
    }

    pub(super) fn world(&self) -> &Arc<dyn World> {
        self.settings.executor.in_world()
    }

    pub(super) fn operation(&self) -> &Operation {
        self.settings.executor.operation()
    }
}
