//! Finds out what became of an interrupted order: the provider knows its charge and its refund.

use lambda_idempotency::{
    async_trait,
    reconcile::{Finding, Question, Reconciler},
};
use orders::{
    Charging,
    policy::{CHARGE_PHASE, REFUND_PHASE},
};
use payments::Provider;

/// Asks the provider about the call that follows what is kept. Nothing is recorded here: the next retry goes on.
#[derive(Debug)]
pub struct OrderReconciler(pub Provider);

#[async_trait]
impl Reconciler for OrderReconciler {
    async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
        let Self(provider) = self;
        let is_charged = question.record().phases().is_some_and(|phases| {
            let mut known = phases.kept.iter().chain(&phases.noted);
            known.any(|phase| phase.name == CHARGE_PHASE)
        });
        let finding = match is_charged {
            false => {
                let found = provider.find(&question.downstream_key(CHARGE_PHASE)).await?;
                found.map(|found| Finding::phase_executed(CHARGE_PHASE, &Charging::from(found)))
            }
            true => {
                let found = provider.find_refund(&question.downstream_key(REFUND_PHASE)).await?;
                found.map(|refund| Finding::phase_executed(REFUND_PHASE, &refund))
            }
        };
        Ok(finding.transpose()?.unwrap_or(Finding::NotFound))
    }
}
