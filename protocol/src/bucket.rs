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
