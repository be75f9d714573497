//! What a function of this cloud is.

use crate::program::{Program, Run};
use std::{collections::BTreeMap, time::Duration};

/// The functions that are in this program, by the names of their own programs.
const BUILT_IN: &[(&str, Run)] = &[
    ("compare", || Box::pin(compare::run())),
    ("order-queue", || Box::pin(orders::order_queue())),
    ("orders", || Box::pin(orders::run())),
    ("outbox", || Box::pin(outbox::run())),
    ("payments", || Box::pin(payments::run())),
    ("reconcile", || Box::pin(reconcile::reconcile())),
    ("report-worker", || Box::pin(reports::worker())),
    ("reports", || Box::pin(reports::run())),
    ("shipping", || Box::pin(shipping::run())),
    ("stale", || Box::pin(stale::run())),
    ("webhook", || Box::pin(reconcile::webhook())),
];

/// A function, as its processes are started.
pub struct Definition {
    pub name: &'static str,
    /// How many environments it may have at once.
    pub environments: usize,
    pub program: Program,
    /// Its time for one invocation.
    pub timeout: Duration,
    pub variables: BTreeMap<String, String>,
}

/// The function in this program that has a program of this name elsewhere.
pub fn built_in(name: &str) -> Option<Run> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, run)| *run)
}
