//! The table of problems: type, status, title and advice of each, and its words in Stripe's and ACP's contracts.

use http::StatusCode;

use super::Outcome;

/// The prefix of a problem's `type`.
const TYPE_PREFIX: &str = "urn:lambda-idempotency:";

/// A row of the table.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) status: StatusCode,
    pub(super) title: &'static str,
    /// What the client should do.
    pub(super) advice: &'static str,
    /// Whether the same request may get another answer later: then there is a `Retry-After`.
    pub(super) retry: bool,
    /// What it means for the operation of a guard around this one.
    pub(super) outcome: Outcome,
    pub(super) stripe: Words,
    pub(super) acp: Words,
}

/// What differs in a contract.
#[derive(Clone, Copy, Default)]
pub(super) struct Words {
    pub(super) status: Option<StatusCode>,
    /// The `code`, if it is not the problem's name.
    pub(super) code: Option<&'static str>,
    /// The contract's own `type`, if it does not follow from the status.
    pub(super) kind: Option<&'static str>,
}

const SAME: Words = Words { status: None, code: None, kind: None };

const fn code(code: &'static str) -> Words {
    Words { code: Some(code), ..SAME }
}

const fn kind(kind: &'static str) -> Words {
    Words { kind: Some(kind), ..SAME }
}

const fn entry(name: &'static str, status: StatusCode, title: &'static str, advice: &'static str) -> Entry {
    Entry {
        name,
        status,
        title,
        advice,
        retry: false,
        outcome: Outcome::NotExecuted,
        stripe: SAME,
        acp: SAME,
    }
}

/// Declares the problems: name, status, title and advice, and what else is in the row.
macro_rules! problems {
    ($($(#[$doc:meta])* $problem:ident: $name:literal, $status:ident, $title:literal, $advice:literal
        $(, $field:ident: $value:expr)*;)*) => {
        /// The problems that the guard answers with. Their names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemType { $($(#[$doc])* $problem),* }

        impl ProblemType {
            /// The table.
            pub(super) const fn entry(self) -> Entry {
                match self {
                    $(Self::$problem => Entry {
                        $($field: $value,)*
                        ..entry($name, StatusCode::$status, $title, $advice)
                    }),*
                }
            }
        }
    };
}

problems! {
    /// A guarded operation was called without a key.
    KeyMissing: "key-missing", BAD_REQUEST, "This operation needs an Idempotency-Key",
        "Send the request with an Idempotency-Key that you made for this intent alone.",
        acp: code("idempotency_key_required");
    /// The key is invalid; `reason` says why.
    KeyMalformed: "key-malformed", BAD_REQUEST, "The Idempotency-Key is malformed",
        "Send one key of 1 to 255 visible ASCII characters, such as a UUID, in the form that this operation \
         takes.";
    /// The key is older than the operation accepts; this request did nothing.
    KeyTooOld: "key-too-old", BAD_REQUEST, "The Idempotency-Key is too old",
        "This request did nothing; an earlier one with the same key may have. Look the resource itself up \
         before you use a new key.",
        stripe: code("idempotency_key_too_old"), acp: code("idempotency_key_too_old");
    /// The request cannot be read, before any guard: its `Host`, for example, is invalid. Answered by
    /// `lambda::run_http`, always in the shape of RFC 9457.
    RequestMalformed: "request-malformed", BAD_REQUEST, "The request is malformed",
        "This request did nothing; an earlier one with the same key may have. Send it well-formed.";
    /// The caller is not verified.
    TenantMissing: "tenant-missing", UNAUTHORIZED, "The caller is not authenticated",
        "Send the request with valid credentials.";
    /// A webhook that its sender has not signed, or not now; `reason` says what is wrong.
    SignatureRefused: "signature-refused", UNAUTHORIZED, "The signature of the event is not accepted",
        "This request did nothing. Sign the bytes of the body, with a secret that the receiver has, when they are sent.";
    /// The body is too long to be read.
    BodyTooLong: "body-too-long", PAYLOAD_TOO_LARGE, "The request body is too long",
        "Send a shorter body.";
    /// The body could not be read to its end.
    BodyUnreadable: "body-unreadable", BAD_REQUEST, "The request body could not be read",
        "Send the request again with the same key.";
    /// The key was used for another request.
    KeyReused: "key-reused", UNPROCESSABLE_ENTITY, "The Idempotency-Key was used for another request",
        "This request did nothing; an earlier one with the same key may have. To retry that one, repeat it \
         exactly; use a new key only for a new intent.",
        outcome: Outcome::Completed,
        stripe: Words { status: Some(StatusCode::BAD_REQUEST), code: Some("idempotency_error"), ..kind("idempotency_error") },
        acp: code("idempotency_conflict");
    /// The first request under this key is still being worked on.
    InFlight: "in-flight", CONFLICT, "A request with this Idempotency-Key is in progress",
        "Send the same request with the same key after the time in Retry-After.",
        retry: true, stripe: code("idempotency_key_in_use"), acp: code("idempotency_in_flight");
    /// Perhaps the operation was executed; it is being reconciled.
    OutcomeUnknown: "outcome-unknown", CONFLICT, "The outcome of this operation is not known yet",
        "It may have been executed. Do not use a new key: send the same request with the same key after the \
         time in Retry-After, until the outcome is known.",
        retry: true, outcome: Outcome::PerhapsExecuted, acp: kind("processing_error");
    /// Another execution owns the operation's record, or has settled it with an answer that cannot be read now. The answer of
    /// this execution does not count.
    AnsweredElsewhere: "answered-elsewhere", SERVICE_UNAVAILABLE, "The answer of this operation is not available now",
        "It was executed, or is being executed, by another request with this key, whose answer counts. Do not \
         use a new key: send the same request with the same key after the time in Retry-After.",
        retry: true, outcome: Outcome::PerhapsExecuted, acp: kind("processing_error");
    /// Its tenant has too many new keys, or open records; this request did nothing.
    OverBound: "over-bound", TOO_MANY_REQUESTS, "Too many new operations, or too many are open",
        "This request did nothing; an earlier one with the same key may have. Do not use a new key: send the same \
         request with the same key after the time in Retry-After.",
        retry: true, stripe: code("rate_limit"), acp: Words { code: Some("too_many_requests"), ..kind("service_unavailable") };
    /// A tenant looks up too many operations. That says nothing about them.
    TooManyLookUps: "too-many-look-ups", TOO_MANY_REQUESTS, "Too many operations were looked up",
        "This says nothing about the operation. Ask again after the time in Retry-After.",
        retry: true, outcome: Outcome::PerhapsExecuted, stripe: code("rate_limit"), acp: Words { code: Some("too_many_requests"), ..kind("service_unavailable") };
    /// Operators have stopped its tenant; this request did nothing.
    TenantStopped: "tenant-stopped", FORBIDDEN, "New operations of this account are stopped",
        "This request did nothing; an earlier one with the same key may have. Do not use a new key: ask the operator of \
         this service, and send the same request with the same key once operations are allowed again.",
        retry: true;
    /// The store of records does not answer, or too little time is left to begin; this request did nothing.
    StoreUnavailable: "store-unavailable", SERVICE_UNAVAILABLE, "The service cannot guard this operation now",
        "This request did nothing; an earlier one with the same key may have. Do not use a new key: send the \
         same request with the same key after the time in Retry-After.",
        retry: true, acp: kind("service_unavailable");
    /// The execution ended between two phases; a retry resumes it.
    Interrupted: "interrupted", SERVICE_UNAVAILABLE, "The operation was interrupted",
        "Parts of it may be done. Do not use a new key: send the same request with the same key after the time in \
         Retry-After, and the operation continues where it stopped.",
        retry: true, outcome: Outcome::PerhapsExecuted, acp: kind("service_unavailable");
    /// The record cannot be read; this request did nothing.
    RecordUnreadable: "record-unreadable", SERVICE_UNAVAILABLE, "The record of this operation cannot be read now",
        "This request did nothing; an earlier one with the same key may have. Do not use a new key: send the \
         same request with the same key after the time in Retry-After.",
        retry: true, acp: kind("service_unavailable");
    /// No operation of this key is known.
    OperationNotFound: "operation-not-found", NOT_FOUND, "No such operation",
        "Check the key and the operation, and that the credentials are those of the original request.";
    /// The operation of this key has expired.
    OperationExpired: "operation-expired", GONE, "The operation has expired",
        "Its answer is no longer kept. Look the resource itself up.";
    /// The operation was accepted, but no worker began it in time.
    Abandoned: "operation-abandoned", REQUEST_TIMEOUT, "The operation was not executed",
        "Nothing was done. To have it done after all, send the request with a new key.";
    /// The route is misconfigured; this request did nothing.
    NotGuarded: "not-guarded", INTERNAL_SERVER_ERROR, "This operation is not guarded",
        "This request did nothing; an earlier one with the same key may have. This is a fault of the service. Do not use a \
         new key: send the same request with the same key once the fault is repaired.";
}

impl ProblemType {
    /// The name in the `type` URI.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// The `type` URI, unless the profile [chooses another base](super::Profile::problem_types). `urn:lambda-idempotency` is not a registered
    /// namespace of RFC 8141: it is unique in practice, and leads nowhere.
    pub fn uri(self) -> String {
        format!("{TYPE_PREFIX}{}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Profile;

    const CONTRACT: &str = include_str!("../../docs/contract.md");

    /// Lists the problems. It does not compile if one is missing.
    macro_rules! all {
        ($($problem:ident),+ $(,)?) => {
            const ALL: &[ProblemType] = &[$(ProblemType::$problem),+];
            const _: fn(ProblemType) = |problem| match problem {
                $(ProblemType::$problem => (),)+
            };
        };
    }

    all![
        KeyMissing,
        KeyMalformed,
        KeyTooOld,
        RequestMalformed,
        TenantMissing,
        SignatureRefused,
        BodyTooLong,
        BodyUnreadable,
        KeyReused,
        InFlight,
        OutcomeUnknown,
        AnsweredElsewhere,
        OverBound,
        TooManyLookUps,
        TenantStopped,
        StoreUnavailable,
        Interrupted,
        RecordUnreadable,
        OperationNotFound,
        OperationExpired,
        Abandoned,
        NotGuarded,
    ];

    /// The status of each type that a row names, and its code, if it is another than the type.
    fn cell(row: &[&str], column: usize, at: usize) -> (u16, Option<String>) {
        let status = row[column].split([',', ' ']).filter_map(|word| word.parse().ok()).nth(at);
        let code = quoted(row[column]).into_iter().find(|word| *word != "Retry-After");
        (status.expect("a status"), code.map(str::to_owned))
    }

    fn quoted(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn the_contract_lists_each_problem_as_the_table_has_it() {
        // These statuses do not depend on the profile.
        let overridden = [500, 503].map(|status| (ProblemType::OutcomeUnknown, status));
        let rows: Vec<Vec<&str>> = CONTRACT
            .lines()
            .skip_while(|line| !line.ends_with("problem `type` |"))
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        for &problem in ALL {
            let mut checked = 0;
            for row in &rows {
                let Some(at) = quoted(row[4]).iter().position(|name| *name == problem.name()) else {
                    continue;
                };
                checked += 1;
                let retry = row[1].contains("`Retry-After`");
                assert_eq!(retry, problem.entry().retry, "{row:?}");
                for (column, profile) in
                    [Profile::ietf_draft(), Profile::stripe(), Profile::acp()].iter().enumerate()
                {
                    let (status, code) = cell(row, column + 1, at);
                    assert_eq!(
                        code.unwrap_or_else(|| problem.name().to_owned()),
                        profile.shape.code(problem),
                        "{row:?}"
                    );
                    if !overridden.contains(&(problem, status)) {
                        assert_eq!(status, profile.status_of(problem).as_u16(), "{row:?}");
                    }
                }
            }
            assert!(checked > 0, "docs/contract.md does not list {}", problem.name());
        }
        let named =
            rows.iter().flat_map(|row| quoted(row[4])).filter(|name| !["type", "reason"].contains(name));
        for name in named {
            assert!(ALL.iter().any(|problem| problem.name() == name), "{name}");
        }
    }
}
