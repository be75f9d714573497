//! Why a key begins nothing.

use std::borrow::Cow;

use crate::record::{Admission, Refusal};

/// Why the key of a request may not begin an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRefusal {
    /// One stable word, for the problem document.
    pub(crate) reason: &'static str,
    /// A sentence for the client.
    pub(crate) detail: Cow<'static, str>,
}

const fn refusal(reason: &'static str, detail: &'static str) -> KeyRefusal {
    KeyRefusal { reason, detail: Cow::Borrowed(detail) }
}

impl KeyRefusal {
    /// Its request begins nothing. `perhaps_in_flight` is whether another worker may have admitted it lately.
    pub(crate) fn admission(self, perhaps_in_flight: bool) -> Admission {
        let Self { reason, detail } = self;
        Admission::Refused(Refusal { reason, detail, perhaps_in_flight })
    }

    pub(crate) const NOT_A_UUID_V7: Self =
        refusal("not-a-uuid-v7", "The Idempotency-Key must be a UUID of version 7");
    pub(crate) const NOT_A_ULID: Self = refusal("not-a-ulid", "The Idempotency-Key must be a ULID");
    pub(crate) const TIMESTAMP_MISSING: Self =
        refusal("timestamp-missing", "The request has no Idempotency-Timestamp header");
    pub(crate) const TIMESTAMP_INVALID: Self = refusal(
        "timestamp-invalid",
        "The Idempotency-Timestamp is not a valid signature of the Idempotency-Key",
    );
    /// It is dated ahead of our clock by more than the skew.
    pub(crate) const FUTURE: Self = refusal("future", "The time of the Idempotency-Key is in the future");
    pub(crate) const TOO_OLD: Self =
        refusal("too-old", "The Idempotency-Key is older than this operation accepts");

    pub(crate) fn too_short(limit: usize, is_hash: bool) -> Self {
        let what = if is_hash { "A part of the idempotency key" } else { "The Idempotency-Key" };
        let detail = format!("{what} is shorter than {limit} characters").into();
        Self { detail, ..refusal("too-short", "") }
    }
}
