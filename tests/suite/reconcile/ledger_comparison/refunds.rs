//! Charges and refunds of orders, which are compared as those of payments are.

use std::collections::BTreeSet;

use compare::{Comparison, Failure, Reports};
use lambda_idempotency::time::Timestamp;
use ledgers::{Day, Summary};
use macro_rules_attribute::apply;
use orders::{Booking, Shop};
use payments::{Kind, Ledger};
use serde_json::{Value, json};

use super::{DAY, Hasty, Ledgers, job, lines};
use crate::support::{
    client::client,
    embedded, on_each_store,
    orders::{OrdersApi, Placed},
    payments_api::{self, CHARGED_AT},
    tables::ledger_table,
};

/// The last millisecond of the day.
const LAST: Timestamp = Timestamp::from_millis(CHARGED_AT);

/// The first one.
const FIRST: Timestamp = Timestamp::from_millis(CHARGED_AT + 1 - 24 * 60 * 60 * 1000);

/// An order's charge in our ledger.
pub fn charged(id: &str) -> Booking {
    let (id, order_id, currency) = (id.to_owned(), "ord_1".to_owned(), "EUR".to_owned());
    Booking { id, kind: Kind::Charge, order_id, amount_cents: 1999, currency, charge_id: None }
}

/// The refund of an order's charge in our ledger.
fn refunded(id: &str, charge: &str) -> Booking {
    Booking { kind: Kind::Refund, charge_id: Some(charge.to_owned()), ..charged(id) }
}

/// A refund in the provider's ledger.
fn given_back(id: &str, charge: &str, cents: u64) -> Value {
    json!({ "id": id, "chargeId": charge, "amountCents": cents, "currency": "EUR", "tenant": "acme" })
}

/// All days on which this provider did something, compared: the summaries, and the lines of their reports.
async fn compared(endpoint: &str, api: &OrdersApi, provider: &str) -> (Vec<(Summary, u64)>, Vec<Value>) {
    let mut days = BTreeSet::new();
    for kind in ["charges", "refunds"] {
        let listed: Value = reqwest::get(format!("{provider}/{kind}")).await.unwrap().json().await.unwrap();
        let listed = listed[kind].as_array().expect("a list");
        let made_at = listed.iter().map(|entry| entry["createdAt"].as_u64().expect("milliseconds"));
        days.extend(made_at.map(|made_at| Day::of(Timestamp::from_millis(made_at)).to_string()));
    }
    let reports = tempfile::tempdir().expect("a folder");
    let comparison = Comparison {
        ledger: Ledger::new(client(endpoint), ledger_table(endpoint).await),
        shop: api.shop(),
        provider: payments_api::provider(provider),
        sealing_keys: payments_api::sealing_keys(),
        reports: Reports::Folder(reports.path().to_owned()),
        world: Box::new(Hasty),
    };
    let (mut summaries, mut differences) = (Vec::new(), Vec::new());
    for day in days {
        let compared = comparison.run(job(&day)).await.expect("a comparison").remove(0);
        summaries.push((compared.summary, compared.stray));
        differences.extend(lines(compared.report).into_iter().filter(|line| line.get("summary").is_none()));
    }
    (summaries, differences)
}

#[apply(on_each_store)]
async fn orders_that_were_charged_or_given_back_are_in_both_ledgers(endpoint: &str) {
    let provider = local::provider::start("http://127.0.0.1:1", "a-secret").await.expect("a free port").url;
    let api = OrdersApi::before(endpoint, &provider).await;
    for (number, card, quantity, status) in
        [(1, "tok_ok", 60, 201), (2, "tok_ok", 60, 409), (3, "tok_declined", 1, 402)]
    {
        let order = Placed::new(number, card, "tea", quantity);
        assert_eq!(api.order(&order.key, order.body().to_string()).await.status, status);
        // A retry books nothing more.
        assert_eq!(api.order(&order.key, order.body().to_string()).await.status, status);
    }
    let (summaries, differences) = compared(endpoint, &api, &provider).await;
    assert_eq!(summaries.iter().map(|(summary, _)| summary.equal).sum::<u64>(), 3, "two charges, a refund");
    assert!(differences.is_empty(), "{differences:?}");

    // Support gives a charge back by hand.
    let charges: Value = reqwest::get(format!("{provider}/charges")).await.unwrap().json().await.unwrap();
    let by_hand = json!({ "chargeId": charges["charges"][0]["id"] });
    let client = reqwest::Client::new();
    let refund =
        client.post(format!("{provider}/refunds")).header("idempotency-key", "by-hand").json(&by_hand);
    assert_eq!(refund.send().await.unwrap().status(), 201);
    let (summaries, differences) = compared(endpoint, &api, &provider).await;
    assert_eq!(summaries.iter().map(|(_, stray)| stray).sum::<u64>(), 1);
    let [difference] = &differences[..] else { panic!("{differences:?}") };
    assert_eq!(difference["difference"], "no_record");
    let theirs = &difference["theirs"];
    assert_eq!((&theirs["kind"], &theirs["charge"]), (&json!("refund"), &by_hand["chargeId"]));
}

// Published comparisons count a refund and not its charge, or only whole refunds.
#[apply(on_each_store)]
async fn a_charge_and_its_refund_are_each_compared(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    for id in ["same", "part", "moved", "lost", "stray"] {
        let charge = format!("ch_{id}");
        ledgers.book(&charged(&charge), FIRST).await;
        ledgers.charged(json!({
            "id": charge, "amountCents": 1999, "currency": "EUR", "tenant": "acme", "status": "refunded",
        }));
        if id != "stray" {
            ledgers.book(&refunded(&format!("re_{id}"), &charge), LAST).await;
        }
    }
    for (id, charge, cents) in [
        ("re_same", "ch_same", 1999),
        ("re_part", "ch_part", 1000),
        ("re_moved", "ch_same", 1999),
        ("re_stray", "ch_stray", 1999),
    ] {
        ledgers.given_back(given_back(id, charge, cents));
    }
    let compared = ledgers.compare(job(DAY)).await.unwrap();
    let found = compared.summary;
    assert_eq!((found.ours, found.theirs, found.equal), (9, 9, 6));
    assert_eq!((found.only_ours, found.only_theirs, found.differs), (1, 1, 2));
    assert_eq!(compared.stray, 1, "the stray one names no record");
}

// Of both sides by the provider's clock. The next day's are not among them.
#[apply(on_each_store)]
async fn a_day_has_its_first_and_its_last_millisecond(endpoint: &str) {
    let ledgers = Ledgers::on(endpoint).await;
    let millis = |millis| Timestamp::from_millis(millis);
    for (id, at) in [
        ("re_before", millis(FIRST.as_millis() - 1)),
        ("re_first", FIRST),
        ("re_last", LAST),
        ("re_after", millis(LAST.as_millis() + 1)),
    ] {
        ledgers.book(&refunded(id, "ch_1"), at).await;
    }
    for id in ["re_first", "re_last"] {
        ledgers.given_back(given_back(id, "ch_1", 1999));
    }
    let found = ledgers.compare(job(DAY)).await.unwrap().summary;
    assert_eq!((found.equal, found.agrees()), (2, true));
}

#[tokio::test]
async fn refunds_are_read_past_their_first_page() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    for number in 0..5 {
        let id = format!("re_{number}");
        ledgers.book(&refunded(&id, "ch_1"), LAST).await;
        ledgers.given_back(given_back(&id, "ch_1", 1999));
    }
    let found = ledgers.compare(job(DAY)).await.unwrap().summary;
    assert_eq!((found.equal, found.agrees()), (5, true));
}

// An id is the provider's for one thing.
#[tokio::test]
async fn a_refund_is_not_taken_for_the_charge_with_its_id() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    ledgers.book(&charged("same"), LAST).await;
    ledgers.given_back(given_back("same", "ch_1", 1999));
    let found = ledgers.compare(job(DAY)).await.unwrap().summary;
    assert_eq!((found.equal, found.differs), (0, 1));
}

#[tokio::test]
async fn without_orders_or_refunds_there_is_no_report() {
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    ledgers.both("ch_1").await;
    let shop = Shop::new(client(embedded::endpoint()), "no-such-table");
    let ledgers = Ledgers { shop, ..ledgers };
    let failed = ledgers.compare(job(DAY)).await.unwrap_err();
    assert!(matches!(failed, Failure::Ledger(_)), "{failed:?}");

    let ledgers = Ledgers::on(embedded::endpoint()).await;
    ledgers.both("ch_1").await;
    ledgers.theirs.hide_refunds();
    let failed = ledgers.compare(job(DAY)).await.unwrap_err();
    assert!(matches!(failed, Failure::Provider(_)), "{failed:?}");
    assert_eq!(ledgers.files(), [""; 0]);
}
