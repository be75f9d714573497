//! The two ledgers of a day, page by page, as one entry for each charge.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt, stream};
use lambda_idempotency::{key::RecordKey, telemetry::error_chain, world::World};
use ledgers::{Day, Entry};
use payments::{Ledger, Provider, SealingKeys, policy::CREATE_PAYMENT};
use protocol::backoff::Backoff;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// How often a page is fetched. The waits between them cover an outage of a second. After that the invocation fails, and Lambda
/// retries it.
const TRIES: u32 = 5;

/// The waits between the tries.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), factor: 2, max: Duration::from_millis(800) };

/// Charges per page: some 2 MB, and 200 calls for a million.
const LIMIT: u32 = 5_000;

/// The state of a charge with no other status, and the only state of our payments.
const SUCCEEDED: &str = "succeeded";

/// What a provider says of a charge that was given back later, whole or in part. It succeeded before that, and a payment stays one.
const GIVEN_BACK: [&str; 2] = ["refunded", "partially_refunded"];

/// A charge in one ledger. The names are for the report, and are not compared.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Charged {
    amount_cents: u64,
    currency: String,
    state: String,
    #[serde(flatten)]
    pub(crate) names: Names,
}

impl PartialEq for Charged {
    fn eq(&self, other: &Self) -> bool {
        let Self { amount_cents, currency, state, names: _ } = self;
        (*amount_cents, currency, state) == (other.amount_cents, &other.currency, &other.state)
    }
}

/// The tenant and the request of a charge, as far as its ledger has them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Names {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The hash of the record's key, as in logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<String>,
    /// Our payment's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    payment: Option<String>,
}

impl From<RecordKey> for Names {
    fn from(record: RecordKey) -> Self {
        Self {
            tenant: Some(record.tenant().as_str().to_owned()),
            key: Some(record.idempotency_key().as_str().to_owned()),
            record: Some(record.hash().to_string()),
            payment: None,
        }
    }
}

struct Page<C> {
    entries: Vec<Entry<Charged>>,
    next: Option<C>,
}

/// Our payments.
pub(crate) fn ours(
    ledger: &Ledger,
    day: Day,
    world: &dyn World,
) -> impl Stream<Item = Result<Entry<Charged>, Failure>> {
    pages(world, async move |after| {
        let page = ledger.of_day(day, after).await.map_err(Failure::Ledger)?;
        let entries = page.payments.into_iter().map(|(tenant, payment)| Entry {
            id: payment.charge_id,
            value: Charged {
                amount_cents: payment.amount_cents,
                currency: payment.currency,
                state: SUCCEEDED.to_owned(),
                names: Names { tenant: Some(tenant), payment: Some(payment.id), ..Names::default() },
            },
        });
        Ok(Page { entries: entries.collect(), next: page.next })
    })
}

/// The provider's charges of payments, and those that lead to no record.
pub(crate) fn theirs(
    provider: &Provider,
    sealing_keys: &SealingKeys,
    day: Day,
    world: &dyn World,
) -> impl Stream<Item = Result<Entry<Charged>, Failure>> {
    pages(world, async move |after: Option<String>| {
        let page = provider.charges(day, after.as_deref(), LIMIT).await.map_err(Failure::Provider)?;
        if page.next.is_some() && page.next == after {
            return Err(Failure::Endless);
        }
        let entries = page.charges.into_iter().filter_map(|charge| {
            let record = charge.record(sealing_keys);
            // Orders are in no ledger of payments.
            if record.as_ref().is_some_and(|record| record.operation().as_str() != CREATE_PAYMENT) {
                return None;
            }
            let value = Charged {
                names: record.map(Names::from).unwrap_or_default(),
                amount_cents: charge.amount_cents,
                currency: charge.currency,
                state: charge
                    .status
                    .filter(|status| !GIVEN_BACK.contains(&&**status))
                    .unwrap_or_else(|| SUCCEEDED.to_owned()),
            };
            Some(Entry { id: charge.id, value })
        });
        Ok(Page { entries: entries.collect(), next: page.next })
    })
}

/// The entries of every page, one page in memory at a time.
fn pages<C: Clone>(
    world: &dyn World,
    fetch: impl AsyncFn(Option<C>) -> Result<Page<C>, Failure>,
) -> impl Stream<Item = Result<Entry<Charged>, Failure>> {
    // `None` after the last page; `Some(None)` before the first.
    let pages = stream::try_unfold((Some(None), fetch), async |(after, fetch)| {
        let Some(after) = after else { return Ok::<_, Failure>(None) };
        let page = retried(world, async || fetch(after.clone()).await).await?;
        let entries = stream::iter(page.entries.into_iter().map(Ok));
        Ok(Some((entries, (page.next.map(Some), fetch))))
    });
    pages.try_flatten()
}

async fn retried<T>(world: &dyn World, ask: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
    for tries in 1..TRIES {
        match ask().await {
            Ok(page) => return Ok(page),
            Err(error) => {
                tracing::info!(name = error.name(), error = error_chain(&error), "retrying a page");
            }
        }
        world.sleep(BACKOFF.after(tries, world.nonce())).await;
    }
    ask().await
}
