//! `kill -9` of workers at random moments under load of payments and transfers. No client is charged twice, money adds up, every client
//! gets one answer, and every record is settled, even without retries.
//!
//! `KILLS` sets how many processes are killed. `SEED` repeats a failed run's choices.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    alone_on_each_store,
    books::{Books, Order},
    payments::Answer,
    proxy::Proxy,
    random::{Random, Seed},
    storm::{SPANS, Storm, mostly, number_of, progress},
};

const CLIENTS: usize = 16;
/// How many clients transfer money, in addition to those that pay.
const MOVERS: usize = 4;

const KILLS: usize = 60;

/// The longest time between two tries of a client.
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// A worker's lease has expired 3 s after it began ([`SPANS`]). Stream and queue see that within 1 s, the sweep within 2 s. A charge that
/// is not found is asked about for 2 s more. So everything is settled after 8 s on an idle machine.
const AT_REST_WITHIN: Duration = Duration::from_secs(180);

/// No client waits longer for its answer, because a settled record has one.
const ANSWERED_WITHIN: Duration = Duration::from_secs(240);

const CARDS: [&str; 6] = ["tok_ok", "tok_ok", "tok_declined", "tok_slow_50", "tok_slow_150", "tok_slow_400"];

#[apply(alone_on_each_store)]
async fn workers_killed_at_random_moments_charge_once_and_leave_nothing_open(endpoint: &str) {
    let seed = Seed::find();
    let kills = number_of("KILLS", KILLS);
    let books = Books::on(endpoint);
    let (cloud, provider) = books.cloud(endpoint, &SPANS).await;

    let storm = Storm::over(cloud);
    let clients = (0..CLIENTS).map(|number| storm.client(number, Random::new(seed.0 ^ number as u64)));
    let victims = mostly("payments");
    let blows = storm.kill(&victims, kills, Random::new(seed.0), (async || storm.came(), 1));
    let movers = (0..MOVERS).map(|number| storm.mover(number, Random::new(!seed.0 ^ number as u64)));
    let ((), orders, moves) = tokio::join!(blows, join_all(clients), join_all(movers));
    let moves: Vec<_> = moves.into_iter().flatten().collect();
    let orders: Vec<_> = orders.into_iter().flatten().collect();

    let calm_since = Instant::now();
    let states = books.at_rest(AT_REST_WITHIN).await;
    let at_rest_after = calm_since.elapsed().as_secs_f64();
    books.assert_consistent(&storm.cloud, &orders, Duration::ZERO).await;
    no_order_was_sent_twice(&provider);
    storm.assert_balances(&moves, &states).await;
    let (keys, lost) = (orders.len(), storm.lost());
    let left = orders.iter().filter(|order| order.final_answer.is_none()).count();
    let figures = format!(
        "{kills} kills cost {lost} answers; {keys} keys, {left} of them without an answer nor a retry; \
         at rest {at_rest_after:.1} s after the last client"
    );
    progress(&format!("{figures}\n"));
    // Kills that interrupted nothing would prove nothing.
    assert!(lost * 4 > kills && left > 0, "{figures}");
}

/// An order that has reached the provider is never sent again. The provider charges once per key, however often it is asked. Therefore,
/// counting charges would not reveal a worker that wrongly ran again.
fn no_order_was_sent_twice(provider: &Proxy) {
    let mut sent = BTreeSet::new();
    for order in provider.arrived("POST /charges ") {
        let order: Value = serde_json::from_slice(&order).expect("an order is JSON");
        let cents = order["amountCents"].as_u64().expect("an amount");
        assert!(sent.insert(cents), "the order of {cents} cents was sent twice");
    }
    assert!(!sent.is_empty());
}

/// A transfer between two accounts.
#[derive(Debug)]
struct Move {
    key: String,
    from: usize,
    to: usize,
    cents: u64,
    /// Its final answer.
    final_answer: Option<(u16, String)>,
}

/// What clients do in a storm.
impl Storm {
    /// Transfers money with one key after the other. Sends every fourth request only once, and never retries it.
    async fn mover(&self, number: usize, mut random: Random) -> Vec<Move> {
        let mut moves = Vec::new();
        while !self.is_over() {
            let from = random.below(10);
            let to = (from + 1 + random.below(9)) % 10;
            let key = format!("move-{number}-{}", moves.len());
            let mut transfer =
                Move { key, from, to, cents: 1 + random.below(3_000) as u64, final_answer: None };
            transfer.final_answer = match random.below(4) {
                0 => self.transfer(&transfer).await,
                _ => Some(self.moved(&transfer, &mut random).await),
            };
            moves.push(transfer);
        }
        moves
    }

    /// The final answer, if this try gets it.
    async fn transfer(&self, transfer: &Move) -> Option<(u16, String)> {
        let Move { from, to, cents, key, .. } = transfer;
        let order = json!({ "from": format!("a-{from}"), "to": format!("a-{to}"), "amountCents": cents });
        let sent =
            self.cloud.post("/transfers").bearer_auth("acme").header("idempotency-key", key).json(&order);
        let answer = sent.send().await.expect("the gateway answers");
        let (status, body) = (answer.status().as_u16(), answer.text().await.expect("text"));
        self.count(status);
        (status == 201 || body.contains("not-enough-money")).then_some((status, body))
    }

    async fn moved(&self, transfer: &Move, random: &mut Random) -> (u16, String) {
        let deadline = Instant::now() + ANSWERED_WITHIN;
        loop {
            if let Some(answer) = self.transfer(transfer).await {
                return answer;
            }
            assert!(Instant::now() < deadline, "{transfer:?} has no answer");
            tokio::time::sleep(random.up_to(BETWEEN_TRIES)).await;
        }
    }

    /// Fails unless each transfer happened once, as its record says, and its client's answer agrees.
    async fn assert_balances(&self, moves: &[Move], states: &BTreeMap<String, String>) {
        // The balance may be below zero in between, because they did not happen in this order.
        let mut expected = [100_000_i64; 10];
        let mut random = Random::new(0);
        for transfer in moves {
            // Nothing is reserved: the record is completed or absent.
            let state = states.get(&transfer.key).map(String::as_str);
            assert!(
                matches!((state, &transfer.final_answer), (Some("completed"), _) | (None, None)),
                "{transfer:?}: {state:?}"
            );
            if state.is_none() {
                continue;
            }
            let answer = self.moved(transfer, &mut random).await;
            assert!(
                transfer.final_answer.as_ref().is_none_or(|earlier| *earlier == answer),
                "{transfer:?}: {answer:?}"
            );
            if answer.0 == 201 {
                expected[transfer.from] -= transfer.cents as i64;
                expected[transfer.to] += transfer.cents as i64;
            }
        }
        let accounts =
            self.cloud.get("/accounts").bearer_auth("acme").send().await.expect("the gateway answers");
        let accounts: Value = accounts.json().await.expect("JSON");
        let current = accounts["accounts"].as_array().expect("a list").iter();
        let current: Vec<_> =
            current.map(|account| account["balanceCents"].as_i64().expect("cents")).collect();
        assert_eq!(current, expected);
        assert!(moves.len() > MOVERS);
    }

    /// Pays with one key after the other. Sends every fourth request only once, and never retries it.
    async fn client(&self, number: usize, mut random: Random) -> Vec<Order> {
        let mut orders = Vec::new();
        while !self.is_over() {
            let mut order = Order::new(orders.len() * CLIENTS + number, random.of(&CARDS));
            order.final_answer = match random.below(4) {
                0 => Some(self.send(&order).await).filter(Answer::is_final),
                _ => Some(self.answer(&order, &mut random).await),
            };
            orders.push(order);
        }
        orders
    }

    async fn answer(&self, order: &Order, random: &mut Random) -> Answer {
        let deadline = Instant::now() + ANSWERED_WITHIN;
        loop {
            let answer = self.send(order).await;
            if answer.is_final() {
                return answer;
            }
            assert!(Instant::now() < deadline, "{order:?} has no answer: {answer:?}");
            tokio::time::sleep(random.up_to(BETWEEN_TRIES)).await;
        }
    }

    async fn send(&self, order: &Order) -> Answer {
        let answer = order.send(&self.cloud).await;
        self.count(answer.status);
        answer
    }
}
