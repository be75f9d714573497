//! What happened in a test.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lambda_idempotency::{
    async_trait,
    reconcile::{Finding, Question, Reconciler},
    record::Answer,
};
use tokio::sync::oneshot;

use super::orders::customer;

/// What happened, and what is to happen. Clones share it.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Book>>);

#[derive(Default)]
pub struct Book {
    /// The effects, by customer, in their order.
    pub effects: BTreeMap<String, Vec<usize>>,
    pub tries: HashMap<usize, u32>,
    /// Records that an answer acknowledged.
    pub done: HashSet<String>,
    pub invocations: usize,
    /// How often a record had to come again.
    pub handed_back: usize,
    pub killed: usize,
    pub timed_out: usize,
    /// In how many moments an instance is killed. 0: none is.
    pub moments_to_kill: usize,
    /// The next instance that comes to a moment stops in it: it says so, and waits.
    pub hold: Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>,
}

impl Shared {
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The effects are what a provider knows.
#[async_trait]
impl Reconciler for Shared {
    async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
        let id = question.record_key().idempotency_key().as_str().parse()?;
        let is_shipped = self.book().effects.get(&customer(id)).is_some_and(|effects| effects.contains(&id));
        Ok(if is_shipped { Finding::Executed(Answer::payload(&())?) } else { Finding::NotFound })
    }
}
