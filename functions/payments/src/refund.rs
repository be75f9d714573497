//! Refunds of the payment provider.

use std::collections::BTreeMap;

use lambda_idempotency::{engine::CallError, key::RecordKey, time::Timestamp};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};

use crate::{
    SealingKeys,
    provider::{Provider, ProviderError, RECORD, Refusal, millis},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RefundRequest<'a> {
    charge_id: &'a str,
    metadata: BTreeMap<&'static str, &'a str>,
}

/// A charge that was given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refund {
    /// The provider's id for it.
    pub id: String,
    /// When, by the provider's clock.
    #[serde(deserialize_with = "millis")]
    pub created_at: Timestamp,
}

impl Provider {
    /// Gives a whole charge back. `key` is the downstream key: the provider makes one refund for it, however often it is sent.
    ///
    /// # Errors
    /// If it was not made, or that is not known. A charge cannot be kept because the provider says no: an operator looks at it.
    pub async fn refund(
        &self,
        record: &RecordKey,
        sealing_keys: &SealingKeys,
        charge_id: &str,
        key: &str,
    ) -> Result<Refund, CallError> {
        let correlation = sealing_keys.seal(record);
        let body = RefundRequest { charge_id, metadata: BTreeMap::from([(RECORD, &*correlation)]) };
        let request = self.client.post(self.url_of(["refunds"])).header("Idempotency-Key", key).json(&body);
        let response = request.send().await.map_err(|error| match error.is_connect() {
            true => CallError::not_executed(ProviderError::from(error)),
            false => ProviderError::from(error).into(),
        })?;
        match response.status() {
            StatusCode::OK | StatusCode::CREATED => Ok(response.json().await.map_err(ProviderError::from)?),
            other => Err(ProviderError(format!("it answered {other}")).into()),
        }
    }

    /// The refund under this downstream key; `None` if the provider knows of none, which a request in flight may still change.
    ///
    /// # Errors
    /// If the provider gives no clear answer. A 404 without the error `no_such_refund` may come from some other server.
    pub async fn find_refund(&self, key: &str) -> Result<Option<Refund>, ProviderError> {
        let response = self.client.get(self.url_of(["refunds", key])).send().await?;
        match response.status() {
            StatusCode::OK => Ok(Some(response.json().await?)),
            StatusCode::NOT_FOUND if response.json::<Refusal>().await?.error == "no_such_refund" => Ok(None),
            other => Err(ProviderError(format!("it answered {other}"))),
        }
    }
}
