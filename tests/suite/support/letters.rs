//! A stream whose letters go a way of their own.

use std::time::Duration;

use lambda_idempotency::{
    async_trait,
    event::{DeadMessage, MemorySource, Source, SourceKind},
    queue::QueueError,
};

/// This source, whose letters are sent so.
#[derive(Clone)]
pub struct Letters<F>(pub MemorySource, pub F);

#[async_trait]
impl<F, S> Source for Letters<F>
where
    F: Fn(MemorySource, DeadMessage) -> S + Send + Sync + 'static,
    S: Future<Output = Result<(), QueueError>> + Send,
{
    fn name(&self) -> &str {
        self.0.name()
    }

    fn kind(&self) -> SourceKind {
        self.0.kind()
    }

    async fn hide(&self, _: &[(String, Duration)]) -> Result<(), QueueError> {
        unreachable!("a stream hides nothing")
    }

    async fn bury(&self, dead: DeadMessage) -> Result<(), QueueError> {
        (self.1)(self.0.clone(), dead).await
    }
}
