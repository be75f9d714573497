//! How functions write their metrics: documents of CloudWatch's embedded metric format on standard output, where Lambda reads them.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, SystemTime},
};

use lambda_idempotency::{
    record::{State, UnknownCause},
    store::{Store, WriteOutcome, conformance::samples},
    telemetry::{ALARMED_COUNT, UNKNOWN_COUNT, UNKNOWN_ESCALATED, UNKNOWN_OLDEST},
    time::Timestamp,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    reconcile::ledger_comparison::provider::Provider,
    support::{
        embedded,
        function::{Document, Function},
        guarded::fingerprints,
        http::record_key,
        payments_api::{TestProvider, order},
        sample::{Sample, charged, payment, pruned, request, status},
        tables::ledger_table,
    },
};

const OPERATION: &str = "create-payment";

/// The time of an invocation that does not end unprompted.
const TIME: Duration = Duration::from_secs(20);

/// Only a function that writes nothing takes this long.
const TIMEOUT: Duration = Duration::from_secs(180);

/// What was written since the last look.
struct Written(usize);

impl Written {
    fn by(&mut self, function: &Function) -> Vec<Document> {
        let documents = function.documents();
        let new = documents[self.0..].to_vec();
        self.0 = documents.len();
        new
    }

    /// The one document since the last look. It has an operation's counts, also in total.
    #[track_caller]
    fn of_operation(&mut self, function: &Function) -> Document {
        let documents = self.by(function);
        let [document] = &documents[..] else { panic!("not one document: {documents:?}") };
        assert_eq!(document.dimensions, json!([["operation"], []]));
        assert_eq!(document.operation.as_deref(), Some(OPERATION));
        document.clone()
    }

    /// The one document since the last look. It belongs to no operation.
    #[track_caller]
    fn of_none(&mut self, function: &Function) -> Document {
        let documents = self.by(function);
        let [document] = &documents[..] else { panic!("not one document: {documents:?}") };
        assert_eq!((&document.dimensions, &document.operation), (&json!([[]]), &None));
        assert_eq!(document.tenant, None);
        document.clone()
    }
}

fn counted<const N: usize>(counts: [(&'static str, u64); N]) -> BTreeMap<&'static str, u64> {
    counts.into()
}

/// The names of the timings, each of which has one value in milliseconds.
#[track_caller]
fn timed(document: &Document) -> Vec<&str> {
    let latencies = document.metrics.iter().filter(|(name, _)| name.ends_with(".latency"));
    latencies
        .map(|(name, (values, unit))| {
            let [value] = &values.as_array().expect("a list")[..] else { panic!("{name}: {values}") };
            assert!(value.as_f64().expect("a number") >= 0.0, "{name}: {value}");
            assert_eq!(unit.as_deref(), Some("Milliseconds"), "{name}");
            name.as_str()
        })
        .collect()
}

async fn sample() -> (Sample, TestProvider) {
    let provider = TestProvider::start().await;
    (Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await, provider)
}

/// Writes an outcome that has been unknown since `ago` and waits for an operator.
async fn escalated(sample: &Sample, ago: Duration) {
    let since = Timestamp::from(SystemTime::now()).minus(ago);
    let key = record_key("acme", OPERATION, "order-2");
    let began = samples::in_progress(key, fingerprints("{}"), since, since);
    let mut record = samples::unknown(&began, UnknownCause::LeaseExpired, since);
    let State::Unknown { reconcile_at, .. } = &mut record.state else { panic!("{record:?}") };
    *reconcile_at = Timestamp::MAX;
    assert_eq!(sample.store().put(None, &record, &[]).await.unwrap(), WriteOutcome::Written);
}

#[tokio::test]
async fn each_request_writes_its_counts_once() {
    let (sample, _provider) = sample().await;
    let mut payments = sample.start("payments", &[("METRICS_NAMESPACE", "a-stack")]).await;
    let mut written = Written(0);
    assert_eq!(status(&payments.invoke(&payment("acme", "order-1", &order("tok_ok"))).await), 201);
    let first = written.of_operation(&payments);
    assert_eq!((&*first.namespace, first.counts()), ("a-stack", counted([("reserve.created", 1)])));
    let all = ["complete", "handler", "reserve"].map(|name| format!("api.idempotency.{name}.latency"));
    assert_eq!(timed(&first), all);
    assert_eq!(first.metrics.len(), 4);
    assert_eq!(first.tenant.as_deref(), Some("acme"));

    assert_eq!(status(&payments.invoke(&payment("acme", "order-1", &order("tok_ok"))).await), 201);
    let replay = written.of_operation(&payments);
    assert_eq!(replay.counts(), counted([("reserve.replay", 1)]));
    assert_eq!(timed(&replay), ["api.idempotency.reserve.latency"]);

    // The tenant belongs to the invocation. It is not a dimension, because dimensions are the same for all tenants.
    let others = payments.invoke(&payment("other \"tenant\"", "order-1", &order("tok_ok"))).await;
    assert_eq!(status(&others), 201);
    assert_eq!(written.of_operation(&payments).tenant.as_deref(), Some("other \"tenant\""));

    // Nothing is guarded, so nothing is counted.
    assert_eq!(status(&payments.invoke(&request("GET", "/payments", "acme", &[], "")).await), 200);
    assert_eq!(written.by(&payments), []);

    // The handler panics.
    let panics = payment("acme", "order-2", &order("tok_panic_before"));
    assert_eq!(status(&payments.invoke(&panics).await), 500);
    assert_eq!(written.of_operation(&payments).counts(), counted([("reserve.created", 1)]));
}

#[tokio::test]
async fn metrics_are_written_before_a_timeout_kills_the_function() {
    let (sample, _provider) = sample().await;
    let mut payments = sample.start("payments", &[("PROVIDER_TIMEOUT_MS", "600000")]).await;
    // Long enough to reserve on a slow machine. What is counted later is not written.
    let deadline = Timestamp::from(SystemTime::now() + TIME);
    payments.begin(&payment("acme", "order-1", &order("hang")), TIME);
    let written = async {
        while payments.documents().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, written).await.expect("a document is written");
    assert!(!payments.has_answered());
    let document = Written(0).of_operation(&payments);
    assert!(document.at < deadline, "the function would have been dead");
    assert_eq!(document.counts(), counted([("reserve.created", 1)]));
}

#[tokio::test]
async fn every_function_writes_its_counts() {
    let (sample, provider) = sample().await;
    let mut payments = sample.start("payments", &[]).await;
    assert_eq!(status(&payments.invoke(&payment("acme", "order-1", &order("500"))).await), 504);
    let first = Written(0).of_operation(&payments);
    assert_eq!(
        (&*first.namespace, first.counts()),
        ("lambda-idempotency", counted([("reserve.created", 1)]))
    );

    let mut webhook = sample.start("webhook", &[]).await;
    let mut written = Written(0);
    for resolved in [1, 0] {
        assert_eq!(status(&webhook.invoke(&charged(&provider.orders()[0])).await), 200);
        let documents = written.by(&webhook);
        let counts: Vec<_> = documents.iter().map(Document::counts).collect();
        assert_eq!(counts, vec![counted([("reconcile.resolved", 1)]); resolved]);
    }

    // One without a signature, one whose signature is not valid, and one whose metadata opens with no key.
    let mut unsigned = charged(&provider.orders()[0]);
    unsigned["headers"].as_object_mut().expect("headers").remove("provider-signature");
    let mut refused = unsigned.clone();
    refused["headers"]["provider-signature"] = "t=1,v1=00".into();
    let mut forged = provider.orders()[0].clone();
    forged.1["metadata"]["record"] = "opens with no key".into();
    for (event, status_, count) in [
        (unsigned, 401, "webhook.unsigned"),
        (refused, 401, "webhook.refused"),
        (charged(&forged), 503, "webhook.again"),
    ] {
        assert_eq!(status(&webhook.invoke(&event).await), status_, "{count}");
        assert_eq!(written.of_none(&webhook).counts(), counted([(count, 1)]));
    }

    let mut reconcile = sample.start("reconcile", &[]).await;
    let mut written = Written(0);
    for number in [0, 1] {
        if number == 1 {
            escalated(&sample, Duration::from_secs(3600)).await;
        }
        reconcile.invoke(&json!({ "job": "poll" })).await.unwrap();
        let polled = written.of_none(&reconcile);
        assert_eq!(polled.counts(), counted([("reconcile.poll", 1)]));
        for name in [UNKNOWN_ESCALATED, UNKNOWN_COUNT] {
            assert_eq!(polled.metrics[name], (json!([f64::from(number)]), None));
        }
        assert_eq!(polled.metrics[ALARMED_COUNT], (json!([0.0]), None));
        let (oldest, unit) = &polled.metrics[UNKNOWN_OLDEST];
        let unknown = 3600.0 * f64::from(number);
        let oldest = oldest[0].as_f64().expect("a number");
        assert!((unknown..unknown + 3600.0).contains(&oldest), "{oldest} s");
        assert_eq!(unit.as_deref(), Some("Seconds"));
    }

    let mut compare = sample.start("compare", &[]).await;
    assert!(compare.invoke(&json!({ "job": "nothing" })).await.is_err());
    assert_eq!(compare.documents(), []);
}

// T19
#[tokio::test]
async fn a_stream_batch_counts_what_time_to_live_deleted() {
    let (sample, _provider) = sample().await;
    let mut stale = sample.start("stale", &[]).await;
    let batch = json!({ "Records": [
        pruned("acme#create-payment#order-1", 1), pruned("acme#create-payment#order-2", 2), { "poison": true },
    ] });
    let answer = stale.invoke(&batch).await.unwrap();
    assert_eq!(answer, json!({ "batchItemFailures": [] }));
    let mut documents = stale.documents();
    documents.sort_by_key(|document| document.operation.clone());
    let [of_none, of_operation] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!(of_none.dimensions, json!([[]]));
    assert_eq!(of_none.counts(), counted([("stream.batch", 1), ("contradiction.sent", 1)]));
    assert_eq!(of_operation.dimensions, json!([["operation"], []]));
    assert_eq!(of_operation.operation.as_deref(), Some(OPERATION));
    assert_eq!(of_operation.counts(), counted([("ttl_pruned", 2)]));
    assert_eq!(sample.queues.messages().len(), 1);

    let mut written = Written(documents.len());
    assert!(stale.invoke(&json!({ "job": "nothing" })).await.is_err());
    assert_eq!(written.by(&stale), []);
    stale.invoke(&json!({ "job": "sweep" })).await.unwrap();
    assert_eq!(written.of_none(&stale).counts(), counted([("sweep.completed", 1)]));
}

#[tokio::test]
async fn an_invocation_that_fails_writes_its_metrics_too() {
    let provider = Provider::start().await;
    provider.list(json!({ "id": "ch_1", "amountCents": 1999, "currency": "EUR", "state": "succeeded" }));
    let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
    let mut compare = sample.start("compare", &[]).await;
    let job = json!({ "job": "compare", "day": "2026-11-20" });
    let found = counted([("compare.completed", 1), ("compare.differences", 1), ("compare.only_theirs", 1)]);
    let mut written = Written(0);
    let compared: Value = compare.invoke(&job).await.unwrap();
    assert_eq!(compared[0]["only_theirs"], 1);
    assert_eq!(written.of_none(&compare).counts(), found);

    let report = sample.reports.path().join("2026-11-20.jsonl");
    fs::remove_file(&report).unwrap();
    fs::create_dir_all(report.join(Uuid::new_v4().to_string())).unwrap();
    compare.invoke(&job).await.expect_err("a folder stands where the report belongs");
    assert_eq!(written.of_none(&compare).counts(), found);
}
