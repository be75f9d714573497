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
use payments::{Charge, Found, Ledger, SealingKeys, policy::CHARGE_PHASE};
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

/// Reads the provider's events about charges.
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

/// An event about a charge.
#[derive(Deserialize)]
struct Event {
    key: String,
    charge: Option<Charge>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

impl Events for PaymentEvents {
    fn read(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Notice {
        let signature = headers.get(SIGNATURE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if let Err(error) = self.secrets.verify(signature, body, now, SIGNATURE_TOLERANCE) {
            return Notice::Refused(error.to_string());
        }
        let Ok(Envelope { kind }) = serde_json::from_slice(body) else { return Notice::Unreadable };
        let charged = match &*kind {
            "charge.succeeded" => true,
            "charge.declined" => false,
            // Its other members may have any shape.
            _ => return Notice::Ignored,
        };
        let Ok(event) = serde_json::from_slice::<Event>(body) else { return Notice::Unreadable };
        let found = match (charged, &event.charge) {
            (true, Some(charge)) => Found::Charged(charge.clone()),
            (true, None) => return Notice::Unreadable,
            (false, _) => Found::Declined,
        };
        self.notice(event, found, now)
    }
}

impl PaymentEvents {
    /// With the secrets of `WEBHOOK_SECRETS` and the keys of `SEALING_KEYS`.
    pub(crate) fn from_env(ledger: Ledger) -> Result<Self, lambda::Error> {
        let secrets = Secrets::parse(&lambda::text("WEBHOOK_SECRETS")?)
            .map_err(|error| format!("the environment variable WEBHOOK_SECRETS: {error}"))?;
        Ok(Self { secrets, sealing_keys: SealingKeys::from_env()?, ledger })
    }

    fn notice(&self, event: Event, found: Found, now: Timestamp) -> Notice {
        let Event { key, charge, metadata } = event;
        let unclaimed = |downstream_key, reason| match found {
            Found::Charged(_) => Notice::Unclaimed { downstream_key, reason },
            // There is no charge to escalate.
            Found::Declined => Notice::Ignored,
        };
        let Some(correlation) = metadata.get(RECORD) else {
            return unclaimed(key, "the charge has no metadata that leads to a record");
        };
        let Some(record) = self.sealing_keys.open(correlation) else {
            // It may be the only proof that a charge was made, so the provider is asked to resend it for a while.
            let made_at = charge.as_ref().map(|charge| charge.created_at);
            return match made_at.is_some_and(|made_at| now < made_at.plus(SENT_AGAIN)) {
                true => Notice::Again(
                    "a charge's metadata opens with none of SEALING_KEYS: do `payments` and `webhook` have the same ones?",
                ),
                false => unclaimed(key, "the charge's metadata opens with none of SEALING_KEYS"),
            };
        };
        let status = match found {
            Found::Charged(_) => 201,
            Found::Declined => 402,
        };
        let reported =
            ProviderReport::executed(status, ReportedCharge { found, ledger: self.ledger.clone() });
        // The correlation is metadata, which anybody may have set. The key is derived from the record, and proves the report.
        let reported = reported.under(CHARGE_PHASE, &key);
        Notice::ProviderReport(
            record,
            charge.into_iter().fold(reported, |reported, charge| reported.made_at(charge.created_at)),
        )
    }
}
