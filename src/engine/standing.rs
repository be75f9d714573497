//! How the tenant of a request stands, and whether it still does when its handler begins.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use futures_util::future::{self, Either, MaybeDone};

use super::{Executor, Request};
use crate::{
    bounds::Bounds,
    record::Standing,
    store::StoreError,
    time::Instant,
    time_budget::{COUNT_TIME, STORE_TIMEOUT, STORE_TRY},
};

/// What `work` returns. `reading` goes on meanwhile, as far as it gets.
pub(super) async fn beside<T, R: Future>(
    work: impl Future<Output = T>,
    reading: Pin<&mut MaybeDone<R>>,
) -> T {
    match future::select(pin!(work), reading).await {
        Either::Left((done, _)) => done,
        Either::Right(((), work)) => work.await,
    }
}

/// Ends a read of the rules that is not polled any more. While it is under way it keeps all others of this process from reading them: a
/// request of another tenant would wait for whatever this one waits for.
pub(super) fn end_reading<R>(mut reading: Pin<&mut MaybeDone<R>>)
where
    R: Future<Output = Result<(), StoreError>>,
{
    reading.set(MaybeDone::Done(Ok(())));
}

impl Executor {
    /// Bounds each tenant, and heeds the operators' brake. An entrance of your own that calls [`reserve`](Self::reserve) has the brake, and the
    /// bounds of other entrances of its operation, but counts no new keys.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = Some(bounds);
        self
    }

    pub(crate) fn has_bounds(&self) -> bool {
        self.bounds.is_some()
    }

    /// How its tenant stands, as far as this process knows. If the rules are too old, and could not be read (`unread`), operators may have
    /// stopped it.
    pub(super) fn standing(&self, request: &Request, unread: Option<&StoreError>) -> Standing {
        match &self.bounds {
            Some(_) if unread.is_some() => Standing::WorkStopped,
            Some(bounds) => bounds.standing(&request.key, &*self.engine.world),
            None => Standing::Within,
        }
    }

    /// Reads the rules, if they are too old.
    pub(super) async fn read_rules(&self) -> Result<(), StoreError> {
        match &self.bounds {
            Some(bounds) => bounds.refresh(&*self.engine.world).await,
            None => Ok(()),
        }
    }

    /// Waits for rules that are not too old: for half of the time that is left until the answer, so that a reservation can still be taken back.
    /// Returns why there are none. Nothing begins without. The breaker does not hear of it: what is done is replayed all the same.
    pub(super) async fn unread_rules(
        &self,
        mut reading: Pin<&mut MaybeDone<impl Future<Output = Result<(), StoreError>>>>,
        answer_by: Option<Instant>,
    ) -> Option<StoreError> {
        let bounds = self.bounds.as_ref()?;
        let world = &self.engine.world;
        if bounds.are_fresh(&**world) {
            end_reading(reading);
            return None;
        }
        let time = self.half_of_what_is_left(answer_by, STORE_TIMEOUT);
        let read = async {
            reading.as_mut().await;
            bounds.refresh(&**world).await
        };
        let read = world.within(time, read).await;
        end_reading(reading);
        let read = match read {
            Some(read) => read,
            None if bounds.are_usable_after(time, &**world) => Ok(()),
            None => Err(StoreError::no_answer_in_time(time < STORE_TRY)),
        };
        read.err()
    }

    /// The same, before anything is asked: only if its tenant is refused by what is known, or if reading the rules has just failed. So no
    /// tenant is refused by rules that are too old, and nothing is reserved that would be taken back.
    pub(super) async fn unread_before(
        &self,
        request: &Request,
        answer_by: Option<Instant>,
    ) -> Option<StoreError> {
        let has_failed = self.bounds.as_ref()?.have_failed(&*self.engine.world);
        if !has_failed && self.standing(request, None).begins().is_ok() {
            return None;
        }
        let read = pin!(future::maybe_done(future::ready(Ok(()))));
        self.unread_rules(read, answer_by).await
    }

    /// Counts a new key of its tenant, with this many bytes of an accepted request.
    pub(super) async fn count_new(&self, request: &Request, bytes: usize, answer_by: Option<Instant>) {
        if let Some(bounds) = &self.bounds {
            let time = self.half_of_what_is_left(answer_by, COUNT_TIME);
            bounds.count(&request.key, bytes, time, &*self.engine.world).await;
        }
    }

    fn half_of_what_is_left(&self, answer_by: Option<Instant>, at_most: Duration) -> Duration {
        let left = answer_by.map(|answer_by| answer_by.since(self.engine.world.instant()) / 2);
        left.map_or(at_most, |left| left.min(at_most))
    }
}
