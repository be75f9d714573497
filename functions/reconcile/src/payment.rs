//! Finds out what became of a payment: the provider knows whether it charged a card.

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
    /// Asks `provider`, and records charges in `ledger` if their workers did not.
    pub fn new(provider: Provider, ledger: Ledger) -> Self {
        Self { provider, ledger }
    }
}

#[async_trait]
impl Reconciler for PaymentReconciler {
    async fn ask(&self, question: &Question) -> Result<Finding, AskError> {
        match self.provider.find(&question.downstream_key(CHARGE_PHASE)).await? {
            Some(found) => finding(&self.ledger, question, &found),
            None => Ok(Finding::NotFound),
        }
    }
}

/// What the provider reported about a charge by webhook: it answers the question without asking the provider.
#[derive(Debug)]
pub struct ReportedCharge {
    /// What it decided.
    pub found: Found,
    /// Where payments are recorded.
    pub ledger: Ledger,
}

#[async_trait]
impl Reconciler for ReportedCharge {
    async fn ask(&self, question: &Question) -> Result<Finding, AskError> {
        finding(&self.ledger, question, &self.found)
    }
}

/// A charge is recorded in the transaction that completes its operation, as the handler does it.
fn finding(ledger: &Ledger, question: &Question, found: &Found) -> Result<Finding, AskError> {
    Ok(match found {
        Found::Declined => Finding::Executed(payments::declined()),
        Found::Charged(charge) => {
            let payment = Payment::of(charge, &question.downstream_key(PAYMENT_PHASE))
                .ok_or("the charge does not name its customer")?;
            let recording = ledger.recording(question.tenant().as_str(), &payment, charge.created_at);
            Finding::ExecutedWith(payments::created(&payment), vec![recording])
        }
    })
}
