//! Verifies the signature of a webhook over the bytes of its body.
//!
//! 1. Each header of the signature is there once: of two, nothing says which one counts.
//! 2. One of our secrets made one of its digests, compared in constant time.
//! 3. If its time is signed, it is within the tolerance, in the past or in the future. It counts only once it is authentic.
//!
//! It remembers nothing: a copy is the same event, whose key has a record.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderMap;

use super::sender::{GITHUB_SIGNATURE, SHOPIFY_SIGNATURE, STANDARD, STRIPE_SIGNATURE, SVIX, Sender};
use crate::{
    key::signature::{MAX_DIGESTS, Secrets, SignatureError, is_fresh},
    time::Timestamp,
    time_budget::SIGNATURE_TOLERANCE,
};

/// Why a signature is not accepted: one stable word, and what the problem says. Nothing that was sent is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) says: &'static str,
}

const fn refusal(reason: &'static str, says: &'static str) -> Refusal {
    Refusal { reason, says }
}

impl Refusal {
    pub(super) const MISSING: Self = refusal("missing", "The event is not signed");
    const REPEATED: Self = refusal("repeated", "A header of the signature is there more than once");
    const MALFORMED: Self = refusal("malformed", "The signature is malformed");
    const MISMATCH: Self = refusal("mismatch", "The signature does not match the body");
    const TOO_OLD: Self = refusal("too-old", "The signature is too old");
    const FUTURE: Self = refusal("future", "The time of the signature is in the future");
}

impl From<SignatureError> for Refusal {
    fn from(error: SignatureError) -> Self {
        match error {
            SignatureError::TimeRepeated => Self::REPEATED,
            SignatureError::TooOld => Self::TOO_OLD,
            SignatureError::Future => Self::FUTURE,
            SignatureError::Mismatch => Self::MISMATCH,
            _ => Self::MALFORMED,
        }
    }
}

/// The one line of this header.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Refusal> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().ok_or(Refusal::MISSING)?;
    if lines.next().is_some() {
        return Err(Refusal::REPEATED);
    }
    line.to_str().map_err(|_| Refusal::MALFORMED)
}

/// Verifies the signature of this body.
pub(super) fn verify(
    sender: Sender,
    secrets: &Secrets,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<(), Refusal> {
    match sender {
        Sender::Stripe => {
            let signature = one(headers, STRIPE_SIGNATURE)?;
            secrets.verify(signature, body, now, SIGNATURE_TOLERANCE)?;
            Ok(())
        }
        Sender::GitHub => {
            let digits = one(headers, GITHUB_SIGNATURE)?.strip_prefix("sha256=").ok_or(Refusal::MALFORMED)?;
            let mut digest = [0; 32];
            hex::decode_to_slice(digits, &mut digest).map_err(|_| Refusal::MALFORMED)?;
            made(secrets, &[digest], &[body])
        }
        Sender::Shopify => {
            let digest = digest(one(headers, SHOPIFY_SIGNATURE)?).ok_or(Refusal::MALFORMED)?;
            made(secrets, &[digest], &[body])
        }
        Sender::Standard => standard(STANDARD, secrets, headers, body, now),
        Sender::Svix => standard(SVIX, secrets, headers, body, now),
    }
}

/// Verifies a signature of [Standard Webhooks](https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md):
/// of `<id>.<time>.<body>`.
fn standard(
    [signature, time, id]: [&str; 3],
    secrets: &Secrets,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<(), Refusal> {
    let (id, time) = (one(headers, id)?, one(headers, time)?);
    // With a dot in it, the id could take in the time of another event, and that event's body lend its beginning as the time.
    if id.contains('.') || !time.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::MALFORMED);
    }
    let made_at = Timestamp::from_secs(time.parse().map_err(|_| Refusal::MALFORMED)?);
    // Others, such as `v1a`, are of schemes that are not ours.
    let texts = one(headers, signature)?.split(' ').filter_map(|text| text.strip_prefix("v1,"));
    let digests: Vec<_> = texts.take(MAX_DIGESTS + 1).collect();
    if digests.is_empty() || digests.len() > MAX_DIGESTS {
        return Err(Refusal::MALFORMED);
    }
    let digests: Vec<_> = digests.into_iter().filter_map(digest).collect();
    made(secrets, &digests, &[id.as_bytes(), b".", time.as_bytes(), b".", body])?;
    Ok(is_fresh(made_at, now, SIGNATURE_TOLERANCE)?)
}

fn made(secrets: &Secrets, digests: &[[u8; 32]], pieces: &[&[u8]]) -> Result<(), Refusal> {
    if secrets.made(digests, pieces) { Ok(()) } else { Err(Refusal::MISMATCH) }
}

/// A digest in Base64.
fn digest(text: &str) -> Option<[u8; 32]> {
    BASE64_STANDARD.decode(text).ok()?.try_into().ok()
}
