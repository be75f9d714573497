//! A process that can die, within this one.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use lambda_idempotency::{
    time::Timestamp,
    world::{SystemWorld, World},
};
use tokio::{sync::watch, task::JoinSet};

/// The machine's clocks, and tasks that end when the process is killed. Clones share the process.
#[derive(Clone, Debug)]
pub struct Mortal {
    /// None: it is dead.
    tasks: Arc<Mutex<Option<JoinSet<()>>>>,
    dead: watch::Sender<bool>,
}

impl Mortal {
    pub fn born() -> Self {
        Self { tasks: Arc::new(Mutex::new(Some(JoinSet::new()))), dead: watch::Sender::new(false) }
    }

    /// No task continues, and none begins. A request that a task has sent may still arrive.
    pub fn kill(&self) {
        let tasks = self.tasks.lock().unwrap().take();
        drop(tasks);
        self.dead.send_replace(true);
    }

    /// Returns when it is dead.
    pub async fn died(&self) {
        self.dead.subscribe().wait_for(|dead| *dead).await.expect("the sender is here");
    }
}

impl World for Mortal {
    fn now(&self) -> Timestamp {
        SystemWorld.now()
    }

    fn running(&self) -> Duration {
        SystemWorld.running()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        SystemWorld.sleep(span)
    }

    fn nonce(&self) -> [u8; 16] {
        SystemWorld.nonce()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(tasks) = &mut *self.tasks.lock().unwrap() {
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }
}
