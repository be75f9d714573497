//! What becomes of a batch: the rules of Lambda's mappings.

use std::time::{Duration, SystemTime};

use clap::Parser;
use pollers::{
    batch::{Batch, Dropped, Outcome, Record, Step},
    mapping::Mapping,
};
use serde_json::{Value, json};

const MAPPING: Mapping = Mapping {
    function: String::new(),
    cloud: String::new(),
    batch_size: 100,
    report_failures: true,
    bisect: false,
    max_retries: -1,
    max_age: -1,
    on_failure: None,
    checkpoints: None,
};

fn record(lane: &str, place: u32) -> Record {
    Record {
        lane: lane.into(),
        place: place.to_string(),
        item: json!(format!("{lane}@{place}")),
        event: String::new(),
        arrived: SystemTime::UNIX_EPOCH,
    }
}

fn batch(places: std::ops::Range<u32>) -> Batch {
    Batch::new(places.map(|place| record("a", place)).collect())
}

fn names(items: &[&str]) -> Outcome {
    let items: Vec<_> = items.iter().map(|item| json!({ "itemIdentifier": item })).collect();
    answer(&json!({ "batchItemFailures": items }))
}

fn answer(answer: &Value) -> Outcome {
    Outcome::Answer(answer.to_string().into_bytes())
}

fn failed() -> Outcome {
    Outcome::Failed("it crashed".to_owned())
}

fn places(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| format!("{}@{}", record.lane, record.place)).collect()
}

/// The records of the next invocation.
fn next(batch: &Batch) -> Vec<String> {
    batch.next().map(places).unwrap_or_default()
}

fn end(batch: &mut Batch, outcome: Outcome, mapping: &Mapping) -> Step {
    batch.ended(outcome, mapping, SystemTime::UNIX_EPOCH + Duration::from_secs(10))
}

#[test]
fn a_checkpoint_moves_to_the_lowest_record_that_failed() {
    let mut batch = batch(0..5);
    let step = end(&mut batch, names(&["a@3", "a@2"]), &MAPPING);
    assert_eq!(
        (places(&step.done), next(&batch)),
        (vec!["a@0".into(), "a@1".into()], ["a@2", "a@3", "a@4"].map(String::from).to_vec())
    );
    let step = end(&mut batch, names(&[]), &MAPPING);
    assert_eq!((places(&step.done).len(), batch.next(), step.wait), (3, None, Duration::ZERO));
}

#[test]
fn a_failure_in_one_lane_holds_no_other_lane_up() {
    let mut batch = Batch::new(vec![record("a", 1), record("b", 1), record("a", 2), record("b", 2)]);
    let step = end(&mut batch, names(&["a@1"]), &MAPPING);
    assert_eq!(
        (places(&step.done), next(&batch)),
        (vec!["b@1".into(), "b@2".into()], vec!["a@1".into(), "a@2".into()])
    );
}

#[test]
fn every_form_of_success_ends_the_batch() {
    // Those of local/src/mapping/answer.rs.
    for body in ["", "null", "{}", r#"{"batchItemFailures":null}"#, r#"{"batchItemFailures":[]}"#] {
        let mut batch = batch(0..2);
        let step = end(&mut batch, Outcome::Answer(body.into()), &MAPPING);
        assert_eq!((step.done.len(), batch.next(), step.warning), (2, None, None), "{body}");
    }
}

#[test]
fn an_answer_that_names_no_record_fails_the_whole_batch() {
    for item in [json!("a@7"), json!(""), Value::Null, json!({ "partition": "a", "offset": 0 })] {
        let mut batch = batch(0..2);
        let answer = answer(&json!({ "batchItemFailures": [{ "itemIdentifier": item }] }));
        assert_eq!((end(&mut batch, answer, &MAPPING).done.len(), next(&batch).len()), (0, 2), "{item}");
    }
}

#[test]
fn an_answer_that_is_no_list_of_failures_fails_the_whole_batch() {
    for body in [r#""done""#, "[]", "1", "done", "{", r#"{"batchItemFailures":{}}"#] {
        let mut reported = batch(0..2);
        let step = end(&mut reported, Outcome::Answer(body.into()), &MAPPING);
        assert_eq!((step.done.len(), next(&reported).len()), (0, 2), "{body}");
        // Without reports, any answer is success.
        let mapping = Mapping { report_failures: false, ..MAPPING };
        assert_eq!(end(&mut batch(0..2), Outcome::Answer(body.into()), &mapping).done.len(), 2, "{body}");
    }
}

#[test]
fn settings_that_aws_refuses_are_refused() {
    #[derive(Debug, clap::Parser)]
    struct Arguments {
        #[command(flatten)]
        mapping: Mapping,
    }
    let of = |setting: &str| Arguments::try_parse_from(["poller", "--function", "ship", setting]);
    for refused in [
        "--max-age=0",
        "--max-age=59",
        "--max-age=604801",
        "--max-age=-2",
        "--max-retries=-2",
        "--max-retries=10001",
        "--batch-size=0",
        "--batch-size=10001",
    ] {
        assert!(of(refused).is_err(), "{refused}");
    }
    for taken in ["--max-age=-1", "--max-age=60", "--max-retries=-1", "--max-retries=0", "--batch-size=1"] {
        assert!(of(taken).is_ok(), "{taken}");
    }
    let mapping = of("--max-age=604800").expect("the longest").mapping;
    assert_eq!((mapping.max_age, mapping.max_retries), (604_800, -1));
}

#[test]
fn without_reports_what_is_named_is_lost_with_a_warning() {
    let mut batch = batch(0..2);
    let step = end(&mut batch, names(&["a@0"]), &Mapping { report_failures: false, ..MAPPING });
    assert_eq!((step.done.len(), batch.next()), (2, None));
    assert!(step.warning.is_some_and(|warning| warning.contains("1 records are lost")));
}

#[test]
fn a_batch_is_halved_until_a_bad_record_is_alone() {
    let mapping = Mapping { bisect: true, max_retries: 0, ..MAPPING };
    let (mut batch, mut done, mut dropped) = (batch(0..8), Vec::new(), Vec::new());
    let mut invocations = 0;
    while let Some(records) = batch.next() {
        let outcome = if places(records).contains(&"a@5".to_owned()) { failed() } else { names(&[]) };
        let step = end(&mut batch, outcome, &mapping);
        match step.dropped {
            Some(all) => dropped.extend(all.records),
            None => done.extend(step.done),
        }
        invocations += 1;
    }
    let all: Vec<_> = [0, 1, 2, 3, 4, 6, 7].map(|place| format!("a@{place}")).to_vec();
    assert_eq!((places(&done), places(&dropped), invocations), (all, vec!["a@5".to_owned()], 7));
}

#[test]
fn without_bisection_a_batch_is_dropped_whole_after_its_retries() {
    let mapping = Mapping { max_retries: 1, ..MAPPING };
    let mut batch = batch(0..2);
    assert_eq!(end(&mut batch, failed(), &mapping).dropped, None);
    let step = end(&mut batch, failed(), &mapping);
    let dropped = Dropped {
        records: vec![record("a", 0), record("a", 1)],
        condition: "RetryAttemptsExhausted",
        invocations: 2,
        is_error: true,
    };
    assert_eq!((step.dropped, step.done.len(), batch.next()), (Some(dropped), 2, None));
}

#[test]
fn only_what_is_too_old_when_it_fails_is_dropped() {
    let young = Record { arrived: SystemTime::UNIX_EPOCH + Duration::from_secs(5), ..record("a", 1) };
    let mapping = Mapping { max_age: 6, ..MAPPING };
    // Behind it, an old one is not dropped: the checkpoint would pass the young one.
    let mut batch = Batch::new(vec![record("a", 0), young, record("a", 2)]);
    let step = end(&mut batch, names(&["a@0"]), &mapping);
    let dropped = step.dropped.expect("it is too old");
    assert_eq!((places(&dropped.records), dropped.condition), (vec!["a@0".to_owned()], "RecordAgeExceeded"));
    assert_eq!(next(&batch), ["a@1", "a@2"]);
}

#[test]
fn an_invocation_that_never_began_takes_no_retry() {
    let mapping = Mapping { max_retries: 0, bisect: true, ..MAPPING };
    let mut batch = batch(0..2);
    for _ in 0..3 {
        let step = end(&mut batch, Outcome::NotBegun("throttled".to_owned()), &mapping);
        assert_eq!((step.dropped, next(&batch).len()), (None, 2));
        assert!(step.wait > Duration::ZERO);
    }
}

#[test]
fn progress_gives_the_rest_all_its_retries_again() {
    let mapping = Mapping { max_retries: 1, ..MAPPING };
    let mut batch = batch(0..3);
    assert_eq!(end(&mut batch, failed(), &mapping).dropped, None);
    assert_eq!(end(&mut batch, names(&["a@1"]), &mapping).done.len(), 1);
    assert_eq!(end(&mut batch, failed(), &mapping).dropped, None);
    assert_eq!(next(&batch), ["a@1", "a@2"]);
}
