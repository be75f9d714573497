//! A day of the calendar, in UTC.

use std::{fmt, str::FromStr};

use aws_smithy_types::date_time::{DateTime, Format};
use lambda_idempotency::time::Timestamp;

const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// The last day with a year of four digits: 9999-12-31.
const LAST: u64 = 2_932_896;

/// A day in UTC, from 1970-01-01 to 9999-12-31, so that both sides of a comparison mean the same day. Written as
/// `2026-11-21`, which sorts by date.
///
/// ```
/// use lambda_idempotency::time::Timestamp;
/// use ledgers::Day;
///
/// let day = Day::of(Timestamp::from_secs(1_795_219_200));
/// assert_eq!(day.to_string(), "2026-11-21");
/// assert_eq!(day.before(), "2026-11-20".parse().unwrap());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u64);

/// The text is not a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a day is written as 2026-11-21, from 1970-01-01 to 9999-12-31")]
pub struct DayError;

impl Day {
    /// The day of this instant; instants after the last day are in the last day.
    pub const fn of(instant: Timestamp) -> Self {
        let day = instant.as_millis() / DAY_MILLIS;
        Self(if day < LAST { day } else { LAST })
    }

    /// The day before; for 1970-01-01 the same day.
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Its first instant.
    pub const fn start(self) -> Timestamp {
        Timestamp::from_millis(self.0 * DAY_MILLIS)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = DateTime::from_secs((self.start().as_millis() / 1000).cast_signed());
        let text = start.fmt(Format::DateTime).map_err(|_| fmt::Error)?;
        f.write_str(text.split_once('T').ok_or(fmt::Error)?.0)
    }
}

impl FromStr for Day {
    type Err = DayError;

    fn from_str(text: &str) -> Result<Self, DayError> {
        let start = DateTime::from_str(&format!("{text}T00:00:00Z"), Format::DateTime);
        let secs = u64::try_from(start.map_err(|_| DayError)?.secs()).map_err(|_| DayError)?;
        let day = Self::of(Timestamp::from_secs(secs));
        // Each day has one spelling: the parser accepts others, which do not survive the round trip.
        if day.to_string() == text { Ok(day) } else { Err(DayError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_read_as_it_is_written() {
        for text in ["1970-01-01", "2000-02-29", "2026-11-21", "2100-02-28", "9999-12-31"] {
            assert_eq!(text.parse::<Day>().map(|day| day.to_string()), Ok(text.to_owned()));
        }
        for wrong in [
            "",
            "2026-11-31",
            "2100-02-29",
            "1969-12-31",
            "10000-01-01",
            "2026-1-1",
            "2026-11-21 ",
            "+2026-11-21",
            "20261121",
            "2026-11-21T00:00:00Z",
            "yesterday",
        ] {
            assert_eq!(wrong.parse::<Day>(), Err(DayError), "{wrong}");
        }
    }

    #[test]
    fn a_day_ends_a_millisecond_before_the_next() {
        let day: Day = "2026-11-21".parse().unwrap();
        let next = Timestamp::from_millis(day.start().as_millis() + DAY_MILLIS);
        assert_eq!(Day::of(day.start()), day);
        assert_eq!(Day::of(Timestamp::from_millis(next.as_millis() - 1)), day);
        assert_eq!(Day::of(next).before(), day);
        assert_eq!(Day::of(Timestamp::MAX).to_string(), "9999-12-31");
    }
}
