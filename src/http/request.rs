//! Parses a request once, before anything is done.

use std::{
    borrow::Cow,
    iter,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, request::Parts};

use super::{
    GuardedBody, IDEMPOTENCY_KEY, MAX_BODY, Problem, ProblemType, Webhook,
    claim::Claim,
    front::{self, Front},
    key_header, origin,
    request_key::GivenKey,
    respond::HttpAnswer,
    settings::Guard,
    target,
};
use crate::{
    engine::{Execution, Request, SingleTransaction},
    fingerprint::{Content, Fingerprints},
    key::{FoundKey, RecordKey, Scope, Tenant},
    record::{Admission, AnswerKind, Work},
    time::Timestamp,
    time_budget::BODY_TIMEOUT,
};

/// A parsed request.
pub(super) struct Parsed<B: GuardedBody> {
    pub(super) request: Request,
    pub(super) body: B::Whole,
    /// The prefix of the API's paths in URLs that its clients can use: the stage, at the API's own domain.
    pub(super) mount: String,
}

impl Guard {
    /// What the guard needs of a request; as an error, why it is refused.
    pub(super) async fn parse<B: GuardedBody>(
        &self,
        request: http::Request<B>,
    ) -> Result<(Parts, Parsed<B>), HttpAnswer> {
        let (parts, body) = request.into_parts();
        // A body of your own may panic too. Nothing is reserved yet.
        let parsed = AssertUnwindSafe(parse(self, &parts, body)).catch_unwind().await;
        let parsed = parsed.unwrap_or_else(|_| Err(self.panicked("what reads the request")));
        let parsed = parsed.map_err(|problem| self.retry_later(problem, Duration::ZERO))?;
        let key = &parsed.request.key;
        let of_this = |outer: &RecordKey| outer == key;
        if parts.extensions.get::<Execution>().is_some_and(|outer| of_this(outer.record_key()))
            || parts.extensions.get::<SingleTransaction>().is_some_and(|outer| of_this(outer.record_key()))
        {
            let operation = self.operation().name();
            tracing::error!(%operation, "two guards of the same operation are nested: remove one");
            return Err(self.problem(ProblemType::NotGuarded));
        }
        Ok((parts, parsed))
    }

    /// What this function of the program returns. If it panics, nothing is reserved yet.
    fn call<T>(&self, what: &str, function: impl FnOnce() -> T) -> Result<T, Problem> {
        catch_unwind(AssertUnwindSafe(function)).map_err(|_| self.panicked(what))
    }

    fn panicked(&self, what: &str) -> Problem {
        let operation = self.operation().name();
        tracing::error!(%operation, "{what} panicked: this request did nothing");
        Problem::new(ProblemType::NotGuarded)
    }

    /// The key of a request with this body.
    fn key(&self, parts: &Parts, body: &[u8]) -> Result<FoundKey, Problem> {
        let key = self.call("the function of the key", || self.settings.profile.key(parts, body))?;
        key.map_err(Problem::refused)
    }
}

/// Parses what the guard needs from a request.
async fn parse<B: GuardedBody>(guard: &Guard, parts: &Parts, body: B) -> Result<Parsed<B>, Problem> {
    let operation = guard.operation();
    let deadline = front::deadline(parts);
    let claim: Option<&Claim> = parts.extensions.get();
    if let Some(claim) = claim {
        // It was parsed when it was accepted.
        let Claim { key, request } = claim.clone();
        // Not bounded by settings of today: it was accepted under those of then.
        let body = whole(guard, body, MAX_BODY).await?;
        let work = Work::Claimed(request);
        // The record keeps the origin that it was accepted from.
        let request = Request {
            key,
            fingerprints: Fingerprints::of_claim(),
            answer_kind: AnswerKind::Http,
            admission: Admission::ALWAYS,
            deadline,
            work,
            origin: None,
        };
        return Ok(Parsed { request, body, mount: String::new() });
    }
    // Not once its body is here: until then its key, or its signature, may have grown too old.
    let asked_at = guard.world().now();
    let known = match &guard.settings.webhook {
        Some(webhook) => of_sender(guard, webhook, parts, body, asked_at).await?,
        None => of_client(guard, parts, body).await?,
    };
    let Known { tenant, key: found, body } = known;
    guard.sees_stage(parts, &tenant);
    guard.sees_host(parts, &tenant);
    let (path, query) = (target::path(parts), target::query(parts));
    let raw_query = target::raw_query(parts, &query);
    let timestamp = key_header::timestamp(&parts.headers);
    let admission = operation.admission_of(&found, timestamp, asked_at);
    let FoundKey { key, parts: key_parts, .. } = found;
    let content = Content {
        method: parts.method.as_str(),
        path: &path,
        query: &query,
        raw_query: raw_query.as_deref(),
        header: &|name| header(&parts.headers, name),
        body: body.as_ref(),
    };
    let name = operation.name();
    let rule = guard.settings.webhook.as_ref().map_or(&operation.rule, |webhook| &webhook.rule);
    let fingerprints = guard.call("the fingerprint rule", || {
        content.fingerprints(name.as_str(), rule, &operation.former_rules)
    })?;
    let key = RecordKey::new(tenant, name.clone(), key);
    let key = if guard.settings.profile.keys_by_path { key.within(Scope::of(&path)) } else { key };
    let origin = Some(origin::of(parts, key_parts.as_deref()));
    let work = operation.asynchronous.map_or(Work::Now, |bound| {
        let claim_by = guard.world().now().plus(bound);
        Work::Later { claim_by, max_attempts: operation.max_attempts }
    });
    let answer_kind = AnswerKind::Http;
    let request = Request { key, fingerprints, answer_kind, admission, deadline, work, origin };
    Ok(Parsed { request, body, mount: target::mount(parts).to_owned() })
}

/// What says whose request it is, and which; and its whole body.
struct Known<W> {
    tenant: Tenant,
    key: FoundKey,
    body: W,
}

/// Of a client whose front has verified it.
async fn of_client<B: GuardedBody>(
    guard: &Guard,
    parts: &Parts,
    body: B,
) -> Result<Known<B::Whole>, Problem> {
    let tenant = guard.call("the tenant resolver", || {
        let tenant = guard.tenant.tenant(parts);
        tenant.ok_or_else(|| Problem::unverified(&*guard.tenant))
    })?;
    let tenant = tenant.inspect_err(|_| {
        if Front::of(&parts.extensions).is_none() {
            guard.no_context();
        }
    })?;
    let profile = &guard.settings.profile;
    // A request that is refused by its head alone is refused before its body is read.
    let found = match parts.extensions.get() {
        // Its front has removed this header: one that is there was added on the way, and is of another request.
        Some(GivenKey(given)) if !parts.headers.contains_key(IDEMPOTENCY_KEY) => Some(given.clone()),
        _ => profile.key_before_body(parts).map_err(Problem::refused)?,
    };
    let body = whole(guard, body, guard.settings.longest.request).await?;
    let key = match found {
        Some(found) => found,
        None => guard.key(parts, body.as_ref())?,
    };
    Ok(Known { tenant, key, body })
}

/// Of the sender of webhooks. Nothing of a request is read before its signature is verified.
async fn of_sender<B: GuardedBody>(
    guard: &Guard,
    webhook: &Webhook,
    parts: &Parts,
    body: B,
    asked_at: Timestamp,
) -> Result<Known<B::Whole>, Problem> {
    let refused = |refusal| webhook.problem(guard.operation().name(), refusal);
    webhook.assert_signed(&parts.headers).map_err(refused)?;
    let body = whole(guard, body, guard.settings.longest.request).await?;
    webhook.verify(&parts.headers, body.as_ref(), asked_at).map_err(refused)?;
    let key = guard.key(parts, body.as_ref())?;
    let tenant = webhook.tenant_of(body.as_ref()).map_err(Problem::refused)?;
    Ok(Known { tenant, key, body })
}

/// The whole body, within bounds of time and size. On Lambda it is there already.
async fn whole<B: GuardedBody>(guard: &Guard, body: B, longest: usize) -> Result<B::Whole, Problem> {
    let whole = guard.world().within(BODY_TIMEOUT, body.whole(longest)).await;
    whole.unwrap_or(Err(ProblemType::BodyUnreadable)).map_err(Problem::new)
}

/// A header's lines, joined as gateways join them.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    let text = |line: &'a HeaderValue| match std::str::from_utf8(line.as_bytes().trim_ascii()) {
        Ok(text) => Cow::Borrowed(text),
        // Never in an event. Different values map to different texts.
        Err(_) => iter::once('\0').chain(line.as_bytes().iter().map(|byte| char::from(*byte))).collect(),
    };
    let mut lines = headers.get_all(name).iter().map(text);
    let first = lines.next()?;
    Some(lines.fold(first, |joined, line| format!("{joined},{line}").into()))
}
