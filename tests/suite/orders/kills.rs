//! `kill -9` of workers at random moments under load of orders. Each order happens once, whenever its client retries.
//!
//! `KILLS` sets how many processes are killed. `SEED` repeats a failed run's choices.

use std::time::Duration;

use futures_util::{StreamExt, future::join_all, stream};
use macro_rules_attribute::apply;

use crate::support::{
    alone_on_each_store,
    books::Books,
    orders::{Placed, assert_once, is_final},
    random::{Random, Seed},
    storm::{SPANS, Storm, mostly, number_of, progress},
};

const CLIENTS: usize = 16;
const KILLS: usize = 100;

/// Concurrent clients in the final check.
const AT_ONCE: usize = 8;

/// The longest time between two tries of a client.
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// How often a client tries before it goes on to its next order. It comes back when the storm is over.
const TRIES: usize = 8;

const CARDS: [&str; 6] = ["tok_ok", "tok_ok", "tok_declined", "tok_slow_50", "tok_slow_150", "tok_slow_400"];

// T1, T33
#[apply(alone_on_each_store)]
async fn orders_whose_workers_are_killed_at_random_moments_happen_once(endpoint: &str) {
    let (seed, kills) = (Seed::find(), number_of("KILLS", KILLS));
    let books = Books::on(endpoint);
    let (cloud, provider) = books.cloud(endpoint, &SPANS).await;

    let storm = Storm::over(cloud);
    let clients = (0..CLIENTS).map(|number| client(&storm, number, Random::new(seed.0 ^ number as u64)));
    let victims = mostly("orders");
    let blows = storm.kill(&victims, kills, Random::new(seed.0), (async || storm.came(), 1));
    let ((), orders) = tokio::join!(blows, join_all(clients));
    let orders: Vec<_> = orders.into_iter().flatten().collect();
    let open = orders.iter().filter(|(_, is_answered)| !is_answered).count();

    // Every client comes back: whatever was interrupted goes on.
    let answered =
        stream::iter(&orders).map(async |(order, _)| (order.clone(), order.answer(&storm.cloud).await));
    let answered: Vec<_> = answered.buffered(AT_ONCE).collect().await;
    assert_once(&storm.cloud, &books, &answered).await;
    let states = books.states().await;
    assert!(states.len() == orders.len() && states.values().all(|state| state == "completed"), "{states:?}");
    assert_eq!(provider.arrived("GET ").len(), 0, "nobody is asked while the provider remembers keys");
    let with = |status| answered.iter().filter(|(_, answer)| answer.status == status).count();
    let (confirmed, sold_out, lost) = (with(201), with(409), storm.lost());
    let figures = format!(
        "{kills} kills cost {lost} answers; {} orders, {open} of them open at the end of the storm; {confirmed} confirmed, {sold_out} \
         sold out",
        orders.len()
    );
    progress(&format!("{figures}\n"));
    // Kills that interrupted nothing would prove nothing.
    assert!(lost * 4 > kills && open > 0 && confirmed > 0 && sold_out > 0, "{figures}");
}

/// Places one order after the other. Sends every fourth only once. Returns each, and whether it is answered.
async fn client(storm: &Storm, number: usize, mut random: Random) -> Vec<(Placed, bool)> {
    let mut orders = Vec::new();
    while !storm.is_over() {
        let (card, quantity) = (random.of(&CARDS), 1 + random.below(6) as u64);
        // One article, so that it is sold out, however slow the machine is.
        let order = Placed::new(orders.len() * CLIENTS + number, card, "sku", quantity);
        let tries = if random.below(4) == 0 { 1 } else { TRIES };
        let mut is_answered = false;
        for _ in 0..tries {
            let answer = order.send(&storm.cloud).await;
            storm.count(answer.status);
            is_answered = is_final(&answer);
            if is_answered || storm.is_over() {
                break;
            }
            tokio::time::sleep(random.up_to(BETWEEN_TRIES)).await;
        }
        orders.push((order, is_answered));
    }
    orders
}
