//! A queue that accepts nothing.

use std::time::Duration;

use lambda_idempotency::{
    async_trait,
    queue::{Queue, QueueError},
};

pub struct Closed;

#[async_trait]
impl Queue for Closed {
    async fn send(&self, _: &str, _: Duration) -> Result<(), QueueError> {
        Err(QueueError::new("closed"))
    }
}
