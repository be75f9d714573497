//! The values of metrics, and their statistics in windows of time.

use std::collections::BTreeMap;

/// A value for each window of time, the oldest first; `None` if nothing was recorded in it.
pub type Series = Vec<Option<f64>>;

/// A metric of CloudWatch.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Metric {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The values of its dimensions, by name.
    pub dimensions: BTreeMap<String, String>,
}

/// What becomes of the values of one window.
#[derive(Clone, Copy, Debug)]
pub enum Statistic {
    Maximum,
    Minimum,
    Sum,
}

/// Values of metrics, by minute.
#[derive(Clone, Debug, Default)]
pub struct Recorded(BTreeMap<Metric, BTreeMap<u64, Vec<f64>>>);

/// Windows of time, one after another. The last one ends with the evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// The first minute that is not in the last of them.
    pub end: u64,
    /// The length of each, in minutes.
    pub minutes: u64,
    pub count: u64,
}

impl Statistic {
    /// `None` if no alarm here uses it.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "Maximum" => Some(Self::Maximum),
            "Minimum" => Some(Self::Minimum),
            "Sum" => Some(Self::Sum),
            _ => None,
        }
    }

    fn of(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        values.reduce(|before, value| match self {
            Self::Maximum => before.max(value),
            Self::Minimum => before.min(value),
            Self::Sum => before + value,
        })
    }
}

impl Recorded {
    /// Adds a value that was recorded in this minute.
    pub fn add(&mut self, metric: &Metric, minute: u64, value: f64) {
        self.0.entry(metric.clone()).or_default().entry(minute).or_default().push(value);
    }

    /// The statistic of each window. A minute without a value is no 0: a minimum leaves it out.
    pub(super) fn series(&self, metric: &Metric, statistic: Statistic, windows: Windows) -> Series {
        let value = |back: u64| {
            let end = windows.end.saturating_sub(back * windows.minutes);
            let begin = end.saturating_sub(windows.minutes);
            let values = self.0.get(metric)?.range(begin..end).flat_map(|(_, values)| values);
            statistic.of(values.copied())
        };
        (0..windows.count).rev().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_at_the_evaluation_and_leave_out_holes() {
        let [metric, other] = ["a", "b"].map(|name| Metric {
            namespace: "n".to_owned(),
            name: name.to_owned(),
            dimensions: BTreeMap::new(),
        });
        let mut recorded = Recorded::default();
        for (minute, value) in [(7, 4.0), (9, 2.0), (9, 3.0), (11, 1.0)] {
            recorded.add(&metric, minute, value);
        }
        let series = |metric, statistic, end| {
            recorded.series(metric, statistic, Windows { end, minutes: 2, count: 3 })
        };
        assert_eq!(series(&metric, Statistic::Sum, 11), [None, Some(4.0), Some(5.0)]);
        assert_eq!(series(&metric, Statistic::Minimum, 10), [None, Some(4.0), Some(2.0)]);
        assert_eq!(series(&metric, Statistic::Maximum, 12), [Some(4.0), Some(3.0), Some(1.0)]);
        assert_eq!(series(&other, Statistic::Sum, 12), [None; 3]);
    }
}
