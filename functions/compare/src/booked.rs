//! One charge or refund in one ledger.

use lambda_idempotency::key::RecordKey;
use payments::Kind;
use serde::{Deserialize, Serialize};

/// A charge or a refund in one ledger.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Booked {
    pub(crate) kind: Kind,
    pub(crate) amount_cents: u64,
    /// In upper case: providers spell it either way.
    pub(crate) currency: String,
    pub(crate) state: String,
    /// The charge that a refund gives back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) charge: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation: Option<String>,
    /// Why no ledger of ours can have it; only theirs say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stray: Option<Stray>,
    /// For the report; not compared.
    #[serde(flatten)]
    pub(crate) names: Names,
}

/// Why no ledger of ours can have an entry of the provider's. Each is the name of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stray {
    /// Its metadata names no record: it was made by hand, or by another program.
    NoRecord,
    /// What its metadata says opens with none of our keys.
    UnreadableRecord,
    /// Its record's operation has no ledger here.
    UnknownOperation,
    /// It is another tenant's than its record.
    OtherTenant,
}

impl Stray {
    /// The name of the difference.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NoRecord => "no_record",
            Self::UnreadableRecord => "unreadable_record",
            Self::UnknownOperation => "unknown_operation",
            Self::OtherTenant => "other_tenant",
        }
    }
}

/// The request behind an entry, as far as its ledger has it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Names {
    /// The idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The hash of the record's key, as in logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<String>,
    /// Our payment's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payment: Option<String>,
    /// Our order's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<String>,
}

impl PartialEq for Booked {
    /// What a side does not say of tenant and operation is not compared: metadata may have been sealed with a key that is gone. A charge of
    /// another tenant than its record is equal to nothing of ours.
    fn eq(&self, other: &Self) -> bool {
        let compared = |booked: &Self| {
            let Self { kind, amount_cents, currency, state, charge, stray, .. } = booked;
            let is_of_another = *stray == Some(Stray::OtherTenant);
            (*kind, *amount_cents, currency.clone(), state.clone(), charge.clone(), is_of_another)
        };
        let same = |ours: &Option<String>, theirs: &Option<String>| {
            ours.is_none() || theirs.is_none() || ours == theirs
        };
        compared(self) == compared(other)
            && same(&self.tenant, &other.tenant)
            && same(&self.operation, &other.operation)
    }
}

impl From<RecordKey> for Names {
    fn from(record: RecordKey) -> Self {
        Self {
            key: Some(record.idempotency_key().as_str().to_owned()),
            record: Some(record.hash().to_string()),
            ..Self::default()
        }
    }
}
