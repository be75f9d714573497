//! Orders in the local cloud: what is confirmed is published, delivered and shipped, by the functions as they are deployed.

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    books::Books,
    events::Shipment,
    on_each_store,
    orders::{Placed, assert_once},
};

/// A message whose deliverer has died comes back a second after this.
const TIMEOUT: [(&str, &str); 1] = [("FUNCTION_TIMEOUT_MS", "6000")];

/// The id in an order's answer.
fn order_id(body: &[u8]) -> String {
    let order: Value = serde_json::from_slice(body).expect("JSON");
    order["id"].as_str().expect("an id").to_owned()
}

#[apply(on_each_store)]
async fn a_confirmed_order_is_delivered_and_shipped_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &[]).await;
    let order = Placed::new(1, "tok_ok", "tea", 3);
    let answer = order.answer(&cloud).await;
    assert!(order.send(&cloud).await.replayed);
    let id = order_id(&answer.body);
    let shipment = |id: &str, sku: &str, quantity| Shipment {
        order_id: id.to_owned(),
        tenant: "acme".to_owned(),
        sku: sku.to_owned(),
        quantity,
        times: 1,
    };
    assert_eq!(cloud.shipped(1).await, [shipment(&id, "tea", 3)]);
    assert!(cloud.all_delivered(&books).await.is_empty());
    let delivered = cloud.delivered().await;
    let [message] = &*delivered else { panic!("{delivered:?}") };
    assert_eq!(
        (&*message.operation, &*message.key, message.sequence, &*message.topic),
        ("create-order", &*order.key, 0, "order.placed")
    );
    let body = json!({ "orderId": id, "customerId": "c-1", "sku": "tea", "quantity": 3 });
    assert_eq!(message.body, body, "and nothing else, such as the card");
    // The order's row is another one than its shipment's.
    assert_once(&cloud, &books, &[(order, answer)]).await;

    let next = Placed::new(2, "tok_ok", "cup", 1);
    let next_id = order_id(&next.answer(&cloud).await.body);
    let mut expected = [shipment(&id, "tea", 3), shipment(&next_id, "cup", 1)];
    expected.sort_by(|one, other| one.order_id.cmp(&other.order_id));
    assert_eq!(cloud.shipped(2).await, expected);
    cloud.all_delivered(&books).await;
    let ids: Vec<_> = cloud.delivered().await.into_iter().map(|message| message.id).collect();
    assert!(ids.len() == 2 && ids[0] == message.id && ids[1] != message.id, "{ids:?}");
}

#[apply(on_each_store)]
async fn an_order_that_is_refused_publishes_nothing(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &[]).await;
    let orders = [("tok_declined", 1), ("tok_ok", 100), ("tok_ok", 1)];
    let mut answered = Vec::new();
    for (number, (card, quantity)) in orders.into_iter().enumerate() {
        let order = Placed::new(number, card, "tea", quantity);
        let answer = order.answer(&cloud).await;
        answered.push((order, answer));
    }
    assert_eq!(answered.iter().map(|(_, answer)| answer.status).collect::<Vec<_>>(), [402, 201, 409]);
    cloud.shipped(1).await;
    assert!(cloud.all_delivered(&books).await.is_empty());
    let keys: Vec<_> = cloud.delivered().await.into_iter().map(|message| message.key).collect();
    assert_eq!(keys, [&*answered[1].0.key]);
    assert_eq!(cloud.shipments().await.len(), 1);
    assert_once(&cloud, &books, &answered).await;
}

// T1, T33: the bus has the message, and the deliverer does not know it.
#[apply(on_each_store)]
async fn a_message_whose_deliverer_dies_is_delivered_again_and_shipped_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &TIMEOUT).await;
    let order = Placed::new(1, "tok_crash_outbox", "tea", 1);
    let answer = order.answer(&cloud).await;
    assert_eq!(answer.status, 201, "the order does not notice");
    cloud.until(async || cloud.delivered().await.len() == 2, "it is delivered again").await;
    assert!(cloud.all_delivered(&books).await.is_empty());
    let delivered = cloud.delivered().await;
    assert!(delivered.len() == 2 && delivered[0] == delivered[1], "{delivered:?}");
    let shipments = cloud.shipments().await;
    let times: Vec<_> = shipments.iter().map(|shipment| (&*shipment.order_id, shipment.times)).collect();
    assert_eq!(times, [(&*order_id(&answer.body), 1)]);
    let environments = cloud.get("/environments").send().await.expect("the front answers");
    let environments: Value = environments.json().await.expect("JSON");
    let crashed = environments["environments"].as_array().expect("a list").iter();
    let crashed: Vec<_> = crashed.filter(|environment| environment["crashes"] != 0).collect();
    assert!(!crashed.is_empty() && crashed.iter().all(|it| it["function"] == "outbox"), "{crashed:?}");
}
