//! Signatures with a time stamp, `t=<unix seconds>,v1=<hex>`, in the form of
//! [Stripe's webhooks](https://docs.stripe.com/webhooks#verify-manually).
//!
//! 1. A signature must have exactly one `t`, and at least one `v1`. Several `v1` may be given while secrets are changed; other
//!    schemes are ignored.
//! 2. One `v1` must be the HMAC-SHA256 of `<t>.<payload>` under one of our [`Secrets`], compared in constant time.
//! 3. [`Secrets::verify`] then refuses a `t` that is further from now than the tolerance, in the past or in the future.
//!
//! It does not remember signatures: within the tolerance, a copy is accepted again.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::time::Timestamp;

/// The most digests in a signature, more than any sender has secrets: each is compared with each of ours.
pub(crate) const MAX_DIGESTS: usize = 16;

/// The shortest secret, in bytes: a shorter one can be guessed.
const MIN_SECRET: usize = 16;

/// Secrets that are valid at the same time. The first signs and any of them verifies, so that secrets can be rotated without a
/// gap.
#[derive(Clone, derive_more::Debug)]
#[debug("Secrets({})", _0.len())]
pub struct Secrets(Vec<Hmac<Sha256>>);

/// Why a secret, or a signature, is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is no secret.
    #[error("no secret is given")]
    NoSecret,
    /// A secret is too short.
    #[error("a secret must have at least {MIN_SECRET} bytes")]
    ShortSecret,
    /// A secret of Standard Webhooks is not Base64, or is the key of an asymmetric signature.
    #[error("a secret of Standard Webhooks must be Base64, after `whsec_`: keys of `v1a` are not supported")]
    SecretNotBase64,
    /// It is not written as `t=…,v1=…`.
    #[error("the signature is malformed")]
    Malformed,
    /// It has more than one `t`, and nothing says which of them counts.
    #[error("the signature has more than one time")]
    TimeRepeated,
    /// It has no `v1`.
    #[error("the signature has no known scheme")]
    Unsigned,
    /// It is older than the tolerance.
    #[error("the signature is too old")]
    TooOld,
    /// It is further ahead than the tolerance.
    #[error("the signature is from the future")]
    Future,
    /// None of the secrets made it.
    #[error("the signature does not match")]
    Mismatch,
}

impl Secrets {
    /// Takes these secrets, the one that signs first.
    pub fn new<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self, SignatureError> {
        let keyed = secrets.into_iter().map(|secret| match secret.as_ref() {
            short if short.len() < MIN_SECRET => Err(SignatureError::ShortSecret),
            secret => Hmac::new_from_slice(secret).map_err(|_| SignatureError::ShortSecret),
        });
        let keyed: Vec<_> = keyed.collect::<Result<_, _>>()?;
        if keyed.is_empty() { Err(SignatureError::NoSecret) } else { Ok(Self(keyed)) }
    }

    /// Reads secrets separated by commas, the newest first.
    pub fn parse(text: &str) -> Result<Self, SignatureError> {
        Self::new(text.split(',').map(str::trim).filter(|secret| !secret.is_empty()))
    }

    /// Signs a payload at this time.
    pub fn sign(&self, now: Timestamp, payload: &[u8]) -> String {
        let seconds = now.as_millis() / 1000;
        let digest = self.0[0].clone().chain_update(format!("{seconds}.")).chain_update(payload).finalize();
        format!("t={seconds},v1={}", hex::encode(digest.into_bytes()))
    }

    /// Checks a signature, in constant time, and its age. Returns the time at which it was made.
    pub fn verify(
        &self,
        signature: &str,
        payload: &[u8],
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<Timestamp, SignatureError> {
        // Before the age check: a time counts only once it is authentic.
        let made_at = self.authenticate(signature, payload)?;
        is_fresh(made_at, now, tolerance)?;
        Ok(made_at)
    }

    /// Whether one of the secrets made one of these digests of the payload's pieces, in constant time.
    ///
    /// Hashes the payload once per secret, not once per digest: any sender can combine a large body with many digests.
    pub(crate) fn made(&self, digests: &[[u8; 32]], pieces: &[&[u8]]) -> bool {
        self.0.iter().any(|keyed| {
            let keyed = pieces.iter().fold(keyed.clone(), |keyed, piece| keyed.chain_update(piece));
            digests.iter().any(|digest| keyed.clone().verify_slice(digest).is_ok())
        })
    }

    /// The time at which an authentic signature was made, however long ago.
    pub(crate) fn authenticate(&self, signature: &str, payload: &[u8]) -> Result<Timestamp, SignatureError> {
        let (mut time, mut digests, mut signed) = (None, Vec::<[u8; 32]>::new(), false);
        for part in signature.split(',') {
            match part.trim().split_once('=').ok_or(SignatureError::Malformed)? {
                ("t", seconds) if time.is_none() && seconds.bytes().all(|byte| byte.is_ascii_digit()) => {
                    time = Some(seconds.parse::<u64>().map_err(|_| SignatureError::Malformed)?);
                }
                ("t", _) if time.is_some() => return Err(SignatureError::TimeRepeated),
                ("t", _) => return Err(SignatureError::Malformed),
                // A `v1` that is not a digest matches nothing.
                ("v1", digits) => {
                    signed = true;
                    let mut digest = [0; 32];
                    digests.extend(hex::decode_to_slice(digits, &mut digest).map(|()| digest));
                }
                _ => {}
            }
        }
        if digests.len() > MAX_DIGESTS {
            return Err(SignatureError::Malformed);
        }
        let seconds = time.ok_or(SignatureError::Malformed)?;
        if !signed {
            return Err(SignatureError::Unsigned);
        }
        if !self.made(&digests, &[format!("{seconds}.").as_bytes(), payload]) {
            return Err(SignatureError::Mismatch);
        }
        Ok(Timestamp::from_secs(seconds))
    }
}

/// Whether a signature that was made then is neither too old nor from the future.
pub(crate) fn is_fresh(
    made_at: Timestamp,
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), SignatureError> {
    if made_at.plus(tolerance) < now {
        return Err(SignatureError::TooOld);
    }
    if now.plus(tolerance) < made_at {
        return Err(SignatureError::Future);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time_budget::SIGNATURE_TOLERANCE;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const OLD: &str = "an-older-secret-of-mine";
    const NEW: &str = "the-newer-secret-of-mine";

    fn secrets(text: &str) -> Secrets {
        Secrets::parse(text).unwrap()
    }

    fn verified(
        by: &str,
        signature: &str,
        payload: &[u8],
        now: Timestamp,
    ) -> Result<Timestamp, SignatureError> {
        secrets(by).verify(signature, payload, now, SIGNATURE_TOLERANCE)
    }

    #[test]
    fn any_valid_secret_verifies_and_the_first_signs() {
        let (old, new) =
            (secrets(OLD).sign(NOW, b"body"), secrets(&format!("{NEW}, {OLD}")).sign(NOW, b"body"));
        let both = format!("{NEW},{OLD}");
        assert_eq!(verified(&both, &old, b"body", NOW), Ok(NOW));
        assert_eq!(verified(NEW, &new, b"body", NOW), Ok(NOW));
        assert_eq!(verified(NEW, &old, b"body", NOW), Err(SignatureError::Mismatch));
        let (_, digest) = old.split_once(',').unwrap();
        assert_eq!(verified(OLD, &format!("{new},v0=x,{digest}"), b"body", NOW), Ok(NOW));
        assert_eq!(verified(OLD, &old.replace(',', ", "), b"body", NOW), Ok(NOW));
    }

    #[test]
    fn another_payload_time_or_age_is_refused() {
        let signature = secrets(OLD).sign(NOW, b"body");
        assert_eq!(verified(OLD, &signature, b"other", NOW), Err(SignatureError::Mismatch));
        let later = signature.replace("t=1800000000", "t=1800000100");
        assert_eq!(verified(OLD, &later, b"body", NOW), Err(SignatureError::Mismatch));
        let second = Duration::from_secs(1);
        assert!(verified(OLD, &signature, b"body", NOW.plus(SIGNATURE_TOLERANCE)).is_ok());
        assert!(verified(OLD, &signature, b"body", NOW.minus(SIGNATURE_TOLERANCE)).is_ok());
        let too_late = verified(OLD, &signature, b"body", NOW.plus(SIGNATURE_TOLERANCE + second));
        assert_eq!(too_late, Err(SignatureError::TooOld));
        let too_early = verified(OLD, &signature, b"body", NOW.minus(SIGNATURE_TOLERANCE + second));
        assert_eq!(too_early, Err(SignatureError::Future));
    }

    #[test]
    fn what_is_no_signature_is_malformed() {
        for text in ["", "t", "v1=00", "t=,v1=00", "t=+1,v1=00", "t=99999999999999999999,v1=00"] {
            assert_eq!(verified(OLD, text, b"", NOW), Err(SignatureError::Malformed), "{text}");
        }
        let signed = secrets(OLD).sign(NOW, b"");
        let (_, digest) = signed.split_once(',').unwrap();
        for text in [format!("t=1,{signed}"), format!("{signed},{signed}"), format!("{signed},t=")] {
            assert_eq!(verified(OLD, &text, b"", NOW), Err(SignatureError::TimeRepeated), "{text}");
        }
        for text in ["t=1", "t=1,v0=00", &format!("t=1800000000,{}", digest.replace("v1", "v2"))] {
            assert_eq!(verified(OLD, text, b"", NOW), Err(SignatureError::Unsigned), "{text}");
        }
        assert_eq!(verified(OLD, "t=1,v1=zz", b"", NOW), Err(SignatureError::Mismatch));
    }

    // Any sender can do this: 10 KB of headers hold 2,400 digests.
    #[test]
    fn a_signature_with_too_many_digests_is_malformed() {
        let with =
            |digests: usize| format!("t=1800000000{}", format!(",v1={}", "0".repeat(64)).repeat(digests));
        assert_eq!(verified(OLD, &with(MAX_DIGESTS), b"", NOW), Err(SignatureError::Mismatch));
        assert_eq!(verified(OLD, &with(MAX_DIGESTS + 1), b"", NOW), Err(SignatureError::Malformed));
    }

    #[test]
    fn secrets_that_can_be_guessed_are_refused_and_none_is_shown() {
        assert_eq!(Secrets::parse(" ,").err(), Some(SignatureError::NoSecret));
        assert_eq!(Secrets::parse("short").err(), Some(SignatureError::ShortSecret));
        assert_eq!(Secrets::parse("fifteen-letters").err(), Some(SignatureError::ShortSecret));
        assert!(Secrets::parse("sixteen--letters").is_ok());
        assert_eq!(format!("{:?}", secrets(OLD)), "Secrets(1)");
    }

    proptest! {
        #[test]
        fn no_text_is_taken_for_a_signature(text in "\\PC{0,80}", payload: Vec<u8>) {
            prop_assert!(verified(OLD, &text, &payload, NOW).is_err());
        }

        #[test]
        fn nothing_that_looks_like_a_signature_is_taken_for_one(
            parts in proptest::collection::vec("(t|v1|v0| t)?=?[0-9a-zA-Zé]{0,66}|t=[0-9]{1,21}|v1=[0-9a-f]{64}", 0..6),
        ) {
            prop_assert!(verified(OLD, &parts.join(","), b"body", NOW).is_err());
        }
    }
}
