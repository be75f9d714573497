//! A client of the payment provider.

use std::time::Duration;

use reqwest::{Client, redirect::Policy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Error, orders::Placed};

/// What the provider decided.
#[derive(Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum Payment {
    Succeeded {
        charge: Charge,
    },
    Declined,
    /// The provider refuses the order, and knows of no charge under its key. Final.
    Refused,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Charge {
    id: String,
}

impl Payment {
    /// As the row says it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "paid",
            Self::Declined => "declined",
            Self::Refused => "refused",
        }
    }
}

pub(crate) enum NotCharged {
    /// No connection was made: certainly not charged.
    NeverSent,
    /// The request may have arrived.
    Perhaps,
}

/// A client of the provider.
#[derive(Clone)]
pub struct Provider {
    client: Client,
    url: String,
}

impl Provider {
    /// # Errors
    /// If no client can be made.
    pub fn new(url: &str) -> Result<Self, Error> {
        // A connection that the provider has closed, or a redirect, could hide that a request arrived.
        let client = Client::builder()
            .timeout(Duration::from_secs(5))
            .pool_max_idle_per_host(0)
            .redirect(Policy::none());
        Ok(Self { client: client.build()?, url: url.trim_end_matches('/').to_owned() })
    }

    pub(crate) async fn charge(
        &self,
        key: &str,
        tenant: &str,
        placed: &Placed,
    ) -> Result<Payment, NotCharged> {
        let Placed { amount_cents, currency, payment_method, .. } = placed;
        let body = json!({ "amountCents": amount_cents, "currency": currency, "source": payment_method, "tenant": tenant });
        let request =
            self.client.post(format!("{}/charges", self.url)).header("idempotency-key", key).json(&body);
        match request.send().await {
            Err(error) if error.is_connect() => Err(NotCharged::NeverSent),
            Err(_) => Err(NotCharged::Perhaps),
            Ok(response) => match response.status().as_u16() {
                201 => match response.json().await {
                    Ok(charge) => Ok(Payment::Succeeded { charge }),
                    Err(_) => Err(NotCharged::Perhaps),
                },
                402 => Ok(Payment::Declined),
                // An earlier try under the same key may have charged.
                400 | 422 => match self.payment(key).await {
                    Ok(payment) => Ok(payment.unwrap_or(Payment::Refused)),
                    Err(_) => Err(NotCharged::Perhaps),
                },
                _ => Err(NotCharged::Perhaps),
            },
        }
    }

    /// What the provider has decided under this key; `None` if it knows of no charge.
    pub(crate) async fn payment(&self, key: &str) -> Result<Option<Payment>, Error> {
        let response = self.client.get(format!("{}/charges/{key}", self.url)).send().await?;
        if response.status() == 404 {
            let refusal: Value = response.json().await?;
            // A proxy's 404, or that of a wrong address, says nothing about the charge.
            return match refusal["error"].as_str() {
                Some("no_such_charge") => Ok(None),
                _ => Err("a 404 that is not the provider's".into()),
            };
        }
        Ok(Some(response.error_for_status()?.json().await?))
    }
}
