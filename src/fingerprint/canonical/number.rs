//! Numbers in canonical form.

use std::{io::Write, str};

use crate::decimal::Decimal;

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
    write!(out, "{decimal}").ok()?;

    // std parses the exact form, not the literal: it gives up on literals with long runs of zeros that the exponent compensates
    // for. If std parsed another value, the comparison below would reject it.
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
