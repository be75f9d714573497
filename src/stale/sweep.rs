//! A slow scan that finds what the stream did not show.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Looked, Stale};
use crate::{
    record::{Record, State},
    store::{StoreError, StoreErrorKind, dynamodb::DynamoDbStore},
    time::Timestamp,
};

/// How many items one step of a segment looks at: at 0.3 KB each, and half a unit for 4 KB, some ten read units.
const STEP: u32 = 250;

/// How a table is swept.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// In how many parts, each scanned beside the others.
    pub segments: u32,
    /// How many read units a second it takes at most, on average.
    pub units_per_second: f64,
}

impl Default for Sweep {
    /// Four segments, 50 read units a second: a million records in about 12 minutes, for a fraction of a cent.
    fn default() -> Self {
        Self { segments: 4, units_per_second: 50.0 }
    }
}

/// How far a sweep is; enough to go on with it elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepProgress {
    /// Where each segment goes on; empty before the first step.
    segments: Vec<Segment>,
    /// How many items were looked at.
    pub scanned: u64,
    /// How many read units that took.
    pub units: f64,
    /// How many records it gave up.
    pub given_up: u64,
    /// How much accepted work it ended with 408.
    pub abandoned: u64,
    /// How many records it could not read.
    pub unreadable: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Segment {
    Begin,
    After(String, String),
    Done,
}

impl SweepProgress {
    /// Whether the whole table was looked at.
    pub fn is_done(&self) -> bool {
        !self.segments.is_empty() && self.segments.iter().all(|segment| *segment == Segment::Done)
    }

    /// How many segments are done, of how many.
    pub fn segments(&self) -> (usize, usize) {
        (self.segments.iter().filter(|segment| **segment == Segment::Done).count(), self.segments.len())
    }
}

/// A record that a sweep has found, and what became of it.
#[derive(Debug)]
pub struct Found {
    /// The record as the scan saw it.
    pub record: Record,
    /// What a look at it did.
    pub looked: Looked,
}

impl Stale<DynamoDbStore> {
    /// Goes on with a sweep until it is done or `until` is near, a page of each segment after the other. `report` is told
    /// of each step, with what that has found.
    ///
    /// What it finds is read again, consistently, before it is changed.
    ///
    /// # Errors
    /// Where the store fails. `progress` then says from where to go on.
    pub async fn sweep(
        &self,
        sweep: &Sweep,
        progress: &mut SweepProgress,
        until: Timestamp,
        mut report: impl FnMut(&SweepProgress, &[Found]),
    ) -> Result<(), StoreError> {
        if progress.segments.is_empty() {
            progress.segments = vec![Segment::Begin; sweep.segments.max(1) as usize];
        }
        let (began_at, units_before) = (self.now(), progress.units);
        while !progress.is_done() && self.now() < until {
            let found = self.step(progress).await?;
            report(progress, &found);
            let due =
                Duration::from_secs_f64((progress.units - units_before) / sweep.units_per_second.max(0.1));
            let ahead = due.saturating_sub(self.now().since(began_at));
            if !ahead.is_zero() && !progress.is_done() {
                self.clock.sleep(ahead.min(until.since(self.now()))).await;
            }
        }
        Ok(())
    }

    /// One page of each segment that is not done, all at once.
    async fn step(&self, progress: &mut SweepProgress) -> Result<Vec<Found>, StoreError> {
        let now = self.now();
        let count = u32::try_from(progress.segments.len()).unwrap_or(u32::MAX);
        let open = progress.segments.iter().zip(0..).filter_map(|(segment, number)| match segment {
            Segment::Begin => Some((number, None)),
            Segment::After(pk, sk) => Some((number, Some((pk.clone(), sk.clone())))),
            Segment::Done => None,
        });
        let pages = open.map(|(number, after)| async move {
            let page = self.register.store.scan_unsettled((number, count), after, now, STEP).await?;
            Ok::<_, StoreError>((number, page))
        });
        let pages = futures_util::future::try_join_all(pages.collect::<Vec<_>>()).await?;
        let mut all = Vec::new();
        for (number, page) in pages {
            for record in page.found {
                let looked = match &record.state {
                    State::Unknown { .. } => self.index(&record.key).await,
                    _ => self.check(&record.key).await,
                };
                let looked = match looked {
                    Err(error) if error.kind() == StoreErrorKind::Unreadable => {
                        progress.unreadable += 1;
                        continue;
                    }
                    looked => looked?,
                };
                match looked {
                    Looked::GivenUp => progress.given_up += 1,
                    Looked::Abandoned => progress.abandoned += 1,
                    Looked::Gone | Looked::Settled | Looked::Live(_) | Looked::Busy => {}
                }
                all.push(Found { record, looked });
            }
            progress.scanned += page.scanned;
            progress.units += page.units;
            progress.unreadable += page.unreadable as u64;
            // After its records were looked at: one who goes on from here has missed none.
            progress.segments[number as usize] = match page.next {
                Some((pk, sk)) => Segment::After(pk, sk),
                None => Segment::Done,
            };
        }
        Ok(all)
    }
}
