//! The chapter for authors of clients lists what answers have: codes, statuses, headers.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use lambda_idempotency::{
    http::{IDEMPOTENCY_KEY, IDEMPOTENCY_TIMESTAMP, IDEMPOTENT_REPLAYED_BODY, Profile},
    operation::{Operation, WhileInFlight},
    store::memory::MemoryStore,
};
use local::yaml;
use serde_json::Value;

use crate::support::http::{Gate, PAY, api, guard, guard_of, pay, pay_other, send};

const CLIENTS: &str = include_str!("../../../docs/clients.md");
const CONTRACT: &str = include_str!("../../../docs/contract.md");
const OPENAPI: &str = include_str!("../../../docs/openapi.yaml");

/// What every script may read (<https://fetch.spec.whatwg.org/#cors-safelisted-response-header-name>).
const SAFELISTED: [&str; 7] = [
    "cache-control",
    "content-language",
    "content-length",
    "content-type",
    "expires",
    "last-modified",
    "pragma",
];

/// Problems in the contract's table, in the default profile.
struct Row {
    codes: Vec<&'static str>,
    statuses: Vec<&'static str>,
    has_retry_after: bool,
    /// Whether only the route of the status answers with them.
    is_of_a_status: bool,
}

fn rows() -> Vec<Row> {
    let table = CONTRACT.lines().skip_while(|line| !line.ends_with("problem `type` |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (named, statuses) = (cells[4].split('`').skip(1).step_by(2), cells[1].split([',', ' ']));
        Row {
            codes: named.filter(|name| *name != "reason").collect(),
            statuses: statuses.filter(|word| word.parse::<u16>().is_ok()).collect(),
            has_retry_after: cells[1].contains("`Retry-After`"),
            is_of_a_status: cells[0].contains("is asked for"),
        }
    });
    let rows: Vec<_> = rows.filter(|row| !row.codes.is_empty()).collect();
    assert!(rows.len() > 15, "the contract's table has {} rows with problems", rows.len());
    rows
}

/// The chapter's block of YAML with this beginning.
fn block(beginning: &str) -> Value {
    let at = CLIENTS.find(beginning).expect("the chapter has the block");
    yaml::parse(CLIENTS[at..].split_once("\n```").expect("the block is closed").0).expect("YAML")
}

/// The fragment of OpenAPI that authors of an API copy.
fn openapi() -> Value {
    yaml::parse(OPENAPI).expect("YAML")
}

/// What this value refers to, if it is a reference.
fn referred<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let Some(reference) = value["$ref"].as_str() else { return value };
    let found = document.pointer(reference.trim_start_matches('#'));
    found.unwrap_or_else(|| panic!("{reference} does not exist"))
}

fn texts(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().expect("a list").iter();
    list.map(|text| text.as_str().expect("text").to_owned()).collect()
}

fn members(object: &Value) -> BTreeSet<String> {
    object.as_object().expect("an object").keys().cloned().collect()
}

#[test]
fn the_openapi_fragment_has_every_code_and_status_of_the_contract() {
    let (openapi, rows) = (openapi(), rows());
    let problem = &openapi["components"]["schemas"]["Problem"];
    let code = referred(&openapi, &problem["properties"]["code"]);
    let codes: BTreeSet<_> = rows.iter().flat_map(|row| &row.codes).map(|code| (*code).to_owned()).collect();
    assert_eq!(texts(&code["enum"]), codes);

    let mut retried = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.is_of_a_status) {
        for status in &row.statuses {
            *retried.entry(*status).or_insert(false) |= row.has_retry_after;
        }
    }
    let responses = &openapi["paths"]["/payments"]["post"]["responses"];
    let are_known =
        |status: &String| ["201", "4XX", "5XX"].contains(&&**status) || retried.contains_key(&**status);
    assert!(members(responses).iter().all(are_known), "{:?}", members(responses));
    for (status, has_retry_after) in &retried {
        let other = responses.get("4XX").filter(|_| status.starts_with('4'));
        let response = responses.get(*status).or(other).unwrap_or_else(|| panic!("no response for {status}"));
        let response = referred(&openapi, response);
        assert_eq!(response["headers"].get("Retry-After").is_some(), *has_retry_after, "{status}");
        let schema = &response["content"]["application/problem+json"]["schema"];
        assert_eq!(referred(&openapi, schema), problem, "{status}");
    }
}

#[tokio::test]
async fn the_openapi_fragment_has_the_members_of_a_problem() {
    let openapi = openapi();
    let problem = &openapi["components"]["schemas"]["Problem"];
    let app = api(guard(MemoryStore::new()), |_, _| async {});
    send(&app, pay("order-1")).await;
    let mismatch = send(&app, pay_other("order-1")).await.json();
    // The handler's own problems have no code.
    let mut required = texts(&problem["required"]);
    assert!(required.insert("code".to_owned()));
    assert_eq!(required, members(&mismatch));
    let malformed = send(&app, pay("")).await.json();
    assert_eq!(members(&problem["properties"]), members(&malformed));
}

#[tokio::test]
async fn the_lists_for_browsers_have_every_header_that_clients_need() {
    let cors = block("CorsConfiguration:");
    let listed = |name: &str| -> BTreeSet<String> {
        texts(&cors["CorsConfiguration"][name]).iter().map(|name| name.to_ascii_lowercase()).collect()
    };
    let sent = [AUTHORIZATION, CONTENT_TYPE, IDEMPOTENCY_KEY, IDEMPOTENCY_TIMESTAMP];
    let sent: BTreeSet<_> = sent.iter().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(listed("AllowHeaders"), sent);

    let gate = Gate::closed();
    let operation = Operation::new(PAY).while_in_flight(WhileInFlight::Accept);
    let profile = Profile::ietf_draft().documentation("https://api.example.com/idempotency");
    let held = gate.clone();
    let app = api(guard_of(MemoryStore::new(), operation).profile(profile), move |_, _| {
        let held = held.clone();
        async move { held.pass().await }
    });
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, pay("order-1")).await }
    });
    gate.reached(1).await;
    let (accepted, mismatch) = (send(&app, pay("order-1")).await, send(&app, pay_other("order-1")).await);
    gate.open();
    let first = first.await.expect("the first request is answered");
    let replay = send(&app, pay("order-1")).await;
    let statuses = [&accepted, &mismatch, &first, &replay].map(|answer| answer.status);
    assert_eq!((statuses, replay.replayed()), ([202, 422, 200, 200], true));
    let answers = [accepted, mismatch, first, replay];
    let names = answers.iter().flat_map(|answer| answer.headers.keys()).map(ToString::to_string);
    let names = names.filter(|name| !SAFELISTED.contains(&&**name));
    // Other tests have bodies that are omitted.
    let read: BTreeSet<_> = names.chain([IDEMPOTENT_REPLAYED_BODY.to_string()]).collect();
    assert_eq!(listed("ExposeHeaders"), read);
}
