//! The phases of the handler, in their places: a charge, stock that may be refused, and then a refund.

use protocol::record::{PhaseResult, Record};

use crate::kernel::setting::Change;

pub const CHARGE: &str = "charge";
pub const STOCK: &str = "stock";
pub const REFUND: &str = "refund";

/// The charge, as the new version calls it.
pub const RENAMED: &str = "charge-card";

/// The phases of a version, in their places.
pub const fn names(change: Change, is_new: bool) -> &'static [&'static str] {
    const NAMES: &[&str] = &[CHARGE, STOCK, REFUND];
    match change {
        _ if !is_new => NAMES,
        Change::None => NAMES,
        Change::Inserted => &["fraud", CHARGE, STOCK, REFUND],
        Change::Renamed => &[RENAMED, STOCK, REFUND],
        Change::Removed => &[CHARGE, STOCK],
        Change::Reordered => &[STOCK, CHARGE],
    }
}

/// The result of the stock, if it is kept.
pub fn stock(record: &Record) -> Option<&str> {
    let stock = record.phases()?.kept.iter().find(|kept| kept.name == STOCK)?;
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
