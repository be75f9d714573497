//! Text from clients, services and colleagues cannot control an operator's terminal.

use std::time::Duration;

use lambda_idempotency::{
    key::RecordKey,
    operator::Operator,
    record::{Alarm, AlarmKind, Answer, Note, Record, SettledBy},
    store::{Companion, Store, conformance::samples},
    world::{SystemWorld, World},
};
use serde_json::{Value, json};

use super::{
    WHY, answer,
    queues::{DEAD, Queues, RECONCILE},
    table,
};
use crate::support::guarded::{RETENTION, fresh, record_key};

/// Without control characters: keys and tenants cannot contain any.
const HOSTILE: &str = "evil\u{202e}\u{2066}\u{200b}key";
/// For text that may contain any character.
const WORSE: &str = "a\u{1b}[2J\u{9b}31m\r\nb\u{202e}c\u{7f}";

/// Fails if the output could control a terminal. Only the program's line ends are allowed.
#[track_caller]
fn assert_harmless(what: &[&str], printed: &str) {
    let bad = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}\u{200b}".contains(c);
    let found: Vec<_> = printed.chars().filter(|c| bad(*c)).collect();
    assert!(found.is_empty(), "{what:?} prints {found:?}: {printed:?}");
}

#[tokio::test]
async fn no_command_prints_text_that_controls_a_terminal() {
    let table = table().await;
    let own = |key: &str| -> RecordKey { record_key(HOSTILE, &format!("{HOSTILE}{key}")) };
    let names = ["", "2", "dead", "done", "released", "alarmed"].map(|key| own(key).partition_key());
    let [unknown, second, dead, done, released, alarmed] = &names;
    for key in ["", "2"] {
        table.unknown_since(own(key), Duration::from_secs(60), true).await;
    }
    let now = SystemWorld.now();
    let before = now.minus(Duration::from_secs(60));
    let fingerprints = crate::support::guarded::fingerprints("{}");
    let of_dead = samples::in_progress(own("dead"), fingerprints.clone(), before, before);
    table.store.put(None, &of_dead, &[]).await.unwrap();
    let reserved = samples::in_progress(own("done"), fingerprints.clone(), before, before);
    let headers = vec![("link".to_owned(), WORSE.to_owned())];
    let completed = samples::completed(&reserved, Answer::http(201, headers, WORSE), now, RETENTION);
    table.store.put(None, &completed, &[]).await.unwrap();
    for key in ["released", "again"] {
        table.released(own(key), SettledBy::Worker, Duration::from_secs(60)).await;
    }
    table.returned(own("returned"), Duration::from_secs(60)).await;
    let alarm = Note::new(WORSE);
    let id = fresh();
    let raised = Alarm {
        kind: AlarmKind::SecondEffect,
        because: alarm.clone(),
        raised_at: before,
        report: Some(id),
        is_told: true,
    };
    let with_alarm = samples::in_progress(own("alarmed"), fingerprints.clone(), before, now);
    let with_alarm = Record { effect_id: Some(alarm), alarms: vec![raised], ..with_alarm };
    let report = json!({ "version": 1, "kind": "deferred_report", "key": WORSE }).to_string();
    let report = Companion::KeepBody(id, report.into(), now);
    table.store.put(None, &with_alarm, &[report]).await.unwrap();
    let operator = Operator::new(table.store.clone());
    operator.note(&own("done"), WORSE, WORSE, WORSE).await.unwrap();

    let dead_letters = [
        json!({ "kind": WORSE, "key": unknown }),
        json!({ "version": 1, "kind": "ask", "key": unknown }),
        json!(WORSE),
        json!({ "requestContext": { "condition": WORSE }, "DDBStreamBatchInfo": { "shardId": WORSE } }),
    ];
    let queues = Queues::with_dead_letters(&dead_letters);
    let address = queues.serve().await;
    let queue = |command| [command, "--queue", DEAD, "--sqs-endpoint-url", &address];
    let to = ["--to-reconcile", RECONCILE];
    let (_folder, ours) = answer(&format!("{}\n", json!({ "id": WORSE, "x": WORSE })));
    let (_other, file) = answer(&json!({ "status": 200, "text": WORSE }).to_string());
    let ask = ["ask", unknown, "--queue", RECONCILE, "--sqs-endpoint-url", &address];
    let (nothing, theirs) = answer("");
    let commands: [&[&str]; 32] = [
        &["list"],
        &["list", "--state", "stale"],
        &["show", unknown],
        &["show", done, "--phase", WORSE],
        &["show", "-t", HOSTILE, "-o", "pay", HOSTILE],
        &["show", WORSE],
        &["list", "--state", WORSE],
        &["list", "--tenant", WORSE],
        &[WORSE],
        &["list", "--table", WORSE],
        &queue("dead-letters"),
        &[&queue("dead-letters")[..], &["--kind", "sweep"]].concat(),
        &[&queue("dead-letters")[..], &["--kind", WORSE]].concat(),
        &[&ask[..], &WHY].concat(),
        &[&["ask", "--all"], &ask[2..], &WHY].concat(),
        &["list", "--released"],
        &["list", "--released", "--by", WORSE],
        &["list", "--pending"],
        &["list", "--undelivered"],
        &[&["hold", released][..], &WHY].concat(),
        &[&["hold", "--released", "--since", "1h"][..], &WHY].concat(),
        &[&queue("redrive")[..], &to, &WHY].concat(),
        &[&queue("redrive")[..], &["--drop", "--id", "message-1", "--id", "message-3"], &WHY].concat(),
        &["compare", &ours, &theirs],
        &["compare", WORSE, &theirs],
        &[&["sweep"][..], &WHY].concat(),
        &["show", alarmed, "--reports"],
        &["list", "--alarmed"],
        &["clear-alarms", WORSE],
        &[&["clear-alarms", alarmed][..], &WHY].concat(),
        &[&["settle", unknown, "--executed", "--response", &file][..], &WHY].concat(),
        &[&["forget-response", done][..], &WHY].concat(),
    ];
    // Commands that change nothing, because they are refused or only read, also run with JSON output.
    for command in commands {
        let changes = command.contains(&"--yes");
        if !changes {
            let ran = table.cli.run(&[command, &["--output", "json"]].concat()).await;
            assert_harmless(command, &ran.stdout);
            assert_harmless(command, &ran.stderr);
            for document in serde_json::Deserializer::from_str(&ran.stdout).into_iter::<Value>() {
                document.expect("JSON");
            }
        }
        let ran = table.cli.run(command).await;
        assert_harmless(command, &ran.stdout);
        assert_harmless(command, &ran.stderr);
        assert!(!ran.stdout.is_empty() || !ran.stderr.is_empty(), "{command:?} prints nothing");
        assert!(!changes || ran.code == Some(0), "{command:?}: {ran:?}");
    }
    drop(nothing);
    // JSON output escapes the text, and decodes to the original.
    let shown = table
        .cli
        .run(&["settle", second, "--not-executed", "--yes", "--reason", HOSTILE, "--output", "json"])
        .await;
    assert_harmless(&["settle"], &shown.stdout);
    let settled: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(settled["after"]["tenant"], HOSTILE);
    let shown = table.cli.json(&["show", second]).await;
    let settled = shown["audit"].as_array().and_then(|lines| lines.last()).expect("a line");
    assert_eq!((&shown["record"]["tenant"], &settled["reason"]), (&json!(HOSTILE), &json!(HOSTILE)));
    assert_eq!(table.cli.json(&["show", done]).await["audit"][1]["what"], json!("forget-response"));
    assert!(!dead.is_empty());
}
