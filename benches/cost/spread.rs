//! Many measurements in a few numbers.

use std::time::Duration;

use crate::meter::Spent;

/// The middle of many values, and how far they spread.
pub struct Spread {
    pub quarter: f64,
    pub median: f64,
    pub three_quarters: f64,
    /// The median of another such run lies in this range 19 times of 20.
    pub sure: (f64, f64),
}

impl Spread {
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let at = |share: f64| sorted[(last as f64 * share.clamp(0.0, 1.0)).round() as usize];
        // The ranks between which the true median lies, by the binomial distribution.
        let half = 0.98 / (sorted.len() as f64).sqrt();
        Self {
            quarter: at(0.25),
            median: at(0.5),
            three_quarters: at(0.75),
            sure: (at(0.5 - half), at(0.5 + half)),
        }
    }
}

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub fn median(spent: &[Spent], of: impl Fn(&Spent) -> f64) -> f64 {
    Spread::of(spent.iter().map(of)).median
}
