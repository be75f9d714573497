//! Many orders, which are published and shipped, and many reports, which are accepted and written later: through four processes, with
//! duplicates, while calls of DynamoDB and of the provider fail, and processes of every function are killed at random moments.
//!
//! `ORDERS`, `REPORTS` and `KILLS` set how many there are at least. `SEED` repeats a failed run's choices.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use macro_rules_attribute::apply;

use crate::support::{
    alone_on_dynamodb_local,
    books::Books,
    events::assert_shipped_once,
    load::Faults,
    orders::{Placed, assert_once},
    payments::Answer,
    proxy::Proxy,
    random::{Random, Seed},
    reports::{Report, assert_written_once},
    storm::{SPANS, Storm, number_of, progress},
};

/// The figure: `ORDERS=1000 REPORTS=300 KILLS=300`.
const ORDERS: usize = 100;
const REPORTS: usize = 30;
const KILLS: usize = 30;

/// How many clients place orders, and how many ask for reports.
const BUYERS: usize = 12;
const READERS: usize = 12;

/// Of ten requests, three are duplicates.
const DUPLICATES: (usize, usize) = (3, 10);

/// What is killed: every function that has a part in orders and reports.
const VICTIMS: [&str; 7] = ["orders", "stale", "outbox", "shipping", "reports", "report-worker", "reconcile"];

const CARDS: [&str; 8] =
    ["tok_ok", "tok_ok", "tok_ok", "tok_ok", "tok_declined", "tok_slow_20", "tok_slow_50", "tok_ok"];

/// After the last answer, work that was interrupted is settled within this time. Only a failure takes as long.
const AT_REST_WITHIN: Duration = Duration::from_secs(180);

/// Four processes; a worker has time for a report; and what the stream and the queues find must be enough, without a sweep.
const DIFFERENT: [(&str, &str); 3] =
    [("ENVIRONMENTS", "4"), ("FUNCTION_TIMEOUT_MS", "8000"), ("SWEEP_MS", "86400000")];

// T1, T9, T10, T11, T20, T33, T63: one call in five meets a fault, and about a third of the orders finds no stock.
#[apply(alone_on_dynamodb_local)]
async fn orders_and_reports_under_faults_and_kills_happen_once_each(endpoint: &str) {
    let (seed, kills) = (Seed::find(), number_of("KILLS", KILLS));
    let (number_of_orders, number_of_reports) = (number_of("ORDERS", ORDERS), number_of("REPORTS", REPORTS));
    let (books, store) = (Books::on(endpoint), Proxy::before(endpoint).await);
    let variables = [&SPANS[..], &DIFFERENT, &[("FUNCTION_DYNAMODB_ENDPOINT", store.url())]].concat();
    let (cloud, provider) = books.cloud(endpoint, &variables).await;
    let faults = Faults::begin(&store, &provider);

    let storm = Storm::over(cloud);
    let (orders, reports) = (Load::of(&storm, number_of_orders), Load::of(&storm, number_of_reports));
    let buyers = (0..BUYERS).map(|number| {
        let mut random = Random::new(seed.0 ^ number as u64);
        orders.client(Random::new(!seed.0 ^ number as u64), move |number| {
            let card = random.of(&CARDS);
            Placed::new(number, card, &format!("sku-{}", number / 20), 1 + random.below(14) as u64)
        })
    });
    // The kills come as long as the load does.
    let more =
        (number_of_orders + number_of_reports) * DUPLICATES.1 / (DUPLICATES.1 - DUPLICATES.0) / kills.max(1);
    let blows = storm.kill(&VICTIMS, kills, Random::new(seed.0), (async || storm.came(), more));
    let readers = (0..READERS)
        .map(|number| reports.client(Random::new(!seed.0 ^ (BUYERS + number) as u64), Report::new));
    tokio::join!(blows, join_all(buyers), join_all(readers));

    let (ordered, written) = (orders.answered(), reports.answered());
    let states = books.at_rest(AT_REST_WITHIN).await;
    assert!(states.values().all(|state| state == "completed"), "{states:?}");
    assert_eq!(states.len(), ordered.len() + written.len());
    let dead = storm.cloud.all_delivered(&books).await;
    assert!(dead.is_empty(), "{dead:?}");
    storm.cloud.queues_at_rest().await;
    assert_once(&storm.cloud, &books, &ordered).await;
    let again = assert_shipped_once(&storm.cloud, &books, &ordered).await;
    assert_written_once(&books, &written).await;
    assert_eq!(provider.arrived("GET ").len(), 0, "nobody is asked while the provider remembers keys");
    faults.assert_used();

    let with = |status| ordered.iter().filter(|(_, answer)| answer.status == status).count();
    let (confirmed, declined, sold_out) = (with(201), with(402), with(409));
    let (requests, crashes) = (storm.came(), storm.cloud.crashes().await);
    let figures = format!(
        "{kills} kills {crashes:?}; {requests} requests; {} orders: {confirmed} confirmed, {declined} declined, {sold_out} sold out, \
         {again} deliveries repeated; {} reports",
        ordered.len(),
        written.len()
    );
    progress(&format!("{figures}\n"));
    // A process may be at its deadline when it is killed.
    assert!(2 * crashes.values().sum::<u64>() >= kills as u64, "{figures}");
    let number = ordered.len();
    assert!(confirmed > number / 3 && declined > 0 && sold_out > number / 20, "{figures}");
    assert!(requests > (number + written.len()) * 6 / 5, "{figures}");
}

/// A request of a load.
trait Request: Clone {
    fn key(&self) -> &str;

    /// Sends it until its answer is final.
    async fn answer(&self, storm: &Storm) -> Answer;
}

impl Request for Placed {
    fn key(&self) -> &str {
        &self.key
    }

    async fn answer(&self, storm: &Storm) -> Answer {
        self.answer(&storm.cloud).await
    }
}

impl Request for Report {
    fn key(&self) -> &str {
        &self.key
    }

    async fn answer(&self, storm: &Storm) -> Answer {
        self.answer(&storm.cloud).await
    }
}

/// Requests of one kind, from several clients.
struct Load<'a, R> {
    storm: &'a Storm,
    least: usize,
    begun: RefCell<Vec<R>>,
    /// By the key.
    answers: RefCell<BTreeMap<String, Vec<Answer>>>,
}

impl<'a, R: Request> Load<'a, R> {
    /// At least so many, and as long as the storm lasts.
    fn of(storm: &'a Storm, least: usize) -> Self {
        Self { storm, least, begun: RefCell::default(), answers: RefCell::default() }
    }

    /// Sends one request after the other: a `new` one, or a duplicate of one that perhaps is in flight.
    async fn client(&self, mut random: Random, mut new: impl FnMut(usize) -> R) {
        while let Some(request) = self.next(&mut random, &mut new) {
            let answer = request.answer(self.storm).await;
            self.storm.count(answer.status);
            self.answers.borrow_mut().entry(request.key().to_owned()).or_default().push(answer);
        }
    }

    fn next(&self, random: &mut Random, new: &mut impl FnMut(usize) -> R) -> Option<R> {
        let mut begun = self.begun.borrow_mut();
        if begun.len() >= self.least && self.storm.is_over() {
            return None;
        }
        if !begun.is_empty() && random.below(DUPLICATES.1) < DUPLICATES.0 {
            return Some(begun[random.below(begun.len())].clone());
        }
        let request = new(begun.len());
        begun.push(request.clone());
        Some(request)
    }

    /// Each request with its answer. Fails if one has two.
    fn answered(&self) -> Vec<(R, Answer)> {
        let (begun, answers) = (self.begun.borrow(), self.answers.borrow());
        let answered = begun.iter().map(|request| {
            let all = &answers[request.key()];
            let is_same = |answer: &Answer| (answer.status, &answer.body) == (all[0].status, &all[0].body);
            assert!(all.iter().all(is_same), "{} has one answer: {all:?}", request.key());
            (request.clone(), all[0].clone())
        });
        answered.collect()
    }
}
