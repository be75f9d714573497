//! Comparison of our ledger with the provider's.

mod correlation;
mod places;
pub mod provider;
mod refunds;
mod strays;

use std::{fs, path::Path, time::Duration};

use compare::{Compared, Comparison, Failure, Reports};
use futures_util::future::BoxFuture;
use lambda_idempotency::{
    domain::DomainWrite,
    engine::Replay,
    record::Says,
    time::Timestamp,
    world::{SystemWorld, World},
};
use macro_rules_attribute::apply;
use orders::{Booking, Shop};
use payments::{Ledger, Payment, policy::CREATE_PAYMENT};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use uuid::Uuid;

use crate::support::{
    client::client,
    embedded,
    guarded::{Guarded, completed, owned, request, written},
    http,
    logs::Logs,
    on_each_store,
    payments_api::{self, CHARGED_AT},
    tables::ledger_table,
};
use provider::Provider;

const DAY: &str = "2026-11-20";

/// Only a comparison that never ends takes this long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A world on the next day, in which every wait ends at once.
#[derive(Debug)]
struct Hasty;

impl World for Hasty {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(CHARGED_AT + 1)
    }

    fn running(&self) -> Duration {
        SystemWorld.running()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn nonce(&self) -> [u8; 16] {
        SystemWorld.nonce()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        SystemWorld.spawn(task);
    }
}

/// Both ledgers, and a folder for reports.
struct Ledgers {
    ours: Ledger,
    shop: Shop,
    guarded: Guarded,
    theirs: Provider,
    reports: TempDir,
}

impl Ledgers {
    async fn on(endpoint: &str) -> Self {
        let ours = Ledger::new(client(endpoint), ledger_table(endpoint).await);
        let shop = Shop::new(client(endpoint), &ledger_table(endpoint).await);
        let guarded = Guarded::on(endpoint).await;
        Self {
            ours,
            shop,
            guarded,
            theirs: Provider::start().await,
            reports: tempfile::tempdir().expect("a folder"),
        }
    }

    async fn compare(&self, input: Value) -> Result<Compared, Failure> {
        self.compare_into(Reports::Folder(self.reports.path().to_owned()), input).await
    }

    async fn compare_into(&self, reports: Reports, input: Value) -> Result<Compared, Failure> {
        self.compare_days(reports, input).await.map(|mut compared| compared.remove(0))
    }

    async fn compare_days(&self, reports: Reports, input: Value) -> Result<Vec<Compared>, Failure> {
        let comparison = Comparison {
            ledger: self.ours.clone(),
            shop: self.shop.clone(),
            provider: payments_api::provider(&self.theirs.url),
            sealing_keys: payments_api::sealing_keys(),
            reports,
            world: Box::new(Hasty),
        };
        timeout(TIMEOUT, comparison.run(input)).await.expect("a comparison comes to its end")
    }

    /// A charge in the provider's ledger.
    fn charged(&self, charge: Value) {
        self.theirs.list(charge);
    }

    /// A refund in the provider's ledger.
    fn given_back(&self, refund: Value) {
        self.theirs.give_back(refund);
    }

    /// A charge that is the same in both ledgers.
    async fn both(&self, id: &str) {
        self.only_ours(id, 1999).await;
        self.theirs.list(json!({ "id": id, "amountCents": 1999, "currency": "EUR" }));
    }

    async fn only_ours(&self, id: &str, cents: u64) {
        self.record(&payment(id, cents), Timestamp::from_millis(CHARGED_AT)).await;
    }

    async fn record(&self, payment: &Payment, charged_at: Timestamp) {
        written(recorded(&self.guarded, &self.ours, payment, charged_at).await);
    }

    /// A charge or a refund of an order.
    async fn book(&self, booking: &Booking, made_at: Timestamp) {
        written(committed(&self.guarded, self.shop.booking("acme", booking, made_at)).await);
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.reports.path()).expect("the folder can be read");
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn payment(charge: &str, cents: u64) -> Payment {
    Payment {
        id: format!("pay_{}", Uuid::new_v4()),
        charge_id: charge.to_owned(),
        customer_id: "c-1".to_owned(),
        amount_cents: cents,
        currency: "EUR".to_owned(),
    }
}

fn lines(report: impl AsRef<Path>) -> Vec<Value> {
    let report = fs::read_to_string(report).expect("there is a report");
    assert!(report.ends_with('\n'), "the last line is whole");
    report.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn job(day: &str) -> Value {
    json!({ "job": "compare", "day": day })
}

#[apply(on_each_store)]
async fn identical_ledgers_agree(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    for id in ["ch_1", "ch_2", "ch_3", "ch_4", "ch_5"] {
        ledgers.both(id).await;
    }
    // On the next day, so not part of this comparison.
    let later = Timestamp::from_millis(CHARGED_AT + 1);
    ledgers.record(&payment("ch_6", 1), later).await;

    let compared = ledgers.compare(json!({ "job": "compare" })).await.unwrap();
    assert_eq!((&*compared.day, compared.summary.equal, compared.summary.agrees()), (DAY, 5, true));
    let all = json!({
        "day": DAY, "ours": 5, "theirs": 5,
        "equal": 5, "only_ours": 0, "only_theirs": 0, "differs": 0, "duplicates": 0,
        "stray": 0,
    });
    assert_eq!(lines(&compared.report), [json!({ "summary": all })]);
    let mut files = ledgers.files();
    files.sort();
    assert_eq!(files, ["2026-11-19.jsonl", "2026-11-20.jsonl"], "the day before once more, and no draft");
    assert_eq!(ledgers.theirs.pages_of(DAY), 3, "two charges a page");

    let empty = ledgers.compare(job("2026-11-19")).await.unwrap();
    assert_eq!((empty.summary.ours, empty.summary.theirs), (0, 0));
    assert_eq!(ledgers.compare(job("2026-11-21")).await.unwrap().summary.only_ours, 1);
}

// Each refund would raise the alarm about two ledgers that differ.
#[apply(on_each_store)]
async fn a_charge_that_was_given_back_is_no_difference(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    for (id, status) in [("ch_whole", "refunded"), ("ch_part", "partially_refunded")] {
        ledgers.only_ours(id, 1999).await;
        ledgers.theirs.list(json!({ "id": id, "amountCents": 1999, "currency": "EUR", "status": status }));
    }
    let found = ledgers.compare(job(DAY)).await.unwrap().summary;
    assert_eq!((found.equal, found.agrees()), (2, true));
}

#[apply(on_each_store)]
async fn every_difference_is_in_the_report_the_log_and_the_answer(endpoint: &str) {
    let logs = Logs::capture();
    let unique = |name: &str| format!("ch_{name}_{}", Uuid::new_v4().simple());
    let ids = ["ours", "theirs", "amount", "state", "twice"].map(unique);
    let [ours, theirs, amount, state, twice] = ids.each_ref().map(String::as_str);
    let ledgers = Ledgers::on(endpoint).await;
    ledgers.both("ch_1").await;
    ledgers.only_ours(ours, 9_007_199_254_740_993).await;
    let record = http::record_key("acme", CREATE_PAYMENT, &format!("order-{}", Uuid::new_v4()));
    let metadata = json!({ "record": payments_api::sealing_keys().seal(&record) });
    ledgers.theirs.list(json!({ "id": theirs, "amountCents": 2, "currency": "EUR", "metadata": metadata }));
    ledgers.only_ours(amount, 9_007_199_254_740_993).await;
    ledgers.theirs.list(json!({ "id": amount, "amountCents": 9_007_199_254_740_992_u64, "currency": "EUR" }));
    ledgers.only_ours(state, 4).await;
    let nowhere = json!({ "record": "leads nowhere" });
    ledgers.theirs.list(json!({
        "id": state, "amountCents": 4, "currency": "EUR", "status": "disputed", "metadata": nowhere,
    }));
    ledgers.both(twice).await;
    ledgers.only_ours(twice, 1999).await;

    let compared = ledgers.compare(job(DAY)).await.unwrap();
    let found = compared.summary;
    assert_eq!((found.ours, found.theirs, found.equal), (6, 5, 2));
    assert_eq!((found.only_ours, found.only_theirs, found.differs, found.duplicates), (1, 1, 2, 1));

    let mut report = lines(&compared.report);
    assert_eq!(report.pop().unwrap()["summary"]["only_theirs"], 1, "the summary is the last line");
    // The id of our payment, which is new each time.
    for entry in report.iter_mut().flat_map(|line| {
        let ours = line["side"] == "ours";
        line.as_object_mut()
            .unwrap()
            .iter_mut()
            .filter_map(move |(name, entry)| (name == "ours" || ours && name == "value").then_some(entry))
    }) {
        let entry = entry.as_object_mut().unwrap();
        assert_eq!(entry.remove("tenant"), Some(json!("acme")));
        assert_eq!(entry.remove("operation"), Some(json!(CREATE_PAYMENT)));
        let payment = entry.remove("payment").unwrap();
        assert!(payment.as_str().unwrap().starts_with("pay_"), "{payment}");
    }
    let charged = |cents: u64, state: &str| json!({ "kind": "charge", "amountCents": cents, "currency": "EUR", "state": state });
    let stray = |why: &str, cents: u64, state: &str| {
        let mut charged = charged(cents, state);
        charged["stray"] = why.into();
        charged
    };
    let mut named = charged(2, "succeeded");
    named["tenant"] = json!("acme");
    named["operation"] = json!(CREATE_PAYMENT);
    named["key"] = json!(record.idempotency_key().as_str());
    named["record"] = json!(record.hash().to_string());
    let expected = [
        json!({ "difference": "only_ours", "id": ours, "ours": charged(9_007_199_254_740_993, "succeeded") }),
        json!({ "difference": "only_theirs", "id": theirs, "theirs": named }),
        json!({
            "difference": "differs", "id": amount,
            "ours": charged(9_007_199_254_740_993, "succeeded"),
            "theirs": stray("no_record", 9_007_199_254_740_992, "succeeded"),
        }),
        json!({
            "difference": "differs", "id": state,
            "ours": charged(4, "succeeded"), "theirs": stray("unreadable_record", 4, "disputed"),
        }),
        json!({ "difference": "duplicate", "id": twice, "side": "ours", "value": charged(1999, "succeeded") }),
    ];
    assert_eq!(report.len(), expected.len(), "{report:?}");
    for line in expected {
        assert!(report.contains(&line), "{line} is not in {report:?}");
    }
    for id in &ids {
        let logged = logs.lines_with(id);
        let rows =
            logged.iter().filter(|line| line.target().starts_with("compare") && line.level() == "WARN");
        assert_eq!(rows.count(), 1, "{id}");
    }
    // The log identifies the record by its hash, so that an operator finds the other log lines about it.
    assert!(logs.lines_with(theirs).iter().any(|line| line.text.contains(&record.hash().to_string())));
    let key = logs.lines_with(record.idempotency_key().as_str());
    assert!(key.iter().all(|line| !line.target().starts_with("compare")), "{key:?}");
}

// A charge that is settled in the afternoon is in only one ledger at two o'clock the night before. It is in both the night after.
#[apply(on_each_store)]
async fn a_day_is_compared_again_when_its_questions_are_over(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    let before = Timestamp::from_millis(CHARGED_AT - 24 * 60 * 60 * 1000);
    ledgers.record(&payment("ch_before", 1), before).await;
    ledgers.both("ch_1").await;
    let reports = || Reports::Folder(ledgers.reports.path().to_owned());
    let compared = ledgers.compare_days(reports(), json!({ "job": "compare" })).await.unwrap();
    let found: Vec<_> =
        compared.iter().map(|day| (&*day.day, day.summary.equal, day.summary.only_ours)).collect();
    assert_eq!(found, [(DAY, 1, 0), ("2026-11-19", 0, 1)]);

    // A day that cannot be compared does not stop the other one.
    fs::remove_file(&compared[1].report).unwrap();
    ledgers.theirs.fail_at(1, 5);
    let failed = ledgers.compare_days(reports(), json!({ "job": "compare" })).await.unwrap_err();
    assert!(matches!(failed, Failure::Provider(_)), "{failed:?}");
    assert!(Path::new(&compared[1].report).exists());
}

#[apply(on_each_store)]
async fn our_ledger_is_read_past_its_first_page(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    // A page of DynamoDB holds 1 MB.
    for number in 0..15 {
        let mut large = payment(&format!("ch_{number}"), 1);
        large.customer_id = "c".repeat(100_000);
        ledgers.record(&large, Timestamp::from_millis(CHARGED_AT)).await;
    }
    let first = ledgers.ours.of_day(DAY.parse().unwrap(), None).await.unwrap();
    assert!(first.rows.len() < 15 && first.next.is_some(), "the test has more than a page");
    assert_eq!(ledgers.compare(job(DAY)).await.unwrap().summary.only_ours, 15);
}

#[tokio::test]
async fn a_page_that_fails_once_is_asked_for_again() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    for id in ["ch_1", "ch_2", "ch_3"] {
        ledgers.both(id).await;
    }
    for page in [1, 2] {
        ledgers.theirs.fail_at(page, 1);
        let summary = ledgers.compare(job(DAY)).await.unwrap().summary;
        assert_eq!((summary.equal, summary.agrees()), (3, true), "page {page}");
    }
}

#[tokio::test]
async fn a_side_that_keeps_failing_leaves_the_earlier_report_untouched() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    for id in ["ch_1", "ch_2", "ch_3"] {
        ledgers.both(id).await;
    }
    ledgers.theirs.fail_at(2, usize::MAX);
    let failed = ledgers.compare(job(DAY)).await.unwrap_err();
    assert!(matches!(failed, Failure::Provider(_)), "{failed:?}");
    assert_eq!(ledgers.files(), [""; 0], "no report, and no draft");

    ledgers.theirs.fail_at(2, 0);
    let report = ledgers.compare(job(DAY)).await.unwrap().report;
    let before = fs::read(&report).unwrap();
    ledgers.theirs.list(json!({ "id": "ch_4", "amountCents": 1, "currency": "EUR" }));
    ledgers.theirs.fail_at(3, usize::MAX);
    ledgers.theirs.list(json!({ "id": "ch_5", "amountCents": 1, "currency": "EUR" }));
    ledgers.compare(job(DAY)).await.unwrap_err();
    assert_eq!(fs::read(&report).unwrap(), before);
    assert_eq!(ledgers.files(), ["2026-11-20.jsonl"]);

    let nowhere = Ledgers { ours: Ledger::new(client(embedded::endpoint()), "no-such-table"), ..ledgers };
    nowhere.theirs.fail_at(3, 0);
    let failed = nowhere.compare(job(DAY)).await.unwrap_err();
    assert!(matches!(failed, Failure::Ledger(_)), "{failed:?}");
    assert_eq!(fs::read(&report).unwrap(), before);
}

#[tokio::test]
async fn pages_that_lead_back_to_themselves_are_an_error() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    for id in ["ch_1", "ch_2", "ch_3", "ch_4", "ch_5", "ch_6", "ch_7"] {
        ledgers.both(id).await;
    }
    for pages in [1, 2, 3] {
        ledgers.theirs.repeat_for_ever(pages);
        let failed = ledgers.compare(job(DAY)).await.unwrap_err();
        assert!(matches!(failed, Failure::Endless), "{pages}: {failed:?}");
    }
    assert_eq!(ledgers.files(), [""; 0]);
}

#[tokio::test]
async fn an_invalid_input_is_named_in_its_error() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    let named = [
        (job("2026-11-31"), "MalformedDay"),
        (job("yesterday"), "MalformedDay"),
        (job(""), "MalformedDay"),
        (json!({ "job": "compare", "day": 20 }), "MalformedInput"),
        (json!({ "job": "sweep" }), "MalformedInput"),
        (json!({}), "MalformedInput"),
        (json!(null), "MalformedInput"),
    ];
    for (input, name) in named {
        let failed = ledgers.compare(input.clone()).await.unwrap_err();
        assert_eq!(failed.name(), name, "{input}");
        assert_eq!(lambda_http::lambda_runtime::Diagnostic::from(failed).error_type, name);
    }
    assert_eq!(ledgers.files(), [""; 0]);
}

/// Completes an operation that records this payment.
pub async fn recorded(
    guarded: &Guarded,
    ledger: &Ledger,
    payment: &Payment,
    charged_at: Timestamp,
) -> Says<Replay> {
    committed(guarded, ledger.recording("acme", payment, charged_at)).await
}

/// Completes an operation that writes this row.
async fn committed(guarded: &Guarded, row: DomainWrite) -> Says<Replay> {
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    ours.execution().write(row).expect("a write");
    executor.finish(ours, completed("paid")).await
}
