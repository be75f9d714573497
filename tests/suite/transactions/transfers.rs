//! Transfers between two accounts, in one round trip.

use std::{collections::HashSet, time::Duration};

use axum::{body::Body, http::Request};
use futures_util::{StreamExt, stream};
use lambda_idempotency::http::IDEMPOTENCY_KEY;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{http::Answer, local_cloud::LocalCloud, on_each_store, payments_api::PaymentsApi};

const NO_PROVIDER: &str = "http://127.0.0.1:1";
/// A client that must retry does so at once here, and this often at most.
const TRIES: usize = 1_000;
/// How many transfers there are, three of ten for the second time.
const TRANSFERS: u64 = 50;
/// How many of them meet. DynamoDB Local makes one transaction after another, and goes on with those whose clients have left: if many
/// clients come again at once, it does nothing else.
const AT_ONCE: usize = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The balance of each account at the start.
pub const OPENING: u64 = 100_000;

async fn api(endpoint: &str) -> PaymentsApi {
    PaymentsApi::on(endpoint, NO_PROVIDER).await
}

async fn transfer(api: &PaymentsApi, tenant: &str, key: &str, body: &Value) -> Answer {
    let request =
        Request::post("/transfers").header("content-type", "application/json").header(IDEMPOTENCY_KEY, key);
    api.send(tenant, request.body(Body::from(body.to_string())).unwrap()).await
}

/// The body of a transfer.
pub fn order(from: &str, to: &str, cents: u64) -> Value {
    json!({ "from": from, "to": to, "amountCents": cents })
}

async fn balances(api: &PaymentsApi, tenant: &str) -> Vec<u64> {
    balances_of(&api.get(tenant, "/accounts").await.json())
}

/// The balances, by account.
pub fn balances_of(accounts: &Value) -> Vec<u64> {
    let accounts = accounts["accounts"].as_array().expect("a list");
    accounts.iter().map(|account| account["balanceCents"].as_u64().expect("cents")).collect()
}

#[apply(on_each_store)]
async fn a_transfer_moves_money_once_and_is_replayed(endpoint: &str) {
    let api = api(endpoint).await;
    let first = transfer(&api, "acme", "k", &order("a-0", "a-9", 30)).await;
    assert_eq!((first.status, first.json()), (201, order("a-0", "a-9", 30)));
    transfer(&api, "acme", "k", &order("a-0", "a-9", 30)).await.assert_replay_of(&first);
    transfer(&api, "acme", "k", &order("a-0", "a-9", 31)).await.assert_problem(422, "key-reused");
    let expected = [[OPENING - 30].as_slice(), &[OPENING; 8], &[OPENING + 30]].concat();
    assert_eq!(balances(&api, "acme").await, expected);
    // Each tenant has separate accounts.
    assert_eq!(balances(&api, "other").await, [OPENING; 10]);
    assert!(!transfer(&api, "other", "k", &order("a-0", "a-9", 30)).await.replayed());
}

#[apply(on_each_store)]
async fn a_transfer_without_enough_money_is_a_kept_refusal(endpoint: &str) {
    let api = api(endpoint).await;
    for cents in [OPENING + 1, 1_000_000_000] {
        let refused = transfer(&api, "acme", &cents.to_string(), &order("a-0", "a-1", cents)).await;
        assert_eq!((refused.status, &refused.json()["type"]), (409, &json!("urn:payments:not-enough-money")));
        transfer(&api, "acme", &cents.to_string(), &order("a-0", "a-1", cents))
            .await
            .assert_replay_of(&refused);
    }
    assert_eq!(transfer(&api, "acme", "all", &order("a-0", "a-1", OPENING)).await.status, 201);
    assert_eq!(transfer(&api, "acme", "more", &order("a-0", "a-1", 1)).await.status, 409);
    assert_eq!(balances(&api, "acme").await[..2], [0, 2 * OPENING]);
}

#[apply(on_each_store)]
async fn an_invalid_transfer_leaves_its_key_free(endpoint: &str) {
    let api = api(endpoint).await;
    for wrong in [
        json!([]),
        json!({}),
        order("a-0", "a-0", 1),
        order("a-0", "a-10", 1),
        order("b-0", "a-1", 1),
        order("a-0", "a-1", 0),
        order("a-0", "a-1", 1_000_000_001),
        order("a-00", "a-1", 1),
        order("a-0", "a-+1", 1),
        json!({ "from": "a-0", "to": "a-1", "amountCents": -1 }),
        json!({ "from": "a-0", "to": "a-1", "amountCents": 1, "more": 1 }),
    ] {
        assert_eq!(transfer(&api, "acme", "k", &wrong).await.status, 422, "{wrong}");
    }
    assert_eq!(transfer(&api, "acme", "k", &order("a-0", "a-1", 1)).await.status, 201);
}

// T20
#[apply(on_each_store)]
async fn simultaneous_transfers_keep_the_sum_and_each_happens_once(endpoint: &str) {
    let api = &api(endpoint).await;
    // Three of ten are duplicates.
    let orders = (0..TRANSFERS).map(|number| {
        let number = if number % 10 >= 7 { number - 7 } else { number };
        let (from, to) = (number % 10, (number + 1 + number / 10 % 9) % 10);
        (number.to_string(), order(&format!("a-{from}"), &format!("a-{to}"), 1 + number))
    });
    let orders: Vec<_> = orders.collect();
    let answers = stream::iter(&orders).map(|(key, order)| async move {
        for _ in 0..TRIES {
            let answer = transfer(api, "acme", key, order).await;
            if answer.status == 201 {
                return answer;
            }
            assert_eq!(answer.status, 503, "{answer:?}");
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
        panic!("{key} has no answer")
    });
    let answers: Vec<_> = answers.buffered(AT_ONCE).collect().await;
    let mut expected = vec![OPENING; 10];
    let mut seen = HashSet::new();
    for ((key, order), answer) in orders.iter().zip(&answers) {
        assert_eq!(answer.json(), *order);
        if seen.insert(key) {
            let account = |name: &str| order[name].as_str().unwrap()[2..].parse::<usize>().unwrap();
            expected[account("from")] -= order["amountCents"].as_u64().unwrap();
            expected[account("to")] += order["amountCents"].as_u64().unwrap();
        }
    }
    assert_eq!(balances(api, "acme").await, expected);
}

// T1
#[apply(on_each_store)]
async fn a_process_dying_around_its_commit_moves_money_at_most_once(endpoint: &str) {
    let cloud = LocalCloud::on(endpoint, &[]).await;
    let send = async |key: &str, test: &str| {
        let mut body = order("a-0", "a-1", 30);
        body["test"] = test.into();
        let request = reqwest::Client::new().post(format!("{}/transfers", cloud.url()));
        let request = request.bearer_auth("acme").header("idempotency-key", key).json(&body);
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.headers().contains_key("idempotent-replayed"))
    };
    assert_eq!(send("after", "crash_after").await, (502, false));
    assert_eq!(send("after", "crash_after").await, (201, true));
    for _ in 0..2 {
        assert_eq!(send("before", "crash_before").await, (502, false));
    }
    let get = async |path: &str| {
        let request = reqwest::Client::new().get(format!("{}{path}", cloud.url())).bearer_auth("acme");
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    assert_eq!(balances_of(&get("/accounts").await.1)[..2], [OPENING - 30, OPENING + 30]);
    // It left no record at all.
    assert_eq!(get("/operations?key=before&operation=transfer").await.0, 404);
    let (status, after) = get("/operations?key=after&operation=transfer").await;
    assert_eq!((status, &after["state"]), (200, &json!("completed")));
}
