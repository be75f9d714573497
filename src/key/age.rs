//! Decides by the time that an idempotency key carries whether it is too old to begin an execution.
//!
//! Once an answer is no longer kept, its key counts as new, and a retry would run again. A key that says when it was made is
//! safe from that, even if the store lost it early (a table restored to an earlier point).
//!
//! 1. A key without a readable or authentic time begins nothing.
//! 2. A key dated more than [`CLOCK_SKEW`] ahead begins nothing: the later its date, the longer it would be accepted.
//! 3. A key older than the operation's bound begins nothing. No skew is allowed here, so that no clock can stretch the bound.
//! 4. A key that begins nothing still gets its record's answer. Refusing it while its operation may have been executed would
//!    lead an honest client to a new key, and so to a second effect. It is refused only if there is no answer.
//! 5. A key that another worker may have admitted a while ago is not refused either, but counts as in flight: that worker's execution may
//!    be about to begin, or its transaction to arrive.
//! 6. So what is admitted begins within [`MAX_SENDING_TIME`] after its key has become too old, by its worker's clock, or not at all.
//!
//! The time comes from the client. The client's clock may be ahead of the worker that completed, and the next worker's clock
//! behind the one that deletes. So a key is accepted for at most its bound plus twice the skew, and its answer must be kept at
//! least that long. Otherwise [`Idempotency::new`](crate::http::Idempotency::new) panics.
//!
//! ```
//! use std::time::Duration;
//! use lambda_idempotency::{key::age::KeyTime, operation::Operation};
//!
//! let payment = Operation::new("create-payment")
//!     .retain(Duration::from_secs(24 * 3600))
//!     .refuse_older_than(Duration::from_secs(23 * 3600), KeyTime::UuidV7);
//! ```

use std::time::Duration;

use uuid::{Uuid, Variant};

use super::{IdempotencyKey, OperationName, refusal::KeyRefusal, signature::Secrets};
use crate::{
    record::Admission,
    time::Timestamp,
    time_budget::{CLOCK_SKEW, MAX_SENDING_TIME},
};

/// Where to read the time at which a key was made.
///
/// Apart from its time, the key is opaque: another spelling of the same UUID or ULID is another key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeyTime {
    /// In the key, a UUID of version 7 ([RFC 9562](https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-7)), with its
    /// hyphens.
    UuidV7,
    /// In the key, a [ULID](https://github.com/ulid/spec), in letters of either case.
    Ulid,
    /// In the header [`Idempotency-Timestamp`](crate::http::IDEMPOTENCY_TIMESTAMP): `t=<unix seconds>,v1=<hex>`, which
    /// [`Secrets::sign`] makes from the key without the quotes that its header may have.
    ///
    /// Sign once, together with making the key, and send that with every retry: a new signature makes an old key young.
    /// Every holder of the secret can do so. Give it only to those who make keys.
    Signed(Secrets),
}

/// How old a key may be.
#[derive(Clone, Debug)]
pub(crate) struct OldestKey {
    pub(crate) bound: Duration,
    pub(crate) time: KeyTime,
}

impl OldestKey {
    /// Panics if an answer can be gone while its key is still accepted.
    pub(crate) fn assert_answers_kept(&self, operation: &OperationName, kept: Duration) {
        let needed = self.bound.saturating_add(2 * CLOCK_SKEW);
        let (name, bound) = (operation.as_str(), self.bound);
        assert!(
            needed <= kept,
            "operation {name:?}: refuse_older_than({bound:?}) needs retain({needed:?}) or more and has retain({kept:?}): \
             between the two, an expired key would run again"
        );
    }

    /// Refuses a key that is too old, or whose age is unknown. What it admits begins in time. `timestamp` is the header of
    /// [`KeyTime::Signed`].
    pub(crate) fn admit(&self, key: &IdempotencyKey, timestamp: Option<&str>, now: Timestamp) -> Admission {
        let made_at = match self.made_at(key, timestamp) {
            Ok(made_at) => made_at,
            Err(refusal) => return refusal.admission(false),
        };
        // By the clock of another worker, it may be young enough.
        if now.plus(CLOCK_SKEW) < made_at {
            return KeyRefusal::FUTURE.admission(made_at <= now.plus(2 * CLOCK_SKEW));
        }
        let oldest = made_at.plus(self.bound);
        let begin_by = oldest.plus(MAX_SENDING_TIME);
        if oldest < now {
            // A request on its way arrives within as long as clocks may be apart.
            return KeyRefusal::TOO_OLD.admission(now <= begin_by.plus(2 * CLOCK_SKEW));
        }
        Admission::Admitted { begin_by: Some(begin_by) }
    }

    fn made_at(&self, key: &IdempotencyKey, timestamp: Option<&str>) -> Result<Timestamp, KeyRefusal> {
        Ok(match &self.time {
            KeyTime::UuidV7 => uuid_v7(key.as_str()).ok_or(KeyRefusal::NOT_A_UUID_V7)?,
            KeyTime::Ulid => ulid(key.as_str()).ok_or(KeyRefusal::NOT_A_ULID)?,
            KeyTime::Signed(secrets) => {
                let timestamp = timestamp.ok_or(KeyRefusal::TIMESTAMP_MISSING)?;
                let signed = secrets.authenticate(timestamp, key.as_str().as_bytes());
                signed.map_err(|_| KeyRefusal::TIMESTAMP_INVALID)?
            }
        })
    }
}

/// The first 48 bits, in milliseconds.
fn uuid_v7(text: &str) -> Option<Timestamp> {
    /// The form with hyphens, the only one in RFC 9562.
    const LENGTH: usize = 36;
    let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == LENGTH)?;
    let is_v7 = uuid.get_version_num() == 7 && uuid.get_variant() == Variant::RFC4122;
    is_v7.then(|| Timestamp::from_millis(u64::try_from(uuid.as_u128() >> 80).unwrap_or(u64::MAX)))
}

/// The first ten of 26 digits in Crockford's base 32, in milliseconds: 48 bits, so that the first digit is at most 7.
fn ulid(text: &str) -> Option<Timestamp> {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    const TIME: usize = 10;
    const LENGTH: usize = 26;
    let value = |byte: u8| DIGITS.iter().position(|digit| *digit == byte.to_ascii_uppercase());
    let values: Vec<usize> = text.bytes().take(LENGTH + 1).map(value).collect::<Option<_>>()?;
    let fits = values.len() == LENGTH && values[0] <= 7;
    fits.then(|| {
        Timestamp::from_millis(values[..TIME].iter().fold(0, |time, value| time << 5 | *value as u64))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_uuid_of_version_7_carries_its_time() {
        // RFC 9562, appendix A.6.
        let example = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F";
        let made_at = Some(Timestamp::from_millis(1_645_557_742_000));
        assert_eq!((uuid_v7(example), uuid_v7(&example.to_lowercase())), (made_at, made_at));
        let latest = "ffffffff-ffff-7fff-bfff-ffffffffffff";
        assert_eq!(uuid_v7(latest), Some(Timestamp::from_millis((1 << 48) - 1)));
    }

    #[test]
    fn other_texts_than_uuids_of_version_7_have_no_time() {
        for text in [
            "",
            "order-1",
            "00000000-0000-0000-0000-000000000000",
            "017F22E2-79B0-4CC3-98C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-18C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398G",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398F0",
            "017F22E279B07CC398C4DC0C0C07398F",
            "{017F22E2-79B0-7CC3-98C4-DC0C0C07398F}",
            "urn:uuid:017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        ] {
            assert_eq!(uuid_v7(text), None, "{text}");
        }
    }

    #[test]
    fn a_ulid_carries_its_time_in_either_case() {
        let made_at = Some(Timestamp::from_millis(1_469_922_850_259));
        assert_eq!(ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"), made_at);
        assert_eq!(ulid("01arz3ndektsv4rrffq69g5fav"), made_at);
        assert_eq!(ulid("7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), Some(Timestamp::from_millis((1 << 48) - 1)));
    }

    #[test]
    fn other_texts_than_ulids_have_no_time() {
        for text in [
            "",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "01ARZ3NDEKTSV4RRFFQ69G5FAVV",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "O1ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01ARZ3NDEK-SV4RRFFQ69G5FAV",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
        ] {
            assert_eq!(ulid(text), None, "{text}");
        }
    }

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const BOUND: Duration = Duration::from_secs(3600);
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn admit(made_at: Timestamp) -> Admission {
        let key = uuid::Builder::from_unix_timestamp_millis(made_at.as_millis(), &[7; 10]).into_uuid();
        let key = IdempotencyKey::parse(&key.to_string()).unwrap();
        OldestKey { bound: BOUND, time: KeyTime::UuidV7 }.admit(&key, None, NOW)
    }

    #[test]
    fn a_key_is_accepted_within_its_age_limit_and_clock_skew() {
        for made_at in [NOW, NOW.minus(BOUND), NOW.plus(CLOCK_SKEW)] {
            let begin_by = Some(made_at.plus(BOUND + MAX_SENDING_TIME));
            assert_eq!(admit(made_at), Admission::Admitted { begin_by }, "{made_at:?}");
        }
    }

    // T43
    #[test]
    fn a_refused_key_may_have_begun_elsewhere_a_while_ago() {
        let on_its_way = BOUND + 2 * CLOCK_SKEW + MAX_SENDING_TIME;
        for (made_at, refusal, perhaps_in_flight) in [
            (NOW.minus(BOUND + MILLISECOND), KeyRefusal::TOO_OLD, true),
            (NOW.minus(on_its_way), KeyRefusal::TOO_OLD, true),
            (NOW.minus(on_its_way + MILLISECOND), KeyRefusal::TOO_OLD, false),
            (NOW.plus(CLOCK_SKEW + MILLISECOND), KeyRefusal::FUTURE, true),
            (NOW.plus(2 * CLOCK_SKEW), KeyRefusal::FUTURE, true),
            (NOW.plus(2 * CLOCK_SKEW + MILLISECOND), KeyRefusal::FUTURE, false),
        ] {
            assert_eq!(admit(made_at), refusal.admission(perhaps_in_flight), "{made_at:?}");
        }
    }

    #[test]
    fn each_kind_of_key_time_is_read_by_its_rule() {
        let oldest = |time| OldestKey { bound: BOUND, time };
        let key = IdempotencyKey::parse("order-1").unwrap();
        let result = |time: &KeyTime, timestamp: Option<&str>| {
            let admission = oldest(time.clone()).admit(&key, timestamp, NOW);
            admission.refusal().map_or(Ok(()), |refusal| Err(refusal.reason))
        };
        assert_eq!(result(&KeyTime::UuidV7, None), Err("not-a-uuid-v7"));
        assert_eq!(result(&KeyTime::Ulid, None), Err("not-a-ulid"));
        let secrets = Secrets::parse("a-secret-that-both-sides-share-and-keep").unwrap();
        let signed = |at: Timestamp| secrets.sign(at, b"order-1");
        let time = KeyTime::Signed(secrets.clone());
        assert_eq!(result(&time, None), Err("timestamp-missing"));
        assert_eq!(result(&time, Some("t=1,v1=00")), Err("timestamp-invalid"));
        assert_eq!(result(&time, Some(&signed(NOW))), Ok(()));
        assert_eq!(result(&time, Some(&signed(NOW.minus(2 * BOUND)))), Err("too-old"));
        assert_eq!(result(&time, Some(&signed(NOW.plus(2 * BOUND)))), Err("future"));
    }

    #[test]
    fn answers_must_be_kept_longer_than_their_keys_are_accepted() {
        let operation = OperationName::parse("pay").unwrap();
        let kept = |kept| {
            let oldest = OldestKey { bound: BOUND, time: KeyTime::Ulid };
            std::panic::catch_unwind(|| oldest.assert_answers_kept(&operation, kept)).is_ok()
        };
        assert!(kept(BOUND + 2 * CLOCK_SKEW));
        assert!(!kept(BOUND + 2 * CLOCK_SKEW - MILLISECOND));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "\\PC{0,40}|[0-9a-fA-F-]{36}|[0-9A-Za-z]{26}") {
            let (_, _) = (uuid_v7(&text), ulid(&text));
        }

        #[test]
        fn every_uuid_of_version_7_is_read(millis in 0_u64..1 << 48, random: [u8; 10]) {
            let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
            prop_assert_eq!(uuid_v7(&uuid.to_string()), Some(Timestamp::from_millis(millis)));
        }
    }
}
