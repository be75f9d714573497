//! The phases of the handler, in their places: a charge, stock that may be refused, and then a refund.

use protocol::record::{PhaseResult, Record};

use crate::kernel::{
    records::Name::{self, Charge, ChargeCard, Fraud, Refund, Stock},
    setting::Change,
};

/// The phases of a version, in their places.
pub const fn names(change: Change, is_new: bool) -> &'static [Name] {
    const NAMES: &[Name] = &[Charge, Stock, Refund];
    match change {
        _ if !is_new => NAMES,
        Change::None => NAMES,
        Change::Inserted => &[Fraud, Charge, Stock, Refund],
        Change::Renamed => &[ChargeCard, Stock, Refund],
        Change::Removed => &[Charge, Stock],
        Change::Reordered => &[Stock, Charge],
    }
}

/// The result of the stock, if it is kept.
pub fn stock(record: &Record) -> Option<&str> {
    let stock = record.phases()?.kept.iter().find(|kept| kept.name == Stock.text())?;
    stock.result.as_ref().map(PhaseResult::text)
}

/// The names of a record's fields that decide, for a count of their combinations.
pub fn combination(record: &Record) -> String {
    let Some(phases) = record.phases() else { return record.state.name().to_owned() };
    let names = |phases: &[protocol::record::Phase]| {
        phases.iter().map(|phase| phase.name.clone()).collect::<Vec<_>>().join(" ")
    };
    let escalated = if record.is_escalated() { " escalated" } else { "" };
    let begun = if phases.begun.is_some() { ", a call perhaps begun" } else { "" };
    let noted = names(&phases.noted);
    let noted = if noted.is_empty() { noted } else { format!(", noted {noted}") };
    format!("{}{escalated}, kept {}{noted}{begun}", record.state.name(), names(&phases.kept))
}
