//! Which requests run unguarded.

use http::Request;

use super::{
    IDEMPOTENCY_KEY,
    claim::Claim,
    key_header::GivenKey,
    settings::{Guard, IDEMPOTENT},
};
use crate::telemetry::Count;

impl Guard {
    /// Whether a request runs unguarded: by its method, or without a key if the profile makes keys optional.
    pub(super) fn lets_pass<B>(&self, request: &Request<B>) -> bool {
        // Another front must not run it twice, whatever its method. Nor must accepted work run without the guard that accepted it.
        if request.extensions().get::<Claim>().is_some() || request.extensions().get::<GivenKey>().is_some() {
            return false;
        }
        let (method, keyed) = (request.method(), request.headers().contains_key(IDEMPOTENCY_KEY));
        let idempotent = IDEMPOTENT.iter().position(|idempotent| idempotent == method);
        match idempotent.filter(|_| !self.settings.also.contains(method)) {
            Some(number) => {
                if keyed {
                    self.settings.logged.passing[number].get_or_init(|| {
                        let operation = self.operation().name();
                        tracing::warn!(
                            %method, %operation,
                            "a request with an Idempotency-Key passes unguarded, because of its method: see Idempotency::guard_also"
                        );
                    });
                }
                true
            }
            // What is executed later needs a key.
            None if !keyed
                && self.settings.profile.key_optional
                && self.operation().asynchronous.is_none() =>
            {
                Count::Unguarded.add(self.operation().name());
                true
            }
            None => false,
        }
    }
}
