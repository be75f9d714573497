//! All that runs: what the routes of this cloud's address use.

use crate::{
    events::Events, example::Example, functions::Function, journal, metrics::Metrics, provider::Server,
    queues::Queues, route::Route, routes::Routes, template::Stack,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// The state of the routes.
pub struct Cloud {
    pub functions: Vec<Arc<Function>>,
    pub routes: Routes,
    pub provider: Server,
    pub http: reqwest::Client,
    pub gateway_timeout: Duration,
    pub metrics: Arc<Metrics>,
    pub journal: journal::Shared,
    /// This address.
    pub url: String,
    /// Whether all writes of the tables are seen here: the store is embedded.
    pub sees_writes: bool,
    /// Whether the sample runs here.
    pub is_sample: bool,
    pub all_routes: Vec<Route>,
    pub examples: Vec<Example>,
    /// Claims of every caller's token.
    pub claims: Vec<(String, String)>,
    /// Makes the calls of the page's operator.
    pub operators: aws_sdk_dynamodb::Client,
    /// The variables of the operators' command line, as shell commands.
    pub operate: String,
    pub queues: Arc<Queues>,
    pub stack: Stack,
    pub events: Events,
    /// What the page shows of tenants and of the functions' own tables, and when it was read.
    pub tenants: Mutex<Option<(Instant, String)>>,
    pub tables: Mutex<Option<(Instant, String)>>,
}

impl Cloud {
    /// Whether the simulated provider is of use here: a template of one's own need not use it.
    pub fn has_provider(&self) -> bool {
        self.is_sample || self.journal.has_calls()
    }
}
