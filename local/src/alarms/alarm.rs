//! An alarm, as a template declares it.

use super::{
    expression::Expression,
    recorded::{Metric, Statistic},
};
use serde_json::Value;

/// The properties that decide nothing about its state.
const WITHOUT_MEANING: [&str; 3] = ["AlarmDescription", "AlarmActions", "OKActions"];

/// An alarm of CloudWatch on a metric, or on an expression of metric math.
#[derive(Clone, Debug)]
pub struct Alarm {
    /// Its name in the template.
    pub name: String,
    /// Each may use those before it. The alarm watches the last one.
    pub(super) queries: Vec<(String, Query)>,
    /// In minutes.
    pub(super) period: u64,
    pub(super) evaluation_periods: u64,
    pub(super) datapoints_to_alarm: u64,
    pub(super) comparison: Comparison,
    pub(super) threshold: f64,
    pub(super) missing: Missing,
}

#[derive(Clone, Debug)]
pub enum Query {
    Metric(Metric, Statistic),
    Expression(Expression),
}

/// When a value breaches the threshold.
#[derive(Clone, Copy, Debug)]
pub enum Comparison {
    Greater,
    Less,
}

/// What a missing value counts as.
#[derive(Clone, Copy, Debug)]
pub enum Missing {
    Breaching,
    NotBreaching,
    /// The alarm stays as it is.
    Ignore,
}

impl Alarm {
    /// The alarm of these properties, in which all intrinsic functions are resolved.
    ///
    /// # Errors
    /// If it has something that no template here uses.
    pub(super) fn of(name: &str, properties: &Value) -> Result<Self, String> {
        let mut read = Properties::of(properties)?;
        let (queries, period) = match read.optional("Metrics") {
            Some(metrics) => queries(&metrics)?,
            None => {
                let metric = metric(&mut read)?;
                let statistic = statistic(&read.text("Statistic")?)?;
                (vec![(String::new(), Query::Metric(metric, statistic))], minutes(read.number("Period")?)?)
            }
        };
        let evaluation_periods = read.whole("EvaluationPeriods")?;
        let alarm = Self {
            name: name.to_owned(),
            queries,
            period,
            evaluation_periods,
            datapoints_to_alarm: match read.optional("DatapointsToAlarm") {
                Some(datapoints) => whole(&datapoints)?,
                None => evaluation_periods,
            },
            comparison: match read.text("ComparisonOperator")?.as_str() {
                "GreaterThanThreshold" => Comparison::Greater,
                "LessThanThreshold" => Comparison::Less,
                other => return Err(format!("unknown {other}")),
            },
            threshold: read.number("Threshold")?,
            missing: match read.text("TreatMissingData")?.as_str() {
                "breaching" => Missing::Breaching,
                "notBreaching" => Missing::NotBreaching,
                "ignore" => Missing::Ignore,
                other => return Err(format!("unknown {other}")),
            },
        };
        WITHOUT_MEANING.into_iter().for_each(|name| drop(read.optional(name)));
        read.end().map(|()| alarm)
    }

    /// The metrics that it watches.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.queries.iter().filter_map(|(_, query)| match query {
            Query::Metric(metric, _) => Some(metric),
            Query::Expression(_) => None,
        })
    }

    /// For how many minutes of values it is evaluated at least.
    pub fn window(&self) -> u64 {
        self.period * self.evaluation_periods
    }

    /// The minutes of one of its values.
    pub fn period(&self) -> u64 {
        self.period
    }
}

/// Properties, of which each must be read.
struct Properties(serde_json::Map<String, Value>);

impl Properties {
    fn of(value: &Value) -> Result<Self, String> {
        value.as_object().cloned().map(Self).ok_or_else(|| format!("no properties: {value}"))
    }

    fn optional(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    fn value(&mut self, name: &str) -> Result<Value, String> {
        self.optional(name).ok_or_else(|| format!("no {name}"))
    }

    fn text(&mut self, name: &str) -> Result<String, String> {
        let value = self.value(name)?;
        value.as_str().map(str::to_owned).ok_or_else(|| format!("{name} is no text: {value}"))
    }

    fn number(&mut self, name: &str) -> Result<f64, String> {
        number(&self.value(name)?)
    }

    fn whole(&mut self, name: &str) -> Result<u64, String> {
        whole(&self.value(name)?)
    }

    fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("unknown {name}")),
        }
    }
}

/// A number. A parameter's value may be text.
fn number(value: &Value) -> Result<f64, String> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or_else(|| format!("no number: {value}"))
}

fn whole(value: &Value) -> Result<u64, String> {
    let whole = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    whole.ok_or_else(|| format!("no whole number: {value}"))
}

fn minutes(seconds: f64) -> Result<u64, String> {
    let minutes = (seconds / 60.0) as u64;
    if minutes > 0 && (minutes * 60) as f64 == seconds {
        Ok(minutes)
    } else {
        Err(format!("a Period of {seconds} s"))
    }
}

fn statistic(name: &str) -> Result<Statistic, String> {
    Statistic::parse(name).ok_or_else(|| format!("unknown {name}"))
}

fn metric(read: &mut Properties) -> Result<Metric, String> {
    let dimensions = read.optional("Dimensions").unwrap_or_default();
    let dimensions = dimensions.as_array().into_iter().flatten().map(|dimension| {
        let mut dimension = Properties::of(dimension)?;
        Ok((dimension.text("Name")?, dimension.text("Value")?))
    });
    Ok(Metric {
        namespace: read.text("Namespace")?,
        name: read.text("MetricName")?,
        dimensions: dimensions.collect::<Result<_, String>>()?,
    })
}

/// The queries of `Metrics`, and the period that they share.
fn queries(metrics: &Value) -> Result<(Vec<(String, Query)>, u64), String> {
    let (mut queries, mut periods, mut watched) = (Vec::new(), Vec::new(), Vec::new());
    for described in metrics.as_array().into_iter().flatten() {
        let mut read = Properties::of(described)?;
        let id = read.text("Id")?;
        if read.optional("ReturnData") != Some(Value::Bool(false)) {
            watched.push(id.clone());
        }
        let query = match read.optional("Expression") {
            Some(expression) => {
                Query::Expression(Expression::parse(expression.as_str().unwrap_or_default())?)
            }
            None => {
                let mut stat = Properties::of(&read.value("MetricStat")?)?;
                periods.push(minutes(stat.number("Period")?)?);
                let statistic = statistic(&stat.text("Stat")?)?;
                let mut named = Properties::of(&stat.value("Metric")?)?;
                stat.end()?;
                let metric = metric(&mut named)?;
                named.end().map(|()| Query::Metric(metric, statistic))?
            }
        };
        let _label = read.optional("Label");
        read.end()?;
        queries.push((id, query));
    }
    periods.dedup();
    match (&periods[..], &watched[..], queries.last()) {
        ([period], [watched], Some((last, _))) if watched == last => Ok((queries, *period)),
        _ => Err(format!("periods {periods:?}, and it watches {watched:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn alarm() -> Value {
        json!({
            "AlarmDescription": "d", "Namespace": "n", "MetricName": "m", "Statistic": "Sum", "Period": 300,
            "EvaluationPeriods": "3", "Threshold": "1.5", "ComparisonOperator": "GreaterThanThreshold",
            "TreatMissingData": "ignore",
        })
    }

    #[test]
    fn a_simple_alarm_is_read() {
        let alarm = Alarm::of("A", &alarm()).unwrap();
        let shown = (alarm.period(), alarm.window(), alarm.datapoints_to_alarm, alarm.threshold);
        assert_eq!(shown, (5, 15, 3, 1.5));
        assert_eq!(alarm.metrics().map(|metric| &*metric.name).collect::<Vec<_>>(), ["m"]);
    }

    #[test]
    fn a_property_that_is_unknown_is_an_error() {
        for (property, value) in [
            ("Unit", json!("Seconds")),
            ("Statistic", json!("Average")),
            ("Period", json!(10)),
            ("TreatMissingData", json!("missing")),
            ("ComparisonOperator", json!("GreaterThanOrEqualToThreshold")),
            ("EvaluationPeriods", json!("many")),
        ] {
            let mut alarm = alarm();
            alarm[property] = value;
            assert!(Alarm::of("A", &alarm).is_err(), "{property}");
        }
    }
}
