//! Exact decimal numbers.

/// A decimal number: an integer of the digits of both parts, times ten to the exponent. The integer has no zeros at either
/// end, so that it and the exponent are unique: equal numbers have equal texts. Zero has no digits.
#[derive(derive_more::Display)]
#[display("{}{whole}{fraction}e{exponent}", if *negative { "-" } else { "" })]
pub(crate) struct Decimal<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    pub(crate) exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Reads a number as JSON writes it. It does not check that the digits are digits. `None` if the exponent does not fit.
    pub(crate) fn parse(literal: &'a str) -> Option<Self> {
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

        let mut whole = whole.trim_start_matches('0');
        let mut fraction = fraction.trim_end_matches('0');
        let mut shift = -i64::try_from(fraction.len()).ok()?;
        if fraction.is_empty() {
            let trimmed = whole.trim_end_matches('0');
            shift = i64::try_from(whole.len() - trimmed.len()).ok()?;
            whole = trimmed;
        }
        if whole.is_empty() {
            fraction = fraction.trim_start_matches('0');
        }
        if whole.is_empty() && fraction.is_empty() {
            return Some(Self { negative: false, whole, fraction, exponent: 0 });
        }
        let exponent = exponent.parse::<i64>().ok()?.checked_add(shift)?;
        Some(Self { negative, whole, fraction, exponent })
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    pub(crate) fn equals(&self, other: &Decimal<'_>) -> bool {
        self.negative == other.negative && self.exponent == other.exponent && self.digits().eq(other.digits())
    }

    pub(crate) fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }
}
