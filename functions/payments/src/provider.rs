//! A client of the payment provider.

use std::{collections::BTreeMap, error::Error};

use lambda_idempotency::{key::RecordKey, telemetry::error_chain, time::Timestamp};
use reqwest::{Client, StatusCode, Url, redirect::Policy};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    SealingKeys,
    config::{Config, ConfigError},
    order::NewPayment,
};

/// The metadata that leads from a charge back to the operation's record.
pub(crate) const RECORD: &str = "record";

/// The metadata that names the customer.
pub(crate) const CUSTOMER: &str = "customerId";

/// A client of the provider's API.
#[derive(Clone, Debug)]
pub struct Provider {
    pub(crate) client: Client,
    url: Url,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChargeRequest<'a> {
    amount_cents: u64,
    currency: &'a str,
    source: &'a str,
    tenant: &'a str,
    metadata: BTreeMap<&'static str, &'a str>,
}

/// A charge that the provider made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    /// The provider's id for it.
    pub id: String,
    /// How much, in the currency's minor unit.
    pub amount_cents: u64,
    /// ISO 4217.
    pub currency: String,
    /// When, by the provider's clock.
    #[serde(deserialize_with = "millis")]
    pub created_at: Timestamp,
    /// The metadata that was sent with the order.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

pub(crate) fn millis<'de, D: Deserializer<'de>>(millis: D) -> Result<Timestamp, D::Error> {
    u64::deserialize(millis).map(Timestamp::from_millis)
}

/// What the provider decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The card was charged.
    Charged(Charge),
    /// The bank declined.
    Declined,
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum Decision {
    Succeeded { charge: Charge },
    Declined,
}

/// Why the provider's decision is not known. It quotes nothing of the provider's answer.
#[derive(Debug, thiserror::Error)]
#[error("the payment provider gave no reliable answer: {0}")]
pub struct ProviderError(pub(crate) String);

impl From<reqwest::Error> for ProviderError {
    fn from(error: reqwest::Error) -> Self {
        Self(causes(&error))
    }
}

#[derive(Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: String,
}

/// Why there is no charge, and whether the card may have been charged.
#[derive(Debug)]
pub enum NotCharged {
    /// The bank declined. Final.
    Declined,
    /// The provider rejected the request, and knows of no charge. Final.
    Rejected,
    /// No connection was made: certainly not charged.
    NeverSent,
    /// The request may have arrived: perhaps charged.
    Perhaps(String),
}

impl Provider {
    /// A client with the configured time-out.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        // No reuse of idle connections: a request on one that the provider has closed meanwhile would count as perhaps executed,
        // while a refused connection is certainly not executed.
        // No redirects: only the provider itself may refuse the connection, and the card's token goes nowhere else.
        let client = Client::builder()
            .timeout(config.provider_timeout)
            .pool_max_idle_per_host(0)
            .redirect(Policy::none())
            .build()?;
        Ok(Self { client, url: config.provider_url.clone() })
    }

    /// Charges a card. `key` is the downstream key: the provider makes one charge for it, however often it is sent.
    ///
    /// # Errors
    /// If there is no charge, or that is not known.
    pub async fn charge(
        &self,
        record: &RecordKey,
        sealing_keys: &SealingKeys,
        order: &NewPayment,
        key: &str,
    ) -> Result<Charge, NotCharged> {
        let url = self.charges_url();
        #[cfg(feature = "test-cards")]
        let url = crate::test_cards::provider_url(&order.source, url);
        let correlation = sealing_keys.seal(record);
        let body = ChargeRequest {
            amount_cents: order.amount_cents,
            currency: &order.currency,
            source: &order.source,
            tenant: record.tenant().as_str(),
            metadata: BTreeMap::from([(RECORD, &*correlation), (CUSTOMER, &order.customer_id)]),
        };
        let answer = self.client.post(url).header("Idempotency-Key", key).json(&body).send().await;
        let response = answer.map_err(|error| match error.is_connect() {
            true => NotCharged::NeverSent,
            false => NotCharged::Perhaps(causes(&error)),
        })?;
        match response.status() {
            StatusCode::OK | StatusCode::CREATED => {
                response.json().await.map_err(|error| NotCharged::Perhaps(causes(&error)))
            }
            StatusCode::PAYMENT_REQUIRED => Err(NotCharged::Declined),
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => self.rejected(key).await,
            other => Err(NotCharged::Perhaps(format!("the provider answered {other}"))),
        }
    }

    /// Finds out what a rejected request means. The provider may have accepted it in an earlier attempt, with other metadata: a
    /// change of the sealing key changes the metadata. So the provider is asked what it knows under the key.
    async fn rejected(&self, key: &str) -> Result<Charge, NotCharged> {
        match self.find(key).await {
            Ok(Some(Found::Charged(charge))) => Ok(charge),
            Ok(Some(Found::Declined)) => Err(NotCharged::Declined),
            Ok(None) => Err(NotCharged::Rejected),
            Err(error) => Err(NotCharged::Perhaps(error.to_string())),
        }
    }

    /// What the provider decided under this downstream key; `None` if it knows of no charge, which a request in flight may still
    /// change.
    ///
    /// # Errors
    /// If the provider gives no clear answer. A 404 without the error `no_such_charge` may come from some other server.
    pub async fn find(&self, key: &str) -> Result<Option<Found>, ProviderError> {
        let response = self.client.get(self.url_of(["charges", key])).send().await?;
        match response.status() {
            StatusCode::OK => Ok(Some(match response.json().await? {
                Decision::Succeeded { charge } => Found::Charged(charge),
                Decision::Declined => Found::Declined,
            })),
            StatusCode::NOT_FOUND if response.json::<Refusal>().await?.error == "no_such_charge" => Ok(None),
            other => Err(ProviderError(format!("it answered {other}"))),
        }
    }

    fn charges_url(&self) -> Url {
        self.url_of(["charges"])
    }

    pub(crate) fn url_of<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }
}

/// An error with its causes, but without its URL and the provider's text, which may repeat what was sent.
fn causes(error: &reqwest::Error) -> String {
    if error.is_decode() {
        return "the answer could not be decoded".to_owned();
    }
    let kind = if error.is_timeout() { "no answer in time" } else { "the connection broke" };
    error.source().map_or_else(|| kind.to_owned(), |cause| format!("{kind}: {}", error_chain(cause)))
}
