//! Parsers for the values of arguments and of the files that they name.

use std::{ops::RangeInclusive, time::Duration};

use http::Uri;
use jiff::{SpanRelativeTo, fmt::friendly::SpanParser};
use lambda_idempotency::{
    bounds::Rate,
    key::{OperationName, Tenant},
    record::SettledBy,
    time::Timestamp,
};
use serde::Deserialize;

/// Text for an audit line: one line, not empty.
pub fn words(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty".into()),
        text if text.chars().count() > 1000 => Err("it is longer than 1000 characters".into()),
        text if text.chars().any(char::is_control) => Err("it is more than one line of text".into()),
        text => Ok(text.to_owned()),
    }
}

/// The shortest span, and the longest one of ten years.
const SPANS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3650 * 24 * 60 * 60);

/// A span of time: whole numbers, each with its unit, the largest first.
pub fn span(text: &str) -> Result<Duration, String> {
    parse_span(text)
        .filter(|span| SPANS.contains(span))
        .ok_or_else(|| "give a whole number and its unit, from 1s to ten years: 30s, 90m, 24h, 7d".into())
}

/// A time, or how long ago it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(span) => now.minus(span),
        }
    }
}

/// A time in ISO 8601 with its zone, or a span of time before now.
pub fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(span) = span(text) {
        return Ok(Moment::Ago(span));
    }
    let at = text.parse::<jiff::Timestamp>().ok().and_then(|at| u64::try_from(at.as_millisecond()).ok());
    let at = at.map(|at| Moment::At(Timestamp::from_millis(at)));
    at.ok_or_else(|| "give a time as 2026-11-25T03:00:00Z, or how long ago: 90m, 2h".into())
}

/// Who released a record.
pub fn released_by(name: &str) -> Result<SettledBy, String> {
    let known = "give worker, provider, operator, certainty, assumption or not_begun";
    SettledBy::parse(name).ok_or_else(|| known.into())
}

/// The name of an operation.
pub fn operation(name: &str) -> Result<OperationName, String> {
    OperationName::parse(name).map_err(|error| error.to_string())
}

pub fn tenant(name: &str) -> Result<Tenant, String> {
    Tenant::parse(name).map_err(|error| error.to_string())
}

/// So many in a time, and so many at once.
pub fn bound(text: &str) -> Result<Rate, String> {
    text.parse().map_err(str::to_owned)
}

fn parse_span(text: &str) -> Option<Duration> {
    // The parser would also take fractions (`1.5h`), and clock times without units (`1:30:00`).
    if text.contains(['.', ',', ':']) {
        return None;
    }
    let span = SpanParser::new().parse_span(text).ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

/// A span as [`span`] reads it, in one unit; rounded up to whole seconds.
pub fn in_one_unit(span: Duration) -> String {
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    let units = [(24 * 60 * 60, 'd'), (60 * 60, 'h'), (60, 'm')];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds.is_multiple_of(*size)).unwrap_or((1, 's'));
    format!("{}{unit}", seconds / size)
}

/// A count of at least one.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("give a whole number from 1".into()),
    }
}

/// Units per second. At less than one in ten seconds, a scan would never end.
pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate @ 0.1..=1e9) => Ok(rate),
        _ => Err("give a number from 0.1".into()),
    }
}

/// The URL of a service, checked here because the SDK would fail only in the middle of a request.
pub fn url(text: &str) -> Result<String, String> {
    let uri = text.parse::<Uri>().ok();
    let is_url = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if is_url { Ok(text.to_owned()) } else { Err("give a URL with http:// or https://".into()) }
}

/// A struct from a JSON object. `serde` alone would accept an array too.
pub fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    match json.trim_start().chars().next() {
        Some('{') => serde_json::from_str(json).map_err(|error| error.to_string()),
        _ => Err("it is not a JSON object".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_needs_its_unit_and_is_bounded() {
        assert_eq!(span("90m"), Ok(Duration::from_secs(5400)));
        assert_eq!(span("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "h", "0s", "24", "1.5h", "-1h", "5€", "99999999999d"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_span_may_have_several_parts_but_no_fraction() {
        assert_eq!(span("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(span("1d 12h"), Ok(Duration::from_secs(129_600)));
        assert_eq!(span("3650d"), Ok(Duration::from_secs(315_360_000)));
        for wrong in
            ["30m 1h", "1h 30", "1,5h", "1:30:00", "1d 0:30:00", "1h ago", "1mo", "3650d 1s", "900ms"]
        {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_span_is_written_as_it_is_read() {
        for (seconds, text) in
            [(7 * 86_400, "7d"), (90_000, "25h"), (300, "5m"), (86_401, "86401s"), (1, "1s")]
        {
            let written = in_one_unit(Duration::from_secs(seconds));
            assert_eq!((&*written, span(&written)), (text, Ok(Duration::from_secs(seconds))));
        }
        assert_eq!(in_one_unit(Duration::from_millis(59_001)), "1m");
    }

    #[test]
    fn a_moment_is_a_time_with_its_zone_or_a_span_ago() {
        let now = Timestamp::from_secs(1_795_264_015);
        assert_eq!(moment("90m").unwrap().at(now), now.minus(Duration::from_secs(5_400)));
        for at in ["2026-11-21T12:26:55Z", "2026-11-21T13:26:55+01:00"] {
            assert_eq!(moment(at).unwrap().at(Timestamp::MAX), now, "{at}");
        }
        for wrong in ["", "2026-11-21", "2026-11-21T12:26:55", "yesterday", "1969-12-31T23:59:59Z"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_and_rates_are_no_zeros() {
        assert_eq!((count("1"), rate("0.1"), rate("50")), (Ok(1), Ok(0.1), Ok(50.0)));
        for wrong in ["0", "-1", "", "many", "NaN", "0.0", "inf"] {
            assert!(count(wrong).is_err() && rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_url_says_how_and_where() {
        for right in
            ["http://127.0.0.1:8000", "https://sqs.eu-central-1.amazonaws.com/1/q", "HTTP://[::1]:1/"]
        {
            assert_eq!(url(right).as_deref(), Ok(right));
        }
        for wrong in
            ["", "foo", "localhost:8000", "ftp://host", "http://", "http:///path", "http://a b", "//host"]
        {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reason_says_something_in_one_line() {
        assert_eq!(words(" asked the bank ").as_deref(), Ok("asked the bank"));
        for wrong in [" ", "two\nlines", &"x".repeat(1001)] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
