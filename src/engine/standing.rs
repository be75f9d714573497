//! How the tenant of a request stands, and whether it still does once its record is reserved.

use tokio::sync::oneshot;

use super::{Executor, Moment, Replay, Request, reserve::Times};
use crate::{
    bounds::Bounds,
    record::{Record, Says, Standing},
    store::{StoreError, StoreErrorKind},
    time_budget::STORE_TIMEOUT,
};

/// The rules of tenants, which are being read.
pub(super) struct Refreshed(oneshot::Receiver<Result<(), StoreError>>);

impl Executor {
    /// Bounds each tenant, and heeds the operators' brake.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = Some(bounds);
        self
    }

    /// How its tenant stands, as far as this process knows.
    pub(super) fn standing(&self, request: &Request) -> Standing {
        let bounds = self.bounds.as_ref();
        bounds.map_or(Standing::Within, |bounds| bounds.standing(&request.key, &*self.engine.world))
    }

    /// How its tenant stands, and the rules that are being read meanwhile, if those that are known are too old. No tenant is refused by rules that
    /// are: then it waits for them.
    pub(super) async fn stands(&self, request: &Request) -> (Standing, Option<Refreshed>) {
        let (standing, refreshed) = (self.standing(request), self.refresh_rules());
        match refreshed {
            Some(refreshed) if standing.begins().is_err() => {
                let is_fresh = self.refreshed(refreshed).await.is_ok();
                (if is_fresh { self.standing(request) } else { standing }, None)
            }
            refreshed => (standing, refreshed),
        }
    }

    /// Begins to read the rules, if they are too old. A task of its own, which only an execution that begins waits for.
    fn refresh_rules(&self) -> Option<Refreshed> {
        let bounds = self.bounds.as_ref().filter(|bounds| !bounds.are_fresh(&*self.engine.world))?;
        let (bounds, world) = (bounds.clone(), self.engine.world.clone());
        let (done, refreshed) = oneshot::channel();
        self.engine.world.spawn(Box::pin(async move {
            // Its request may need no rules.
            let _ = done.send(bounds.refresh(&*world).await);
        }));
        Some(Refreshed(refreshed))
    }

    /// Waits until the rules are fresh.
    pub(super) async fn refreshed(&self, Refreshed(refreshed): Refreshed) -> Result<(), StoreError> {
        match self.engine.world.within(STORE_TIMEOUT, refreshed).await {
            Some(Ok(refreshed)) => refreshed,
            _ => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "the rules of tenants were not read in time",
            )),
        }
    }

    /// Whether this execution may begin over the record `over`, now that the rules are fresh. If they could not be read, operators may have
    /// stopped its tenant.
    pub(super) async fn still_stands(
        &self,
        request: &Request,
        times: Times,
        over: Option<&Record>,
        record: &Record,
        refreshed: Refreshed,
    ) -> Result<(), Says<Replay>> {
        let refreshed = self.refreshed(refreshed).await;
        let standing = match &refreshed {
            Ok(()) => self.standing(request),
            Err(_) => Standing::WorkStopped,
        };
        if matches!(standing, Standing::Within | Standing::Over(_)) {
            return Ok(());
        }
        // The decision that it began by, but for the standing: what resumes goes on. Whatever else is found instead, it does not begin.
        let moment = Moment { revision: record.revision, now: record.began_at };
        if self.begins(request, record.attempt, (times, standing), over, moment).is_ok() {
            return Ok(());
        }
        Err(match refreshed {
            Ok(()) => Says::Stopped,
            Err(error) => self.failed(&error),
        })
    }

    /// Counts a new key of its tenant, with this many bytes of an accepted request.
    pub(super) async fn count_new(&self, request: &Request, bytes: usize) {
        if let Some(bounds) = &self.bounds {
            bounds.count(&request.key, bytes, &*self.engine.world).await;
        }
    }
}
