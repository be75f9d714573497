//! The state of a local cloud, read directly: its records, its ledger of payments, and the provider's ledger.

use super::client::client;
use super::local_cloud::{Charge, LocalCloud};
use super::payments::Answer;
use super::proxy::Proxy;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Concurrent clients in the final check.
const AT_ONCE: usize = 8;

type Item = HashMap<String, AttributeValue>;

/// A payment that a test requested.
#[derive(Debug)]
pub struct Order {
    pub key: String,
    pub card: &'static str,
    /// Unique to this order, so that it identifies the provider's charges for it.
    pub cents: u64,
    /// Its final answer, if the client waited until it arrived.
    pub final_answer: Option<Answer>,
}

impl Order {
    /// An order that has not been sent. All numbers below 900,000 make keys and amounts of the same length.
    pub fn new(number: usize, card: &'static str) -> Self {
        Self { key: format!("order-{number:06}"), card, cents: 100_000 + number as u64, final_answer: None }
    }

    pub async fn send(&self, cloud: &LocalCloud) -> Answer {
        cloud.pay_cents(&self.key, self.card, self.cents).await
    }

    /// The ids of its charges.
    fn charged(&self, charges: &[Charge]) -> Vec<String> {
        charges
            .iter()
            .filter(|charge| charge.amount_cents == self.cents)
            .map(|charge| charge.id.clone())
            .collect()
    }

    /// Fails unless the answer is final, equals an earlier final answer, and belongs to the one charge.
    fn check(&self, answer: &Answer, charges: &[Charge]) {
        if let Some(earlier) = &self.final_answer {
            let same = (answer.status, &answer.body, &answer.location)
                == (earlier.status, &earlier.body, &earlier.location);
            assert!(same && answer.replayed, "{self:?} gets {answer:?}");
        }
        let payment: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
        let paid: Vec<_> = payment["chargeId"].as_str().into_iter().collect();
        assert_eq!(answer.status, if self.card == "tok_declined" { 402 } else { 201 }, "{self:?}");
        assert_eq!(paid.len(), usize::from(answer.status == 201), "{self:?}: {payment}");
        assert_eq!(self.charged(charges), paid, "{self:?}");
    }
}

/// The tables of one local cloud.
pub struct Books {
    client: Client,
    prefix: String,
}

impl Books {
    /// The tables of a cloud that will be started with [`prefix`](Self::prefix).
    pub fn on(endpoint: &str) -> Self {
        Self { client: client(endpoint), prefix: format!("t{}-", Uuid::new_v4().simple()) }
    }

    /// The cloud's `TABLE_PREFIX`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Starts a cloud with these tables, and a proxy between its functions and its provider.
    pub async fn cloud(&self, endpoint: &str, more: &[(&str, &str)]) -> (LocalCloud, Proxy) {
        let provider = Proxy::start().await;
        let own = [("TABLE_PREFIX", self.prefix()), ("FUNCTION_PROVIDER_URL", provider.url())];
        let variables: Vec<_> = own.into_iter().chain(more.iter().copied()).collect();
        let cloud = LocalCloud::on(endpoint, &variables).await;
        provider.leads_to(cloud.provider());
        (cloud, provider)
    }

    /// The name of the table of records.
    pub fn idempotency_table(&self) -> String {
        format!("{}idempotency", self.prefix)
    }

    /// Fails unless every record is settled within that time without help, each order was charged at most once and as its record says, and
    /// both ledgers agree. Then every client retries until its answer is final. That answer must equal an earlier final answer, and name
    /// the one existing charge.
    pub async fn assert_consistent(&self, cloud: &LocalCloud, orders: &[Order], within: Duration) {
        let states = self.at_rest(within).await;
        let charges = cloud.charges().await;
        for order in orders {
            let charged = order.charged(&charges).len();
            match states.get(&order.key).map(String::as_str) {
                Some("completed") => {
                    assert_eq!(charged, usize::from(order.card != "tok_declined"), "{order:?}")
                }
                state => {
                    assert!(
                        charged == 0 && order.final_answer.is_none(),
                        "{order:?} is {state:?}, {charged} charges"
                    )
                }
            }
        }
        self.agree_with(&charges).await;

        let mut answers = Vec::new();
        for some in orders.chunks(AT_ONCE) {
            let asked = some.iter().map(|order| cloud.pay_in_the_end(&order.key, order.card, order.cents));
            answers.extend(join_all(asked).await);
        }
        let charges = cloud.charges().await;
        orders.iter().zip(&answers).for_each(|(order, answer)| order.check(answer, &charges));
        self.agree_with(&charges).await;
    }

    /// The state of each record of a request, by its idempotency key. Shipments are not requested.
    pub async fn states(&self) -> BTreeMap<String, String> {
        let items = self.scan(&self.idempotency_table()).await;
        let records = items.iter().filter(|item| text(item, "sk") == "record");
        let records = records.filter(|item| text(item, "pk").split('#').nth(1) != Some("ship"));
        let key = |item| text(item, "pk").rsplit('#').next().unwrap_or_default().to_owned();
        records.map(|item| (key(item), text(item, "state").to_owned())).collect()
    }

    /// The state of each record, once none is open.
    pub async fn at_rest(&self, within: Duration) -> BTreeMap<String, String> {
        let deadline = Instant::now() + within;
        loop {
            let states = self.states().await;
            let is_settled = |state: &String| state == "completed" || state == "failed_retryable";
            let open: Vec<_> = states.iter().filter(|(_, state)| !is_settled(state)).collect();
            if open.is_empty() {
                return states;
            }
            assert!(Instant::now() < deadline, "still open after {within:?}: {open:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Fails unless the payments are those that the provider charged, with nothing missing or different on either side.
    pub async fn agree_with(&self, charges: &[Charge]) {
        let items = self.scan(&format!("{}payments", self.prefix)).await;
        let cents = |item: &Item| item["amountCents"].as_n().expect("a number").parse().expect("cents");
        let mut ours: Vec<(String, u64)> =
            items.iter().map(|item| (text(item, "chargeId").to_owned(), cents(item))).collect();
        let mut theirs: Vec<_> =
            charges.iter().map(|charge| (charge.id.clone(), charge.amount_cents)).collect();
        ours.sort();
        theirs.sort();
        let only = |here: &[(String, u64)], current: &[(String, u64)]| -> Vec<_> {
            here.iter().filter(|line| !current.contains(line)).cloned().collect()
        };
        let differences = (only(&ours, &theirs), only(&theirs, &ours));
        assert!(ours == theirs, "only in our ledger, only in the provider's: {differences:?}");
    }

    /// How many messages are in the outbox.
    pub async fn undelivered(&self) -> usize {
        let items = self.scan(&self.idempotency_table()).await;
        items.iter().filter(|item| text(item, "sk").starts_with("message#")).count()
    }

    /// The rows of all orders.
    pub async fn orders(&self) -> Vec<Value> {
        let items = self.scan(&format!("{}orders", self.prefix)).await.into_iter();
        let orders = items.filter(|item| text(item, "sk").starts_with("order#"));
        orders.map(|item| serde_dynamo::from_item(item).expect("a row")).collect()
    }

    /// How often each report was written, by its id.
    pub async fn reports(&self) -> BTreeMap<String, u64> {
        let items = self.scan(&format!("{}orders", self.prefix)).await;
        let reports = items.iter().filter_map(|item| Some((text(item, "sk").strip_prefix("report#")?, item)));
        let times = |item: &Item| item.get("times")?.as_n().ok()?.parse().ok();
        reports.map(|(id, item)| (id.to_owned(), times(item).unwrap_or_default())).collect()
    }

    async fn scan(&self, table: &str) -> Vec<Item> {
        let scan = self.client.scan().table_name(table).consistent_read(true);
        let items = scan.into_paginator().items().send();
        items.collect::<Result<_, _>>().await.unwrap_or_else(|error| panic!("{table}: {error:?}"))
    }
}

fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item.get(name).and_then(|value| value.as_s().ok()).map_or("", |text| text)
}
