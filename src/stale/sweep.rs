//! A slow scan that finds what the stream did not show.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CheckOutcome, Stale, message::Check};
use crate::{
    queue::WorkError,
    record::State,
    store::{Cursor, StoreError, StoreErrorKind},
};

/// In how many parts a table is swept, each scanned beside the others.
const SEGMENTS: usize = 4;

/// How many items one step of a segment looks at: at 0.3 KB each, and half a unit for 4 KB, some ten read units.
const STEP: u32 = 250;

/// How far a sweep is; enough to go on with it elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SweepProgress {
    /// Where each segment goes on; empty before the first step.
    segments: Vec<Segment>,
    /// How many items were looked at.
    scanned: u64,
    /// How many read units that took.
    units: f64,
    /// How many records it gave up.
    given_up: u64,
    /// How much accepted work it ended that nobody had taken.
    abandoned: u64,
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
    /// Whether the whole table was looked at.
    fn is_done(&self) -> bool {
        !self.segments.is_empty() && self.segments.iter().all(|segment| *segment == Segment::Done)
    }

    /// How many segments are done, of how many.
    fn segments(&self) -> (usize, usize) {
        (self.segments.iter().filter(|segment| **segment == Segment::Done).count(), self.segments.len())
    }
}

impl Stale {
    /// Begins a sweep, which looks at every record of the store, and goes on until it is done or the `time` is up; then a
    /// message to the queue of checks says where to go on.
    ///
    /// What it finds is read again, consistently, before it is changed.
    ///
    /// # Errors
    /// If the store or the queue fails.
    pub async fn sweep(&self, time: Duration) -> Result<(), WorkError> {
        self.go_on(SweepProgress::default(), time).await
    }

    /// A sweep that fails is delivered again as it came, and begins where that one began.
    pub(super) async fn go_on(&self, mut progress: SweepProgress, time: Duration) -> Result<(), WorkError> {
        let swept = self.steps(&mut progress, time).await;
        let (done, segments) = progress.segments();
        let SweepProgress { scanned, units, given_up, abandoned, unreadable, .. } = progress;
        tracing::info!(done, segments, scanned, units, given_up, abandoned, unreadable, "sweep");
        swept?;
        if !progress.is_done() {
            self.checks.send(&Check::Sweep { progress }.to_json(), Duration::ZERO).await?;
        }
        Ok(())
    }

    async fn steps(&self, progress: &mut SweepProgress, time: Duration) -> Result<(), StoreError> {
        if progress.segments.is_empty() {
            progress.segments = vec![Segment::Begin; SEGMENTS];
        }
        let (world, until) = (&self.engine.world, self.until(time));
        let (began_at, units_before) = (world.instant(), progress.units);
        while !progress.is_done() && world.instant() < until {
            self.step(progress).await?;
            let due = Duration::from_secs_f64((progress.units - units_before) / self.sweep_units.max(0.1));
            let ahead = due.saturating_sub(world.instant().since(began_at));
            if !ahead.is_zero() && !progress.is_done() {
                world.sleep(ahead.min(until.since(world.instant()))).await;
            }
        }
        Ok(())
    }

    /// One page of each segment that is not done, all at once.
    async fn step(&self, progress: &mut SweepProgress) -> Result<(), StoreError> {
        let now = self.engine.world.now();
        let count = u32::try_from(progress.segments.len()).unwrap_or(u32::MAX);
        let open = progress.segments.iter().zip(0..).filter_map(|(segment, number)| match segment {
            Segment::Begin => Some((number, None)),
            Segment::After(cursor) => Some((number, Some(cursor.clone()))),
            Segment::Done => None,
        });
        let pages = open.map(|(number, from)| async move {
            let page = self.records.scan((number, count), from.as_ref(), now, STEP).await?;
            Ok::<_, StoreError>((number, page))
        });
        let pages = futures_util::future::try_join_all(pages.collect::<Vec<_>>()).await?;
        for (number, page) in pages {
            for record in page.records {
                // The scan finds an unknown outcome only if it is missing from the index.
                let unlisted = matches!(record.state, State::Unknown { .. });
                match self.look(&record.key, unlisted).await {
                    Ok(CheckOutcome::GivenUp) => progress.given_up += 1,
                    Ok(CheckOutcome::Abandoned) => progress.abandoned += 1,
                    Ok(_) => {}
                    Err(error) if error.kind() == StoreErrorKind::Unreadable => progress.unreadable += 1,
                    Err(error) => return Err(error),
                }
            }
            progress.scanned += page.scanned;
            progress.units += page.units;
            progress.unreadable += page.unreadable as u64;
            // After its records were looked at: one who goes on from here has missed none.
            progress.segments[number as usize] = page.next.map_or(Segment::Done, Segment::After);
        }
        Ok(())
    }
}
