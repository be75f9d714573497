//! The table is taken away: before the reservation, between charge and completion, and while the functions reconcile outcomes and look for
//! dead workers. Meanwhile, nothing is done without a record of it, and nothing is lost.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use macro_rules_attribute::apply;
use memchr::memmem;

use crate::support::{
    books::{Books, Order},
    local_cloud::LocalCloud,
    on_each_store,
    payments::Answer,
    proxy::{Proxy, RuleId, Then},
    storm::SPANS,
};

/// How long a test waits for an event in another process. Success takes a fraction of this. Only a failure takes as long.
const TIMEOUT: Duration = Duration::from_secs(180);

const AT_REST_WITHIN: Duration = Duration::from_secs(180);

const TRIES: usize = 5;

struct Scene {
    books: Books,
    /// Between the functions and the store.
    store: Proxy,
    /// Between the functions and the provider.
    provider: Proxy,
    cloud: LocalCloud,
}

impl Scene {
    async fn on(endpoint: &str) -> Self {
        let (books, store) = (Books::on(endpoint), Proxy::before(endpoint).await);
        let own = [
            ("FUNCTION_TIMEOUT_MS", "8000"),
            ("PROVIDER_TIMEOUT_MS", "2000"),
            ("FUNCTION_DYNAMODB_ENDPOINT", store.url()),
        ];
        let variables: Vec<_> = SPANS.into_iter().chain(own).collect();
        let (cloud, provider) = books.cloud(endpoint, &variables).await;
        Self { books, store, provider, cloud }
    }

    /// Sends an order with a slow card, runs `meanwhile` once the provider has received it, and expects this answer. If a busy machine lets
    /// the function time out before that, another order is sent. `orders` has all of them.
    async fn send_and(
        &self,
        orders: &mut Vec<Order>,
        meanwhile: impl Fn() -> RuleId,
        expected: (u16, &str),
    ) -> String {
        let mut answers = Vec::new();
        for _ in 0..TRIES {
            let mut order = Order::new(orders.len(), "tok_slow_1000");
            let answer = {
                let mut answering = pin!(order.send(&self.cloud));
                tokio::select! {
                    answer = &mut answering => answer,
                    () = self.until_charging(order.cents) => {
                        meanwhile();
                        answering.await
                    }
                }
            };
            let (as_expected, key) = (answer.problem() == expected && !answer.replayed, order.key.clone());
            answers.push(answer.clone());
            order.final_answer = Some(answer).filter(Answer::is_final);
            orders.push(order);
            if as_expected {
                return key;
            }
            self.store.pass();
        }
        panic!("not {expected:?}: {answers:?}");
    }

    async fn until_charging(&self, cents: u64) {
        let amount = format!("\"amountCents\":{cents},").into_bytes();
        let is_of = |order: &Vec<u8>| memmem::find(order, &amount).is_some();
        self.until(|| self.provider.arrived("POST /charges ").iter().any(is_of)).await;
    }

    async fn until_used(&self, rule: RuleId, times: usize) {
        self.until(|| self.store.used(rule) >= times).await;
    }

    async fn until(&self, current: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !current() {
            assert!(Instant::now() < deadline, "it does not come");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_completed(&self, keys: &[String]) {
        let deadline = Instant::now() + AT_REST_WITHIN;
        loop {
            let states = self.books.states().await;
            if keys.iter().all(|key| states[key] == "completed") {
                return;
            }
            assert!(Instant::now() < deadline, "{states:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Its answer. If a busy machine lets the function time out, the request is tried again.
    async fn answer(&self, order: &Order) -> Answer {
        let mut answer = order.send(&self.cloud).await;
        for _ in 1..TRIES {
            if answer.status == 502 {
                answer = order.send(&self.cloud).await;
            }
        }
        answer
    }
}

#[apply(on_each_store)]
async fn without_a_table_nothing_is_begun(endpoint: &str) {
    let scene = Scene::on(endpoint).await;
    let orders: Vec<_> = (0..8).map(|number| Order::new(number, "tok_ok")).collect();
    for (then, orders) in [(Then::Closed, &orders[..4]), (Then::Silent, &orders[4..])] {
        scene.store.away(&[], then);
        for answer in join_all(orders.iter().map(|order| scene.answer(order))).await {
            assert_eq!(answer.problem(), (503, "store-unavailable"), "{then:?}");
        }
        scene.store.pass();
    }
    assert_eq!(scene.cloud.charges().await, []);
    assert_eq!(scene.books.states().await.values().filter(|state| *state == "completed").count(), 0);
    scene.books.assert_consistent(&scene.cloud, &orders, AT_REST_WITHIN).await;
}

#[apply(on_each_store)]
async fn a_completion_without_a_table_is_queued_with_its_payment(endpoint: &str) {
    let scene = Scene::on(endpoint).await;
    let table = scene.books.idempotency_table();
    // The provider cannot be asked about the charge. Only the worker can report what happened to it.
    scene.provider.away(&["GET /charges/"], Then::Closed);
    let (mut orders, mut keys) = (Vec::new(), Vec::new());
    for then in [Then::Closed, Then::Silent] {
        let away = || scene.store.away(&[&table], then);
        // It is not known yet whether the payment will be recorded, because its write has a condition.
        let key = scene.send_and(&mut orders, away, (409, "outcome-unknown")).await;
        assert_eq!(scene.books.states().await[&key], "in_progress", "{then:?}");
        keys.push(key);
        scene.store.pass();
        if then == Then::Closed {
            // The table stays away until the report's write has failed, and until the worker counts as dead.
            let report = scene.store.away(&[&table, "\"completed\""], then);
            let look = scene.store.away(&[&table, "DynamoDB_20120810.GetItem"], then);
            scene.store.away(&[&table], then);
            scene.until_used(report, 4).await;
            scene.until_used(look, 1).await;
            scene.store.pass();
        }
    }
    scene.until_completed(&keys).await;
    scene.provider.pass();
    scene.books.assert_consistent(&scene.cloud, &orders, AT_REST_WITHIN).await;
}

#[apply(on_each_store)]
async fn a_charge_during_a_total_outage_is_settled_afterwards(endpoint: &str) {
    let scene = Scene::on(endpoint).await;
    let mut orders = Vec::new();
    let away = || scene.store.away(&[], Then::Closed);
    let key = scene.send_and(&mut orders, away, (409, "outcome-unknown")).await;
    scene.store.pass();
    scene.until_completed(&[key]).await;
    scene.books.assert_consistent(&scene.cloud, &orders, AT_REST_WITHIN).await;
}

#[apply(on_each_store)]
async fn open_records_are_settled_once_the_store_is_back(endpoint: &str) {
    let scene = Scene::on(endpoint).await;
    let cards = ["tok_timeout_charged", "tok_crash_after", "tok_timeout_not_charged", "tok_crash_before"];
    let orders: Vec<_> = cards.into_iter().zip(0..).map(|(card, number)| Order::new(number, card)).collect();
    // Nothing may be settled before the store goes away.
    scene.provider.away(&["GET /charges/"], Then::Closed);
    let answers = join_all(orders.iter().map(|order| order.send(&scene.cloud))).await;
    assert!(answers.iter().all(|answer| !answer.is_final()), "{answers:?}");
    for then in [Then::Closed, Then::Silent] {
        // Polls query. Checks, and sweeps that read their checkpoint, get items.
        let asked = ["Query", "GetItem"]
            .map(|operation| scene.store.away(&[&format!("DynamoDB_20120810.{operation}")], then));
        scene.store.away(&[], then);
        scene.provider.pass();
        for rule in asked {
            scene.until_used(rule, 4).await;
        }
        scene.store.pass();
    }
    let states = scene.books.at_rest(AT_REST_WITHIN).await;
    let settled: Vec<_> = orders.iter().map(|order| &*states[&order.key]).collect();
    assert_eq!(settled, ["completed", "completed", "failed_retryable", "failed_retryable"]);
    let charges = scene.cloud.charges().await;
    assert_eq!(charges.len(), 2, "{charges:?}");
    scene.books.assert_consistent(&scene.cloud, &orders[..2], Duration::ZERO).await;
}
