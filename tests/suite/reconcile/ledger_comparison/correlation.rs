//! The correlation from the provider's charge to its payment.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{
    record::{Answer, Says},
    time::Timestamp,
};
use macro_rules_attribute::apply;
use payments::{Found, Ledger, Payment, policy::CREATE_PAYMENT};

use super::{DAY, payment, provider::Provider, recorded};
use crate::support::{
    client::client,
    embedded,
    guarded::{Guarded, written},
    http::record_key,
    on_each_store,
    payments_api::{self, CHARGED_AT, PaymentsApi, order},
    tables::ledger_table,
};

// T2
#[apply(on_each_store)]
async fn a_payment_is_written_down_once_under_the_day_of_its_charge(endpoint: &str) {
    let (client, table) = (client(endpoint), ledger_table(endpoint).await);
    let ledger = Ledger::new(client.clone(), &table);
    let (first, charged_at) = (payment("ch_1", 1999), Timestamp::from_millis(CHARGED_AT));
    let guarded = Guarded::on(endpoint).await;
    for _ in 0..2 {
        // The second time it exists already, and is the same.
        written(recorded(&guarded, &ledger, &first, charged_at).await);
    }
    // Another charge under its id is not a real payment. An operator has to look.
    let other = Payment { charge_id: "ch_2".to_owned(), ..first.clone() };
    let ended = recorded(&guarded, &ledger, &other, charged_at).await;
    assert!(matches!(ended, Says::Unknown { .. }), "{ended:?}");

    let items = client.scan().table_name(&table).send().await.unwrap().items.unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["day"], AttributeValue::S(DAY.to_owned()));
    assert_eq!(items[0]["charged_at"], AttributeValue::N(CHARGED_AT.to_string()));
    let page = ledger.of_day(DAY.parse().unwrap(), None).await.unwrap();
    assert_eq!((page.rows, page.next.is_none()), (vec![("acme".to_owned(), first)], true));
}

#[tokio::test]
async fn a_charge_that_is_found_later_leads_to_the_same_answer() {
    let endpoint = embedded::endpoint();
    let provider = Provider::start().await;
    let api = PaymentsApi::with_ledger(endpoint, &provider.url, &ledger_table(endpoint).await).await;
    let paid = api.pay("acme", "order-1", order("tok")).await;
    let refused = api.pay("acme", "order-2", order("declined")).await;
    let [(first, metadata), (second, _)] = &provider.orders()[..] else { panic!("two orders") };

    let correlation = metadata["record"].as_str().expect("a correlation");
    let record = payments_api::sealing_keys().open(correlation);
    assert_eq!(record, Some(record_key("acme", CREATE_PAYMENT, "order-1")));

    let client = payments_api::provider(&provider.url);
    let Some(Found::Charged(charge)) = client.find(first).await.unwrap() else { panic!("charged") };
    assert_eq!(charge.created_at, Timestamp::from_millis(CHARGED_AT));
    let id = paid.json()["id"].as_str().and_then(|id| Some(id.strip_prefix("pay_")?.to_owned())).unwrap();
    let Answer { head, body } = payments::created(&Payment::of(&charge, &id).unwrap());
    assert_eq!((head.status(), &body), (Some(paid.status), &paid.body));
    for (name, value) in head.headers() {
        assert_eq!(paid.header(name), Some(&**value), "{name}");
    }

    assert_eq!(client.find(second).await.unwrap(), Some(Found::Declined));
    let Answer { head, body } = payments::declined();
    assert_eq!((head.status(), &body), (Some(refused.status), &refused.body));
    assert_eq!(head.headers(), [("content-type".to_owned(), "application/problem+json".to_owned())]);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn only_an_explicit_answer_means_that_no_charge_exists() {
    let provider = Provider::start().await;
    let client = payments_api::provider(&provider.url);
    assert_eq!(client.find("never-seen").await.unwrap(), None);
    // Other answers do not count: a proxy's 404, a failure, another document.
    for key in ["answer-404", "answer-410", "answer-500", "answer-200", "answer-302"] {
        let failed = client.find(key).await.expect_err(key);
        assert!(
            !format!("{failed} {failed:?}").contains("CHECKPOINT"),
            "{failed:?} repeats the provider's answer"
        );
    }
    payments_api::provider("http://127.0.0.1:1").find("never-seen").await.expect_err("no provider listens");
}
