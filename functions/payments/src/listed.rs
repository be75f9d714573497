//! The provider's ledger of a day.

use ledgers::Day;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::provider::{Provider, ProviderError, RECORD};

/// What an entry of a ledger of money is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A card was charged.
    Charge,
    /// A charge was given back, whole or in part.
    Refund,
}

impl Kind {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Refund => "refund",
        }
    }
}

/// A charge or a refund in the provider's list of a day.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The provider's id for it.
    pub id: String,
    /// How much, in the currency's minor unit.
    pub amount_cents: u64,
    /// ISO 4217.
    pub currency: String,
    /// What became of it, if it is no longer as it was made.
    pub status: Option<String>,
    /// The tenant, if it was named.
    pub tenant: Option<String>,
    /// The charge that a refund gives back.
    pub charge_id: Option<String>,
    /// Anybody with access to the provider may have set it: of any shape, so that one odd entry does not hide the others of its page.
    #[serde(default)]
    metadata: Value,
}

impl Listed {
    /// The correlation to the record of its operation, if its metadata has one. It may be unreadable.
    pub fn correlation(&self) -> Option<&str> {
        self.metadata.get(RECORD).map(|correlation| correlation.as_str().unwrap_or_default())
    }
}

/// A part of a day's entries of one kind.
#[derive(Debug, Deserialize)]
pub struct ListedPage {
    /// The entries, in the order in which they were made.
    #[serde(rename = "charges", alias = "refunds")]
    pub entries: Vec<Listed>,
    /// The entry after which the next page begins, if there is one.
    pub next: Option<String>,
}

impl Provider {
    /// At most `limit` of the charges or refunds that were made on this day, after the one with the id `after`.
    ///
    /// # Errors
    /// If the provider gives no clear answer.
    pub async fn listed(
        &self,
        kind: Kind,
        day: Day,
        after: Option<&str>,
        limit: u32,
    ) -> Result<ListedPage, ProviderError> {
        let mut url = self.url_of([&*format!("{}s", kind.as_str())]);
        url.query_pairs_mut().append_pair("day", &day.to_string()).append_pair("limit", &limit.to_string());
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", after);
        }
        let response = self.client.get(url).send().await?;
        match response.status() {
            StatusCode::OK => Ok(response.json().await?),
            other => Err(ProviderError(format!("it answered {other}"))),
        }
    }
}
