//! `kill -9` of deliverers at random moments, while orders are placed. Each message is delivered, and each order shipped once.
//!
//! `KILLS` sets how many processes are killed. `SEED` repeats a failed run's choices.

use futures_util::future::join_all;
use macro_rules_attribute::apply;

use crate::support::{
    alone_on_each_store,
    books::Books,
    events::assert_shipped_once,
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
    let blows = storm.kill(&["outbox"], kills, Random::new(seed.0), (done, 1));
    let ((), answered) = tokio::join!(blows, join_all(clients));
    let answered: Vec<_> = answered.into_iter().flatten().collect();
    let dead = storm.cloud.all_delivered(&books).await;
    assert!(dead.is_empty(), "{dead:?}");
    assert_once(&storm.cloud, &books, &answered).await;
    let again = assert_shipped_once(&storm.cloud, &books, &answered).await;
    let figures = format!("{kills} kills; {} orders, {again} deliveries repeated", answered.len());
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
