//! A slow scan that finds records which the stream missed.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::{CheckOutcome, Stale};
use crate::{
    error_chain::error_chain,
    key::{KeyHash, RecordKey},
    outbox::{queue_work, wake},
    record::BodyId,
    store::{Cursor, Page, StoreError, StoreErrorKind},
    telemetry::{OUTBOX_UNDELIVERED, WORK_WAITING},
    time::Instant,
    time_budget::STORE_TIMEOUT,
};

/// How many segments of a table are scanned in parallel.
const SEGMENTS: usize = 4;

/// How many items one step of a segment reads: at 0.3 KB each, and half a unit for 4 KB, some ten read units.
const STEP: u32 = 250;

/// How many records of a page are checked at once.
const LOOKS: usize = 8;

/// The progress of a sweep, from which another invocation can continue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SweepProgress {
    /// Where each segment continues; empty before the first step.
    segments: Vec<Segment>,
    /// How many items were read.
    scanned: u64,
    /// How many read units that took.
    units: f64,
    /// How many expired leases it found.
    lease_expired: u64,
    /// How much accepted work it ended, because no worker had taken it in time.
    abandoned: u64,
    /// How many messages of the outbox it found that should have been delivered.
    #[serde(default)]
    undelivered: u64,
    /// How many accepted requests it found that wait for a worker.
    #[serde(default)]
    waiting: u64,
    /// How many records it could not read.
    unreadable: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Segment {
    Begin,
    After(Cursor),
    Done,
}

impl SweepProgress {
    /// Whether the whole table was swept.
    pub(super) fn is_done(&self) -> bool {
        !self.segments.is_empty() && self.segments.iter().all(|segment| *segment == Segment::Done)
    }

    /// Records what a whole sweep found.
    pub(super) fn record(&self) {
        let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        metrics::histogram!(OUTBOX_UNDELIVERED).record(number(self.undelivered));
        metrics::histogram!(WORK_WAITING).record(number(self.waiting));
    }

    pub(super) fn log(&self) {
        let Self { segments, scanned, units, lease_expired, abandoned, undelivered, waiting, unreadable } =
            self;
        let done = segments.iter().filter(|segment| **segment == Segment::Done).count();
        let segments = segments.len();
        tracing::info!(
            done,
            segments,
            scanned,
            units,
            lease_expired,
            abandoned,
            undelivered,
            waiting,
            unreadable,
            "sweep"
        );
    }
}

impl Stale {
    /// Checks page after page, until the whole table is done or the `time` is up. No page is begun with too little time
    /// left.
    pub(super) async fn steps(&self, progress: &mut SweepProgress, time: Duration) -> Result<(), StoreError> {
        if progress.segments.is_empty() {
            progress.segments = vec![Segment::Begin; SEGMENTS];
        }
        let (world, until) = (&self.engine.world, self.until(time));
        let last_page = self.until(time - STORE_TIMEOUT.min(time / 2));
        let (began_at, units_before) = (world.instant(), progress.units);
        while !progress.is_done() && world.instant() < last_page {
            self.step(progress, until).await?;
            let due = Duration::from_secs_f64((progress.units - units_before) / self.sweep_units.max(0.1));
            let ahead = due.saturating_sub(world.instant().since(began_at));
            if !ahead.is_zero() && !progress.is_done() {
                world.sleep(ahead.min(last_page.since(world.instant()))).await;
            }
        }
        Ok(())
    }

    /// One page of each segment that is not done, all at once.
    async fn step(&self, progress: &mut SweepProgress, until: Instant) -> Result<(), StoreError> {
        let now = self.engine.world.now();
        let count = u32::try_from(progress.segments.len()).unwrap_or(u32::MAX);
        let open = progress.segments.iter().zip(0..).filter_map(|(segment, number)| match segment {
            Segment::Begin => Some((number, None)),
            Segment::After(cursor) => Some((number, Some(cursor.clone()))),
            Segment::Done => None,
        });
        let pages = open.map(|(number, from)| async move {
            let scan = self.records.scan((number, count), from.as_ref(), now, STEP);
            Ok::<_, StoreError>((number, self.engine.bounded(None, scan).await?))
        });
        let pages = futures_util::future::try_join_all(pages.collect::<Vec<_>>()).await?;
        for (number, page) in pages {
            progress.units += page.units;
            // A page for which there was too little time is repeated. Its expired leases are settled by now, so the next invocation
            // gets further.
            if !self.look_at(&page, progress, until).await? || !self.wake(&page.undelivered, until).await {
                continue;
            }
            let Some(waiting) = self.look_after(&page.requests, until).await? else { continue };
            progress.undelivered += page.undelivered.len() as u64;
            progress.waiting += waiting;
            progress.scanned += page.scanned;
            progress.unreadable += page.unreadable as u64;
            // Only after its records were checked, so that a sweep that continues from here misses none.
            progress.segments[number as usize] = page.next.map_or(Segment::Done, Segment::After);
        }
        Ok(())
    }

    /// Asks once more for the delivery of messages that should have been delivered. One that cannot be asked for is found by the
    /// next sweep. Returns whether there was time for all of them.
    async fn wake(&self, undelivered: &[RecordKey], until: Instant) -> bool {
        let Some(outbox) = &self.outbox else { return true };
        let keys: BTreeSet<_> = undelivered.iter().map(RecordKey::partition_key).collect();
        let sweep = hex::encode(self.engine.world.nonce());
        let in_time = keys.iter().take_while(|_| self.engine.world.instant() < until);
        let asks = stream::iter(in_time).map(async |key| {
            // Of this sweep, and of this record.
            let id = format!("{sweep}-{}", KeyHash::of(key));
            if let Err(error) = self.engine.sent(wake(&**outbox, key, &id)).await {
                tracing::error!(error = error_chain(&error), "a delivery could not be asked for");
            }
        });
        asks.buffer_unordered(LOOKS).count().await == keys.len()
    }

    /// Deletes the accepted requests that no worker needs any more, and reports whose alarms are cleared, and queues those that wait for one: their message may be lost.
    /// Returns how many wait; `None` if there was too little time for all of them.
    async fn look_after(
        &self,
        requests: &[(RecordKey, BodyId)],
        until: Instant,
    ) -> Result<Option<u64>, StoreError> {
        let in_time = requests.iter().take_while(|_| self.engine.world.instant() < until);
        let looks = stream::iter(in_time).map(|(key, request)| self.look_after_one(key, *request));
        let mut looks = looks.buffer_unordered(LOOKS);
        let (mut looked, mut waiting) = (0, 0);
        while let Some(waits) = looks.next().await {
            looked += 1;
            waiting += u64::from(waits?);
        }
        Ok((looked == requests.len()).then_some(waiting))
    }

    /// Whether this request waits for a worker.
    async fn look_after_one(&self, key: &RecordKey, request: BodyId) -> Result<bool, StoreError> {
        let record = match self.engine.bounded(None, self.records.load(key)).await {
            Ok(record) => record,
            Err(error) if error.kind() == StoreErrorKind::Unreadable => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(record) = record.filter(|record| record.needs_body(request)) else {
            // The next sweep tries again.
            if let Err(error) = self.engine.sent_again(|| self.records.delete_body(key, request)).await {
                let cause = error.cause();
                tracing::error!(cause, "a body that no record needs could not be deleted");
            }
            return Ok(false);
        };
        if !record.needs_request(request) || !record.waits_for_a_worker() {
            return Ok(false);
        }
        let Some(work) = &self.work else {
            tracing::error!("accepted work waits, and there is no queue for it: set WORK_QUEUE_URL");
            return Ok(true);
        };
        let (key, request) = (key.partition_key(), request.to_string());
        let queued = queue_work(&**work, &key, &request, Duration::ZERO);
        if let Err(error) = self.engine.sent(queued).await {
            tracing::error!(error = error_chain(&error), "accepted work could not be queued");
        }
        Ok(true)
    }

    /// Checks the records of a page. Returns whether there was time for all of them.
    async fn look_at(
        &self,
        page: &Page,
        progress: &mut SweepProgress,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let in_time = page.records.iter().take_while(|_| self.engine.world.instant() < until);
        let mut looks = stream::iter(in_time).map(|record| self.check(&record.key)).buffer_unordered(LOOKS);
        let mut looked = 0;
        while let Some(outcome) = looks.next().await {
            looked += 1;
            match outcome {
                Ok(CheckOutcome::LeaseExpired) => progress.lease_expired += 1,
                Ok(CheckOutcome::Abandoned) => progress.abandoned += 1,
                Ok(_) => {}
                Err(error) if error.kind() == StoreErrorKind::Unreadable => progress.unreadable += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(looked == page.records.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        queue::MemoryQueue,
        record::{
            Record, Revision,
            tests::{Mint, reservation},
        },
        store::{Store, memory::MemoryStore},
        time::Timestamp,
        world::ManualWorld,
    };

    // T50: who continues the sweep must find the records for which there was no time.
    #[tokio::test]
    async fn a_page_whose_records_were_skipped_is_not_swept() {
        let store = MemoryStore::new();
        let dead = Record::reserve(&reservation("k"), Revision::mint(), Timestamp::from_secs(1_000));
        store.put(None, &dead, &[]).await.expect("there is none");
        let queue = MemoryQueue::new();
        let stale = Stale::new(store, queue.clone(), queue.clone(), queue)
            .world(ManualWorld::at(Timestamp::from_secs(2_000)));
        let mut progress = SweepProgress { segments: vec![Segment::Begin], ..SweepProgress::default() };
        for (time, done) in [(Duration::ZERO, false), (Duration::from_secs(1), true)] {
            stale.step(&mut progress, stale.until(time)).await.expect("the store answers");
            assert_eq!((progress.is_done(), progress.lease_expired), (done, u64::from(done)));
        }
    }
}
