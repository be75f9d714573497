//! What became of a payment: the provider knows whether it charged a card.

use lambda_idempotency::{
    async_trait,
    reconcile::{Finding, Question, Reconciler},
};
use payments::{
    Found, Ledger, Payment, Provider,
    policy::{CHARGE_PHASE, PAYMENT_PHASE},
};

type AskError = Box<dyn std::error::Error + Send + Sync>;

/// Asks the provider.
#[derive(Debug)]
pub struct PaymentReconciler {
    provider: Provider,
    ledger: Ledger,
}

impl PaymentReconciler {
    /// Asks `provider`, and writes what it finds into `ledger` where the worker did not come to that.
    pub fn new(provider: Provider, ledger: Ledger) -> Self {
        Self { provider, ledger }
    }

    /// Where payments are written down.
    pub(crate) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

#[async_trait]
impl Reconciler for PaymentReconciler {
    async fn ask(&self, question: &Question) -> Result<Finding, AskError> {
        match self.provider.find(&question.downstream_key(CHARGE_PHASE)).await? {
            Some(found) => finding(&self.ledger, question, &found).await,
            None => Ok(Finding::NotFound),
        }
    }
}

/// What the provider said by itself, by webhook.
#[derive(Debug)]
pub struct Said {
    /// What it decided.
    pub found: Found,
    /// Where payments are written down.
    pub ledger: Ledger,
}

#[async_trait]
impl Reconciler for Said {
    async fn ask(&self, question: &Question) -> Result<Finding, AskError> {
        finding(&self.ledger, question, &self.found).await
    }
}

/// A charge is written into the ledger before its payment is said to be made, as the handler does.
async fn finding(ledger: &Ledger, question: &Question, found: &Found) -> Result<Finding, AskError> {
    Ok(Finding::Executed(match found {
        Found::Declined => payments::declined(),
        Found::Charged(charge) => {
            let payment = Payment::of(charge, &question.downstream_key(PAYMENT_PHASE))
                .ok_or("the charge does not say whose it is")?;
            ledger.add(question.tenant().as_str(), &payment, charge.created_at).await?;
            payments::created(&payment)
        }
    }))
}
