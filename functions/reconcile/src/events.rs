//! The payment provider's events.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderMap;
use lambda_idempotency::{
    key::signature::Secrets,
    lambda::{self, Events, Notice},
    reconcile::ProviderReport,
    time::Timestamp,
    time_budget::SIGNATURE_TOLERANCE,
};
use orders::{
    Charging,
    policy::{CREATE_ORDER, REFUND_PHASE},
};
use payments::{Charge, Found, Ledger, Refund, SealingKeys, policy::CHARGE_PHASE};
use serde::Deserialize;

use crate::payment::ReportedCharge;

/// The header with time stamp and signatures.
const SIGNATURE: &str = "provider-signature";

/// For how long the provider is asked to resend an event whose correlation does not open, so that an operator can repair the keys.
/// It is bounded, because providers stop sending events to an endpoint that keeps failing. Many stop after three days, and a
/// later delivery must still arrive, so that it can be escalated.
const SENT_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The metadata that leads from an event back to the record.
const RECORD: &str = "record";

/// Reads the provider's events about charges and refunds.
#[derive(Debug)]
pub struct PaymentEvents {
    /// The provider's signing secrets; several during a rotation.
    pub secrets: Secrets,
    /// Opens the correlation from a charge to its record.
    pub sealing_keys: SealingKeys,
    /// Where payments are recorded.
    pub ledger: Ledger,
}

/// The members that every event of the provider has.
#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: String,
}

/// An event about a charge or a refund.
#[derive(Deserialize)]
struct Event {
    key: String,
    charge: Option<Charge>,
    refund: Option<Refund>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// What an event reports.
enum Reported {
    Charged(Charge),
    Declined,
    Refunded(Refund),
}

impl Reported {
    /// When money was moved, by the provider's clock.
    fn made_at(&self) -> Option<Timestamp> {
        match self {
            Self::Charged(charge) => Some(charge.created_at),
            Self::Refunded(refund) => Some(refund.created_at),
            Self::Declined => None,
        }
    }
}

impl Events for PaymentEvents {
    fn read(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Notice {
        let Some(signature) = headers.get(SIGNATURE) else { return Notice::Unsigned };
        let signature = signature.to_str().unwrap_or_default();
        if let Err(error) = self.secrets.verify(signature, body, now, SIGNATURE_TOLERANCE) {
            return Notice::Refused(error.to_string());
        }
        let Ok(Envelope { kind }) = serde_json::from_slice(body) else { return Notice::Unreadable };
        // The other members of other kinds may have any shape.
        if !matches!(&*kind, "charge.succeeded" | "charge.declined" | "refund.succeeded") {
            return Notice::Ignored;
        }
        let Ok(Event { key, charge, refund, metadata }) = serde_json::from_slice(body) else {
            return Notice::Unreadable;
        };
        match (&*kind, charge, refund) {
            ("charge.succeeded", Some(charge), _) => {
                self.notice(key, &metadata, Reported::Charged(charge), now)
            }
            ("charge.declined", ..) => self.notice(key, &metadata, Reported::Declined, now),
            // Given back by hand.
            ("refund.succeeded", _, Some(_)) if !metadata.contains_key(RECORD) => Notice::Ignored,
            ("refund.succeeded", _, Some(refund)) => {
                self.notice(key, &metadata, Reported::Refunded(refund), now)
            }
            _ => Notice::Unreadable,
        }
    }
}

impl PaymentEvents {
    /// With the secrets of `WEBHOOK_SECRETS` and the keys of `SEALING_KEYS`.
    pub(crate) fn from_env(ledger: Ledger) -> Result<Self, lambda::Error> {
        let secrets = Secrets::parse(&lambda::text("WEBHOOK_SECRETS")?)
            .map_err(|error| format!("the environment variable WEBHOOK_SECRETS: {error}"))?;
        Ok(Self { secrets, sealing_keys: SealingKeys::from_env()?, ledger })
    }

    fn notice(
        &self,
        key: String,
        metadata: &BTreeMap<String, String>,
        reported: Reported,
        now: Timestamp,
    ) -> Notice {
        let made_at = reported.made_at();
        let unclaimed = |downstream_key, reason| match made_at {
            Some(_) => Notice::Unclaimed { downstream_key, reason },
            // There is no charge to escalate.
            None => Notice::Ignored,
        };
        let Some(correlation) = metadata.get(RECORD) else {
            return unclaimed(key, "the charge has no metadata that leads to a record");
        };
        let Some(record) = self.sealing_keys.open(correlation) else {
            // It may be the only proof that a charge was made, so the provider is asked to resend it for a while.
            return match made_at.is_some_and(|made_at| now < made_at.plus(SENT_AGAIN)) {
                true => Notice::Again(
                    "a charge's metadata opens with none of SEALING_KEYS: do `payments` and `webhook` have the same ones?",
                ),
                false => unclaimed(key, "the charge's metadata opens with none of SEALING_KEYS"),
            };
        };
        // The correlation is metadata, which anybody may have set. The key is derived from the record, and proves the report.
        let report = match (record.operation().as_str(), reported) {
            (CREATE_ORDER, Reported::Charged(charge)) => {
                ProviderReport::phase_executed(orders::policy::CHARGE_PHASE, &key, &Charging::from(charge))
            }
            (CREATE_ORDER, Reported::Refunded(refund)) => {
                ProviderReport::phase_executed(REFUND_PHASE, &key, &refund)
            }
            // The next execution hears it from the provider.
            (CREATE_ORDER, Reported::Declined) => return Notice::Ignored,
            // Another charge under the same key is an alarm.
            (_, Reported::Charged(charge)) => {
                let id = charge.id.clone();
                self.of_payment(201, Found::Charged(charge)).under(CHARGE_PHASE, &key).effect_id(&id)
            }
            (_, Reported::Declined) => self.of_payment(402, Found::Declined).under(CHARGE_PHASE, &key),
            (_, Reported::Refunded(_)) => return unclaimed(key, "its operation gives nothing back"),
        };
        Notice::ProviderReport(record, made_at.into_iter().fold(report, ProviderReport::made_at))
    }

    fn of_payment(&self, status: u16, found: Found) -> ProviderReport {
        ProviderReport::executed(status, ReportedCharge { found, ledger: self.ledger.clone() })
    }
}
