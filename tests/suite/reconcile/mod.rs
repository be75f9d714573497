//! How unknown outcomes are settled: questions to the provider, provider reports, and the comparison of ledgers.

mod deferred_reports;
pub mod ledger_comparison;
mod polls_at_once;
mod provider_report;
mod reconciliation;
mod sealed_metadata;
mod silent;
mod tenants_in_turn;
mod webhook;
mod wrong_kinds;
