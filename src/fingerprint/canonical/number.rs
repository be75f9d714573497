//! Numbers as exact decimals.

use std::{io::Write, str};

/// Writes a number by rule 2; `None` if the exponent is out of bounds.
///
/// Both forms are literals of the exact value. So two values never share a text; and since the choice between the two
/// depends on the value alone, one value never has two.
pub(super) fn write_number(out: &mut Vec<u8>, literal: &str) -> Option<()> {
    // Most numbers need no work: a double holds every integer of fifteen digits.
    if literal.len() <= 15 && literal.bytes().all(|byte| byte.is_ascii_digit()) {
        out.extend_from_slice(literal.as_bytes());
        return Some(());
    }
    let decimal = Decimal::parse(literal)?;
    if decimal.is_zero() {
        out.push(b'0');
        return Some(());
    }
    let start = out.len();
    decimal.write(out);

    // Parsed from the exact form, since std gives up on long runs of zeros that the exponent compensates for. Even if std
    // were wrong elsewhere, the comparison would reject a text with another value.
    let double: f64 = str::from_utf8(&out[start..]).ok()?.parse().ok()?;
    if double.is_finite() {
        let mut buffer = ryu_js::Buffer::new();
        let shortest = buffer.format_finite(double);
        if Decimal::parse(shortest)?.equals(&decimal) {
            out.truncate(start);
            out.extend_from_slice(shortest.as_bytes());
        }
    }
    Some(())
}

/// A decimal number: an integer of the digits of both parts, times ten to the exponent. The integer has no zeros at either
/// end, so that it and the exponent are unique. Zero has no digits.
struct Decimal<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Reads a JSON number; `None` if the exponent does not fit.
    fn parse(literal: &'a str) -> Option<Self> {
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

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    fn equals(&self, other: &Decimal<'_>) -> bool {
        self.negative == other.negative && self.exponent == other.exponent && self.digits().eq(other.digits())
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    fn write(&self, out: &mut Vec<u8>) {
        let sign = if self.negative { "-" } else { "" };
        write!(out, "{sign}{}{}e{}", self.whole, self.fraction, self.exponent)
            .expect("writing to a Vec cannot fail");
    }
}
