//! What becomes of an order, and what its client gets.

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    books::Books,
    local_cloud::LocalCloud,
    on_each_store,
    orders::{Placed, assert_once},
};

async fn cloud(endpoint: &str, books: &Books) -> LocalCloud {
    LocalCloud::on(endpoint, &[("TABLE_PREFIX", books.prefix())]).await
}

#[apply(on_each_store)]
async fn an_order_is_charged_and_taken_from_the_stock_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let order = Placed::new(1, "tok_ok", "tea", 3);
    let first = order.send(&cloud).await;
    assert_eq!((first.status, first.replayed), (201, false), "{first:?}");
    let body: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!(
        (&body["status"], &body["sku"], &body["quantity"]),
        (&json!("confirmed"), &json!("tea"), &json!(3))
    );
    assert!(!String::from_utf8_lossy(&first.body).contains("tok_"), "the card is not shown");
    let again = order.send(&cloud).await;
    assert_eq!((again.replayed, &again.body, &again.location), (true, &first.body, &first.location));
    assert_once(&cloud, &books, &[(order, first.clone())]).await;
    let location = first.location.expect("a location");
    for (tenant, status) in [("acme", 200), ("globex", 404)] {
        let shown = cloud.get(&location).bearer_auth(tenant).send().await.expect("an answer");
        assert_eq!(shown.status(), status);
        if status == 200 {
            assert_eq!(shown.json::<Value>().await.expect("JSON"), body);
        }
    }
    assert_eq!((cloud.available("tea").await, cloud.available("coffee").await), (97, 100));
}

#[apply(on_each_store)]
async fn a_declined_card_is_a_kept_answer_and_takes_no_stock(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let order = Placed::new(1, "tok_declined", "tea", 3);
    let first = order.send(&cloud).await;
    assert_eq!(first.problem(), (402, "card-declined"));
    let again = order.send(&cloud).await;
    assert_eq!((again.replayed, &again.body), (true, &first.body));
    assert_once(&cloud, &books, &[(order, first)]).await;
    assert_eq!(cloud.available("tea").await, 100);
}

#[apply(on_each_store)]
async fn an_order_that_is_sold_out_gets_its_money_back_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let (whole, more) = (Placed::new(1, "tok_ok", "tea", 100), Placed::new(2, "tok_ok", "tea", 1));
    let confirmed = whole.send(&cloud).await;
    let refused = more.send(&cloud).await;
    assert_eq!((confirmed.status, refused.problem()), (201, (409, "sold-out")));
    let again = more.send(&cloud).await;
    assert_eq!((again.replayed, &again.body), (true, &refused.body));
    assert_once(&cloud, &books, &[(whole, confirmed), (more, refused)]).await;
}

// The handler fails, or the provider's answer is lost.
#[apply(on_each_store)]
async fn an_order_that_fails_midway_is_completed_by_a_retry(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let mut answered = Vec::new();
    let cards =
        ["tok_error", "tok_panic_before", "tok_panic_after", "tok_panic_phase_2", "tok_timeout_charged"];
    for (number, card) in cards.into_iter().enumerate() {
        let order = Placed::new(number, card, "tea", 1);
        let failed = order.send(&cloud).await;
        assert!(failed.status >= 500, "{card}: {failed:?}");
        // At once: no lease has to expire.
        let answer = order.send(&cloud).await;
        assert_eq!(answer.status, 201, "{card}: {answer:?}");
        answered.push((order, answer));
    }
    assert_once(&cloud, &books, &answered).await;
}

#[apply(on_each_store)]
async fn an_order_whose_provider_is_away_stays_open_and_uncharged(endpoint: &str) {
    let cloud = cloud(endpoint, &Books::on(endpoint)).await;
    for (number, card) in ["tok_refused", "tok_timeout_not_charged"].into_iter().enumerate() {
        for _ in 0..2 {
            let failed = Placed::new(number, card, "tea", 1).send(&cloud).await;
            assert_eq!(failed.problem(), (503, "interrupted"), "{card}");
        }
    }
    assert!(cloud.charges().await.is_empty());
    assert_eq!(cloud.available("tea").await, 100);
}
