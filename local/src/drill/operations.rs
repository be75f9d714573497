//! The names of the sample's operations and phases.

pub const CREATE_ORDER: &str = "create-order";
pub const CREATE_PAYMENT: &str = "create-payment";
pub const CREATE_REPORT: &str = "create-report";

/// The phases of an order.
pub const CHARGE_PHASE: &str = "charge";
pub const INTENT_PHASE: &str = "intent";
