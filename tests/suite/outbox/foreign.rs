//! Events that somebody else puts on the bus of the local cloud.

use std::slice;

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    books::Books, events::Shipment, function::Document, local_cloud::LocalCloud, on_each_store,
    sample::Sample,
};

/// An event of another shop, whose detail is a CloudEvent.
fn event(id: &str) -> Value {
    json!({
        "source": "create-order",
        "detail-type": "order.placed",
        "detail": {
            "specversion": "1.0", "id": id, "source": "elsewhere", "type": "order.placed", "tenant": "globex",
            "data": { "orderId": "o-1", "sku": "tea", "quantity": 2, "more": [1.0, null] }, "more": {},
        },
    })
}

#[apply(on_each_store)]
async fn an_event_that_comes_twice_ships_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &[]).await;
    for _ in 0..2 {
        assert_eq!(cloud.put_event(&event("e-1")).await, 202);
    }
    let shipment = Shipment {
        order_id: "o-1".to_owned(),
        tenant: "globex".to_owned(),
        sku: "tea".to_owned(),
        quantity: 2,
        times: 1,
    };
    assert!(cloud.all_delivered(&books).await.is_empty());
    assert_eq!(cloud.shipments().await, slice::from_ref(&shipment));
    // Another event is another shipment, even of the same order: the row shows it.
    assert_eq!(cloud.put_event(&event("e-2")).await, 202);
    assert!(cloud.all_delivered(&books).await.is_empty());
    assert_eq!(cloud.shipments().await, [Shipment { times: 2, ..shipment }]);
    assert!(cloud.delivered().await.is_empty(), "the outbox delivered none of them");
}

// T19
#[tokio::test]
async fn a_foreign_event_is_refused_by_the_outbox() {
    let sample = Sample::new("orders", "http://localhost:9").await;
    let queue = "http://localhost:9/wakes.fifo";
    let variables =
        [("OUTBOX_TOPICS", "none"), ("OUTBOX_QUEUE_URL", queue), ("OUTBOX_DEAD_LETTERS_QUEUE_URL", queue)];
    let mut outbox = sample.start("outbox", &variables).await;
    for event in [
        json!({}),
        json!(null),
        json!([]),
        json!({ "job": "sweep" }),
        json!({ "job": "" }),
        json!({ "Records": {} }),
        json!({ "Records": [] }),
        json!({ "Records": [{ "eventSource": "aws:kinesis", "kinesis": { "data": "e30=" } }] }),
        json!({ "version": "2.0", "rawPath": "/orders", "body": "{}" }),
    ] {
        let refused = outbox.invoke(&event).await.expect_err("it is foreign");
        let message = refused["errorMessage"].as_str().expect("a message");
        assert!(message.starts_with("the event is refused: "), "{event}: {message}");
    }
    // A change of the table that is neither a message nor work, and one that cannot be read.
    let change =
        |change: Value| json!({ "Records": [{ "eventSource": "aws:dynamodb", "dynamodb": change }] });
    for change in [change(json!({})), change(json!([])), change(json!({ "Keys": { "pk": { "S": "x" } } }))] {
        let answer = outbox.invoke(&change).await.expect("it is ignored");
        assert_eq!(answer, json!({ "batchItemFailures": [] }), "{change}");
    }
    // Each batch was read: without that, an alarm says so.
    let documents = outbox.documents();
    let read: Vec<_> = documents.iter().map(Document::counts).collect();
    assert_eq!(read, vec![[("outbox.batch", 1)].into(); 3]);
}

/// An event whose detail lacks this member, or has another value there.
fn wrong(number: usize, pointer: &str, value: Option<Value>) -> Value {
    let mut event = event(&format!("wrong-{number}"));
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = event["detail"].pointer_mut(parent).expect("its parent").as_object_mut().expect("an object");
    match value {
        Some(value) => parent.insert(name.to_owned(), value),
        None => parent.remove(name),
    };
    event
}

#[apply(on_each_store)]
async fn an_event_that_cannot_be_shipped_is_dead_with_its_reason(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &[]).await;
    let no_order = "the event's data is not an order: orderId, sku and quantity";
    let cases = [
        ("/id", None, "the message's body has no key at /id"),
        ("/source", None, "the message's body has no key at /source"),
        ("/tenant", None, "the message names no tenant"),
        ("/tenant", Some(json!("")), "the message names no tenant"),
        ("/type", Some(json!("order.paid")), "the event is not an order.placed"),
        ("/type", None, "the body is not what the function takes"),
        ("/data", None, no_order),
        ("/data/orderId", Some(json!("")), no_order),
        ("/data/orderId", Some(json!("o".repeat(300))), no_order),
        ("/data/quantity", Some(json!(-1)), no_order),
        ("/data/sku", None, no_order),
    ];
    for (number, (pointer, value, _)) in cases.iter().enumerate() {
        assert_eq!(cloud.put_event(&wrong(number, pointer, value.clone())).await, 202);
    }
    // The rule does not match it.
    let mut unmatched = event("e-0");
    unmatched["detail-type"] = json!("order.paid");
    assert_eq!(cloud.put_event(&unmatched).await, 202);
    assert_eq!(cloud.put_event(&event("e-1")).await, 202);
    let check = async || {
        let dead = cloud.all_delivered(&books).await;
        assert_eq!(dead.len(), cases.len(), "{dead:?}");
        for (number, (.., reason)) in cases.iter().enumerate() {
            let detail = wrong(number, cases[number].0, cases[number].1.clone())["detail"].take();
            let of_event = |letter: &&Value| {
                let body: Value = serde_json::from_str(letter["body"].as_str().expect("text")).expect("JSON");
                body["detail"] == detail
            };
            let letter = dead.iter().find(of_event).expect("the event is dead, as it came");
            assert!(letter["reason"].as_str().expect("a reason").starts_with(reason), "{letter}");
        }
        let shipments = cloud.shipments().await;
        assert!(shipments.len() == 1 && shipments[0].times == 1, "{shipments:?}");
    };
    check().await;
    // Nothing was repaired: each is dead again, once.
    let redriven = cloud.post("/queues/shipments/redrive").send().await.expect("the front answers");
    assert_eq!(redriven.json::<Value>().await.expect("JSON"), json!({ "redriven": cases.len() }));
    check().await;
}

#[tokio::test]
async fn the_bus_refuses_what_is_no_event() {
    let cloud = LocalCloud::start(&[]).await;
    let mut more = event("e-1");
    more["more"] = json!(1);
    for wrong in [
        json!([]),
        json!("event"),
        json!({}),
        json!(["elsewhere", "order.placed", {}]),
        json!({ "source": "s", "detail-type": "order.placed" }),
        json!({ "source": "s", "detail-type": "order.placed", "detail": "{}" }),
        json!({ "source": "s", "detail-type": "order.placed", "detail": [] }),
        json!({ "source": "", "detail-type": "order.placed", "detail": {} }),
        json!({ "source": "s", "detail-type": 1, "detail": {} }),
        more,
    ] {
        assert_eq!(cloud.put_event(&wrong).await, 400, "{wrong}");
    }
    let past_the_bus = cloud.post("/queues/shipments").json(&json!({ "body": event("e-1") }));
    assert_eq!(past_the_bus.send().await.expect("an answer").status(), 403);
    assert!(cloud.shipments().await.is_empty());
}
