//! In place of CloudWatch: totals, since the start, of metrics that functions write to standard output in
//! [embedded metric format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).

use crate::alarms;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// The most metrics, by name and dimensions, that are kept. Values of others are only counted.
const MAX: usize = 10_000;

type Dimensions = BTreeMap<String, String>;

/// The metrics of one line.
#[derive(Debug)]
pub struct Document {
    /// The sets of dimensions by which each metric is counted.
    pub dimensions: Vec<Dimensions>,
    pub metrics: Vec<Metric>,
}

#[derive(Debug)]
pub struct Metric {
    namespace: String,
    pub name: String,
    pub unit: String,
    /// The set of dimensions of its own directive.
    dimensions: Vec<Dimensions>,
    /// Each value with its count.
    values: Vec<(f64, u64)>,
}

/// The totals of every metric.
#[derive(Default)]
pub struct Metrics(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Each value since it was last asked for, if somebody asks.
    latest: Option<Vec<(alarms::Metric, f64)>>,
    series: BTreeMap<(String, String, Dimensions), Figures>,
    dropped: u64,
}

struct Figures {
    unit: String,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    last: f64,
}

#[derive(Serialize)]
pub struct Shown {
    metrics: Vec<ShownMetric>,
    /// The updates to metrics that are not kept.
    dropped: u64,
}

#[derive(Serialize)]
struct ShownMetric {
    namespace: String,
    name: String,
    dimensions: Dimensions,
    unit: String,
    count: u64,
    sum: Value,
    min: Value,
    max: Value,
    last: Value,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "_aws")]
    aws: Aws,
    #[serde(flatten)]
    members: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Aws {
    cloud_watch_metrics: Vec<Directive>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Directive {
    namespace: String,
    #[serde(default)]
    dimensions: Vec<Vec<String>>,
    metrics: Vec<Definition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Definition {
    name: String,
    unit: Option<String>,
}

/// A metric's member: a number, several numbers, or numbers with counts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(f64),
    Many(Vec<f64>),
    Counted {
        #[serde(rename = "Values")]
        values: Vec<f64>,
        #[serde(rename = "Counts")]
        counts: Vec<u64>,
    },
}

impl Document {
    /// `None` if the line has another format.
    pub fn parse(line: &str) -> Option<Self> {
        if !line.starts_with('{') || !line.contains("\"_aws\"") {
            return None;
        }
        let Line { aws, members } = serde_json::from_str(line).ok()?;
        let mut document = Self { dimensions: Vec::new(), metrics: Vec::new() };
        for directive in aws.cloud_watch_metrics {
            let dimensions = directive.sets(&members);
            for Definition { name, unit } in directive.metrics {
                let Some(values) = members.get(&name).and_then(values) else { continue };
                let (namespace, unit) =
                    (directive.namespace.clone(), unit.unwrap_or_else(|| "None".to_owned()));
                document.metrics.push(Metric {
                    namespace,
                    name,
                    unit,
                    dimensions: dimensions.clone(),
                    values,
                });
            }
            document.dimensions.extend(dimensions);
        }
        Some(document)
    }
}

impl Directive {
    /// The sets of dimensions. Like CloudWatch, leaves out a set that lacks a value. Without sets, there is the empty one.
    fn sets(&self, members: &Map<String, Value>) -> Vec<Dimensions> {
        if self.dimensions.is_empty() {
            return vec![Dimensions::new()];
        }
        let value = |name: &String| Some((name.clone(), members.get(name)?.as_str()?.to_owned()));
        self.dimensions.iter().filter_map(|set| set.iter().map(value).collect()).collect()
    }
}

fn values(member: &Value) -> Option<Vec<(f64, u64)>> {
    Some(match Values::deserialize(member).ok()? {
        Values::One(value) => vec![(value, 1)],
        Values::Many(values) => values.into_iter().map(|value| (value, 1)).collect(),
        Values::Counted { values, counts } => values.into_iter().zip(counts).collect(),
    })
}

impl Metric {
    pub fn count(&self) -> u64 {
        self.values.iter().map(|(_, count)| count).fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn sum(&self) -> f64 {
        self.values.iter().map(|(value, count)| value * *count as f64).sum()
    }

    /// Each value, as often as it was counted.
    fn values_by(&self, dimensions: &Dimensions) -> impl Iterator<Item = (alarms::Metric, f64)> {
        let metric = alarms::Metric {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            dimensions: dimensions.clone(),
        };
        let values = self.values.iter().flat_map(|(value, count)| (0..*count).map(|_| *value));
        values.map(move |value| (metric.clone(), value))
    }
}

impl Metrics {
    pub fn add(&self, document: &Document) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for metric in &document.metrics {
            for dimensions in &metric.dimensions {
                kept.add(metric, dimensions);
                if let Some(latest) = &mut kept.latest {
                    latest.extend(metric.values_by(dimensions));
                }
            }
        }
    }

    /// Adds a value of a metric of AWS's own, which has no total here.
    pub fn note(&self, metric: alarms::Metric, value: f64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.latest.iter_mut().for_each(|latest| latest.push((metric.clone(), value)));
    }

    /// Each value since the last call. The first call begins.
    pub fn latest(&self) -> Vec<(alarms::Metric, f64)> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.latest.replace(Vec::new()).unwrap_or_default()
    }

    pub fn shown(&self) -> Shown {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = kept.series.iter().map(|((namespace, name, dimensions), figures)| ShownMetric {
            namespace: namespace.clone(),
            name: name.clone(),
            dimensions: dimensions.clone(),
            unit: figures.unit.clone(),
            count: figures.count,
            sum: number(figures.sum),
            min: number(figures.min),
            max: number(figures.max),
            last: number(figures.last),
        });
        Shown { metrics: metrics.collect(), dropped: kept.dropped }
    }
}

impl Kept {
    fn add(&mut self, metric: &Metric, dimensions: &Dimensions) {
        let Some((last, _)) = metric.values.iter().rfind(|(_, count)| *count > 0) else { return };
        let series = (metric.namespace.clone(), metric.name.clone(), dimensions.clone());
        if self.series.len() >= MAX && !self.series.contains_key(&series) {
            self.dropped += 1;
            return;
        }
        let figures = self.series.entry(series).or_insert_with(|| Figures {
            unit: String::new(),
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            last: 0.0,
        });
        figures.unit.clone_from(&metric.unit);
        figures.count = figures.count.saturating_add(metric.count());
        figures.sum += metric.sum();
        figures.last = *last;
        for (value, _) in metric.values.iter().filter(|(_, count)| *count > 0) {
            figures.min = figures.min.min(*value);
            figures.max = figures.max.max(*value);
        }
    }
}

/// A whole number without a fraction, so that a count reads as one.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value.fract() == 0.0 && value.abs() < EXACT {
        true => (value as i64).into(),
        false => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(operation: &str, members: Value) -> String {
        let mut line = json!({
            "_aws": { "Timestamp": 1_795_264_015_123_u64, "CloudWatchMetrics": [{
                "Namespace": "lambda-idempotency",
                "Dimensions": [["operation"], []],
                "Metrics": [
                    { "Name": "zombie_key", "Unit": "Count" },
                    { "Name": "latency", "Unit": "Milliseconds", "StorageResolution": 60 },
                ],
            }] },
            "operation": operation,
            "tenant": "acme",
        });
        for (name, value) in members.as_object().unwrap() {
            line[name] = value.clone();
        }
        line.to_string()
    }

    fn shown(lines: &[String]) -> Value {
        let metrics = Metrics::default();
        lines.iter().for_each(|line| metrics.add(&Document::parse(line).unwrap()));
        json!(metrics.shown())
    }

    #[test]
    fn a_metric_is_summed_up_for_each_set_of_dimensions() {
        let lines = [
            line("create-payment", json!({ "zombie_key": 1 })),
            line("create-order", json!({ "zombie_key": 2 })),
            line("create-payment", json!({ "zombie_key": [3, 0.5] })),
        ];
        let shown = shown(&lines);
        let row = |dimensions: Value| {
            let mut rows = shown["metrics"].as_array().unwrap().iter();
            rows.find(|row| row["dimensions"] == dimensions).unwrap().clone()
        };
        let expected = json!({
            "namespace": "lambda-idempotency", "name": "zombie_key", "unit": "Count",
            "dimensions": { "operation": "create-payment" },
            "count": 3, "sum": 4.5, "min": 0.5, "max": 3, "last": 0.5,
        });
        assert_eq!(row(json!({ "operation": "create-payment" })), expected);
        let all = row(json!({}));
        assert_eq!((&all["count"], &all["sum"]), (&json!(4), &json!(6.5)));
        assert_eq!(shown["metrics"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn values_with_counts_are_that_many_values() {
        let shown = shown(&[line("o", json!({ "latency": { "Values": [2, 3, 9], "Counts": [2, 1, 0] } }))]);
        let row = &shown["metrics"][0];
        assert_eq!((&row["count"], &row["sum"], &row["max"]), (&json!(3), &json!(7), &json!(3)));
    }

    #[test]
    fn what_cloudwatch_would_not_count_is_not_counted() {
        for text in ["", "{}", r#"{"a":"\"_aws\""}"#, r#"{"_aws":1}"#, r#"{"_aws":{"CloudWatchMetrics":1}}"#]
        {
            assert!(Document::parse(text).is_none(), "{text}");
        }
        for members in [json!({}), json!({ "zombie_key": "1" }), json!({ "zombie_key": null })] {
            assert_eq!(shown(&[line("o", members)])["metrics"], json!([]));
        }
        let without = line("o", json!({ "zombie_key": 1 })).replace(r#""operation":"o","#, "");
        assert_eq!(shown(&[without])["metrics"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn series_beyond_the_bound_are_counted_and_forgotten() {
        let metrics = Metrics::default();
        for number in 0..MAX + 10 {
            let line = line(&format!("o-{number}"), json!({ "zombie_key": 1 }));
            metrics.add(&Document::parse(&line).unwrap());
        }
        let shown = metrics.shown();
        // One is the set without dimensions.
        assert_eq!((shown.metrics.len(), shown.dropped), (MAX, 11));
        assert_eq!(
            shown.metrics.iter().find(|row| row.dimensions.is_empty()).unwrap().count,
            MAX as u64 + 10
        );
    }
}
