//! The arithmetic of a bucket: how it fills, how it runs over, how much of it is counted.
//!
//! A bucket leaks by its rate, and runs over above its burst. Its level is kept as a *time*: when it would have leaked so far that its burst is
//! used up no more. What is put in moves that time forward, and the passing of time leaks. So one unconditional addition is all that a
//! count writes, and what was admitted too much stays in the bucket as a debt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    limits::{Limits, Rate},
    time::Timestamp,
};

/// The level of a bucket: it runs over until then. Microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u64);

/// The largest number of keys for which one is counted.
const MAX_WEIGHT: u64 = 10;

/// How many counts a burst has at least. Fewer would be too coarse: honest traffic would be refused by chance.
const COUNTS_OF_A_BURST: u64 = 20;

/// How long a bucket is kept at least, and how long a burst counts at most for that.
const MIN_MEMORY: Duration = Duration::from_secs(24 * 3600);
const MAX_MEMORY: Duration = Duration::from_secs(30 * 24 * 3600);

/// How many keys each count stands for.
pub fn weight(limits: &Limits) -> u64 {
    // The bytes of one request are no measure of ten.
    let rate = limits.new_keys.filter(|_| limits.accepted_bytes.is_none());
    rate.map_or(1, |rate| (rate.burst / COUNTS_OF_A_BURST).clamp(1, MAX_WEIGHT))
}

/// How far the level rises by so many.
pub fn cost(rate: Rate, number: u64) -> Level {
    let micros = u128::from(number) * u128::from(rate.per_ms) * 1_000 / u128::from(rate.count.max(1));
    Level(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// The level of an empty bucket.
pub fn empty(rate: Rate, now: Timestamp) -> Level {
    Level(micros(now).saturating_sub(cost(rate, rate.burst).0))
}

/// A level that has risen by so much.
pub fn risen(level: Level, by: Level) -> Level {
    Level(level.0.saturating_add(by.0))
}

/// The level at which the burst is used up.
pub fn full(now: Timestamp) -> Level {
    Level(micros(now))
}

/// For how long a bucket of this level runs over.
pub fn over(level: Level, now: Timestamp) -> Option<Duration> {
    let over = level.0.checked_sub(micros(now)).filter(|over| *over > 0)?;
    Some(Duration::from_micros(over))
}

/// The level of an empty bucket, if this one lies so far below that it must be raised: a tenant that was away for long may not have all of
/// that at once. Not at each count, because that would be a second write for each.
pub fn raised(rate: Rate, level: Level, now: Timestamp) -> Option<Level> {
    let empty = empty(rate, now);
    let lowest = empty.0.saturating_sub(cost(rate, rate.burst).0);
    (level.0 < lowest).then_some(empty)
}

/// When a bucket into which so many were put now may be deleted.
pub fn forgotten(rate: Rate, number: u64, now: Timestamp) -> Timestamp {
    let until_empty = cost(rate, rate.burst).0.saturating_mul(2).saturating_add(cost(rate, number).0);
    now.plus(Duration::from_micros(until_empty).min(MAX_MEMORY)).plus(MIN_MEMORY)
}

fn micros(now: Timestamp) -> u64 {
    now.as_millis().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const SECOND: u64 = 1_000_000;
    const HOUR: Duration = Duration::from_secs(3600);

    fn before(level: Level, micros: u64) -> Level {
        Level(level.0 - micros)
    }

    #[test]
    fn a_bucket_runs_over_from_the_first_microsecond_above_its_burst() {
        let rate = Rate::per_second(10).burst(50);
        let full = Level(empty(rate, NOW).0 + cost(rate, 50).0);
        assert_eq!(over(full, NOW), None);
        assert_eq!(over(Level(full.0 + 1), NOW), Some(Duration::from_micros(1)));
        let one_more = Level(full.0 + cost(rate, 1).0);
        assert_eq!(over(one_more, NOW), Some(Duration::from_millis(100)));
        assert_eq!(over(one_more, NOW.plus(Duration::from_millis(100))), None, "it leaks");
        assert_eq!(over(Level(u64::MAX), Timestamp::MAX), None, "the end of time");
    }

    #[test]
    fn a_bucket_is_raised_if_it_is_emptier_than_a_whole_burst() {
        let rate = Rate::per_second(10).burst(50);
        let empty = empty(rate, NOW);
        let lowest = before(empty, 5 * SECOND);
        for level in [Level(u64::MAX), Level(NOW.as_millis() * 1_000), empty, before(empty, 1), lowest] {
            assert_eq!(raised(rate, level, NOW), None, "{level:?}");
        }
        for level in [before(lowest, 1), Level(0)] {
            assert_eq!(raised(rate, level, NOW), Some(empty), "{level:?}");
        }
        // A burst that lasts longer than there was time since 1970.
        let large = Rate::per_minute(1).burst(1_000_000_000);
        assert_eq!(raised(large, Level(0), NOW), None);
        assert_eq!(raised(rate, Level(0), Timestamp::from_millis(0)), None);
    }

    #[test]
    fn a_bucket_is_kept_until_it_is_empty_or_for_a_month() {
        let kept = |rate, number| forgotten(rate, number, NOW).since(NOW);
        let few = Rate::per_minute(1).burst(60);
        assert_eq!(kept(Rate::per_second(1_000).burst(1), 0), 24 * HOUR + Duration::from_millis(2));
        assert_eq!(kept(few, 0), 26 * HOUR);
        assert_eq!(kept(few, 60), 27 * HOUR);
        // What it holds then has leaked: one that is new has no less.
        for number in [1, 10, 1_000, 40_000] {
            let later = forgotten(few, number, NOW);
            let level = Level(NOW.as_millis() * 1_000 + cost(few, number).0);
            assert!(level <= empty(few, later), "{number}");
        }
        for (rate, number) in [
            (Rate::per_minute(1).burst(1_000_000_000), 1),
            (few, u64::MAX),
            (Rate::per_minute(1).burst(u64::MAX), u64::MAX),
        ] {
            assert_eq!(kept(rate, number), 31 * 24 * HOUR, "{rate}, {number}");
        }
    }

    #[test]
    fn a_count_stands_for_a_twentieth_of_a_burst_at_most() {
        let keys = |burst| Limits { new_keys: Some(Rate::per_second(1).burst(burst)), ..Limits::default() };
        let weights = [1, 39, 40, 199, 200, 1_000_000_000].map(|burst| weight(&keys(burst)));
        assert_eq!(weights, [1, 1, 2, 9, 10, 10]);
        assert_eq!(weight(&Limits::default()), 1);
        let bytes = Limits { accepted_bytes: Some(Rate::per_second(1)), ..keys(1_000) };
        assert_eq!(weight(&bytes), 1, "the bytes of each request are counted");
    }

    #[test]
    fn no_rate_and_no_number_overflow() {
        for rate in [Rate::per_second(0), Rate::per_minute(1), Rate::per_second(u64::MAX).burst(u64::MAX)] {
            for number in [0, 1, u64::MAX] {
                for now in [Timestamp::from_millis(0), NOW, Timestamp::MAX] {
                    let level = Level(cost(rate, number).0);
                    let (_, _) = (empty(rate, now), raised(rate, level, now));
                    assert!(forgotten(rate, number, now) >= now);
                    assert!(over(level, now).is_none_or(|over| !over.is_zero()));
                }
            }
        }
    }
}
