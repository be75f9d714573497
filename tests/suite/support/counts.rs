//! Metrics that are counted while a future runs.

use std::{collections::BTreeMap, future::poll_fn, pin::pin};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// Runs `work`, and returns what it counted, by the counters' names. Counts of its background tasks are not included.
pub async fn counting<T>(work: impl Future<Output = T>) -> (T, BTreeMap<String, u64>) {
    let recorder = DebuggingRecorder::new();
    let mut work = pin!(work);
    let done = poll_fn(|cx| metrics::with_local_recorder(&recorder, || work.as_mut().poll(cx))).await;
    let counts =
        recorder.snapshotter().snapshot().into_vec().into_iter().filter_map(
            |(key, _, _, value)| match value {
                DebugValue::Counter(count) => Some((key.key().name().to_owned(), count)),
                _ => None,
            },
        );
    (done, counts.collect())
}

/// Runs `work`, and returns what it recorded, counters and histograms, by their names.
pub async fn recording<T>(work: impl Future<Output = T>) -> (T, BTreeMap<String, Vec<f64>>) {
    let recorder = DebuggingRecorder::new();
    let mut work = pin!(work);
    let done = poll_fn(|cx| metrics::with_local_recorder(&recorder, || work.as_mut().poll(cx))).await;
    let values = |value| match value {
        DebugValue::Counter(count) => vec![count as f64],
        DebugValue::Gauge(value) => vec![value.into_inner()],
        DebugValue::Histogram(values) => values.into_iter().map(|value| value.into_inner()).collect(),
    };
    let recorded = recorder.snapshotter().snapshot().into_vec();
    (
        done,
        recorded.into_iter().map(|(key, _, _, value)| (key.key().name().to_owned(), values(value))).collect(),
    )
}
