//! Queues of somebody else's SQS. Here, orders in the local cloud: the consumer as it is deployed, with processes that die.

mod elasticmq;
mod letters;
pub(crate) mod load;
mod producers;
mod sqs;

use std::time::{Duration, Instant};

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    books::Books,
    local_cloud::LocalCloud,
    on_each_store,
    orders::{Placed, assert_once},
    payments::Answer,
};

/// Only a failure takes this long.
const TIMEOUT: Duration = Duration::from_secs(180);

async fn cloud(endpoint: &str, books: &Books) -> LocalCloud {
    LocalCloud::on(endpoint, &[("TABLE_PREFIX", books.prefix())]).await
}

impl Placed {
    /// Sends it to the queue, as a message of this group.
    async fn enqueue(&self, cloud: &LocalCloud, group: &str) {
        let mut body = self.body();
        body["orderId"] = json!(self.key);
        assert_eq!(enqueue(cloud, json!({ "body": body, "groupId": group })).await, 202);
    }

    /// The answer that its record has: what a request gets now.
    async fn kept(&self, cloud: &LocalCloud) -> Answer {
        let answer = self.send(cloud).await;
        assert!(answer.replayed, "{self:?} was not placed by its message: {answer:?}");
        answer
    }
}

async fn enqueue(cloud: &LocalCloud, message: Value) -> u16 {
    let sent = cloud.post("/queues/orders").json(&message).send().await.expect("the front answers");
    sent.status().as_u16()
}

async fn queue(cloud: &LocalCloud) -> Value {
    let shown = cloud.get("/queues/orders").send().await.expect("the front answers");
    shown.json().await.expect("JSON")
}

/// Waits until no message is left. Returns the dead letters.
async fn emptied(cloud: &LocalCloud) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let shown = queue(cloud).await;
        if (&shown["ready"], &shown["inFlight"]) == (&json!(0), &json!(0)) {
            return shown["deadLetters"].as_array().expect("a list").clone();
        }
        assert!(began.elapsed() < TIMEOUT, "messages are left: {shown}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[apply(on_each_store)]
async fn a_message_that_comes_ten_times_is_one_order(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let order = Placed::new(1, "tok_ok", "tea", 3);
    for group in 0..10 {
        order.enqueue(&cloud, &format!("g-{group}")).await;
    }
    assert!(emptied(&cloud).await.is_empty());
    let kept = order.kept(&cloud).await;
    assert_once(&cloud, &books, &[(order, kept)]).await;
}

#[apply(on_each_store)]
async fn an_order_by_http_and_by_the_queue_is_placed_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let order = Placed::new(1, "tok_ok", "tea", 3);
    let first = order.send(&cloud).await;
    assert_eq!((first.status, first.replayed), (201, false));
    order.enqueue(&cloud, "g").await;
    assert!(emptied(&cloud).await.is_empty());
    assert_once(&cloud, &books, &[(order, first)]).await;
}

// Kept answers: nothing is left to be done, and nothing belongs into the dead letters.
#[apply(on_each_store)]
async fn an_order_that_is_refused_is_done(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let orders = [("tok_ok", 100), ("tok_declined", 1), ("tok_ok", 1)];
    let orders: Vec<_> =
        orders.iter().zip(0..).map(|((card, number), n)| Placed::new(n, card, "tea", *number)).collect();
    for order in &orders {
        order.enqueue(&cloud, "g").await;
    }
    assert!(emptied(&cloud).await.is_empty());
    let mut answered = Vec::new();
    for order in orders {
        let kept = order.kept(&cloud).await;
        answered.push((order, kept));
    }
    assert_eq!(answered.iter().map(|(_, answer)| answer.status).collect::<Vec<_>>(), [201, 402, 409]);
    assert_once(&cloud, &books, &answered).await;
}

#[apply(on_each_store)]
async fn a_poison_message_is_dead_with_its_reason_and_comes_back(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let order = Placed::new(1, "tok_ok", "tea", 1);
    assert_eq!(enqueue(&cloud, json!({ "body": "no order", "groupId": "g" })).await, 202);
    assert_eq!(
        enqueue(&cloud, json!({ "body": { "orderId": "o-9", "sku": "tea" }, "groupId": "g" })).await,
        202
    );
    order.enqueue(&cloud, "g").await;
    let dead = emptied(&cloud).await;
    let reasons = |dead: &[Value]| -> Vec<String> {
        dead.iter().map(|letter| letter["reason"].as_str().expect("a reason").to_owned()).collect()
    };
    let expected = [
        "the message's body is not JSON, so it has no key at /orderId",
        "the request was refused with 422: The order is invalid (urn:orders:invalid-order)",
    ];
    assert_eq!(reasons(&dead), expected);
    assert_eq!(dead[0]["body"], "no order");
    let kept = order.kept(&cloud).await;
    // Nothing was repaired: each is dead again, once.
    let redriven = cloud.post("/queues/orders/redrive").send().await.expect("the front answers");
    assert_eq!(redriven.json::<Value>().await.expect("JSON"), json!({ "redriven": 2 }));
    assert_eq!(reasons(&emptied(&cloud).await), expected);
    assert_once(&cloud, &books, &[(order, kept)]).await;
}

// T1, T33, T66: it comes back, and the next of its group waits for it.
#[apply(on_each_store)]
async fn an_order_whose_worker_dies_is_placed_by_its_message(endpoint: &str) {
    let books = Books::on(endpoint);
    let cloud = cloud(endpoint, &books).await;
    let cards = ["tok_crash_before", "tok_crash_phase_2"];
    let orders: Vec<_> = cards.iter().zip(0..).map(|(card, n)| Placed::new(n, card, "tea", 1)).collect();
    let next = Placed::new(2, "tok_ok", "tea", 1);
    for order in &orders {
        order.enqueue(&cloud, &order.key).await;
    }
    next.enqueue(&cloud, &orders[1].key).await;
    assert!(emptied(&cloud).await.is_empty());
    let mut answered = Vec::new();
    for order in orders.into_iter().chain([next]) {
        let kept = order.kept(&cloud).await;
        assert_eq!(kept.status, 201, "{order:?}");
        answered.push((order, kept));
    }
    assert_once(&cloud, &books, &answered).await;
}

#[tokio::test]
async fn a_queue_refuses_what_is_no_message() {
    let cloud = LocalCloud::start(&[]).await;
    for message in [json!([]), json!({}), json!({ "body": "x", "delay": 1 })] {
        assert_eq!(enqueue(&cloud, message).await, 400);
    }
    let unknown = cloud.get("/queues/unknown").send().await.expect("an answer");
    assert_eq!(unknown.status(), 404);
}
