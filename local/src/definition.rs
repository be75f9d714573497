//! What a function of this cloud is.

use crate::{
    program::{Program, Run},
    sample::Sample,
};
use lambda_idempotency::{
    event,
    lambda::{self, Error},
};
use std::{collections::BTreeMap, time::Duration};

/// The functions of the library, by the names of their own programs.
const BUILT_IN: &[(&str, Run)] = &[("outbox", || Box::pin(outbox())), ("stale", || Box::pin(stale()))];

async fn outbox() -> Result<(), Error> {
    lambda::logs();
    event::outbox(event::deliverer().await?).await
}

async fn stale() -> Result<(), Error> {
    lambda::logs();
    lambda::stale().await
}

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
pub fn built_in(name: &str, sample: Option<&Sample>) -> Option<Run> {
    let mut all = BUILT_IN.iter().chain(sample.into_iter().flat_map(|sample| sample.functions));
    all.find(|(known, _)| *known == name).map(|(_, run)| *run)
}
