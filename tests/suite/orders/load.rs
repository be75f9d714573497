//! Many orders through four processes, with duplicates, while calls of the provider and of DynamoDB fail.
//!
//! `ORDERS` sets how many. `SEED` repeats a failed run's choices.

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{
    alone_on_dynamodb_local,
    books::Books,
    faults::cancelled_by_conflict,
    orders::{Placed, assert_once},
    proxy::{Act, Cut, Proxy, Then},
    random::{Random, Seed},
    storm::number_of,
};

/// Figures for a thousand: `ORDERS=1000`.
const ORDERS: usize = 200;

/// Of ten requests, three are duplicates.
const DUPLICATES: (usize, usize) = (3, 7);

const CARDS: [&str; 8] =
    ["tok_ok", "tok_ok", "tok_ok", "tok_ok", "tok_declined", "tok_slow_20", "tok_slow_50", "tok_ok"];

// T9, T10, T11, T20, T33: one call in five is answered by a fault, and about a third of the orders finds no stock.
#[apply(alone_on_dynamodb_local)]
async fn orders_through_four_processes_under_faults_happen_once_each(endpoint: &str) {
    let (seed, number) = (Seed::find(), number_of("ORDERS", ORDERS));
    let (books, store) = (Books::on(endpoint), Proxy::before(endpoint).await);
    let variables = [("ENVIRONMENTS", "4"), ("FUNCTION_DYNAMODB_ENDPOINT", store.url())];
    let (cloud, provider) = &books.cloud(endpoint, &variables).await;
    let mut random = Random::new(seed.0);
    let skus: Vec<_> = (0..number.div_ceil(20)).map(|sku| format!("sku-{sku}")).collect();
    let orders = (0..number).map(|number| {
        let sku = &skus[random.below(skus.len())];
        Placed::new(number, random.of(&CARDS), sku, 1 + random.below(14) as u64)
    });
    let orders: Vec<_> = orders.collect();
    let mut requests = orders.clone();
    for _ in 0..number * DUPLICATES.0 / DUPLICATES.1 {
        let duplicate = orders[random.below(number)].clone();
        requests.insert(random.below(requests.len()), duplicate);
    }
    let transaction = ["DynamoDB_20120810.TransactWriteItems"];
    let lost = Act::Cut(Cut::Answer(0), Then::Closed);
    let faults = [
        store.to_every(10, &transaction, Act::Answer(400, cancelled_by_conflict())),
        store.to_every(9, &transaction, lost.clone()),
        store.to_every(9, &transaction, Act::TwiceUnderAnotherToken),
        store.to_every(9, &["DynamoDB_20120810.PutItem"], lost.clone()),
    ];
    let charges = [
        provider.to_every(10, &["POST /charges "], Act::Answer(500, json!({ "error": "internal" }))),
        provider.to_every(9, &["POST /charges "], lost.clone()),
    ];
    let refunds = [
        provider.to_every(10, &["POST /refunds "], Act::Answer(500, json!({ "error": "internal" }))),
        provider.to_every(9, &["POST /refunds "], lost),
    ];

    let answers =
        stream::iter(&requests).map(|order| order.answer(cloud)).buffered(32).collect::<Vec<_>>().await;

    assert_eq!(cloud.processes("orders").await.len(), 4);
    let mut by_key = HashMap::new();
    for (order, answer) in requests.iter().zip(answers) {
        let first = by_key.entry(&order.key).or_insert_with(|| answer.clone());
        assert_eq!((first.status, &first.body), (answer.status, &answer.body), "{order:?} has one answer");
    }
    let answered: Vec<_> = orders.iter().map(|order| (order.clone(), by_key[&order.key].clone())).collect();
    assert_once(cloud, &books, &answered).await;
    let with = |status| answered.iter().filter(|(_, answer)| answer.status == status).count();
    assert!(with(409) > number / 20 && with(402) > 0 && with(201) > number / 3, "{}", with(409));
    let used = faults.map(|rule| store.used(rule)).into_iter();
    let used = used.chain([charges, refunds].concat().into_iter().map(|rule| provider.used(rule)));
    assert!(used.clone().all(|used| used > 0), "{:?}", used.collect::<Vec<_>>());
    assert_eq!(provider.arrived("GET ").len(), 0, "nobody is asked while the provider remembers keys");
}
