//! The process aborts at a chosen point: the retry goes on behind what is kept.

use futures_util::future::join_all;
use macro_rules_attribute::apply;
use serde_json::Value;

use crate::support::{
    books::Books,
    on_each_store,
    orders::{Placed, assert_once},
};

/// Where the process aborts, and how often the provider gets the charge, and the refund if there is no stock. What it got before is
/// sent again, unless it is kept.
const POINTS: [(&str, usize, usize); 7] = [
    ("before", 1, 1),
    ("after", 2, 1),
    ("phase_1", 1, 1),
    ("phase_2", 1, 1),
    ("phase_3", 1, 1),
    ("refund", 1, 2),
    ("phase_4", 1, 1),
];

const TIMEOUT: [(&str, &str); 1] = [("FUNCTION_TIMEOUT_MS", "10000")];

#[apply(on_each_store)]
async fn a_process_that_dies_after_any_phase_does_everything_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, provider) = books.cloud(endpoint, &TIMEOUT).await;
    // With stock, and without.
    let whole = Placed::new(0, "tok_ok", "cup", 100);
    let mut answered = vec![(whole.clone(), whole.answer(&cloud).await)];
    let orders = POINTS.iter().enumerate().flat_map(|(number, (point, ..))| {
        ["tea", "cup"]
            .map(|sku| Placed::new(10 + 10 * number + sku.len(), &format!("tok_crash_{point}"), sku, 1))
    });
    let mut orders: Vec<_> = orders.collect();
    orders.iter_mut().filter(|order| order.sku == "cup").for_each(|order| {
        order.key += "-sold-out";
        order.cents += 1;
    });
    let answers = join_all(orders.iter().map(async |order| {
        let first = order.send(&cloud).await;
        // A confirmed order has three phases, and no refund.
        let dies = order.sku == "cup" || !["tok_crash_refund", "tok_crash_phase_4"].contains(&&*order.card);
        assert_eq!(first.status, if dies { 502 } else { 201 }, "{order:?}: {first:?}");
        order.answer(&cloud).await
    }))
    .await;
    answered.extend(orders.iter().cloned().zip(answers));
    assert_once(&cloud, &books, &answered).await;

    let sent = |path: &str| -> Vec<Value> {
        let bodies = provider.arrived(path);
        bodies.iter().map(|body| serde_json::from_slice(body).expect("JSON")).collect()
    };
    let charges = sent("POST /charges ");
    for order in &orders {
        let expected = POINTS.iter().find(|(point, ..)| order.card.ends_with(point)).expect("a point").1;
        let times = charges.iter().filter(|sent| sent["amountCents"] == order.cents).count();
        assert_eq!(times, expected, "{order:?}");
    }
    assert_eq!(sent("POST /refunds ").len(), POINTS.iter().map(|(.., refunds)| refunds).sum::<usize>());
    // While the provider remembers keys, nobody is asked.
    assert_eq!(provider.arrived("GET ").len(), 0);
}

// The client does not retry: the provider's report is all that is known of the charge.
#[apply(on_each_store)]
async fn a_webhook_keeps_the_charge_that_its_worker_did_not_see(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, provider) = books.cloud(endpoint, &TIMEOUT).await;
    let order = Placed::new(1, "tok_crash_after", "tea", 1);
    assert_eq!(order.send(&cloud).await.status, 502);
    let delivered = cloud.post("/provider/deliver").send().await.expect("the front answers");
    assert_eq!(
        delivered.json::<Value>().await.expect("JSON"),
        serde_json::json!({ "delivered": 1, "held": 0 })
    );
    let answer = order.answer(&cloud).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_once(&cloud, &books, &[(order, answer)]).await;
    assert_eq!(provider.arrived("POST /charges ").len(), 1, "the report's result is used, without a call");
}

// A refunded order's charge is no contradiction, although its client got a refusal.
#[apply(on_each_store)]
async fn webhooks_of_finished_orders_change_nothing(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &TIMEOUT).await;
    let mut answered = Vec::new();
    for (number, (card, quantity)) in
        [("tok_ok", 100), ("tok_ok", 1), ("tok_declined", 1)].into_iter().enumerate()
    {
        let order = Placed::new(number, card, "tea", quantity);
        let answer = order.answer(&cloud).await;
        answered.push((order, answer));
    }
    let delivered = cloud.post("/provider/deliver").send().await.expect("the front answers");
    // Two charges, a refusal and a refund.
    assert_eq!(
        delivered.json::<Value>().await.expect("JSON"),
        serde_json::json!({ "delivered": 4, "held": 0 })
    );
    assert!(!cloud.printed().contains("escalated"), "a webhook contradicts its record");
    assert_once(&cloud, &books, &answered).await;
}
