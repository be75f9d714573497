//! The operators' command line: what it shows, what it changes, and what happens if an operator makes a mistake.

mod alarms;
mod arguments;
mod asking;
mod clocks;
mod creating;
mod denied;
mod finding;
mod holding;
mod hostile;
mod listing;
mod not_found;
mod open;
mod phases;
mod queues;
mod recipes;
mod redrive;
mod settling;
mod table;
mod tenants;
mod waiting;

use std::fs;

use axum::{
    Router,
    body::Bytes,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use lambda_idempotency::{
    key::Scope,
    record::{Effects, SettledBy, State},
    store::{Store, WriteOutcome, conformance::samples},
    world::{SystemWorld, World},
};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::{
    command::CommandLine,
    embedded,
    guarded::{RETENTION, fresh, random, record_key},
    http::Gate,
};
use table::{OperatorsTable, TENANT};

const WHY: [&str; 3] = ["--yes", "--reason", "the bank's portal says so"];

async fn table() -> OperatorsTable {
    OperatorsTable::new(embedded::endpoint()).await
}

/// A file with an answer, and the temporary folder that holds it.
fn answer(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("answer.json");
    fs::write(&file, text).expect("a file");
    let file = file.to_str().expect("a path in UTF-8").to_owned();
    (folder, file)
}

#[tokio::test]
async fn an_operator_settles_an_unknown_outcome_in_two_commands() {
    let table = table().await;
    let unknown = table.unknown("k-1").await;
    let (_folder, file) = answer(
        r#"{ "status": 201, "headers": {"Location": "/payments/1"}, "body": { "id": 1, "x": 1.10 } }"#,
    );

    let listed = table.cli.json(&["list", "--state", "unknown"]).await;
    let listed = &listed[0];
    assert_eq!((&listed["key"], &listed["unknown"]["cause"]), (&json!("k-1"), &json!("lease_expired")));
    let name = |part: &str| listed[part].as_str().unwrap().to_owned();
    let record = format!("{}#{}#{}", name("tenant"), name("operation"), name("key"));
    let settle = ["settle", &record, "--completed", "--response", &file];
    let settled = table.cli.json(&[&settle[..], &WHY].concat()).await;
    assert_eq!(
        (&settled["before"]["state"], &settled["after"]["state"]),
        (&json!("unknown"), &json!("completed"))
    );

    let record = table.record("k-1").await;
    let State::Completed { answer, .. } = &record.state else { panic!("{record:?}") };
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let headers = [header("location", "/payments/1"), header("content-type", "application/json")];
    assert_eq!((answer.head.status(), answer.head.headers()), (Some(201), &headers[..]));
    assert_eq!((answer.body_place(), answer.body_length()), ("record", 17));
    assert_eq!(record.attempts, unknown.attempts);

    // The audit line has operator, time, command, reason, former state and new state.
    let shown = table.cli.json(&["show", "-t", TENANT, "-o", "create-payment", "k-1", "--body"]).await;
    assert_eq!(shown["body"]["text"], r#"{"id":1,"x":1.10}"#);
    let lines = shown["audit"].as_array().unwrap();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line["who"].as_str().unwrap().starts_with("olga@"));
    assert_eq!((&line["what"], &line["reason"]), (&json!("settle-completed"), &json!(WHY[2])));
    assert_eq!(line["at"], shown["record"]["completed_at"]);
    let state = |record: &lambda_idempotency::record::Record| {
        json!({
            "state": record.state.name(),
            "revision": record.revision.to_string(),
            "attempts": record.attempts,
        })
    };
    assert_eq!((&line["before"], &line["after"]), (&state(&unknown), &state(&record)));
    assert_eq!(table.cli.json(&["list", "--state", "unknown"]).await, json!([]));
}

#[tokio::test]
async fn an_outcome_that_was_not_executed_is_free_for_the_next_retry() {
    let table = table().await;
    table.unknown("k-1").await;
    let record = table.name("k-1");
    let ran =
        table.cli.run(&[&["settle", &record, "--not-executed", "--as", "kim"][..], &WHY].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("unknown → failed_retryable") && ran.stdout.contains("kim"), "{ran:?}");
    assert!(!ran.stdout.contains('\u{1b}'), "colours without a terminal: {ran:?}");
    assert_eq!(table.record("k-1").await.state.name(), "failed_retryable");

    // Proof of an execution outweighs a release.
    let (_folder, file) = answer(r#"{"status":201,"body":{"id":1}}"#);
    let settle = ["settle", &record, "--completed", "--response", &file];
    table.cli.json(&[&settle[..], &WHY].concat()).await;
    assert_eq!(table.record("k-1").await.state.name(), "completed");
}

#[tokio::test]
async fn an_operators_mistake_gets_one_clear_line_and_changes_nothing() {
    let table = table().await;
    for record in [table.unknown("unknown").await, table.in_progress("live").await] {
        assert_eq!(record.key.tenant().as_str(), TENANT);
    }
    table.completed("completed", "kept").await;
    let (_folder, file) = answer(r#"{"status":201,"body":{}}"#);
    let (_other, unsafe_file) = answer(r#"{"status":201,"text":"","headers":{"set-cookie":"a=b"}}"#);
    let (_third, empty_file) = answer(r#"{"status":200}"#);
    let before = table.items().await;

    let settle = |record: &str, file: &str| {
        let command = ["settle", record, "--completed", "--response", file].map(str::to_owned);
        command.into_iter().chain(WHY.map(str::to_owned)).collect::<Vec<_>>()
    };
    let change = |command: &str, more: &[&str]| {
        let text = command.split(' ').chain(more.iter().copied());
        text.map(str::to_owned).collect::<Vec<_>>()
    };
    let own = |key: &str| table.name(key);
    let not_executed = |record: &str| change(&format!("settle {record} --not-executed"), &WHY);
    let forget = |record: &str| change(&format!("forget-response {record}"), &WHY);
    let cases = [
        (settle(&own("k-9"), &file), 3, "has no record of tenant"),
        (settle("shop-b#create-payment#unknown", &file), 3, "has no record of tenant"),
        (settle(&format!("{TENANT}#refund#unknown"), &file), 3, "has no record of tenant"),
        (settle(&own("live"), &file), 3, "its lease has not expired"),
        (settle(&own("completed"), &file), 3, "is settled as completed"),
        (not_executed(&own("live")), 3, "its lease has not expired"),
        (not_executed(&own("completed")), 3, "is settled as completed"),
        (forget(&own("unknown")), 3, "is unknown"),
        (forget(&own("live")), 3, "is in_progress"),
        (forget(&own("k-9")), 3, "has no record of tenant"),
        (change("show", &[&own("k-9")]), 3, "has no record of tenant"),
        (settle("unknown", &file), 2, "tenant#operation#key"),
        (settle(&own("unknown"), &unsafe_file), 2, "set-cookie"),
        (settle(&own("unknown"), &empty_file), 2, "give `body` or `text`"),
        (settle(&own("unknown"), "no-such-file"), 2, "no-such-file"),
        (change(&format!("settle {} --not-executed --retain 1h", own("unknown")), &WHY), 2, "`--retain`"),
        (
            change(&format!("settle {} --not-executed --retain 1h", own("completed")), &WHY),
            3,
            "is settled as",
        ),
        (change("settle", &[&own("unknown"), "--not-executed", "--reason", "x"]), 2, "--yes"),
        (change("forget-response", &[&own("completed"), "--reason", "x"]), 2, "--yes"),
    ];
    for (arguments, code, text) in cases {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        table.cli.run(&arguments).await.assert_refused(code, text);
    }
    // The record still exists. Only its body is gone.
    let ran = table.cli.run(&["show", &own("live"), "--body"]).await;
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(3), 1), "{ran:?}");
    assert!(ran.stdout.contains("in_progress") && ran.stderr.contains("keeps no body"), "{ran:?}");
    let ran = table.cli.run(&["show", &own("live"), "--body", "--output", "json"]).await;
    let shown: Value = serde_json::from_str(&ran.stdout).expect("one JSON document");
    assert_eq!((ran.code, &shown["record"]["key"], shown.get("body")), (Some(3), &json!("live"), None));
    assert_eq!(table.items().await, before);
}

// T32
#[tokio::test]
async fn of_two_racing_operators_one_wins_and_the_other_is_refused() {
    let table = table().await;
    table.unknown("k-1").await;
    let record = table.name("k-1");
    let (late, gate) = held_before_transactions(embedded::endpoint()).await;
    let late = table.cli.through(&late);
    let slow = tokio::spawn({
        let record = record.clone();
        async move {
            let settle = ["settle", &record, "--not-executed", "--output", "json"];
            late.run(&[&settle[..], &WHY].concat()).await
        }
    });
    // The slow operator has read the record and is about to write.
    gate.reached(1).await;
    let (_folder, file) = answer(r#"{"status":201,"body":{"id":1}}"#);
    let settle = ["settle", &record, "--completed", "--response", &file, "--as", "kim"];
    table.cli.json(&[&settle[..], &WHY].concat()).await;
    let before = table.items().await;
    gate.open();
    slow.await.unwrap().assert_refused(3, "changed meanwhile, and is completed now");
    assert_eq!(table.items().await, before);
    let shown = table.cli.json(&["show", &record]).await;
    let lines = shown["audit"].as_array().unwrap();
    assert_eq!((lines.len(), &lines[0]["who"]), (1, &json!("kim")));
}

/// A relay to the store at `endpoint` that holds transactions at a gate.
async fn held_before_transactions(endpoint: &str) -> (String, std::sync::Arc<Gate>) {
    let gate = std::sync::Arc::new(Gate::closed());
    let (endpoint, held, client) = (endpoint.to_owned(), gate.clone(), reqwest::Client::new());
    let relay = async move |headers: HeaderMap, body: Bytes| {
        let target = headers.get("x-amz-target").expect("a request to DynamoDB");
        if target.to_str().is_ok_and(|target| target.ends_with("TransactWriteItems")) {
            held.pass().await;
        }
        relayed(&client, &endpoint, headers, body).await
    };
    (served(Router::new().fallback(relay)).await, gate)
}

/// What the store at `endpoint` answers to this request.
async fn relayed(client: &reqwest::Client, endpoint: &str, headers: HeaderMap, body: Bytes) -> Response {
    let answer = client.post(endpoint).headers(headers).body(body).send().await.expect("an answer");
    let (status, headers) = (answer.status(), answer.headers().clone());
    (status, headers, answer.bytes().await.expect("a whole answer")).into_response()
}

/// Serves a relay, and returns its address.
async fn served(relay: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("its address"));
    tokio::spawn(async move { axum::serve(listener, relay).await });
    address
}

#[tokio::test]
async fn a_forgotten_response_leaves_no_body_behind_and_nothing_runs_again() {
    let table = table().await;
    table.unknown("k-1").await;
    // Too long for the record even when compressed.
    let long: String = random(10_000).iter().map(|byte| format!("{byte:02x}")).collect();
    let record = table.name("k-1");
    let (_folder, file) = answer(&json!({ "status": 200, "text": long }).to_string());
    let settle = ["settle", &record, "--completed", "--response", &file];
    table.cli.json(&[&settle[..], &WHY].concat()).await;
    let shown = table.cli.json(&["show", &record, "--body"]).await;
    assert_eq!(
        (&shown["body"]["text"], &shown["record"]["response"]["body_place"]),
        (&json!(long), &json!("body_item"))
    );
    let kept = table.record("k-1").await;
    assert!(table.sort_keys().await.iter().any(|sk| sk.starts_with("body#")));

    table.cli.json(&[&["forget-response", &record][..], &WHY].concat()).await;
    let forgotten = table.record("k-1").await;
    let State::Completed { answer, expires_at, .. } = &forgotten.state else { panic!("{forgotten:?}") };
    assert_eq!((answer.head.status(), answer.head.headers().len()), (Some(200), 0));
    assert_eq!((answer.body_place(), answer.body_length()), ("omitted", long.len() as u64));
    assert_eq!(Some(*expires_at), kept.state.expires_at());
    let left = table.sort_keys().await;
    assert!(left.iter().all(|sk| sk == "record" || sk.starts_with("audit#")) && left.len() == 3, "{left:?}");
    assert_eq!(table.retry("k-1").await, "replay");
    let shown = table.cli.run(&["show", &record]).await;
    assert!(shown.stdout.contains("20000 bytes, left out"), "{shown:?}");

    let again = table.cli.run(&[&["forget-response", &record][..], &WHY].concat()).await;
    again.assert_refused(3, "neither headers nor a body");
}

#[tokio::test]
async fn a_long_body_that_compresses_stays_in_the_record() {
    let table = table().await;
    table.unknown("k-1").await;
    let record = table.name("k-1");
    let long = "all work and no play ".repeat(2_000);
    let (_folder, file) = answer(&json!({ "status": 200, "text": long }).to_string());
    let settle = ["settle", &record, "--completed", "--response", &file];
    table.cli.json(&[&settle[..], &WHY].concat()).await;

    let kept = table.record("k-1").await;
    let State::Completed { answer, .. } = &kept.state else { panic!("{kept:?}") };
    assert_eq!((answer.body_place(), answer.body_length()), ("record", long.len() as u64));
    assert!(table.sort_keys().await.iter().all(|sk| !sk.starts_with("body#")));
    // Compressed: a record of one write unit cannot hold the plain body.
    let items = table.items().await;
    let item = items.iter().find(|((sk, _), _)| sk == "record").map(|(_, item)| item).expect("a record");
    let longest = item.values().filter_map(|value| value.as_b().ok()).map(|bytes| bytes.as_ref().len()).max();
    assert!(longest < Some(1_024), "{longest:?} bytes");

    let shown = table.cli.json(&["show", &record, "--body"]).await;
    assert_eq!(
        (&shown["record"]["response"]["body_place"], &shown["body"]["text"]),
        (&json!("record"), &json!(long))
    );
    let ran = table.cli.run(&["show", &record, "--body"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.ends_with(&format!("\n{long}\n")), "{}", ran.stdout);
}

#[tokio::test]
async fn the_debug_log_names_keys_by_their_hash_only() {
    let table = table().await;
    let hash = table.unknown("key-in-clear").await.key.hash().to_string();
    table.dead("another-key-in-clear").await;
    let record = table.name("key-in-clear");
    let (_folder, file) = answer(r#"{"status":201,"body":{"secret":"body-in-clear"}}"#);
    for command in [
        &[&["settle", &record, "--completed", "--response", &file][..], &WHY].concat()[..],
        &["show", &record],
        &["list", "--state", "stale"],
        &[&["sweep"][..], &WHY].concat(),
    ] {
        let ran = table.cli.run(&[command, &["--debug"]].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stderr.is_empty() && !ran.stderr.contains("in-clear"), "{ran:?}");
        assert!(!ran.stderr.contains(TENANT), "{ran:?}");
        assert!(!command.contains(&&*record) || ran.stderr.contains(&hash), "{ran:?}");
    }
}

#[tokio::test]
async fn a_missing_table_is_named() {
    let cli = CommandLine::new(embedded::endpoint(), "no-such-table");
    let ran = cli.run(&["list", "--state", "unknown"]).await;
    ran.assert_refused(1, "the idempotency table `no-such-table`: ");
    assert!(!ran.stderr.contains("IDEMPOTENCY_TABLE"), "{ran:?}");
    let nowhere = cli.through("http://127.0.0.1:9");
    nowhere.run(&["show", "a#b#c"]).await.assert_refused(1, "the store is unavailable");
}

#[tokio::test]
async fn a_record_with_unusual_names_is_shown_unchanged() {
    let table = table().await;
    let key = record_key("ten#ant", "a key # with = all");
    let mut record = table.unknown("k").await;
    record.key = key.clone();
    assert_eq!(table.store.put(None, &record, &[]).await.unwrap(), WriteOutcome::Written);
    let shown = table.cli.json(&["show", &key.partition_key()]).await;
    assert_eq!(shown["record"]["tenant"], "ten#ant");
    let by_parts = ["show", "-t", "ten#ant", "-o", "create-payment", "a key # with = all"];
    assert_eq!(table.cli.json(&by_parts).await, shown);
}

#[tokio::test]
async fn two_ledgers_in_files_are_compared_line_by_line() {
    let cli = CommandLine::new(embedded::endpoint(), "no-such-table");
    let (_ours, ours) = answer(concat!(
        r#"{"id":"a","amount":1,"x":{"p":1,"q":2}}"#,
        "\n",
        r#"{"id":"b","amount":9007199254740993}"#
    ));
    let (_theirs, theirs) = answer(concat!(
        r#"{"id":"b","amount":9007199254740992}"#,
        "\n\n",
        r#"{"x":{"q":2,"p":1},"amount":1,"id":"a"}"#
    ));
    let ran = cli.run(&["compare", &ours, &theirs, "--output", "json"]).await;
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(3), 1), "{ran:?}");
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [difference, summary] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&difference["difference"], &difference["id"]), (&json!("differs"), &json!("b")));
    assert_eq!((&summary["summary"]["equal"], &summary["summary"]["differs"]), (&json!(1), &json!(1)));
    let ran = cli.run(&["compare", &ours, &ours]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");

    for (line, why) in
        [(r#"{"id":1}"#, "line 2 is not an entry of a ledger: `id`"), ("[1]", "it is not a JSON object")]
    {
        let (_broken, broken) = answer(&format!("{{\"id\":\"a\"}}\n{line}\n"));
        cli.run(&["compare", &ours, &broken]).await.assert_refused(1, why);
    }
}

// T42: an operator and a guard cannot disagree about the retention of an answer.
#[tokio::test]
async fn a_settled_record_is_kept_for_its_own_retention() {
    let table = table().await;
    let week = std::time::Duration::from_secs(7 * 24 * 3600);
    for (key, retain, seconds) in [("week", None, 604_800), ("longer", Some("14d"), 1_209_600)] {
        let seen = table.unknown(key).await;
        let mut record = seen.clone();
        (record.retention, record.revision) = (week, fresh());
        let put = table.store.put(Some(seen.revision), &record, &[]).await.expect("the store answers");
        assert_eq!(put, WriteOutcome::Written);
        let name = table.name(key);
        let settle = ["settle", &name, "--not-executed"];
        let retain: Vec<_> = retain.iter().flat_map(|span| ["--retain", span]).collect();
        let arguments = [&settle[..], &retain, &WHY].concat();
        let settled = table.cli.json(&arguments).await;
        assert_eq!(settled["after"]["retention_seconds"], seconds, "{key}");
        assert_eq!(settled["after"]["settled_by"], "operator");
    }
}

// An API that scopes keys by path has several records for one key.
#[tokio::test]
async fn a_path_scoped_record_is_found_by_path_or_listed_name() {
    let table = table().await;
    let path = "/sessions/1";
    let plain = table.unknown("k-1").await;
    let mut scoped = table.unknown("k-2").await;
    scoped.key = plain.key.clone().within(Scope::of(path.as_bytes()));
    (scoped.revision, scoped.attempt) = (fresh(), fresh());
    table.store.put(None, &scoped, &[]).await.unwrap();
    let names = ["-t", TENANT, "-o", "create-payment", "k-1"];
    let shown =
        table.cli.json(&[&["show"], &names[..], &["--path", path, "--phase", "charge"]].concat()).await;
    let scope = Scope::of(path.as_bytes()).to_string();
    assert_eq!((&shown["record"]["scope"], &shown["record"]["key"]), (&json!(scope), &json!("k-1")));
    let charge = scoped.key.downstream_key(&scoped.fingerprint, "charge");
    assert_eq!(shown["downstream_keys"], json!({ "charge": charge }));
    let listed = table.cli.run(&["list", "--state", "unknown"]).await;
    let name = scoped.key.partition_key();
    assert!(listed.stdout.contains(&name), "{listed:?}");
    assert_eq!(table.cli.json(&["show", &name]).await["record"], shown["record"]);
    assert!(table.cli.json(&[&["show"], &names[..]].concat()).await["record"].get("scope").is_none());
    let other = [&["show"], &names[..], &["--path", "/sessions/2"]].concat();
    table.cli.run(&other).await.assert_refused(3, "in the scope");
    assert_eq!(
        table.cli.run(&["show", "k-1", "--path", path]).await.code,
        Some(2),
        "it prints nothing unprompted"
    );
}

// An operator who would write the rows by hand must see that they exist.
#[tokio::test]
async fn a_completion_shows_whether_domain_writes_committed_with_it() {
    let table = table().await;
    table.completed("without", "kept").await;
    let seen = table.completed("with", "kept").await;
    let mut record = seen.clone();
    (record.effects, record.with_writes, record.revision) = (Effects::InTransaction, true, fresh());
    let put = table.store.put(Some(seen.revision), &record, &[]).await.expect("the store answers");
    assert_eq!(put, WriteOutcome::Written);

    for (key, marked) in [("with", true), ("without", false)] {
        let name = table.name(key);
        let shown = table.cli.json(&["show", &name]).await;
        for field in ["with_writes", "transactional"] {
            assert_eq!(shown["record"].get(field), marked.then_some(&json!(true)), "{key}: {field}");
        }
        let shown = table.cli.run(&["show", &name]).await.stdout;
        for (label, text) in
            [("domain writes", "committed with its completion"), ("effects", "all in its transaction")]
        {
            let line = shown.lines().find(|line| line.trim_start().starts_with(label));
            assert_eq!(line.is_some_and(|line| line.ends_with(text)), marked, "{shown}");
            assert_eq!(line.is_some(), marked, "{shown}");
        }
    }
}

#[tokio::test]
async fn a_record_whose_request_never_began_is_shown_as_free() {
    let table = table().await;
    let record = table.in_progress("k-1").await;
    let mut refused = samples::released(&record, SystemWorld.now(), RETENTION);
    let State::FailedRetryable { by, .. } = &mut refused.state else { panic!("{refused:?}") };
    *by = SettledBy::NotBegun;
    refused.revision = fresh();
    table.store.put(Some(record.revision), &refused, &[]).await.unwrap();
    let name = table.name("k-1");
    assert_eq!(table.cli.json(&["show", &name]).await["record"]["not_begun"], json!(true));
    let shown = table.cli.run(&["show", &name]).await.stdout;
    assert!(shown.contains("the key is free") && !shown.contains("expires"), "{shown}");
}
