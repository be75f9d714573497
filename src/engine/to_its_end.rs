//! Runs an execution to its end, even if its caller is dropped.
//!
//! As long as the caller polls, the execution is a part of it: no task, no hop to another thread. Once the caller is dropped, the rest of the
//! execution becomes a task of its own, through [`World::spawn`]. Where none can be begun, outside a runtime or when it shuts down, the
//! execution ends there: its record is left to its lease, as after a crash.

use std::{
    any::Any,
    mem,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::FutureExt;
use tracing::{Instrument, Span};

use super::Executor;
use crate::world::World;

type Work<T> = Pin<Box<dyn Future<Output = Result<T, Box<dyn Any + Send>>> + Send>>;

/// What the work returns; `None` if it panics. It begins when it is polled.
pub(crate) struct ToItsEnd<T: 'static> {
    /// Until it has ended.
    work: Option<Work<T>>,
    begun: bool,
    world: Arc<dyn World>,
    /// In which it goes on as a task.
    span: Span,
}

impl Executor {
    /// What `work` returns, which runs to its end even if the returned future is dropped (T35).
    pub(crate) fn to_its_end<T>(&self, work: impl Future<Output = T> + Send + 'static) -> ToItsEnd<T> {
        ToItsEnd {
            work: Some(Box::pin(AssertUnwindSafe(work).catch_unwind())),
            begun: false,
            world: self.engine.world.clone(),
            span: Span::current(),
        }
    }
}

impl<T> Future for ToItsEnd<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.begun = true;
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let ended = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(ended.inspect_err(|_| tracing::error!("the guard panicked")).ok())
    }
}

/// Says so if a task ends before its work: its runtime shuts down, or there is none.
struct Unfinished;

impl Drop for Unfinished {
    fn drop(&mut self) {
        tracing::error!(
            "an execution whose caller was dropped did not get to its end: its record is left to its lease"
        );
    }
}

impl<T> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.begun) else { return };
        let unfinished = Unfinished;
        let rest = async move {
            drop(work.await);
            mem::forget(unfinished);
        };
        self.world.spawn(Box::pin(rest.instrument(self.span.clone())));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{operation::Operation, store::memory::MemoryStore};

    // T35
    #[tokio::test]
    async fn what_was_never_polled_does_not_begin() {
        let executor = Executor::new(MemoryStore::new(), Operation::new("pay"));
        for is_polled in [false, true] {
            let has_ended = Arc::new(AtomicBool::new(false));
            let ends = has_ended.clone();
            let mut work = executor.to_its_end(async move {
                tokio::task::yield_now().await;
                ends.store(true, Ordering::Relaxed);
            });
            assert!(!is_polled || (&mut work).now_or_never().is_none());
            drop(work);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert_eq!(has_ended.load(Ordering::Relaxed), is_polled);
        }
    }

    #[tokio::test]
    async fn what_panics_returns_nothing_and_panics_no_caller() {
        let executor = Executor::new(MemoryStore::new(), Operation::new("pay"));
        let panics = async {
            if Arc::new(true).as_ref() == &true {
                panic!("a mistake of this library")
            }
        };
        assert_eq!(executor.to_its_end(panics).await, None);
    }
}
