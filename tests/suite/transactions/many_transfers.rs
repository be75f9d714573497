//! Hundreds of transfers among ten accounts, through four processes, while transactions fail.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use macro_rules_attribute::apply;

use super::transfers::{OPENING, balances_of, order};
use crate::support::{
    alone_on_dynamodb_local,
    faults::cancelled_by_conflict,
    local_cloud::LocalCloud,
    proxy::{Act, Cut, Proxy, Then},
    random::{Random, Seed},
};

const TRANSFERS: usize = 210;
const DUPLICATES: usize = 90;

const ANSWERED_WITHIN: Duration = Duration::from_secs(240);
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

// T9, T10, T11, T20: three in ten requests are duplicates. Of the transactions that arrive, every tenth meets a conflict. Of
// the others, every ninth loses its answer, and every ninth of the rest is sent again when its token is forgotten.
#[apply(alone_on_dynamodb_local)]
async fn hundreds_of_transfers_through_four_processes_under_faults_happen_once_each(endpoint: &str) {
    let (proxy, seed) = (Proxy::before(endpoint).await, Seed::find());
    let variables = [("ENVIRONMENTS", "4"), ("FUNCTION_DYNAMODB_ENDPOINT", proxy.url())];
    let cloud = &LocalCloud::on(endpoint, &variables).await;
    let mut random = Random::new(seed.0);
    let mut transfers: Vec<_> = (0..TRANSFERS)
        .map(|number| {
            let from = random.below(10);
            let to = (from + 1 + random.below(9)) % 10;
            // Some find too little money.
            let cents = 1 + random.below(40_000) as u64;
            (format!("t-{number}"), from, to, cents)
        })
        .collect();
    for _ in 0..DUPLICATES {
        let duplicate = transfers[random.below(transfers.len())].clone();
        transfers.insert(random.below(transfers.len()), duplicate);
    }
    let transaction = ["DynamoDB_20120810.TransactWriteItems"];
    let conflicts = proxy.to_every(10, &transaction, Act::Answer(400, cancelled_by_conflict()));
    let lost = proxy.to_every(9, &transaction, Act::Cut(Cut::Answer(0), Then::Closed));
    let again = proxy.to_every(9, &transaction, Act::TwiceUnderAnotherToken);

    let answers = stream::iter(&transfers).map(|(key, from, to, cents)| async move {
        let order = order(&format!("a-{from}"), &format!("a-{to}"), *cents);
        let deadline = Instant::now() + ANSWERED_WITHIN;
        while Instant::now() < deadline {
            let request = cloud.post("/transfers").bearer_auth("acme").header("idempotency-key", key);
            let answer = request.json(&order).send().await.expect("the gateway answers");
            let (status, body) = (answer.status().as_u16(), answer.text().await.expect("text"));
            match status {
                201 => return (status, body),
                409 if body.contains("not-enough-money") => return (status, body),
                // The client sends the same request again, also if the function was killed at its deadline.
                502..=504 => tokio::time::sleep(BETWEEN_TRIES).await,
                _ => panic!("{status} {body}"),
            }
        }
        panic!("{key} has no answer")
    });
    let answers: Vec<_> = answers.buffered(32).collect().await;

    assert_eq!(cloud.environments().await.len(), 4);
    let used = [conflicts, lost, again].map(|rule| proxy.used(rule));
    assert!(used.iter().all(|used| *used >= (TRANSFERS + DUPLICATES) / 15), "{used:?}");
    // The balance may be below zero in between, because they did not happen in this order. A run's answer repeats its request, so only the
    // balances would show that one was made twice.
    let (mut expected, mut by_key) = ([OPENING as i64; 10], HashMap::new());
    for ((key, from, to, cents), answer) in transfers.iter().zip(&answers) {
        match by_key.insert(key, answer) {
            Some(before) => assert_eq!(before, answer, "{key} has one answer"),
            None if answer.0 == 201 => {
                expected[*from] -= *cents as i64;
                expected[*to] += *cents as i64;
            }
            None => {}
        }
    }
    let accounts = cloud.get("/accounts").bearer_auth("acme").send().await.expect("the gateway answers");
    let balances = balances_of(&accounts.json().await.expect("JSON"));
    assert_eq!(balances.into_iter().map(|cents| cents as i64).collect::<Vec<_>>(), expected);
    let refused = by_key.values().filter(|(status, _)| *status == 409).count();
    assert!((1..by_key.len()).contains(&refused), "{refused} of {} are refused", by_key.len());
}
