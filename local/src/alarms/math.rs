//! The values of metric math. Source: `using-metric-math.html`, see the module above.

use super::{
    expression::{Expression, Function, Operator},
    reading::Reading,
    recorded::Series,
};
use std::collections::BTreeMap;

/// The value of an expression.
#[derive(Debug, PartialEq)]
pub enum Value {
    Scalar(f64),
    Series(Series),
    Array(Vec<Series>),
}

/// What the ids of metrics and of expressions stand for.
pub type Known = BTreeMap<String, Series>;

/// The value of this expression.
///
/// # Errors
/// If no template here uses an operator or a function with arguments of these types, or there is no such id.
pub fn value(expression: &Expression, known: &Known, reading: Reading) -> Result<Value, String> {
    let value = |expression| value(expression, known, reading);
    match expression {
        Expression::Number(number) => Ok(Value::Scalar(*number)),
        Expression::Id(id) => known.get(id).cloned().map(Value::Series).ok_or_else(|| format!("no id {id}")),
        Expression::List(list) => {
            let all = list.iter().map(|part| match value(part)? {
                Value::Series(series) => Ok(series),
                other => Err(format!("a list has {other:?}")),
            });
            all.collect::<Result<_, String>>().map(Value::Array)
        }
        Expression::Call(function, arguments) => {
            let arguments = arguments.iter().map(value).collect::<Result<Vec<_>, _>>()?;
            call(*function, arguments, reading).map(Value::Series)
        }
        Expression::Binary(operator, operands) => {
            binary(*operator, value(&operands.0)?, value(&operands.1)?, reading).map(Value::Series)
        }
    }
}

fn call(function: Function, mut arguments: Vec<Value>, reading: Reading) -> Result<Series, String> {
    match (function, &mut arguments[..]) {
        (Function::Fill, [Value::Series(series), Value::Scalar(filler)]) => {
            let is_filled = reading.fills_empty || series.iter().any(Option::is_some);
            Ok(series.iter().map(|value| value.or(Some(*filler).filter(|_| is_filled))).collect())
        }
        // From the value before it, however long ago. The first one has none.
        (Function::Diff, [Value::Series(series)]) => {
            let mut before = None;
            let difference = |value: &Option<f64>| Some((*value)? - before.replace((*value)?)?);
            Ok(series.iter().map(difference).collect())
        }
        // Without a condition there is no value.
        (Function::If, [Value::Series(condition), Value::Scalar(then), Value::Scalar(otherwise)]) => {
            let chosen =
                |value: &Option<f64>| value.map(|value| if value == 0.0 { *otherwise } else { *then });
            Ok(condition.iter().map(chosen).collect())
        }
        (Function::Max, [Value::Array(array)]) => Ok(folded(array, f64::max)),
        (Function::Min, [Value::Array(array)]) => Ok(folded(array, f64::min)),
        (Function::Sum, [Value::Array(array)]) => Ok(folded(array, |one, other| one + other)),
        _ => Err(format!("{function:?} of {arguments:?}")),
    }
}

/// One series of several: of each moment, the values that there are.
fn folded(array: &[Series], fold: fn(f64, f64) -> f64) -> Series {
    let moments = array.iter().map(Vec::len).max().unwrap_or_default();
    let value =
        |moment: usize| array.iter().filter_map(|series| series.get(moment).copied().flatten()).reduce(fold);
    (0..moments).map(value).collect()
}

fn binary(operator: Operator, left: Value, right: Value, reading: Reading) -> Result<Series, String> {
    let apply = |left: f64, right: f64| match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Less => f64::from(left < right),
        Operator::Greater => f64::from(left > right),
        Operator::And => f64::from(left != 0.0 && right != 0.0),
    };
    let is_arithmetic = matches!(operator, Operator::Add | Operator::Subtract | Operator::Multiply);
    match (left, right) {
        (Value::Series(left), Value::Series(right)) => {
            let both = left.into_iter().zip(right).map(|both| match both {
                (None, None) => None,
                (Some(left), Some(right)) => Some(apply(left, right)),
                _ if is_arithmetic && !reading.missing_is_zero => None,
                // Comparisons and logical operators take it for 0.
                (left, right) => Some(apply(left.unwrap_or_default(), right.unwrap_or_default())),
            });
            Ok(both.collect())
        }
        (Value::Series(left), Value::Scalar(right)) => {
            Ok(left.into_iter().map(|left| left.map(|left| apply(left, right))).collect())
        }
        (Value::Scalar(left), Value::Series(right)) => {
            Ok(right.into_iter().map(|right| right.map(|right| apply(left, right))).collect())
        }
        operands => Err(format!("{operator:?} of {operands:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Reading = Reading { beyond: 2, fills_empty: false, missing_is_zero: false };

    fn known() -> Known {
        let series = [
            ("a", vec![Some(1.0), None, Some(4.0), Some(0.0)]),
            ("b", vec![None, None, Some(3.0), Some(5.0)]),
            ("none", vec![None; 4]),
        ];
        series.map(|(id, series)| (id.to_owned(), series)).into()
    }

    fn read(text: &str, reading: Reading) -> Result<Value, String> {
        value(&Expression::parse(text)?, &known(), reading)
    }

    #[test]
    fn missing_values_count_as_aws_says() {
        for (text, expected) in [
            ("FILL(a, 7)", [Some(1.0), Some(7.0), Some(4.0), Some(0.0)]),
            ("FILL(none, 7)", [None; 4]),
            ("DIFF(a)", [None, None, Some(3.0), Some(-4.0)]),
            ("a + b", [None, None, Some(7.0), Some(5.0)]),
            ("2 * a - 1", [Some(1.0), None, Some(7.0), Some(-1.0)]),
            ("SUM([a, b, none])", [Some(1.0), None, Some(7.0), Some(5.0)]),
            ("MAX([a, b])", [Some(1.0), None, Some(4.0), Some(5.0)]),
            ("MIN([a, b])", [Some(1.0), None, Some(3.0), Some(0.0)]),
            ("a > b", [Some(1.0), None, Some(1.0), Some(0.0)]),
            ("b < 4", [None, None, Some(1.0), Some(0.0)]),
            ("a > 0 AND b > 4", [Some(0.0), None, Some(0.0), Some(0.0)]),
            ("IF(a > 0, 1, 2)", [Some(1.0), None, Some(1.0), Some(2.0)]),
        ] {
            assert_eq!(read(text, STRICT), Ok(Value::Series(expected.into())), "{text}");
        }
    }

    #[test]
    fn a_reading_fills_empty_series_and_takes_missing_values_for_zero() {
        let lenient = Reading { fills_empty: true, missing_is_zero: true, ..STRICT };
        assert_eq!(read("FILL(none, 7)", lenient), Ok(Value::Series(vec![Some(7.0); 4])));
        let expected = [Some(1.0), None, Some(1.0), Some(-5.0)];
        assert_eq!(read("a - b", lenient), Ok(Value::Series(expected.into())));
    }

    #[test]
    fn an_argument_of_another_type_is_an_error() {
        for text in
            ["MAX(a)", "DIFF([a, b])", "FILL(a, b)", "IF(a, b, 0)", "[a, b] + 1", "1 + 1", "c", "SUM([a, 1])"]
        {
            assert!(read(text, STRICT).is_err(), "{text}");
        }
    }
}
