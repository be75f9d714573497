//! In which way a request is served.

use http::Request;

use super::{
    claim::Claim,
    request_key::GivenKey,
    settings::{Accept, Executes, Guard, IDEMPOTENT},
};
use crate::telemetry::Count;

/// In which way a guarded request is served.
pub(super) enum Way {
    /// It is accepted work of another operation: nothing is run.
    OfAnother,
    /// It is accepted, if this does so, and executed later.
    Accepted(Option<Accept>),
    /// Its handler runs at once, and its writes commit with the record.
    InOneTransaction,
    /// Its handler runs once its key is reserved, or its accepted work claimed.
    Reserved,
}

impl Guard {
    /// In which way this request is served; `None` if it passes, unguarded.
    pub(super) fn way<B>(&self, request: &Request<B>) -> Option<Way> {
        let claim: Option<&Claim> = request.extensions().get();
        if self.lets_pass(request) {
            return None;
        }
        Some(match (&self.settings.executes, claim) {
            (_, Some(claim)) if claim.key.operation() != self.operation().name() => Way::OfAnother,
            (Executes::Later(accept), None) => Way::Accepted(accept.clone()),
            (Executes::InOneTransaction, _) => Way::InOneTransaction,
            (Executes::Reserved, _) | (Executes::Later(_), Some(_)) => Way::Reserved,
        })
    }

    /// Whether a request runs unguarded: by its method, or without a key if the profile makes keys optional.
    fn lets_pass<B>(&self, request: &Request<B>) -> bool {
        // Another front must not run it twice, whatever its method. Nor must accepted work run without the guard that accepted it.
        if request.extensions().get::<Claim>().is_some() || request.extensions().get::<GivenKey>().is_some() {
            return false;
        }
        // No request to a webhook runs unverified.
        if self.settings.webhook.is_some() {
            return false;
        }
        let (method, keyed) = (request.method(), self.settings.profile.has_key_header(request.headers()));
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
