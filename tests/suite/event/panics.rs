//! Panics around the function of a message: of what finds its tenant, or makes its request.

use std::time::Duration;

use lambda_idempotency::event::{BatchFunction, Consumer, KeyFrom, MemorySource, Message};
use macro_rules_attribute::apply;
use serde_json::json;

use super::{
    consumer, guard, queue,
    routes::{self, shop},
    ships, tenant,
};
use crate::support::{
    guarded::Guarded,
    http::Counter,
    messages::{deliver, message, received},
    on_each_store,
};

/// Delivers a message that panics, of a key that nobody else has, together with others. It comes twice, and the third time it is dead.
async fn ends_alone(consumer: &impl BatchFunction, queue: &MemorySource) {
    for (times, receives) in [(1, 1), (2, 29), (3, 30)] {
        let good = |number| {
            let id = format!("{times}-{number}");
            message(&id, json!({ "id": id, "orderId": id, "does": "ships" }))
        };
        let bad = received("bad", json!({ "id": "bad", "orderId": "bad" }), receives);
        let back = deliver(consumer, &[good(1), bad, good(2)]).await.expect("an answer");
        let hidden: Vec<_> = queue.take_hidden().into_iter().map(|(_, after)| after).collect();
        let reasons: Vec<_> = queue.take_dead().into_iter().map(|dead| dead.reason).collect();
        if times < 3 {
            assert_eq!((back, reasons.len()), (vec!["bad".to_owned()], 0));
            assert!(hidden.len() == 1 && hidden[0] >= Duration::from_secs(1), "{hidden:?}");
        } else {
            assert_eq!((back.len(), hidden.len()), (0, 0));
            assert_eq!(reasons, ["it was received 30 times: what is around its function panicked"]);
        }
    }
}

/// Panics for one message.
fn refuse_to_read(message: &Message) {
    assert!(!message.body.contains("bad"), "while a message is read");
}

#[apply(on_each_store)]
async fn a_tenant_resolver_that_panics_blocks_no_other_message(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let resolver = |message: &Message| {
        refuse_to_read(message);
        Some(tenant())
    };
    let consumer = consumer(&guarded, &queue).max_attempts(3);
    ends_alone(&consumer.each_of_tenants(resolver, guard(&guarded), ships(&runs)), &queue).await;
    assert_eq!((runs.count(), guarded.number_of_items().await), (6, 6));
}

#[apply(on_each_store)]
async fn a_request_that_panics_blocks_no_other_message(endpoint: &str) {
    let (guarded, queue, runs) = (Guarded::on(endpoint).await, queue(), Counter::default());
    let request = |message: &Message| {
        refuse_to_read(message);
        routes::request(message)
    };
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/orderId")).world(guarded.clock.clone());
    ends_alone(&consumer.max_attempts(3).route(shop(&guarded, &runs), request), &queue).await;
    assert_eq!((runs.count(), guarded.number_of_items().await), (6, 6));
}
