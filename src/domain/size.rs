//! Sizes as DynamoDB counts them: names and values.

use serde_dynamo::{AttributeValue, Item};

/// The most domain writes of one operation: a transaction has a hundred actions. One is the record's, and two may be those of an accepted
/// request, or of an operator's audit line and the body that it replaces.
pub(super) const MAX_WRITES: usize = 97;

/// The size of an item.
///
/// By [AWS's rules](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html), which are
/// approximate for numbers.
pub(super) fn of_item(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + of_value(value)).sum()
}

pub(super) fn of_value(value: &AttributeValue) -> usize {
    let sum = |sizes: &mut dyn Iterator<Item = usize>| sizes.map(|size| size + 1).sum::<usize>() + 3;
    match value {
        AttributeValue::N(digits) => of_number(digits),
        AttributeValue::S(text) => text.len(),
        AttributeValue::Bool(_) | AttributeValue::Null(_) => 1,
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::M(members) => {
            sum(&mut members.iter().map(|(name, value)| name.len() + of_value(value)))
        }
        AttributeValue::L(elements) => sum(&mut elements.iter().map(of_value)),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::Ns(numbers) => numbers.iter().map(|number| of_number(number)).sum(),
        AttributeValue::Bs(values) => values.iter().map(Vec::len).sum(),
    }
}

/// Two digits a byte, without the zeros at both ends, and one byte more; another for a minus.
fn of_number(text: &str) -> usize {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.trim_matches(|c: char| "+-.0".contains(c));
    digits.len().div_ceil(2) + 1 + usize::from(mantissa.starts_with('-'))
}
