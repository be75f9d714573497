//! The state of an alarm at a moment. Sources: `alarm-evaluation.html` and `alarms-and-missing-data.html`, see the module above.

use super::{
    alarm::{Alarm, Comparison, Missing, Query},
    math::{self, Known, Value},
    reading::Reading,
    recorded::{Recorded, Series, Windows},
};

/// The state of an alarm.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AlarmState {
    /// Too few values breach the threshold.
    Ok,
    /// Enough values breach the threshold.
    Alarm,
    /// It was never evaluated with a value.
    InsufficientData,
}

impl Alarm {
    /// Its state after an evaluation at the begin of minute `now`. `before` is the state until then.
    ///
    /// # Errors
    /// If an expression is used in a way that no template here uses.
    pub fn state(
        &self,
        recorded: &Recorded,
        now: u64,
        before: AlarmState,
        reading: Reading,
    ) -> Result<AlarmState, String> {
        let count = self.evaluation_periods + reading.beyond;
        let windows = Windows { end: now, minutes: self.period, count };
        let (mut known, mut watched) = (Known::new(), Series::new());
        for (id, query) in &self.queries {
            watched = match query {
                Query::Metric(metric, statistic) => recorded.series(metric, *statistic, windows),
                Query::Expression(expression) => match math::value(expression, &known, reading)? {
                    Value::Series(series) => series,
                    other => return Err(format!("{}: {id} is no time series: {other:?}", self.name)),
                },
            };
            known.insert(id.clone(), watched.clone());
        }
        Ok(self.evaluated(&watched, before))
    }

    /// Whether enough of the values that are evaluated breach the threshold.
    ///
    /// 1. The most recent values are evaluated, as many as there are evaluation periods. They may be older than those periods.
    /// 2. Only if there are fewer, missing ones are added, and count as the alarm says.
    fn evaluated(&self, values: &Series, before: AlarmState) -> AlarmState {
        let wanted = usize::try_from(self.evaluation_periods).unwrap_or(usize::MAX);
        let to_alarm = usize::try_from(self.datapoints_to_alarm).unwrap_or(usize::MAX);
        let existing: Vec<_> = values.iter().rev().flatten().take(wanted).collect();
        let breaches = |value: &f64| match self.comparison {
            Comparison::Greater => *value > self.threshold,
            Comparison::Less => *value < self.threshold,
        };
        let breaching = existing.iter().filter(|value| breaches(value)).count();
        let missing = wanted - existing.len();
        match self.missing {
            _ if breaching >= to_alarm => AlarmState::Alarm,
            Missing::Breaching if breaching + missing >= to_alarm => AlarmState::Alarm,
            // A value within the threshold ends it.
            Missing::Ignore if missing > 0 && breaching == existing.len() => before,
            _ => AlarmState::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(points: &str, to_alarm: u64, missing: &str) -> AlarmState {
        let properties = json!({
            "Namespace": "n", "MetricName": "m", "Statistic": "Sum", "Period": 60, "EvaluationPeriods": 3,
            "DatapointsToAlarm": to_alarm, "Threshold": 0, "ComparisonOperator": "GreaterThanThreshold",
            "TreatMissingData": missing,
        });
        let alarm = Alarm::of("A", &properties).unwrap();
        let mut recorded = Recorded::default();
        for (minute, point) in (0..).zip(points.split(' ')).filter(|(_, point)| *point != "-") {
            let metric = alarm.metrics().next().unwrap();
            recorded.add(metric, minute, if point == "X" { 1.0 } else { 0.0 });
        }
        let reading = Reading { beyond: 2, fills_empty: false, missing_is_zero: false };
        alarm.state(&recorded, 5, AlarmState::InsufficientData, reading).unwrap()
    }

    // The tables of `alarms-and-missing-data.html`.
    #[test]
    fn missing_values_decide_as_in_the_tables_of_aws() {
        use AlarmState::{Alarm, InsufficientData as Before, Ok};
        for (points, to_alarm, ignore, breaching, not_breaching) in [
            ("0 - X - X", 3, Ok, Ok, Ok),
            ("0 - - - -", 3, Ok, Ok, Ok),
            ("- - - - -", 3, Before, Alarm, Ok),
            ("0 X X - X", 3, Alarm, Alarm, Alarm),
            ("- - - - X", 3, Before, Alarm, Ok),
            ("X - - - -", 3, Before, Alarm, Ok),
            ("0 - X - X", 2, Alarm, Alarm, Alarm),
            ("0 0 X 0 X", 2, Alarm, Alarm, Alarm),
            ("0 - X - -", 2, Ok, Alarm, Ok),
            ("- - - - 0", 2, Ok, Alarm, Ok),
            ("- - - - X", 2, Before, Alarm, Ok),
        ] {
            let states =
                ["ignore", "breaching", "notBreaching"].map(|missing| state(points, to_alarm, missing));
            assert_eq!(states, [ignore, breaching, not_breaching], "{points}, {to_alarm} of 3");
        }
    }
}
