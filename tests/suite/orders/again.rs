//! An order that is placed again after its record has expired.

use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{
    on_each_store,
    orders::{OrdersApi, Placed},
    proxy::Proxy,
};

// T12, T43: its provider may have forgotten the key too, and would charge a second time.
#[apply(on_each_store)]
async fn an_order_that_exists_is_not_charged_again(endpoint: &str) {
    let ledger = local::provider::start("http://127.0.0.1:1", "a-secret-of-the-provider").await;
    let provider = Proxy::before(&ledger.expect("a free port").url).await;
    let api = OrdersApi::before(endpoint, provider.url()).await;
    let order = Placed::new(1, "tok_ok", "tea", 1);
    let place = async || api.order(&order.key, order.body().to_string()).await;
    let placed = place().await;
    assert_eq!(placed.status, 201, "{placed:?}");
    api.expire(&order.key).await;
    let again = place().await;
    assert_eq!((again.status, &again.json()["type"]), (409, &json!("urn:orders:exists")), "{again:?}");
    assert_eq!(provider.arrived("POST /charges ").len(), 1);
    let id = placed.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(api.get("acme", &format!("/orders/{id}")).await.json(), placed.json(), "it is as it was");
}
