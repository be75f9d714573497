//! The correlation from a charge to its record: metadata that the provider keeps, and sends along with its webhooks.
//!
//! 1. It is sealed: it shows neither tenant nor idempotency key, only their combined length. The charge itself names the tenant and the
//!    customer in clear.
//! 2. A record has the same correlation in every attempt, because providers compare the requests under one idempotency key
//!    and refuse a retry that differs. Hence AES-SIV (RFC 5297), which is safe without a nonce: it reveals only that two
//!    charges belong to the same record.
//! 3. It is an address, and proves nothing. An event's signature proves that the provider sent it. Its idempotency key is
//!    derived from the record, and proves that the event is about that record.

use std::fmt;

use aes_siv::{KeyInit, siv::Aes256Siv};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use lambda_idempotency::{config::ConfigError, key::RecordKey, lambda};

/// The environment variable with the keys.
const VARIABLE: &str = "SEALING_KEYS";

/// Authenticated with each correlation, so that what these keys seal for another purpose does not open as one.
const CONTEXT: &[u8] = b"payments: the record of a charge";

/// One half authenticates, the other encrypts.
type Key = [u8; 64];

/// Keys that are valid at the same time. The first seals and any of them opens, so that keys can be rotated without a gap.
#[derive(Clone)]
pub struct SealingKeys(Vec<Key>);

impl fmt::Debug for SealingKeys {
    /// Shows how many keys there are, not which.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKeys({})", self.0.len())
    }
}

impl SealingKeys {
    /// The keys of `SEALING_KEYS`.
    ///
    /// # Errors
    /// If it is missing or malformed. The error has its name, not its value.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::parse(&lambda::text(VARIABLE)?)
    }

    /// The keys of a text, each 64 bytes in base64, separated by commas.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let key = |text: &str| Key::try_from(BASE64_STANDARD.decode(text.trim()).ok()?).ok();
        let keys: Option<Vec<Key>> = text.split(',').map(key).collect();
        let must_be = "keys of 64 bytes each, in padded standard base64, separated by commas";
        keys.map(Self).ok_or(ConfigError::Malformed(VARIABLE, must_be))
    }

    /// The correlation to this record; always the same under the same first key.
    pub fn seal(&self, record: &RecordKey) -> String {
        let sealed = cipher(&self.0[0]).encrypt([CONTEXT], record.partition_key().as_bytes());
        // One header, and a vector that grows: this cannot fail.
        BASE64_URL_SAFE_NO_PAD.encode(sealed.unwrap_or_default())
    }

    /// The record that this leads to, if any.
    pub fn open(&self, correlation: &str) -> Option<RecordKey> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(correlation).ok()?;
        let partition_key = self.0.iter().find_map(|key| cipher(key).decrypt([CONTEXT], &bytes).ok())?;
        RecordKey::from_partition_key(std::str::from_utf8(&partition_key).ok()?)
    }
}

fn cipher(key: &Key) -> Aes256Siv {
    Aes256Siv::new(key.into())
}

#[cfg(test)]
mod tests {
    use lambda_idempotency::key::{IdempotencyKey, OperationName, Tenant};

    use super::*;

    /// Keys of 64 equal bytes.
    fn keys(bytes: &[u8]) -> SealingKeys {
        let keys: Vec<_> = bytes.iter().map(|byte| BASE64_STANDARD.encode([*byte; 64])).collect();
        SealingKeys::parse(&keys.join(",")).unwrap()
    }

    fn record(tenant: &str, key: &str) -> RecordKey {
        RecordKey::new(
            Tenant::parse(tenant).unwrap(),
            OperationName::parse("create-payment").unwrap(),
            IdempotencyKey::parse(key).unwrap(),
        )
    }

    fn order_1() -> RecordKey {
        record("acme", "order-1")
    }

    #[test]
    fn a_sealed_record_opens_as_what_it_was() {
        let longest = "\u{1F600}".repeat(255);
        for (tenant, key) in [("acme", "order-1"), ("ten#ant", "a#b"), ("t", "k"), ("%23", &*longest)] {
            let record = record(tenant, key);
            assert_eq!(keys(&[1]).open(&keys(&[1]).seal(&record)), Some(record));
        }
    }

    // Retries come after deployments too. The expected text is from another implementation of RFC 5297.
    #[test]
    fn a_record_always_has_the_same_correlation() {
        let sealed = keys(&[1]).seal(&order_1());
        assert_eq!(sealed, keys(&[1, 2]).seal(&order_1()));
        assert_eq!(sealed, "qfizcOBRE5x44LyvP1QsY-ifLvKOwIxeFJX5bULRoskMgl7FRiZUvs9yzQ");
        assert_ne!(sealed, keys(&[1]).seal(&record("acme", "order-2")));
    }

    #[test]
    fn the_first_key_seals_and_only_listed_keys_open() {
        let (old, new) = (keys(&[1]).seal(&order_1()), keys(&[2, 1]).seal(&order_1()));
        assert_eq!(new, keys(&[2]).seal(&order_1()));
        for correlation in [&old, &new] {
            assert_eq!(keys(&[1, 2]).open(correlation), Some(order_1()));
            assert_eq!(keys(&[2, 1]).open(correlation), Some(order_1()));
            assert_eq!(keys(&[3, 4]).open(correlation), None);
        }
        assert_eq!((keys(&[2]).open(&old), keys(&[1]).open(&new)), (None, None));
    }

    #[test]
    fn a_sealed_record_shows_neither_tenant_nor_key() {
        let sealed = keys(&[1]).seal(&record("tenant-in-clear", "key-in-clear"));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&sealed).unwrap();
        for part in ["clear", "tenant", "create-payment"] {
            assert!(!sealed.contains(part), "{part} in {sealed}");
            assert!(!bytes.windows(part.len()).any(|window| window == part.as_bytes()), "{part}");
        }
    }

    #[test]
    fn a_changed_correlation_does_not_open() {
        let keys = keys(&[1]);
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(keys.seal(&order_1())).unwrap();
        let opens = |bytes: &[u8]| keys.open(&BASE64_URL_SAFE_NO_PAD.encode(bytes)).is_some();
        assert!(opens(&sealed));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(&flipped), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(!opens(&sealed[..length]), "{length} bytes");
        }
        assert!(!opens(&[&sealed[..], b"0"].concat()));
        let contexts: [&[&[u8]]; 3] = [&[], &[b"another purpose"], &[CONTEXT, CONTEXT]];
        for context in contexts {
            let other = cipher(&keys.0[0]).encrypt(context, order_1().partition_key().as_bytes());
            assert!(!opens(&other.unwrap()), "{context:?}");
        }
        for text in ["", "A", "===", "not base64", "qfiz+OBRE5x4", "acme#create-payment#order-1"] {
            assert_eq!(keys.open(text), None, "{text}");
        }
    }

    #[test]
    fn an_unsealed_correlation_does_not_open() {
        let clear = BASE64_URL_SAFE_NO_PAD.encode("acme#create-payment#order-1");
        assert_eq!(keys(&[1]).open(&clear), None);
    }

    #[test]
    fn keys_that_cannot_seal_are_named_and_none_is_shown() {
        let whole = BASE64_STANDARD.encode([0xFB; 64]);
        let (short, long) = (BASE64_STANDARD.encode([1; 63]), BASE64_STANDARD.encode([1; 65]));
        let url_safe = whole.replace('+', "-").replace('/', "_");
        let unpadded = whole.trim_end_matches('=').to_owned();
        let (half, none) = (format!("{whole},{short}"), format!("{whole},"));
        for text in ["", " ", ",", "key", &short, &long, &url_safe, &unpadded, &half, &none] {
            let error = SealingKeys::parse(text).expect_err(text);
            let reported = "the environment variable SEALING_KEYS must be keys of 64 bytes each, in padded standard \
                        base64, separated by commas";
            assert_eq!(error.to_string(), reported);
        }
        assert!(SealingKeys::parse(&format!(" {whole} , {whole}\n")).is_ok());
        assert_eq!(format!("{:?}", keys(&[1, 2])), "SealingKeys(2)");
    }
}
