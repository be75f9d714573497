//! Two ledgers of a day, compared.

mod day;

pub use day::{Day, DayError};
