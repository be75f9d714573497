//! `kill -9` of deliverers at random moments, while orders are placed. Each message is delivered, and each order shipped once.
//!
//! `KILLS` sets how many processes are killed. `SEED` repeats a failed run's choices.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use macro_rules_attribute::apply;

use crate::support::{
    alone_on_each_store,
    books::Books,
    orders::{Placed, assert_once},
    payments::Answer,
    random::{Random, Seed},
    storm::{SPANS, Storm, number_of, progress},
};

const CLIENTS: usize = 4;
const KILLS: usize = 40;

const CARDS: [&str; 4] = ["tok_ok", "tok_ok", "tok_ok", "tok_declined"];

/// Of each client's orders, this one's deliverer dies before it hears that the bus has the message.
const CRASHES: usize = 3;

// T1, T33, T63
#[apply(alone_on_each_store)]
async fn messages_whose_deliverers_are_killed_are_delivered_and_shipped_once(endpoint: &str) {
    let (seed, kills) = (Seed::find(), number_of("KILLS", KILLS));
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &SPANS).await;

    let storm = Storm::over(cloud);
    let clients = (0..CLIENTS).map(|number| client(&storm, number, Random::new(seed.0 ^ number as u64)));
    let done = async || storm.cloud.delivered().await.len();
    let blows = storm.kill_at_work("outbox", kills, Random::new(seed.0), done);
    let ((), answered) = tokio::join!(blows, join_all(clients));
    let answered: Vec<_> = answered.into_iter().flatten().collect();
    let dead = storm.cloud.all_delivered(&books).await;
    assert!(dead.is_empty(), "{dead:?}");
    assert_once(&storm.cloud, &books, &answered).await;

    let confirmed = answered.iter().filter(|(_, answer)| answer.status == 201);
    let confirmed: BTreeSet<_> = confirmed.map(|(order, _)| order.key.clone()).collect();
    let delivered = storm.cloud.delivered().await;
    let keys: BTreeSet<_> = delivered.iter().map(|message| message.key.clone()).collect();
    assert_eq!(keys, confirmed, "each confirmed order is delivered, and nothing else");
    // One id for each order, however often it was delivered.
    let ids: BTreeMap<_, _> = delivered.iter().map(|message| (&message.id, &message.key)).collect();
    assert_eq!(ids.len(), confirmed.len());
    assert!(delivered.iter().all(|message| message.sequence == 0), "an order has one message");
    let shipments = storm.cloud.shipments().await;
    let rows = books.orders().await;
    let of_rows = rows.iter().filter(|row| row["status"] == "confirmed");
    let of_rows: BTreeSet<_> = of_rows.map(|row| row["id"].as_str().expect("an id")).collect();
    let shipped: BTreeSet<_> = shipments.iter().map(|shipment| &*shipment.order_id).collect();
    assert_eq!(shipped, of_rows);
    let twice = shipments.iter().filter(|shipment| shipment.times != 1);
    assert_eq!(twice.collect::<Vec<_>>(), [&shipments[0]; 0], "each is shipped once");
    let again = delivered.len() - confirmed.len();
    let figures =
        format!("{kills} kills; {} orders, {} delivered, {again} again", confirmed.len(), delivered.len());
    progress(&format!("{figures}\n"));
    // Deliveries that nothing interrupted would prove nothing.
    assert!(again > 0, "{figures}");
}

/// Places one order after the other.
async fn client(storm: &Storm, number: usize, mut random: Random) -> Vec<(Placed, Answer)> {
    let mut answered = Vec::new();
    while !storm.is_over() {
        // So many that none is sold out.
        let sku = format!("sku-{number}-{}", answered.len() / 10);
        let card = if answered.len() == CRASHES { "tok_crash_outbox" } else { random.of(&CARDS) };
        let quantity = 1 + random.below(3) as u64;
        let order = Placed::new(answered.len() * CLIENTS + number, card, &sku, quantity);
        let answer = order.answer(&storm.cloud).await;
        answered.push((order, answer));
    }
    answered
}
