//! The limits of a tenant. What they mean for its buckets is in [`bucket`](crate::bucket).

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

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
    pub(crate) count: u64,
    pub(crate) per_ms: u64,
    pub(crate) burst: u64,
}

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;

/// The largest count and burst.
const MOST: u64 = 1_000_000_000;

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
}
