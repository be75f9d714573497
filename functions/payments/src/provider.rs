//! The payment provider, as this function sees it.

use std::error::Error;

use reqwest::{Client, StatusCode, Url, redirect::Policy};
use serde::{Deserialize, Serialize};

use crate::{
    config::{Config, ConfigError},
    payment::NewPayment,
};

/// A client of the provider's API.
#[derive(Clone, Debug)]
pub struct Provider {
    client: Client,
    url: Url,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChargeRequest<'a> {
    amount_cents: u64,
    currency: &'a str,
    source: &'a str,
    tenant: &'a str,
}

/// A charge that the provider made.
#[derive(Deserialize)]
pub(crate) struct Charge {
    pub(crate) id: String,
}

/// Why there is no charge to show, told apart by what is known of the card.
pub(crate) enum NotCharged {
    /// The bank said no. Final.
    Declined,
    /// The provider said that the request makes no sense. Final.
    Rejected,
    /// No connection was made: certainly not charged.
    NeverSent,
    /// The request was on its way: perhaps charged.
    Perhaps(String),
}

impl Provider {
    /// A client with the configured time-out.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        // Without reuse of idle connections a refused connection is known to be refused: a request on a connection that
        // the provider has closed meanwhile would count as perhaps executed.
        // And without redirects: what refuses a connection must be the provider that was asked, and the card's token goes
        // nowhere else.
        let client = Client::builder()
            .timeout(config.provider_timeout)
            .pool_max_idle_per_host(0)
            .redirect(Policy::none())
            .build()?;
        Ok(Self { client, url: config.provider_url.clone() })
    }

    /// Charges a card. `key` is the downstream key: the provider makes one charge of it, however often it is asked.
    pub(crate) async fn charge(
        &self,
        tenant: &str,
        payment: &NewPayment,
        key: &str,
    ) -> Result<Charge, NotCharged> {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("charges");
        }
        #[cfg(feature = "test-cards")]
        let url = crate::test_cards::provider_url(&payment.source, url);
        let body = ChargeRequest {
            amount_cents: payment.amount_cents,
            currency: &payment.currency,
            source: &payment.source,
            tenant,
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
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Err(NotCharged::Rejected),
            other => Err(NotCharged::Perhaps(format!("the provider answered {other}"))),
        }
    }
}

/// An error with what is behind it, without its URL.
fn causes(error: &reqwest::Error) -> String {
    if error.is_decode() {
        // Not what is behind it: that repeats what the provider wrote, and a provider can write the card's token.
        return "its answer cannot be read".to_owned();
    }
    let first: &dyn Error = error;
    let causes = std::iter::successors(first.source(), |cause| (*cause).source()).map(ToString::to_string);
    let kind = if error.is_timeout() { "no answer in time" } else { "the connection broke" };
    std::iter::once(kind.to_owned()).chain(causes).collect::<Vec<_>>().join(": ")
}
