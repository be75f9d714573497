//! What AWS's documents leave open.

/// One answer to what AWS's documents leave open. The alarms of the templates must be right in each of [`Reading::all`].
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// How many values CloudWatch retrieves beyond the evaluation periods. AWS says that there are some, and gives an example with two.
    pub beyond: u64,
    /// Whether `FILL` gives values to a series that has none in the whole range. AWS says only that it fills the missing values of a
    /// series.
    pub fills_empty: bool,
    /// Whether arithmetic takes a missing value for 0, if another operand has one. AWS says so of all arithmetic. Users see that there is
    /// no value.
    pub missing_is_zero: bool,
}

impl Reading {
    /// Each combination.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits: u8| Self {
            beyond: if bits & 1 == 0 { 2 } else { 10 },
            fills_empty: bits & 2 == 0,
            missing_is_zero: bits & 4 == 0,
        })
    }
}
