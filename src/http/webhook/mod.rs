//! A route that receives webhooks: what verifies an event, and which event it is.

mod sender;
mod signed;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName};
use serde_json::Value;

use self::{
    sender::Sender,
    signed::{Refusal, one},
};
use super::{Problem, ProblemType};
use crate::{
    fingerprint::{FingerprintRule, JsonPointer},
    key::{
        KeyFrom, OperationName, Tenant,
        refusal::KeyRefusal,
        signature::{Secrets, SignatureError},
    },
    operation::{Operation, ServerErrors, WhileInFlight},
    telemetry::{self, WEBHOOK_REFUSED, WEBHOOK_UNSIGNED},
    time::Timestamp,
};

/// The number of the rule by which the id, which is in the key, says what an event is, and not its body. The path counts: two endpoints whose
/// operations have one name would otherwise take an event from each other.
const BY_ID: u32 = u32::from_be_bytes(*b"hook");

/// The `object` of Stripe's thin events.
const THIN: &str = "v2.core.event";

/// The challenge of the 401. What signs a webhook has no registered scheme.
const SIGNATURE: &str = "Signature";

/// A sender of webhooks: how its events are verified, and what their ids are. For
/// [`Idempotency::webhook`](super::Idempotency::webhook).
///
/// The decision, in order:
/// 1. Without a signature: 401, before the body is read. A body that is longer than the guard [reads](super::Idempotency::longest_bodies): 413.
/// 2. The signature is verified over the bytes of the body. If it is another's, too old or from the future: 401. Until then nothing of the
///    request is parsed, kept or logged.
/// 3. The event's id is the key, and the sender's account the tenant. The body does not count: Stripe writes another `pending_webhooks` into
///    each delivery of an event.
/// 4. The handler runs. A later delivery of the event gets its answer. While it runs, and if its outcome is unknown or the store is away,
///    a delivery gets 409 or 503, so that the sender comes again.
///
/// | | key | signed | retention, at least |
/// | --- | --- | --- | --- |
/// | [`stripe`](Self::stripe) | `/id` of the body | body, time | [3 days](crate::time_budget::STRIPE_REDELIVERY) |
/// | [`github`](Self::github) | `X-GitHub-Delivery` | body | [3 days](crate::time_budget::GITHUB_REDELIVERY) |
/// | [`shopify`](Self::shopify) | `X-Shopify-Event-Id` with `X-Shopify-Topic` | body | [4 hours](crate::time_budget::SHOPIFY_REDELIVERY) |
/// | [`standard`](Self::standard) | `webhook-id` | id, body, time | [76 hours](crate::time_budget::STANDARD_WEBHOOKS_REDELIVERY) |
/// | [`svix`](Self::svix) | `svix-id` | id, body, time | [28 hours](crate::time_budget::SVIX_REDELIVERY) |
///
/// **The ids of GitHub and Shopify are not signed**, nor is a time. If an attacker has a body with its signature, both can be sent again under
/// another id, at any time, and the handler runs again. So keep both out of logs, and change the secret if they may have leaked.
///
/// A handler should answer 2xx once it has taken note of an event, also of one that it does not know: a sender takes any other status for a failure,
/// and delivers the event again. It gets the answer that is kept, until it gives up.
///
/// ```
/// use axum::{Router, routing::post};
/// use lambda_idempotency::{Idempotency, MemoryStore, Operation, http::Webhook, time_budget::STRIPE_REDELIVERY};
///
/// # fn app() -> Result<Router, lambda_idempotency::key::signature::SignatureError> {
/// let operation = Operation::new("stripe-event").retain(STRIPE_REDELIVERY);
/// let sender = Webhook::stripe(["whsec_of_the_endpoint"])?;
/// let guard = Idempotency::new(MemoryStore::new(), operation).webhook(sender);
/// let app = Router::new().route("/stripe", post(async |event: String| println!("{event}")).route_layer(guard));
/// # Ok(app)
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Webhook {
    sender: Sender,
    secrets: Secrets,
    tenant: Tenant,
    /// By which a delivery is the same event as a former one.
    pub(super) rule: FingerprintRule,
    /// Whether a signature was refused already, and the log says so.
    has_refused: Arc<AtomicBool>,
}

/// While secrets are changed, an event may be signed by any of them.
impl Webhook {
    /// [Stripe](https://docs.stripe.com/webhooks), snapshot events and thin ones: the secrets are those of its endpoints, with their `whsec_`. The
    /// tenant is the account that an event names: a snapshot the connected account in `account`, a thin event any account in `context`. The snapshot and
    /// the thin event of one fact are two events, with two ids: act on one of them.
    ///
    /// # Errors
    /// If there is no secret, or one is too short.
    pub fn stripe<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self, SignatureError> {
        Secrets::new(secrets).map(|secrets| Self::of(Sender::Stripe, secrets))
    }

    /// [GitHub](https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries), by `X-Hub-Signature-256`.
    ///
    /// # Errors
    /// If there is no secret, or one is too short.
    pub fn github<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self, SignatureError> {
        Secrets::new(secrets).map(|secrets| Self::of(Sender::GitHub, secrets))
    }

    /// [Shopify](https://shopify.dev/docs/apps/build/webhooks): the secrets are those of the app. The topic is a part of the key, because each topic gets a
    /// webhook of the same event.
    ///
    /// # Errors
    /// If there is no secret, or one is too short.
    pub fn shopify<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self, SignatureError> {
        Secrets::new(secrets).map(|secrets| Self::of(Sender::Shopify, secrets))
    }

    /// [Standard Webhooks](https://www.standardwebhooks.com), by signatures of the scheme `v1`: the secrets are in Base64, after `whsec_`.
    /// An id with a dot is refused, as the specification asks its senders to make none.
    ///
    /// # Errors
    /// If there is no secret, or one is too short, not Base64, or the key of an asymmetric signature.
    pub fn standard<T: AsRef<str>>(secrets: impl IntoIterator<Item = T>) -> Result<Self, SignatureError> {
        decoded(secrets).map(|secrets| Self::of(Sender::Standard, secrets))
    }

    /// [Svix](https://docs.svix.com/receiving/verifying-payloads/how-manual), by which services such as Clerk and Resend send: Standard Webhooks in
    /// headers of its own, `svix-id`, `svix-timestamp` and `svix-signature`. If a service has it send `webhook-id`, that is
    /// [`standard`](Self::standard).
    ///
    /// # Errors
    /// As of [`standard`](Self::standard).
    pub fn svix<T: AsRef<str>>(secrets: impl IntoIterator<Item = T>) -> Result<Self, SignatureError> {
        decoded(secrets).map(|secrets| Self::of(Sender::Svix, secrets))
    }

    fn of(sender: Sender, secrets: Secrets) -> Self {
        let tenant = Tenant::parse(sender.tenant()).expect("each sender's is one");
        Self {
            sender,
            secrets,
            tenant,
            rule: FingerprintRule::custom(BY_ID, |content| content.path.to_vec()),
            has_refused: Arc::default(),
        }
    }

    /// The tenant of events that name no account of their own. Default: `stripe`, `github`, `shopify`, `webhooks` or `svix`.
    ///
    /// # Panics
    /// If `name` is not 1 to 255 bytes without control characters.
    pub fn tenant(mut self, name: &str) -> Self {
        self.tenant = Tenant::parse(name).unwrap_or_else(|error| panic!("tenant({name:?}): {error}"));
        self
    }

    /// Where an event has its id.
    pub(super) fn key_from(&self) -> KeyFrom {
        self.sender.key_from()
    }

    /// Whether this header says what an event is, for the worker of one that is executed later. Never a signature.
    pub(super) fn describes(&self, name: &HeaderName) -> bool {
        self.sender.describes(name.as_str())
    }

    /// Whether this could be signed, by its head alone.
    pub(super) fn assert_signed(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.sender.signature().iter().try_for_each(|name| one(headers, name).map(drop))
    }

    /// Verifies the signature of this body.
    pub(super) fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refusal> {
        signed::verify(self.sender, &self.secrets, headers, body, now)
    }

    /// The tenant of an event that is verified: the account that it names, if its sender has accounts.
    pub(super) fn tenant_of(&self, body: &[u8]) -> Result<Tenant, KeyRefusal> {
        if self.sender != Sender::Stripe {
            return Ok(self.tenant.clone());
        }
        let account = match member(body, "/account")? {
            // Snapshots may have a `context` too, by the version of their endpoint: if it counted, an event that is delivered again by another version
            // would be another tenant's, and run again.
            None if member(body, "/object")?.as_deref() == Some(THIN) => member(body, "/context")?,
            account => account,
        };
        let Some(account) = account else { return Ok(self.tenant.clone()) };
        Tenant::parse(&account).map_err(|_| not_one("/account"))
    }

    /// That this signature is not accepted: 401, and it is counted. The log has no line for each, because anyone can send them.
    pub(super) fn problem(&self, operation: &OperationName, refusal: Refusal) -> Problem {
        let (Refusal { reason, says }, sender) = (refusal, self.sender.name());
        let is_signed = refusal != Refusal::MISSING;
        telemetry::count(if is_signed { WEBHOOK_REFUSED } else { WEBHOOK_UNSIGNED });
        if is_signed && !self.has_refused.swap(true, Ordering::Relaxed) {
            // A wrong secret refuses each event.
            tracing::warn!(%operation, sender, reason, "a webhook is refused: {says}. Others are logged at the level DEBUG");
        } else {
            tracing::debug!(%operation, sender, reason, "a webhook is refused: {says}");
        }
        Problem {
            detail: Some(says.into()),
            reason: Some(reason),
            challenge: SIGNATURE,
            ..Problem::new(ProblemType::SignatureRefused)
        }
    }

    /// Panics if a setting is for requests of clients, and would refuse events, or do nothing.
    pub(super) fn assert_for_events(&self, operation: &Operation) {
        let (sender, name) = (self.sender.name(), operation.name().as_str());
        assert!(
            operation.oldest_key.is_none(),
            "operation {name:?}: refuse_older_than() refuses every event, because the ids of {sender} have no time"
        );
        assert!(
            operation.min_key_length <= 1,
            "operation {name:?}: min_key_length() refuses events, because {sender} chooses their ids: leave it out"
        );
        assert!(
            operation.rule.id() == FingerprintRule::new().id(),
            "operation {name:?}: fingerprint() does nothing, because the id of an event of {sender} says which one it is: leave it out"
        );
    }

    /// Panics if a delivery could come once its event is forgotten.
    pub(super) fn assert_remembered(&self, operation: &Operation) {
        let (sender, name) = (self.sender.name(), operation.name().as_str());
        let ((least, constant), retain) = (self.sender.redelivery(), operation.retain);
        assert!(
            retain >= least,
            "operation {name:?}: retain({retain:?}) is shorter than {sender} delivers an event again ({least:?}): retain(time_budget::{constant})"
        );
    }

    /// Panics if a failure of the handler would be the answer to each later delivery of its event.
    pub(super) fn assert_no_failure_kept(&self, operation: &Operation, by_profile: ServerErrors) {
        let kept = operation.server_errors.unwrap_or(by_profile) == ServerErrors::Keep;
        assert!(
            !kept || operation.effects().phases().is_some(),
            "operation {:?}: ServerErrors::Keep loses each event of {} whose handler answers 5xx: every later delivery gets that answer. Set \
             server_errors() to another one",
            operation.name().as_str(),
            self.sender.name()
        );
    }

    /// Panics if bounds, or operators, may turn away an event that does not come again.
    pub(super) fn assert_not_bounded(&self, operation: &Operation) {
        let (sender, name) = (self.sender.name(), operation.name().as_str());
        assert!(
            self.sender.comes_again(),
            "operation {name:?}: {sender} delivers no event again by itself, so none may be refused because of Idempotency::bounds"
        );
    }

    /// Panics if an event could be lost that comes while it is in flight.
    pub(super) fn assert_not_turned_away(&self, operation: &Operation) {
        let (sender, name) = (self.sender.name(), operation.name().as_str());
        let choice = operation.while_in_flight;
        assert!(
            choice != WhileInFlight::Accept,
            "operation {name:?}: WhileInFlight::Accept answers 202, which {sender} takes for delivered: if the execution in flight fails, the event \
             is lost. Refuse it, wait, or execute events later by Operation::asynchronous"
        );
        assert!(
            self.sender.comes_again() || choice != WhileInFlight::Refuse,
            "operation {name:?}: {sender} delivers no event again by itself, so one that is in flight must not be refused. Wait for it by \
             WhileInFlight::Wait, for less than the 10 s that {sender} waits, or execute events later by Operation::asynchronous"
        );
        if let (WhileInFlight::Wait(wait), Some(patience)) = (choice, self.sender.patience()) {
            assert!(
                wait < patience,
                "operation {name:?}: WhileInFlight::Wait({wait:?}) is no shorter than {sender} waits for an answer ({patience:?}): it would be gone \
                 before the answer comes"
            );
        }
    }
}

/// Secrets in Base64, after `whsec_`.
fn decoded<T: AsRef<str>>(secrets: impl IntoIterator<Item = T>) -> Result<Secrets, SignatureError> {
    let decoded = secrets.into_iter().map(|secret| {
        let secret = secret.as_ref().trim();
        let secret = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret));
        secret.map_err(|_| SignatureError::SecretNotBase64)
    });
    Secrets::new(decoded.collect::<Result<Vec<_>, _>>()?)
}

/// The text of this member of an event, if it has one.
fn member(body: &[u8], at: &'static str) -> Result<Option<String>, KeyRefusal> {
    let pointer = JsonPointer::parse(at).map_err(|_| not_one(at))?;
    let body = std::str::from_utf8(body).map_err(|_| not_one(at))?;
    match pointer.find(body) {
        Ok(Some(Value::String(text))) => Ok(Some(text)),
        Ok(None | Some(Value::Null)) => Ok(None),
        _ => Err(not_one(at)),
    }
}

fn not_one(at: &str) -> KeyRefusal {
    KeyRefusal {
        reason: "not-a-string",
        detail: format!("The member of the event at {at} is not one text that it could be").into(),
    }
}
