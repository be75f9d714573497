//! No data of a caller is logged. Every line is searched after every possible failure.

use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::AttributeValue;
use axum::{Router, http::StatusCode};
use bytes::Bytes;
use lambda_idempotency::{
    engine::{Executor, Report, Request},
    fingerprint::{Content, FingerprintRule},
    key::RecordKey,
    operation::Operation,
    record::{Answer, AnswerKind, UnknownCause},
    store::{Store, WriteOutcome, conformance::samples, dynamodb::DynamoDbStore, memory::MemoryStore},
    time::Timestamp,
    world::{ManualWorld, World},
};
use macro_rules_attribute::apply;
use orders::policy::{CHARGE_PHASE, CREATE_ORDER};
use payments::policy::CREATE_PAYMENT;
use serde_json::json;
use uuid::Uuid;

use crate::reconcile::ledger_comparison::provider::Provider;
use crate::support::{
    client::{client, connect},
    embedded,
    faults::{Fault, Faults},
    function::{Document, Function},
    guarded::fingerprints,
    http::{Gate, PAY, api, clock, guard_of, order, record_key, send, tenant, until},
    logs::Logs,
    messages::of_group,
    on_each_store,
    payments_api::{PaymentsApi, TestProvider, sealing_keys},
    sample::{self, Sample},
    tables,
};

/// Values that must not be logged. Each contains `marker`, and nothing else does.
pub(super) struct Secrets {
    pub(super) marker: String,
    key: String,
    pub(super) tenant: String,
    customer: String,
    card: String,
}

impl Secrets {
    pub(super) fn new() -> Self {
        let marker = Uuid::new_v4().simple().to_string();
        let named = |name: &str| format!("{name}-{marker}");
        Self {
            key: named("key"),
            tenant: named("tenant"),
            customer: named("customer"),
            card: named("tok"),
            marker,
        }
    }

    pub(super) fn order(&self, cents: u32) -> String {
        let Self { customer, card, .. } = self;
        json!({ "customerId": customer, "amountCents": cents, "currency": "EUR", "source": card }).to_string()
    }

    /// The key of one flow.
    pub(super) fn key(&self, flow: &str) -> String {
        format!("{}-{flow}", self.key)
    }

    fn record_key(&self, flow: &str) -> RecordKey {
        record_key(&self.tenant, PAY, &self.key(flow))
    }

    /// Searches every line. The library, the function and Lambda's runtime reveal nothing at any level. The SDK, its HTTP client and the
    /// store that runs in this process log whole requests at DEBUG and TRACE, which is unavoidable. Above those levels they reveal nothing
    /// either.
    pub(super) fn assert_kept(&self, logs: Logs) {
        const OURS: [&str; 4] = ["lambda_idempotency", "payments", "lambda_http", "lambda_runtime"];
        for line in logs.lines_with(&self.marker) {
            let ours = OURS.iter().any(|target| line.target().starts_with(target));
            let detail = matches!(line.level(), "DEBUG" | "TRACE");
            assert!(!ours && detail, "a secret is logged: {}", line.text);
        }
    }
}

/// A guarded handler that does what the flow in its key asks for, with the network of its store.
struct Guarded {
    app: Router,
    faults: Faults,
    clock: ManualWorld,
    gate: Gate,
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl Guarded {
    async fn on(endpoint: &str) -> Self {
        let (faults, clock, gate) = (Faults::new(), clock(), Gate::closed());
        let table = tables::idempotency_table(&client(endpoint)).await;
        let faulty = connect(endpoint).http_client(faults.clone()).max_attempts(1).client();
        let operation = Operation::new(PAY).completion_timeout(Duration::ZERO);
        let store = DynamoDbStore::from_client(faulty, table.clone());
        let (network, held) = (faults.clone(), gate.clone());
        let app = api(guard_of(store, operation).world(clock.clone()), move |parts, body: Bytes| {
            let (network, held) = (network.clone(), held.clone());
            async move {
                let key = parts.headers["idempotency-key"].to_str().unwrap().to_owned();
                match key.rsplit('-').next().unwrap() {
                    "panics" => panic!("{key} {body:?}"),
                    "fails" => return (StatusCode::INTERNAL_SERVER_ERROR, body),
                    "unwritten" => network.for_all("PutItem", Fault::Status(500)),
                    "dead" => held.pass().await,
                    _ => {}
                }
                (StatusCode::CREATED, body)
            }
        });
        Self { app, faults, clock, gate, client: client(endpoint), table }
    }

    async fn pay(&self, secrets: &Secrets, flow: &str, cents: u32) -> (u16, String) {
        let request = order(&secrets.key(flow)).extension(tenant(&secrets.tenant));
        send(&self.app, request.body(secrets.order(cents).into()).unwrap()).await.problem()
    }
}

#[apply(on_each_store)]
async fn the_guard_logs_key_hashes_and_no_caller_data(endpoint: &str) {
    let (logs, secrets) = (Logs::capture(), Secrets::new());
    let guarded = Guarded::on(endpoint).await;
    let pay = |flow, cents| guarded.pay(&secrets, flow, cents);

    assert_eq!(pay("kept", 1).await.0, 201);
    assert_eq!(pay("kept", 1).await.0, 201);
    assert_eq!(pay("kept", 2).await.0, 422);
    assert_eq!(pay("panics", 1).await.0, 500);
    assert_eq!(pay("fails", 1).await.0, 500);
    assert_eq!(pay("fails", 1).await.0, 409);
    assert_eq!(pay("unwritten", 1).await.0, 201);
    for fault in [Fault::Status(500), Fault::AccessDenied, Fault::DropRequest, Fault::Throttle] {
        guarded.faults.for_all("PutItem", fault);
        assert_eq!(pay("refused", 1).await.0, 503);
    }
    guarded.faults.clear();
    // The circuit breaker has opened.
    guarded.clock.advance(Duration::from_secs(3));
    assert_eq!(pay("corrupt", 1).await.0, 201);
    let nonsense = AttributeValue::S(secrets.order(1));
    let update = guarded.client.update_item().table_name(&guarded.table);
    let update = update
        .key("pk", AttributeValue::S(secrets.record_key("corrupt").partition_key()))
        .key("sk", AttributeValue::S("record".to_owned()));
    let update = update.update_expression("SET attempts = :nonsense, cause = :nonsense");
    update.expression_attribute_values(":nonsense", nonsense).send().await.unwrap();
    assert_eq!(pay("corrupt", 1).await, (503, "record-unreadable".to_owned()));

    let dead = pay("dead", 1);
    let others = async {
        guarded.gate.reached(1).await;
        guarded.clock.advance(Duration::from_secs(100));
        let refused = pay("dead", 1).await;
        guarded.gate.open();
        refused
    };
    let (late, refused) = tokio::join!(dead, others);
    let unknown = |status| (status, "outcome-unknown".to_owned());
    assert_eq!((late, refused), (unknown(500), unknown(409)));

    secrets.assert_kept(logs);
    for flow in ["kept", "panics", "unwritten", "refused", "corrupt", "dead"] {
        let hash = secrets.record_key(flow).hash().to_string();
        let lines = logs.lines_with(&hash);
        let is_logged = lines.iter().any(|line| matches!(line.level(), "ERROR" | "WARN"));
        assert!(is_logged, "the hash of `{flow}` is not logged");
    }
}

#[apply(on_each_store)]
async fn the_payments_function_logs_no_caller_data(endpoint: &str) {
    let (logs, secrets) = (Logs::capture(), Secrets::new());
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(endpoint, &provider.url).await;
    // The last part of the card's token selects the provider's answer.
    for (flow, status) in
        [("ok", 201), ("declined", 402), ("500", 500), ("echo", 504), ("hang", 504), ("rejected", 422)]
    {
        let mut order: serde_json::Value = serde_json::from_str(&secrets.order(1)).unwrap();
        order["source"] = format!("{}-{flow}", secrets.card).into();
        let paid = api.pay(&secrets.tenant, &secrets.key(flow), order.to_string()).await;
        let status = if flow == "500" { 504 } else { status };
        assert_eq!(paid.status, status, "{flow}: {paid:?}");
    }
    let broken = format!("{{\"customerId\":\"{}\",", secrets.customer);
    assert_eq!(api.pay(&secrets.tenant, &secrets.key("bad"), broken).await.status, 400);
    let other = json!({ "source": secrets.card, secrets.customer.clone(): 1 }).to_string();
    assert_eq!(api.pay(&secrets.tenant, &secrets.key("wrong"), other).await.status, 422);

    let away = PaymentsApi::on(endpoint, "http://127.0.0.1:1").await;
    assert_eq!(away.pay(&secrets.tenant, &secrets.key("away"), secrets.order(1)).await.status, 503);
    // The card was charged, and the table of payments is gone.
    let lost = PaymentsApi::with_ledger(endpoint, &provider.url, "no-such-table").await;
    assert_eq!(lost.pay(&secrets.tenant, &secrets.key("lost"), secrets.order(1)).await.status, 409);
    assert_eq!(lost.get(&secrets.tenant, "/payments").await.status, 503);
    assert_eq!(lost.get(&secrets.tenant, &format!("/payments/{}", secrets.key)).await.status, 503);

    secrets.assert_kept(logs);
    for flow in ["500", "echo", "hang", "away", "lost"] {
        let hash = secrets.record_key(flow).hash().to_string();
        assert!(logs.contains(&hash), "the hash of `{flow}` is not logged");
    }
}

// As they are deployed, with all log targets of the project at their most verbose level.
#[tokio::test]
async fn no_function_logs_or_counts_caller_data() {
    const LEVELS: &str =
        "trace,lambda_runtime::requests=trace,aws_smithy_runtime::client=trace,hyper_util::client=trace";
    let secrets = Secrets::new();
    let (marker, tenant) = (&secrets.marker, &secrets.tenant);
    let provider = TestProvider::start().await;
    let sample = Sample::new(&tables::ledger_table(embedded::endpoint()).await, &provider.url).await;
    let start = async |name: &str| sample.start(name, &[("RUST_LOG", LEVELS)]).await;
    let record = |flow: &str| {
        let operation = if flow.starts_with("order") { CREATE_ORDER } else { CREATE_PAYMENT };
        record_key(tenant, operation, &secrets.key(flow))
    };
    // A function that has processed these records logs their hashes. This shows that the searched log is not empty.
    let quiet = |function: &Function, found: &[&str]| {
        let output = function.output();
        let line = output.lines().find(|line| line.contains(marker));
        assert_eq!(line, None, "a secret leaves the function");
        for flow in found {
            let hash = record(flow).hash().to_string();
            assert!(function.log().contains(&hash), "the hash of `{flow}` is not logged");
        }
    };

    let mut payments = start("payments").await;
    let pay = |flow: &str, card: &str| {
        let mut order: serde_json::Value = serde_json::from_str(&secrets.order(1)).unwrap();
        order["source"] = format!("{}-{card}", secrets.card).into();
        sample::payment(tenant, &secrets.key(flow), &order.to_string())
    };
    for (flow, card, status) in [
        ("ok", "ok", 201),
        ("ok", "ok", 201),
        ("ok", "other", 422),
        ("no", "declined", 402),
        ("lost", "500", 504),
        ("echoed", "echo", 504),
        ("unsure", "unsure", 504),
    ] {
        assert_eq!(sample::status(&payments.invoke(&pay(flow, card)).await), status, "{flow}");
    }
    let broken = sample::payment(tenant, &secrets.key("bad"), &format!("{{\"customerId\":\"{marker}\","));
    assert_eq!(sample::status(&payments.invoke(&broken).await), 400);
    quiet(&payments, &["lost", "echoed", "unsure"]);
    let written = payments.documents();
    assert!(written.len() >= 5, "{written:?}");

    let mut orders = start("orders").await;
    let ordered = |card: &str, quantity: u64| {
        json!({
            "customerId": secrets.customer, "sku": marker, "quantity": quantity, "amountCents": 1, "currency": "EUR",
            "source": card,
        })
    };
    let place = |flow: &str, card: &str, quantity: u64| {
        let order = ordered(card, quantity);
        sample::request(
            "POST",
            "/orders",
            tenant,
            &[("idempotency-key", &secrets.key(flow))],
            &order.to_string(),
        )
    };
    let card = |case: &str| format!("{}-{case}", secrets.card);
    for (flow, card, quantity, status) in [
        ("order-ok", card("ok"), 100, 201),
        ("order-ok", card("ok"), 100, 201),
        ("order-ok", card("ok"), 1, 422),
        ("order-no", card("declined"), 1, 402),
        ("order-lost", card("500"), 1, 503),
        ("order-echoed", card("echo"), 1, 503),
        ("order-unsure", card("unsure"), 1, 503),
        // It is sold out, and this provider knows no refunds.
        ("order-unrefunded", card("ok"), 1, 503),
        ("order-panics", "tok_panic_phase_1".to_owned(), 1, 503),
        ("order-bad", card("ok"), 101, 422),
    ] {
        assert_eq!(sample::status(&orders.invoke(&place(flow, &card, quantity)).await), status, "{flow}");
    }
    quiet(&orders, &["order-lost", "order-echoed", "order-unsure", "order-unrefunded", "order-panics"]);
    assert!(!orders.documents().is_empty());

    let mut order_queue =
        sample.start("order-queue", &[("RUST_LOG", LEVELS), ("ORDERS_TENANT", tenant)]).await;
    let queued = [
        ("order-queued", card("ok"), 1),
        ("order-queued", card("ok"), 1),
        ("order-queued", card("ok"), 2),
        ("order-queued-no", card("declined"), 1),
        ("order-queued-lost", card("500"), 1),
        ("order-queued-echoed", card("echo"), 1),
        ("order-queued-unsure", card("unsure"), 1),
        ("order-queued-panics", "tok_panic_phase_1".to_owned(), 1),
        ("order-queued-bad", card("ok"), 101),
    ];
    let mut bodies: Vec<_> = queued
        .iter()
        .map(|(flow, card, quantity)| {
            let mut order = ordered(card, *quantity);
            order["orderId"] = secrets.key(flow).into();
            order["sku"] = format!("{marker}-2").into();
            order.to_string()
        })
        .collect();
    bodies.extend([marker.clone(), json!({ marker: marker }).to_string(), json!([marker]).to_string()]);
    let batch = bodies.iter().enumerate().map(|(place, body)| {
        // The first three have one key, and run one after another.
        let mut message = of_group(&format!("{marker}-{}", place.max(2)), &place.to_string(), body);
        message["eventSourceARN"] =
            format!("arn:aws:sqs:eu-central-1:123456789012:{}", sample::ORDERS).into();
        message
    });
    let batch = batch.collect::<Vec<_>>();
    let back = order_queue.invoke(&json!({ "Records": batch })).await.expect("an answer of the batch");
    assert_eq!(back["batchItemFailures"].as_array().expect("a list").len(), 4, "{back}");
    quiet(
        &order_queue,
        &["order-queued-lost", "order-queued-echoed", "order-queued-unsure", "order-queued-panics"],
    );
    let of_queue = |document: &Document| document.queue.as_deref() == Some(sample::ORDERS);
    assert!(order_queue.documents().iter().any(of_queue));

    let work = |kind: &str, flows: &[&str]| {
        let unknown = record_key(tenant, "unknown-operation", &secrets.key("lost")).partition_key();
        let known = flows.iter().map(|flow| record(flow).partition_key());
        let look = |key| json!({ "version": 1, "kind": kind, "key": key, "look_at": 0 }).to_string();
        let unread = json!({ "kind": marker, "key": marker }).to_string();
        let bodies: Vec<_> = known.chain([unknown]).map(look).chain([unread, marker.to_owned()]).collect();
        sample::messages(&bodies)
    };
    let long_ago = Timestamp::from(SystemTime::now()).minus(Duration::from_secs(600));
    let dead = |flow| samples::in_progress(record(flow), fingerprints(&secrets.order(1)), long_ago, long_ago);
    // Its refund is asked about.
    let charged = samples::between_workers(&dead("order-unknown"), &[(CHARGE_PHASE, marker)], long_ago);
    let unknown = samples::unknown(&charged, UnknownCause::LeaseExpired, long_ago);
    // The workers of the others died. A check finds one, a sweep the other.
    for record in [dead("dead"), dead("swept"), unknown] {
        assert_eq!(sample.store().put(None, &record, &[]).await.unwrap(), WriteOutcome::Written);
    }
    let mut stale = start("stale").await;
    let poison = json!({ "dynamodb": { "Keys": marker, "SequenceNumber": "2" } });
    let pruned = sample::pruned(&record("lost").partition_key(), 1);
    stale.invoke(&json!({ "Records": [pruned, poison] })).await.unwrap();
    stale.invoke(&work("check", &["dead"])).await.unwrap();
    quiet(&stale, &["dead"]);
    stale.invoke(&json!({ "job": "sweep" })).await.unwrap();
    quiet(&stale, &["swept"]);
    assert!(!stale.documents().is_empty());

    let mut reconcile = start("reconcile").await;
    reconcile.invoke(&work("ask", &["echoed", "unsure"])).await.unwrap();
    quiet(&reconcile, &["echoed", "unsure"]);
    // The dead are due at once.
    reconcile.invoke(&json!({ "job": "poll" })).await.unwrap();
    quiet(&reconcile, &["dead", "swept", "order-unknown"]);
    assert!(!reconcile.documents().is_empty());

    let mut webhook = start("webhook").await;
    let mut lost = provider.orders();
    lost.retain(|(_, order)| order["source"].as_str().unwrap().ends_with("500"));
    let [payment, order, queued] = &lost[..] else { panic!("{lost:?}") };
    let mut forged = sample::signed(marker);
    forged["headers"]["provider-signature"] = format!("t=1,v1={marker}").into();
    for (event, status) in [
        (sample::charged(payment), 200),
        (sample::charged(order), 200),
        (sample::charged(queued), 200),
        (sample::signed(marker), 400),
        (
            sample::signed(
                &json!({ "type": marker, "key": marker, "metadata": { "record": marker } }).to_string(),
            ),
            200,
        ),
        (forged, 401),
    ] {
        assert_eq!(sample::status(&webhook.invoke(&event).await), status);
    }
    quiet(&webhook, &["lost", "order-lost", "order-queued-lost"]);
    assert!(!webhook.documents().is_empty());

    let ledger = Provider::start().await;
    for (id, correlation) in
        [("ch_theirs", sealing_keys().seal(&record("only-theirs"))), ("ch_lost", marker.clone())]
    {
        let metadata = json!({ "record": correlation, "customer": secrets.customer });
        ledger.list(json!({ "id": id, "amountCents": 1, "currency": "EUR", "metadata": metadata }));
    }
    let mut compare = sample.start("compare", &[("RUST_LOG", LEVELS), ("PROVIDER_URL", &ledger.url)]).await;
    compare.invoke(&json!({ "job": "compare", "day": marker })).await.unwrap_err();
    let compared = compare.invoke(&json!({ "job": "compare", "day": "2026-11-20" })).await.unwrap();
    assert_eq!(compared[0]["only_theirs"], 2);
    quiet(&compare, &["only-theirs"]);
}

#[tokio::test]
async fn debug_output_shows_no_caller_data() {
    let secrets = Secrets::new();
    let (store, clock) = (MemoryStore::new(), clock());
    let executor = Executor::new(store.clone(), Operation::new(PAY)).world(clock.clone());
    let order = secrets.order(1);
    let content = Content::new("POST", "/payments", order.as_bytes()).json();
    let request = Request {
        key: secrets.record_key("kept"),
        fingerprints: content.fingerprints(PAY, &FingerprintRule::new(), &[]),
        answer_kind: AnswerKind::Http,
        admission: lambda_idempotency::record::Admission::ALWAYS,
        work: lambda_idempotency::record::Work::Now,
        deadline: Some(clock.now()),
        origin: Some(lambda_idempotency::record::Note::new(&secrets.marker)),
    };
    let mut printed = vec![format!("{request:?} {:?}", request.key.tenant())];

    let Ok(owned) = executor.reserve(&request).await else { panic!("not reserved") };
    printed.push(format!("{:?} {owned:?} {:?}", owned.execution(), owned.execution().idempotency_key()));
    let headers = vec![("location".to_owned(), "/payments/1".to_owned())];
    let report = Report::Completed(Answer::http(201, headers, order));
    printed.push(format!("{report:?}"));
    printed.push(format!("{:?}", executor.finish(owned, report).await));
    printed.push(format!("{:?}", store.load(&request.key).await.unwrap()));
    let replay = executor.reserve(&request).await;
    printed.push(format!("{replay:?}"));
    until(|| clock.sleepers() == 0).await;
    for text in printed {
        assert!(!text.contains(&secrets.marker), "{text}");
    }
}
