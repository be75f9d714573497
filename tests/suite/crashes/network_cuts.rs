//! The network is cut during a payment, at every byte boundary that matters and in steps between them. Each payment ends as one charge and
//! its 201, or as a retryable error and no charge. No record is left open.
//!
//! `STEP=1` cuts at every byte.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use macro_rules_attribute::apply;

use crate::support::{
    books::{Books, Order},
    local_cloud::LocalCloud,
    on_dynamodb_local,
    proxy::{Cut, Exchange, Length, Proxy, Then},
    storm::SPANS,
};

/// Bytes from one cut to the next, away from the boundaries. It is a prime, so that it follows no pattern in a message.
const STEP: usize = 61;

/// Concurrent payments, each in a separate environment.
const AT_ONCE: usize = 6;

/// One more than the SDK's tries of a write, so that the function sees the failure.
const ALL_TRIES: usize = 4;

const AT_REST_WITHIN: Duration = Duration::from_secs(180);

/// A function outlives all tries of its calls.
const SLOWER: [(&str, &str); 3] =
    [("FUNCTION_TIMEOUT_MS", "10000"), ("PROVIDER_TIMEOUT_MS", "2000"), ("SWEEP_MS", "2000")];

/// One cut of one payment's requests.
#[derive(Clone, Copy, Debug)]
struct Blow {
    cut: Cut,
    then: Then,
    times: usize,
}

#[apply(on_dynamodb_local)]
async fn a_cut_to_the_provider_charges_at_most_once_and_settles_soon(endpoint: &str) {
    let (books, proxy) = (Books::on(endpoint), Proxy::start().await);
    let cloud = cloud(endpoint, &books, ("FUNCTION_PROVIDER_URL", proxy.url())).await;
    proxy.leads_to(cloud.provider());
    let charge =
        |order: &Order| vec!["POST /charges ".to_owned(), format!("\"amountCents\":{},", order.cents)];

    let mut orders = vec![paid(&cloud).await];
    let exchange = passed(&proxy, &charge(&orders[0]));
    let blows =
        [blows(exchange, Places::All, Then::Closed, 1), blows(exchange, Places::Joints, Then::Silent, 1)]
            .concat();
    let struck = strike(&cloud, &proxy, 1, &blows, charge).await;
    orders.extend(struck);
    proxy.pass();
    let charged_before = cloud.charges().await;
    for (order, blow) in orders[1..].iter().zip(&blows) {
        let charged = charged_before.iter().filter(|charge| charge.amount_cents == order.cents).count();
        match blow.cut {
            Cut::Request(bytes) if bytes < exchange.request.whole => assert_eq!(charged, 0, "{blow:?}"),
            // The provider may or may not carry out an order if its sender disconnects at once.
            Cut::Request(_) => {}
            Cut::Answer(_) => assert_eq!(charged, 1, "{blow:?}"),
        }
    }
    books.assert_consistent(&cloud, &orders, AT_REST_WITHIN).await;
}

// T1, T2, T17
#[apply(on_dynamodb_local)]
async fn a_cut_to_the_table_charges_at_most_once_and_settles_soon(endpoint: &str) {
    let (books, proxy) = (Books::on(endpoint), Proxy::before(endpoint).await);
    let cloud = cloud(endpoint, &books, ("FUNCTION_DYNAMODB_ENDPOINT", proxy.url())).await;

    let mut orders = vec![paid(&cloud).await];
    for write in [reservation, completion] {
        let exchange = passed(&proxy, &write(&orders[0]));
        let blows = [
            blows(exchange, Places::All, Then::Closed, 1),
            blows(exchange, Places::Joints, Then::Closed, ALL_TRIES),
            blows(exchange, Places::Few, Then::Silent, 1),
        ];
        let struck = strike(&cloud, &proxy, orders.len(), &blows.concat(), write).await;
        orders.extend(struck);
        proxy.pass();
    }
    books.assert_consistent(&cloud, &orders, AT_REST_WITHIN).await;
}

/// Texts that identify the first write of a record.
fn reservation(order: &Order) -> Vec<String> {
    let key = format!("#{}\"", order.key);
    vec!["DynamoDB_20120810.PutItem".to_owned(), "attribute_not_exists(pk)".to_owned(), key]
}

/// Texts that identify the completion of a record, with its payment.
fn completion(order: &Order) -> Vec<String> {
    let key = format!("#{}\"", order.key);
    vec![
        "DynamoDB_20120810.TransactWriteItems".to_owned(),
        "revision = :seen".to_owned(),
        "\"completed\"".to_owned(),
        key,
    ]
}

async fn cloud(endpoint: &str, books: &Books, through: (&str, &str)) -> LocalCloud {
    let own = [("TABLE_PREFIX", books.prefix()), through];
    let variables: Vec<_> = SPANS.into_iter().chain(SLOWER).chain(own).collect();
    LocalCloud::on(endpoint, &variables).await
}

/// The order of number 0, paid on a healthy network.
async fn paid(cloud: &LocalCloud) -> Order {
    let order = Order::new(0, "tok_ok");
    let answer = order.send(cloud).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    Order { final_answer: Some(answer), ..order }
}

fn passed(proxy: &Proxy, texts: &[String]) -> Exchange {
    let exchange = proxy.passed(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    exchange.unwrap_or_else(|| panic!("nothing with {texts:?} passed"))
}

/// Where a message is cut.
#[derive(Clone, Copy)]
enum Places {
    /// Before it, between head and body, and after it.
    Few,
    /// At the boundaries within a message, and next to them.
    Joints,
    /// The boundaries, and more places in steps.
    All,
}

impl Places {
    fn of(self, Length { head, whole }: Length) -> Vec<usize> {
        let joints = [0, 1, head / 2, head - 2, head, head + 1, head.midpoint(whole), whole - 1, whole];
        let step = std::env::var("STEP").map_or(STEP, |step| step.parse().expect("STEP is a whole number"));
        let mut places = match self {
            Self::Few => vec![0, head, whole],
            Self::Joints => joints.to_vec(),
            Self::All => joints.into_iter().chain((0..whole).step_by(step)).collect(),
        };
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// Cuts of both messages of an exchange, each at a different place.
fn blows(exchange: Exchange, places: Places, then: Then, times: usize) -> Vec<Blow> {
    let requests = places.of(exchange.request).into_iter().map(Cut::Request);
    let cuts = requests.chain(places.of(exchange.answer).into_iter().map(Cut::Answer));
    cuts.map(|cut| Blow { cut, then, times }).collect()
}

/// Sends an order for each blow, numbered from `first`, and returns them with the answers that arrived.
async fn strike(
    cloud: &LocalCloud,
    proxy: &Proxy,
    first: usize,
    blows: &[Blow],
    texts: impl Fn(&Order) -> Vec<String>,
) -> Vec<Order> {
    let struck = stream::iter(blows.iter().zip(first..)).map(async |(blow, number)| {
        let mut order = Order::new(number, "tok_ok");
        let texts = texts(&order);
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let rule = proxy.cut(&texts, blow.cut, blow.then, blow.times);
        loop {
            order.final_answer = Some(order.send(cloud).await).filter(|answer| answer.is_final());
            if proxy.used(rule) > 0 {
                break order;
            }
            // A breaker that earlier blows have opened refused the order before it was sent.
            assert!(order.final_answer.is_none(), "{blow:?} affected no request");
        }
    });
    struck.buffered(AT_ONCE).collect().await
}
