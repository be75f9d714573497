//! Settles payments whose outcome is unknown: the library's functions, with a reconciler for payments.
//!
//! | function | trigger | what it does |
//! | --- | --- | --- |
//! | `reconcile` | a schedule, and the queue of the same name | [`PaymentReconciler`] asks the provider |
//! | `webhook` | `POST /webhooks/provider` | [`PaymentEvents`] reads the events that the provider sends |
//!
//! Environment: what [`lambda::reconciliation`] reads, `PAYMENTS_TABLE` and `PROVIDER_URL`; the webhook also `WEBHOOK_SECRETS`
//! and `SEALING_KEYS`.

#![deny(missing_docs)]

mod events;
mod payment;

use lambda_idempotency::lambda::{self, Error};
use payments::{Config, Ledger, Provider, policy::create_payment};

pub use events::PaymentEvents;
pub use payment::{PaymentReconciler, ReportedCharge};

/// Runs the function `reconcile` until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn reconcile() -> Result<(), Error> {
    lambda::logs();
    let payments = payments().await.inspect_err(lambda::report)?;
    lambda::reconcile(lambda::reconciliation().await?.operation(create_payment(), payments)).await
}

/// Runs the function `webhook` until Lambda ends it.
///
/// # Errors
/// If the configuration is wrong; the error names what is wrong.
pub async fn webhook() -> Result<(), Error> {
    lambda::logs();
    let payments = payments().await.inspect_err(lambda::report)?;
    let events = PaymentEvents::from_env(payments.ledger().clone()).inspect_err(lambda::report)?;
    lambda::webhook(lambda::reconciliation().await?.operation(create_payment(), payments), events).await
}

async fn payments() -> Result<PaymentReconciler, Error> {
    let config = Config::from_env()?;
    let ledger = Ledger::from_env(config.payments_table.clone()).await;
    Ok(PaymentReconciler::new(Provider::new(&config)?, ledger))
}
