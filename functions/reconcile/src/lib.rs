//! Settles payments, orders and reports whose outcome is unknown: the library's functions, with a reconciler for each operation.
//!
//! | function | trigger | what it does |
//! | --- | --- | --- |
//! | `reconcile` | a schedule, and the queue of the same name | [`PaymentReconciler`] and [`OrderReconciler`] ask the provider, [`ReportReconciler`] need not ask; deferred reports of all three are written |
//! | `webhook` | `POST /webhooks/provider` | [`PaymentEvents`] reads the events that the provider sends |
//!
//! Environment: what [`lambda::reconciliation`] reads, `PAYMENTS_TABLE` and `PROVIDER_URL`; the webhook also `WEBHOOK_SECRETS`
//! and `SEALING_KEYS`.

#![deny(missing_docs)]

mod events;
mod order;
mod payment;
mod report;

use lambda_idempotency::{
    lambda::{self, Error},
    reconcile::Reconciliation,
};
use orders::policy::create_order;
use payments::{Config, Ledger, Provider, policy::create_payment};
use reports::policy::create_report;

pub use events::PaymentEvents;
pub use order::OrderReconciler;
pub use payment::{PaymentReconciler, ReportedCharge};
pub use report::ReportReconciler;

/// Runs the function `reconcile` until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn reconcile() -> Result<(), Error> {
    lambda::logs();
    let ledger = ledger().await.inspect_err(lambda::report)?;
    lambda::reconcile(reconciliation(ledger).await?).await
}

/// Runs the function `webhook` until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn webhook() -> Result<(), Error> {
    lambda::logs();
    let ledger = ledger().await.inspect_err(lambda::report)?;
    let events = PaymentEvents::from_env(ledger.clone()).inspect_err(lambda::report)?;
    lambda::webhook(reconciliation(ledger).await?, events).await
}

async fn ledger() -> Result<Ledger, Error> {
    Ok(Ledger::from_env(lambda::text("PAYMENTS_TABLE")?).await)
}

/// With a reconciler for each operation whose guard defers reports.
async fn reconciliation(ledger: Ledger) -> Result<Reconciliation, Error> {
    let config = Config::from_env().inspect_err(lambda::report)?;
    let provider = Provider::new(&config).inspect_err(lambda::report)?;
    let payments = PaymentReconciler::new(provider.clone(), ledger);
    let reconciliation = lambda::reconciliation().await?.operation(create_payment(), payments);
    let reconciliation = reconciliation.operation(create_order(), OrderReconciler(provider));
    Ok(reconciliation.operation(create_report(), ReportReconciler))
}
