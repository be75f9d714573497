//! Contract profiles: the statuses, codes and headers of an API.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::{
    KeySyntax, Problem, ProblemType,
    problem_document::{Links, Shape},
};
use crate::{headers, key::KeyFrom, operation::ServerErrors};

/// An API's idempotency contract. Choose one for each API, change what differs, and document it.
///
/// | | IETF draft | Stripe v1 | ACP |
/// | --- | --- | --- | --- |
/// | key missing | 400 | 400 | 400 `idempotency_key_required` |
/// | key malformed | 400 | 400 | 400 |
/// | key too old | 400 | 400 `idempotency_key_too_old` | 400 `idempotency_key_too_old` |
/// | same key, other request | 422 | 400 `idempotency_error` | 422 `idempotency_conflict` |
/// | in flight | 409 | 409 `idempotency_key_in_use` | 409 `idempotency_in_flight` |
/// | outcome unknown | 409 | 409 | 409 |
/// | a handler's 5xx without an `Outcome` | reconciled | kept and replayed | reconciled, never kept |
/// | shape of problems | RFC 9457 | `{"error": {type, code, message}}` | flat `type`, `code`, `message` |
/// | one key on two paths | another request | another request | two operations |
/// | echo of the key | no | yes | yes |
///
/// Neither Stripe nor ACP has a code for a key that is too old: this one follows their style. The chapter
/// `docs/contract.md` compares each requirement, with the reason for every deviation.
///
/// ```
/// use http::StatusCode;
/// use lambda_idempotency::http::{ProblemType, Profile};
///
/// let profile = Profile::ietf_draft()
///     .documentation("https://api.example.com/docs/idempotency")
///     .status(ProblemType::KeyReused, StatusCode::CONFLICT);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Profile {
    statuses: Vec<(ProblemType, StatusCode)>,
    pub(super) server_errors: ServerErrors,
    pub(super) key_from: KeyFrom,
    pub(super) key_syntax: KeySyntax,
    pub(super) documentation: Option<Cow<'static, str>>,
    types: Option<Cow<'static, str>>,
    pub(super) shape: Shape,
    pub(super) key_optional: bool,
    pub(super) keys_by_path: bool,
    pub(super) words: Option<OwnWords>,
}

/// Writes problems in an API's own words.
#[derive(Clone, derive_more::Debug)]
#[debug("OwnWords")]
pub(super) struct OwnWords(Arc<Words>);

type Words = dyn Fn(&Problem, Response<Bytes>) -> Response<Bytes> + Send + Sync;

impl OwnWords {
    pub(super) fn of(&self, problem: &Problem, standard: Response<Bytes>) -> Response<Bytes> {
        (self.0)(problem, standard)
    }
}

impl Profile {
    /// [draft-ietf-httpapi-idempotency-key-header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/):
    /// 400, 409 and 422, as `application/problem+json`.
    pub fn ietf_draft() -> Self {
        Self {
            statuses: Vec::new(),
            server_errors: ServerErrors::Reconcile,
            key_from: KeyFrom::header(headers::IDEMPOTENCY_KEY),
            key_syntax: KeySyntax::Either,
            documentation: None,
            types: None,
            shape: Shape::Rfc9457,
            key_optional: false,
            keys_by_path: false,
            words: None,
        }
    }

    /// The IETF draft's contract in words of your own: `words` gets each problem with the response that it would be, and returns the response
    /// that it is. Headers that its client needs, such as `Retry-After`, are added if it lacks them. A status that is no error is not used.
    ///
    /// It gets the guard's problems alone, never a handler's answer: a layer around the guard that writes both in one shape finds the guard's by
    /// [`Guarded::problem`](super::Guarded::problem).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{HeaderValue, header::CONTENT_TYPE};
    /// use lambda_idempotency::http::Profile;
    ///
    /// let profile = Profile::custom(|problem, mut response| {
    ///     let code = problem.problem_type().name().replace('-', "_").to_uppercase();
    ///     let message = problem.message();
    ///     *response.body_mut() = serde_json::json!({ "error": { "code": code, "message": message } }).to_string().into();
    ///     response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ///     response
    /// });
    /// ```
    pub fn custom(
        words: impl Fn(&Problem, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        Self { words: Some(OwnWords(Arc::new(words))), ..Self::ietf_draft() }
    }

    /// [Stripe's API v1](https://docs.stripe.com/api/idempotent_requests): 400 for another request under the same key, an echo of the key, and a handler's 5xx
    /// without an [`Outcome`](super::Outcome) is kept and replayed, whatever its status. A handler that panics or returns an error has no
    /// answer: its outcome is unknown. An operation that [resumes](crate::Operation::resumes) never keeps a 5xx.
    pub fn stripe() -> Self {
        Self { server_errors: ServerErrors::Keep, shape: Shape::Stripe, ..Self::ietf_draft() }
    }

    /// The [Agentic Commerce Protocol](https://github.com/agentic-commerce-protocol/agentic-commerce-protocol): 422 and 409
    /// with ACP's codes, an echo of the key, keys scoped to one path each, and a 5xx is never kept as an answer.
    pub fn acp() -> Self {
        Self { shape: Shape::Acp, keys_by_path: true, ..Self::ietf_draft() }
    }

    /// Makes the key optional, as Stripe does. A request without one runs **unguarded**, every time it is sent, and is
    /// [counted](crate::telemetry::UNGUARDED). Its tenant is not checked either, so verify callers outside the guard.
    /// Handlers must take an `Option<Execution>`: an `Execution` alone is refused with 500.
    ///
    /// # Panics
    /// If the [key](Self::key_from) is not in a header: a request without one passes before its body is read.
    pub fn key_optional(mut self) -> Self {
        self.key_optional = true;
        self.assert_seen()
    }

    /// Whether one key on two paths names two operations, as in ACP (section 6.1), or one operation, whose second path is
    /// refused as a mismatch.
    ///
    /// **Choose before the first request comes**: a record that was written under the other choice is not found, and its
    /// retry runs again. With keys scoped by path, the same request also runs under another path, such as another domain's
    /// base path.
    pub fn scope_keys_by_path(mut self, scoped: bool) -> Self {
        self.keys_by_path = scoped;
        self
    }

    /// Sets another status for this problem. For [`ProblemType::OutcomeUnknown`] it applies to retries only: the client of a
    /// handler that breaks gets 500.
    ///
    /// # Panics
    /// If it is no error of 4xx or 5xx: clients would take the refusal for a success. A mistake in the program, found at start-up.
    pub fn status(mut self, problem: ProblemType, status: StatusCode) -> Self {
        let is_error = status.is_client_error() || status.is_server_error();
        assert!(is_error, "status({problem:?}, {status}): a problem is 4xx or 5xx");
        self.statuses.push((problem, status));
        self
    }

    /// Where clients put the key. Default: the header `Idempotency-Key`.
    ///
    /// Choose before the first request comes: a key that is found elsewhere is another key, and its retry runs again.
    ///
    /// ```
    /// use lambda_idempotency::{KeyFrom, http::Profile};
    ///
    /// // `{"idempotency_key": "k-1", "amount": 100}`
    /// let in_the_body = Profile::ietf_draft().key_from(KeyFrom::body("/idempotency_key"));
    /// let of_paypal = Profile::ietf_draft().key_from(KeyFrom::header("PayPal-Request-Id"));
    /// ```
    ///
    /// # Panics
    /// If it is for messages, such as [`KeyFrom::envelope`], or if keys are [optional](Self::key_optional) and it is not in a header.
    pub fn key_from(mut self, key: KeyFrom) -> Self {
        key.assert_of_request();
        self.key_from = key;
        self.assert_seen()
    }

    /// Panics if the key is optional, and is not seen before the body is read.
    fn assert_seen(self) -> Self {
        let Self { key_optional, key_from, .. } = &self;
        assert!(
            !key_optional || key_from.is_in_headers(),
            "Profile::key_optional needs a key that is in a header, not in {key_from:?}"
        );
        self
    }

    /// How clients may write the key, if it is in a header.
    pub fn key_syntax(mut self, syntax: KeySyntax) -> Self {
        self.key_syntax = syntax;
        self
    }

    /// Where your API documents this contract: problems link there.
    ///
    /// # Panics
    /// If `url` is empty, or contains characters that a `Link` header does not allow: a mistake in the program, found at
    /// start-up.
    pub fn documentation(mut self, url: impl Into<Cow<'static, str>>) -> Self {
        let url = url.into();
        assert!(is_uri(&url), "documentation({url:?}) is not a valid URL for a Link header");
        self.documentation = Some(url);
        self
    }

    /// What the `type` of each problem begins with, in the IETF draft's contract: the [name](ProblemType::name) follows, such as
    /// `https://api.example.com/problems/in-flight`. RFC 9457 asks for a URL that leads to documentation. Default: `urn:lambda-idempotency:`, which
    /// leads nowhere. Choose before clients compare it.
    ///
    /// # Panics
    /// If `base` does not end with `/`, `:`, `#` or `=`, or contains characters that a URI does not allow: a mistake in the program, found at start-up.
    pub fn problem_types(mut self, base: impl Into<Cow<'static, str>>) -> Self {
        let base = base.into();
        let ends = base.ends_with(['/', ':', '#', '=']);
        assert!(
            ends && is_uri(&base),
            "problem_types({base:?}) is no beginning of a URI: end it with /, :, # or ="
        );
        self.types = Some(base);
        self
    }

    pub(super) fn links(&self) -> Links<'_> {
        Links { types: self.types.as_deref(), documentation: self.documentation.as_deref() }
    }

    /// The header with the key as the client wrote it, if the contract echoes it in responses, as Stripe and ACP do.
    pub(super) fn echo(&self, request: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
        if self.shape == Shape::Rfc9457 { None } else { self.key_header(request) }
    }

    /// The status that was set last, or the contract's.
    pub(super) fn status_of(&self, problem: ProblemType) -> StatusCode {
        let chosen = self.statuses.iter().rev().find(|(chosen, _)| *chosen == problem);
        chosen.map_or_else(|| self.shape.status(problem), |(_, status)| *status)
    }
}

/// Whether this has only characters of a URI, so that it fits into a `Link` header too.
fn is_uri(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"{}|\\^`".contains(&byte))
}

impl Default for Profile {
    fn default() -> Self {
        Self::ietf_draft()
    }
}
