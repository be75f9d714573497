//! Stray entries: what the provider has that can be in no ledger of ours. Nothing of it is skipped.

use std::collections::BTreeMap;

use lambda_idempotency::time::Timestamp;
use macro_rules_attribute::apply;
use orders::policy::CREATE_ORDER;
use payments::{SealingKeys, policy::CREATE_PAYMENT};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{DAY, Ledgers, job, lines, payment};
use crate::support::{
    embedded,
    http::record_key,
    logs::Logs,
    on_each_store,
    payments_api::{CHARGED_AT, sealing_keys},
};

/// What leads to the record of this operation.
fn sealed(tenant: &str, operation: &str) -> Value {
    json!({ "record": sealing_keys().seal(&record_key(tenant, operation, "order-1")) })
}

fn charge(id: &str, metadata: &Value) -> Value {
    json!({ "id": id, "amountCents": 1999, "currency": "EUR", "tenant": "acme", "metadata": metadata })
}

/// The kind of each difference of a report, by its id.
fn differences(report: &str) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let lines = lines(report).into_iter().filter(|line| line.get("summary").is_none());
    lines.map(|line| (text(&line["id"]), text(&line["difference"]))).collect()
}

#[apply(on_each_store)]
async fn what_no_ledger_can_have_is_a_difference_with_a_name(endpoint: &str) {
    let logs = Logs::capture();
    let ledgers = Ledgers::on(endpoint).await;
    let foreign = SealingKeys::parse(&format!("{}A==", "A".repeat(85))).expect("a key");
    let foreign = foreign.seal(&record_key("acme", CREATE_PAYMENT, "order-1"));
    let mut flipped = sealed("acme", CREATE_PAYMENT)["record"].as_str().unwrap().to_owned();
    flipped.replace_range(..1, if flipped.starts_with('A') { "B" } else { "A" });
    let long = "A".repeat(100_000);
    let cases = [
        ("no_record", Value::Null),
        ("no_record", json!({})),
        ("no_record", json!([])),
        ("no_record", json!("record")),
        ("no_record", json!({ "Record": "acme#create-payment#order-1" })),
        ("unreadable_record", json!({ "record": null })),
        ("unreadable_record", json!({ "record": 7 })),
        ("unreadable_record", json!({ "record": "" })),
        ("unreadable_record", json!({ "record": "acme#create-payment#order-1" })),
        ("unreadable_record", json!({ "record": long })),
        ("unreadable_record", json!({ "record": foreign })),
        ("unreadable_record", json!({ "record": flipped })),
        ("unknown_operation", sealed("acme", "create-subscription")),
        ("unknown_operation", sealed("acme", "transfer")),
        ("unknown_operation", sealed("acme", "Create-Payment")),
        ("other_tenant", sealed("globex", CREATE_PAYMENT)),
        ("other_tenant", sealed("globex", "create-subscription")),
        ("only_theirs", sealed("acme", CREATE_PAYMENT)),
        ("only_theirs", sealed("acme", CREATE_ORDER)),
    ];
    let (run, mut expected) = (Uuid::new_v4().simple(), BTreeMap::new());
    for (number, (name, metadata)) in cases.iter().enumerate() {
        for (kind, list) in [("ch", Ledgers::charged as fn(&Ledgers, Value)), ("re", Ledgers::given_back)] {
            let id = format!("{kind}_{run}_{number}");
            list(&ledgers, charge(&id, metadata));
            expected.insert(id, (*name).to_owned());
        }
    }
    let mut without = charge(&format!("ch_{run}_without"), &Value::Null);
    without.as_object_mut().unwrap().remove("metadata");
    ledgers.charged(without);
    expected.insert(format!("ch_{run}_without"), "no_record".to_owned());

    let compared = ledgers.compare(job(DAY)).await.unwrap();
    assert_eq!(differences(&compared.report), expected);
    assert_eq!((compared.summary.theirs, compared.summary.only_theirs), (39, 39));
    assert_eq!((compared.stray, compared.summary.agrees()), (35, false));
    assert_eq!(lines(&compared.report).last().unwrap()["summary"]["stray"], 35);
    for (id, name) in &expected {
        let logged = logs.lines_with(&format!("\"{id}\""));
        let names = logged.iter().filter(|line| line.level() == "WARN" && line.text.contains(&**name));
        assert_eq!(names.count(), 1, "{id} {name}: {logged:?}");
    }
}

#[apply(on_each_store)]
async fn a_charge_that_our_ledger_has_differs_if_it_is_anothers(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    let mut cases = vec![
        ("", charge("ch_same", &sealed("acme", CREATE_PAYMENT))),
        ("differs", charge("ch_of_another_record", &sealed("globex", CREATE_PAYMENT))),
        ("differs", charge("ch_of_an_order", &sealed("acme", CREATE_ORDER))),
        ("differs", charge("ch_of_nothing_known", &sealed("acme", "create-subscription"))),
        // A key that sealed it may be gone. The ledger knows it all the same.
        ("", charge("ch_unreadable", &json!({ "record": "leads nowhere" }))),
        ("", charge("ch_without", &json!({}))),
    ];
    for (name, member, value) in [
        ("differs", "tenant", json!("globex")),
        ("differs", "tenant", json!("ACME")),
        ("", "tenant", Value::Null),
        ("differs", "currency", json!("USD")),
        // Providers spell it either way.
        ("", "currency", json!("eur")),
        ("differs", "amountCents", json!(1998)),
        ("differs", "amountCents", json!(0)),
        ("differs", "status", json!("failed")),
        ("", "status", json!("refunded")),
    ] {
        let mut charge = charge(&format!("ch_{}", cases.len()), &sealed("acme", CREATE_PAYMENT));
        charge[member] = value;
        cases.push((name, charge));
    }
    let mut expected = BTreeMap::new();
    for (name, charge) in cases {
        let id = charge["id"].as_str().unwrap().to_owned();
        ledgers.only_ours(&id, 1999).await;
        ledgers.charged(charge);
        if !name.is_empty() {
            expected.insert(id, name.to_owned());
        }
    }
    let compared = ledgers.compare(job(DAY)).await.unwrap();
    assert_eq!(differences(&compared.report), expected);
    assert_eq!((compared.stray, compared.summary.equal), (0, 6));
}

#[apply(on_each_store)]
async fn a_second_charge_of_a_record_is_a_difference(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    let metadata = sealed("acme", CREATE_PAYMENT);
    ledgers.only_ours("ch_first", 1999).await;
    for id in ["ch_first", "ch_second"] {
        ledgers.charged(charge(id, &metadata));
    }
    let compared = ledgers.compare(job(DAY)).await.unwrap();
    let mut report = lines(&compared.report);
    assert_eq!((compared.summary.equal, report.len()), (1, 2));
    let second = report.remove(0);
    assert_eq!((&second["id"], &second["difference"]), (&json!("ch_second"), &json!("only_theirs")));
    assert_eq!((&second["theirs"]["tenant"], &second["theirs"]["key"]), (&json!("acme"), &json!("order-1")));
}

#[apply(on_each_store)]
async fn a_charge_in_two_ledgers_of_ours_is_a_difference(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    ledgers.both("ch_1").await;
    ledgers.book(&super::refunds::charged("ch_1"), Timestamp::from_millis(CHARGED_AT)).await;
    let found = ledgers.compare(job(DAY)).await.unwrap().summary;
    assert_eq!((found.ours, found.theirs, found.duplicates), (2, 1, 1));
}

// What is listed twice, because the list grew while it was read, is not taken for equal twice.
#[tokio::test]
async fn a_charge_that_is_listed_twice_is_a_difference() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    ledgers.record(&payment("ch_1", 1999), Timestamp::from_millis(CHARGED_AT)).await;
    for _ in 0..2 {
        ledgers.charged(charge("ch_1", &sealed("acme", CREATE_PAYMENT)));
    }
    let found = ledgers.compare(job(DAY)).await.unwrap().summary;
    assert_eq!((found.equal, found.duplicates, found.agrees()), (1, 1, false));
}

// Half a page is worse than none: an entry that cannot be read fails the comparison, which an alarm reports.
#[tokio::test]
async fn an_entry_that_cannot_be_read_fails_the_comparison() {
    for (member, value) in [
        ("amountCents", json!(-1)),
        ("amountCents", json!("1999")),
        ("id", Value::Null),
        ("currency", Value::Null),
    ] {
        let ledgers = Ledgers::on(embedded::endpoint()).await;
        let mut odd = charge("ch_1", &Value::Null);
        odd[member] = value;
        let shown = odd.to_string();
        ledgers.charged(odd);
        let failed = ledgers.compare(job(DAY)).await.unwrap_err();
        assert_eq!(failed.name(), "ProviderUnavailable", "{shown}");
        assert_eq!(ledgers.files(), [""; 0], "{shown}");
    }
}
