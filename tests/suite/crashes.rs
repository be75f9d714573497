//! `kill -9` of workers at random moments under load: nobody is charged twice, everybody gets one answer, and everything
//! comes to rest, also where nobody retries.
//!
//! `KILLS` sets how many of the payments function's processes are killed; `SEED` repeats a failed run's choices.

use std::{
    cell::Cell,
    collections::BTreeSet,
    io::{IsTerminal, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::Value;

use crate::support::{
    books::{Books, Order},
    local_cloud::LocalCloud,
    on_each_store,
    payments::Answer,
    proxy::Proxy,
    random::{Random, Seed},
};

on_each_store!(workers_killed_at_random_moments_charge_once_and_leave_nothing_open);

const CLIENTS: usize = 16;
const KILLS: usize = 100;

/// Between two kills, at most.
const BETWEEN_KILLS: Duration = Duration::from_millis(150);

/// Between two tries of a client, at most.
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// A worker's lease is over 3 s after it began ([`SPANS`]), seen within 1 s by stream and queue, else within 2 s by the
/// sweep; a charge that is not found is asked about until 2 s later. So all is at rest after 8 s, on an idle machine.
const AT_REST_WITHIN: Duration = Duration::from_secs(60);

/// No client waits longer for its answer: what is at rest is answered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

const SPANS: [(&str, &str); 11] = [
    ("ENVIRONMENTS", "6"),
    ("FUNCTION_TIMEOUT_MS", "2500"),
    ("LEASE_GRACE_MS", "500"),
    ("PROVIDER_TIMEOUT_MS", "1500"),
    ("WINDOW_MS", "200"),
    ("POLL_MS", "200"),
    ("SWEEP_MS", "1000"),
    ("RECONCILE_FIRST_MS", "200"),
    ("RECONCILE_LONGEST_MS", "500"),
    ("RECONCILE_ASKS", "1000"),
    ("NOT_FOUND_GRACE_MS", "1500"),
];

const CARDS: [&str; 6] = ["tok_ok", "tok_ok", "tok_declined", "tok_slow_50", "tok_slow_150", "tok_slow_400"];

struct Storm {
    cloud: LocalCloud,
    over: Cell<bool>,
    /// Answers that a kill cost.
    lost: Cell<usize>,
    /// Answers that came.
    came: Cell<usize>,
}

// R39, R19, R28
async fn workers_killed_at_random_moments_charge_once_and_leave_nothing_open(endpoint: &str) {
    let seed = Seed::find();
    let kills = std::env::var("KILLS").map_or(KILLS, |kills| kills.parse().expect("KILLS is a whole number"));
    let (books, provider) = (Books::on(endpoint), Proxy::start().await);
    let own = [("TABLE_PREFIX", books.prefix()), ("FUNCTION_PROVIDER_URL", provider.url())];
    let variables: Vec<_> = SPANS.into_iter().chain(own).collect();
    let cloud = LocalCloud::on(endpoint, &variables).await;
    provider.leads_to(cloud.provider());

    let storm = Storm { cloud, over: Cell::new(false), lost: Cell::new(0), came: Cell::new(0) };
    let clients = (0..CLIENTS).map(|number| storm.client(number, Random::new(seed.0 ^ number as u64)));
    let blows = async {
        storm.kill(kills, Random::new(seed.0)).await;
        storm.over.set(true);
    };
    let ((), orders) = tokio::join!(blows, join_all(clients));
    let orders: Vec<_> = orders.into_iter().flatten().collect();

    let calm_since = Instant::now();
    books.at_rest(AT_REST_WITHIN).await;
    let at_rest_after = calm_since.elapsed().as_secs_f64();
    books.come_right(&storm.cloud, &orders, Duration::ZERO).await;
    no_order_was_sent_twice(&provider);
    let (keys, lost) = (orders.len(), storm.lost.get());
    let left = orders.iter().filter(|order| order.told.is_none()).count();
    let figures = format!(
        "{kills} kills cost {lost} answers; {keys} keys, {left} of them without an answer nor a retry; \
         at rest {at_rest_after:.1} s after the last client"
    );
    progress(&format!("{figures}\n"));
    // A storm that met nobody shows nothing.
    assert!(lost * 4 > kills && left > 0, "{figures}");
}

/// The provider charges once for each key, however often it is asked: so it would hide a worker that was wrong to run again.
/// What has reached the provider is never sent once more.
fn no_order_was_sent_twice(provider: &Proxy) {
    let mut sent = BTreeSet::new();
    for order in provider.arrived("POST /charges ") {
        let order: Value = serde_json::from_slice(&order).expect("an order is JSON");
        let cents = order["amountCents"].as_u64().expect("an amount");
        assert!(sent.insert(cents), "the order of {cents} cents was sent twice");
    }
    assert!(!sent.is_empty());
}

impl Storm {
    /// Pays with one key after the other. Every fourth it sends once, and never comes back to it.
    async fn client(&self, number: usize, mut random: Random) -> Vec<Order> {
        let mut orders = Vec::new();
        while !self.over.get() {
            let mut order = Order::new(orders.len() * CLIENTS + number, random.of(&CARDS));
            order.told = match random.below(4) {
                0 => Some(self.send(&order).await).filter(Answer::is_final),
                _ => Some(self.answer(&order, &mut random).await),
            };
            orders.push(order);
        }
        orders
    }

    async fn answer(&self, order: &Order, random: &mut Random) -> Answer {
        let give_up = Instant::now() + ANSWERED_WITHIN;
        loop {
            let answer = self.send(order).await;
            if answer.is_final() {
                return answer;
            }
            assert!(Instant::now() < give_up, "{order:?} has no answer: {answer:?}");
            tokio::time::sleep(random.up_to(BETWEEN_TRIES)).await;
        }
    }

    async fn send(&self, order: &Order) -> Answer {
        let answer = order.send(&self.cloud).await;
        let count = if answer.status == 502 { &self.lost } else { &self.came };
        count.set(count.get() + 1);
        answer
    }

    /// Kills so many processes of the payments function, and now and then one of those that clean up after it.
    async fn kill(&self, kills: usize, mut random: Random) {
        let mut killed = Vec::new();
        while killed.len() < kills {
            let came = self.came.get();
            tokio::time::sleep(random.up_to(BETWEEN_KILLS)).await;
            // On a machine so busy that each process is killed before it has begun, there would be no load.
            while self.came.get() == came {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let function = match random.below(12) {
                0 => "stale",
                1 => "reconcile",
                _ => "payments",
            };
            let mut living = self.cloud.processes(function).await;
            living.retain(|process| !killed.contains(process));
            if living.is_empty() {
                continue;
            }
            let process = random.of(&living);
            if kill(process) && function == "payments" {
                killed.push(process);
                progress(&format!("\r{} of {kills} killed ", killed.len()));
            }
        }
        progress("\r");
    }
}

/// Whether it was still there.
fn kill(process: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.args(["-9", &process.to_string()]).stderr(Stdio::null());
    kill.status().expect("kill is there").success()
}

/// On a terminal, past the test harness, which keeps what is printed to itself.
fn progress(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = terminal.write_all(text.as_bytes());
    }
}
