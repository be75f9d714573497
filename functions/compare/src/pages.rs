//! Both ledgers of a day, page by page, as one entry for each charge and each refund.

use std::{cell::RefCell, collections::HashSet, time::Duration};

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use lambda_idempotency::{telemetry::error_chain, world::World};
use ledgers::{Day, Entry};
use orders::{Shop, policy::CREATE_ORDER};
use payments::{After, DayPage, Kind, Ledger, Listed, Provider, SealingKeys, policy::CREATE_PAYMENT};
use protocol::backoff::Backoff;

use crate::{
    Failure,
    booked::{Booked, Names, Stray},
};

/// How often a page is fetched. The waits between them cover an outage of a second. After that the invocation fails, and Lambda
/// retries it.
const TRIES: u32 = 5;

/// The waits between the tries.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), factor: 2, max: Duration::from_millis(800) };

/// Entries per page: some 2 MB, and 200 calls for a million.
const LIMIT: u32 = 5_000;

/// The operations whose ledgers are read here. What the provider did for any other one is in no ledger of ours.
const OPERATIONS: [&str; 2] = [CREATE_PAYMENT, CREATE_ORDER];

/// The state of an entry with no other status, and the only state of ours.
const SUCCEEDED: &str = "succeeded";

/// What a provider says of a charge that was given back later, whole or in part. It succeeded before that. The refund is an entry of its own.
const GIVEN_BACK: [&str; 2] = ["refunded", "partially_refunded"];

struct Page<C> {
    entries: Vec<Entry<Booked>>,
    next: Option<C>,
}

/// Our payments, and the charges and refunds of our orders.
pub(crate) fn ours(
    ledger: &Ledger,
    shop: &Shop,
    day: Day,
    world: &dyn World,
) -> impl Stream<Item = Result<Entry<Booked>, Failure>> {
    let payments = pages(world, async move |after| {
        let DayPage { rows, next } = ledger.of_day(day, after).await.map_err(Failure::Ledger)?;
        let entries = rows.into_iter().map(|(tenant, payment)| Entry {
            id: payment.charge_id,
            value: Booked {
                kind: Kind::Charge,
                amount_cents: payment.amount_cents,
                currency: payment.currency.to_ascii_uppercase(),
                state: SUCCEEDED.to_owned(),
                charge: None,
                tenant: Some(tenant),
                operation: Some(CREATE_PAYMENT.to_owned()),
                stray: None,
                names: Names { payment: Some(payment.id), ..Names::default() },
            },
        });
        Ok(Page::<After> { entries: entries.collect(), next })
    });
    let orders = pages(world, async move |after| {
        let DayPage { rows, next } = shop.of_day(day, after).await.map_err(Failure::Ledger)?;
        let entries = rows.into_iter().map(|(tenant, booking)| Entry {
            id: booking.id,
            value: Booked {
                kind: booking.kind,
                amount_cents: booking.amount_cents,
                currency: booking.currency.to_ascii_uppercase(),
                state: SUCCEEDED.to_owned(),
                charge: booking.charge_id,
                tenant: Some(tenant),
                operation: Some(CREATE_ORDER.to_owned()),
                stray: None,
                names: Names { order: Some(booking.order_id), ..Names::default() },
            },
        });
        Ok(Page::<After> { entries: entries.collect(), next })
    });
    payments.chain(orders)
}

/// All charges and refunds that the provider made, whoever asked for them.
pub(crate) fn theirs(
    provider: &Provider,
    sealing_keys: &SealingKeys,
    day: Day,
    world: &dyn World,
) -> impl Stream<Item = Result<Entry<Booked>, Failure>> {
    let of_kind = move |kind| {
        // Where pages begin that were announced: a list that comes back to one of them has no end.
        let announced = RefCell::new(HashSet::new());
        pages(world, async move |after: Option<String>| {
            let page =
                provider.listed(kind, day, after.as_deref(), LIMIT).await.map_err(Failure::Provider)?;
            if page.next.clone().is_some_and(|next| !announced.borrow_mut().insert(next)) {
                return Err(Failure::Endless);
            }
            let entries = page.entries.into_iter().map(|listed| entry(kind, listed, sealing_keys));
            Ok(Page { entries: entries.collect(), next: page.next })
        })
    };
    of_kind(Kind::Charge).chain(of_kind(Kind::Refund))
}

/// An entry of the provider's, with what its metadata says of its record.
fn entry(kind: Kind, listed: Listed, sealing_keys: &SealingKeys) -> Entry<Booked> {
    let record = listed.correlation().map(|correlation| sealing_keys.open(correlation));
    let stray = match &record {
        None => Some(Stray::NoRecord),
        Some(None) => Some(Stray::UnreadableRecord),
        Some(Some(record)) => {
            let is_of_another =
                listed.tenant.as_ref().is_some_and(|tenant| tenant != record.tenant().as_str());
            match OPERATIONS.contains(&record.operation().as_str()) {
                _ if is_of_another => Some(Stray::OtherTenant),
                false => Some(Stray::UnknownOperation),
                true => None,
            }
        }
    };
    let record = record.flatten();
    let status = listed.status.filter(|status| !GIVEN_BACK.contains(&&**status));
    let value = Booked {
        kind,
        amount_cents: listed.amount_cents,
        currency: listed.currency.to_ascii_uppercase(),
        state: status.unwrap_or_else(|| SUCCEEDED.to_owned()),
        charge: listed.charge_id,
        tenant: listed.tenant.or_else(|| Some(record.as_ref()?.tenant().as_str().to_owned())),
        operation: record.as_ref().map(|record| record.operation().as_str().to_owned()),
        stray,
        names: record.map(Names::from).unwrap_or_default(),
    };
    Entry { id: listed.id, value }
}

/// The entries of every page, one page in memory at a time.
fn pages<C: Clone>(
    world: &dyn World,
    fetch: impl AsyncFn(Option<C>) -> Result<Page<C>, Failure>,
) -> impl Stream<Item = Result<Entry<Booked>, Failure>> {
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
