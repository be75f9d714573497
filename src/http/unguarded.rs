//! Which requests run unguarded.

use http::{HeaderMap, Method};

use super::{IDEMPOTENCY_KEY, settings::Guard};
use crate::telemetry::Count;

/// The methods that are idempotent by themselves ([RFC 9110, section
/// 9.2.2](https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2)), the safe ones included. Every other one is guarded, even
/// an unknown one.
pub(super) const IDEMPOTENT: [Method; 6] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];

impl Guard {
    /// Whether a request runs unguarded: by its method, or without a key if the profile makes keys optional.
    pub(super) fn lets_pass(&self, method: &Method, headers: &HeaderMap) -> bool {
        let keyed = headers.contains_key(IDEMPOTENCY_KEY);
        let idempotent = IDEMPOTENT.iter().position(|idempotent| idempotent == method);
        match idempotent.filter(|_| !self.settings.also.contains(method)) {
            Some(number) => {
                if keyed {
                    self.settings.reported.passing[number].get_or_init(|| {
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
}
