//! The limits of a tenant, and the arithmetic of a bucket: how it fills, how it runs over, how much of it is counted.
//!
//! A bucket leaks by its rate, and runs over above its burst. Its level is kept as a *time*: when it would have leaked so far that its burst is
//! used up no more. What is put in moves that time forward, and the passing of time leaks. So one unconditional addition is all that a
//! count writes, and what was admitted too much stays in the bucket as a debt.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The level of a bucket: it runs over until then. Microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u64);

/// How much a tenant may use of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// New keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_keys: Option<Rate>,
    /// Bytes of the bodies of requests that are accepted, to be executed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_bytes: Option<Rate>,
    /// Records whose outcome is unknown or that are between workers, of all operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_records: Option<usize>,
}

/// So many of something in a time, and so many at once: `10/s`, `100/min`, or with its burst `10/s+1200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    count: u64,
    per_ms: u64,
    burst: u64,
}

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;

/// The largest count and burst.
const MOST: u64 = 1_000_000_000;

/// The largest number of keys for which one is counted.
const MAX_WEIGHT: u64 = 10;

/// How many counts a burst has at least. Fewer would be too coarse: honest traffic would be refused by chance.
const COUNTS_OF_A_BURST: u64 = 20;

/// How long a burst lasts that is not set.
const DEFAULT_BURST: Duration = Duration::from_secs(120);

impl Rate {
    /// So many in each second.
    pub const fn per_second(count: u64) -> Self {
        Self::new(count, SECOND_MS)
    }

    /// So many in each minute.
    pub const fn per_minute(count: u64) -> Self {
        Self::new(count, MINUTE_MS)
    }

    const fn new(count: u64, per_ms: u64) -> Self {
        let burst = count.saturating_mul(DEFAULT_BURST.as_secs() * 1_000 / per_ms);
        Self { count, per_ms, burst: if burst > MOST && count <= MOST { MOST } else { burst } }
    }

    /// So many at once, besides. Default: as many as in two minutes.
    #[must_use]
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = burst;
        self
    }

    /// What is wrong with it, if anything is.
    ///
    /// # Errors
    /// If it admits nothing, or so much that it bounds nothing.
    pub const fn check(&self) -> Result<(), &'static str> {
        match self {
            Self { count: 0, .. } => Err("a rate of nothing: stop the tenant instead, or set at least one"),
            Self { burst: 0, .. } => Err("a burst of nothing admits nothing: set at least one"),
            Self { count, burst, .. } if *count > MOST || *burst > MOST => {
                Err("a rate and its burst are at most 1,000,000,000")
            }
            _ => Ok(()),
        }
    }

    /// How many keys each count stands for.
    pub const fn weight(&self) -> u64 {
        let weight = self.burst / COUNTS_OF_A_BURST;
        if weight == 0 {
            1
        } else if weight > MAX_WEIGHT {
            MAX_WEIGHT
        } else {
            weight
        }
    }

    /// How far the level rises by so many.
    pub fn cost(&self, number: u64) -> Level {
        let micros = u128::from(number) * u128::from(self.per_ms) * 1_000 / u128::from(self.count.max(1));
        Level(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// The level of an empty bucket.
    pub fn empty(&self, now: Timestamp) -> Level {
        Level(micros(now).saturating_sub(self.cost(self.burst).0))
    }

    /// For how long a bucket of this level runs over.
    pub fn over(level: Level, now: Timestamp) -> Option<Duration> {
        let over = level.0.checked_sub(micros(now)).filter(|over| *over > 0)?;
        Some(Duration::from_micros(over))
    }

    /// The level of an empty bucket, if this one lies so far below that it must be raised: a tenant that was away for long may not have all of
    /// that at once. Not at each count, because that would be a second write for each.
    pub fn raised(&self, level: Level, now: Timestamp) -> Option<Level> {
        let empty = self.empty(now);
        let lowest = empty.0.saturating_sub(self.cost(self.burst).0);
        (level.0 < lowest).then_some(empty)
    }

    /// When a bucket into which so many were put now may be deleted.
    pub fn forgotten(&self, number: u64, now: Timestamp) -> Timestamp {
        let until_empty = self.cost(self.burst).0.saturating_mul(2).saturating_add(self.cost(number).0);
        now.plus(Duration::from_micros(until_empty).min(MAX_MEMORY)).plus(MIN_MEMORY)
    }
}

impl fmt::Display for Rate {
    /// As `10/s+1200`: ten a second, and 1,200 at once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.per_ms == SECOND_MS { "s" } else { "min" };
        write!(f, "{}/{unit}+{}", self.count, self.burst)
    }
}

impl FromStr for Rate {
    type Err = &'static str;

    /// Reads `10/s`, `100/min`, or with a burst `10/s+1200`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "give a rate as 10/s or 100/min, and with a burst as 10/s+1200";
        let number = |text: &str| text.parse::<u64>().map_err(|_| FORM);
        let (rate, burst) = match text.split_once('+') {
            Some((rate, burst)) => (rate, Some(number(burst)?)),
            None => (text, None),
        };
        let rate = match rate.split_once('/') {
            Some((count, "s")) => Self::per_second(number(count)?),
            Some((count, "min")) => Self::per_minute(number(count)?),
            _ => return Err(FORM),
        };
        let rate = burst.map_or(rate, |burst| rate.burst(burst));
        rate.check().map(|()| rate)
    }
}

impl TryFrom<String> for Rate {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl Limits {
    /// What is wrong with them, if anything is.
    ///
    /// # Errors
    /// As [`Rate::check`]; or if the number of open records is none from 1 to 100,000.
    pub fn check(&self) -> Result<(), &'static str> {
        for rate in [self.new_keys, self.accepted_bytes].into_iter().flatten() {
            rate.check()?;
        }
        match self.open_records {
            Some(0 | 100_001..) => Err("open records are from 1 to 100,000"),
            _ => Ok(()),
        }
    }

    /// How many keys each count stands for.
    pub fn weight(&self) -> u64 {
        // The bytes of one request are no measure of ten.
        self.new_keys.filter(|_| self.accepted_bytes.is_none()).map_or(1, |rate| rate.weight())
    }
}

/// How long a bucket is kept at least, and how long a burst counts at most for that.
const MIN_MEMORY: Duration = Duration::from_secs(24 * 3600);
const MAX_MEMORY: Duration = Duration::from_secs(30 * 24 * 3600);

fn micros(now: Timestamp) -> u64 {
    now.as_millis().saturating_mul(1_000)
}
