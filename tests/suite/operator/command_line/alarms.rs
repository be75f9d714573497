//! Alarms: `show` and `list` show them, and `clear-alarms` ends them.

use std::time::Duration;

use lambda_idempotency::{
    record::{Alarm, AlarmKind, Note, Record, State},
    store::Store,
};
use serde_json::{Value, json};

use super::{
    TENANT, WHY, held_before_transactions, table,
    table::{OperatorsTable, own},
};
use crate::support::embedded;

const HOUR: Duration = Duration::from_secs(3600);

fn keys(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|record| record["key"].as_str().unwrap()).collect()
}

fn reports(keys: &[String]) -> usize {
    keys.iter().filter(|key| key.starts_with("body#")).count()
}

/// Raises an alarm of a record, without a report.
async fn raise(table: &OperatorsTable, record: Record, told: bool) {
    let because = Note::new("ch_2: the provider reports two effects");
    let alarm = |kind| Alarm {
        kind,
        because: because.clone(),
        raised_at: record.created_at,
        report: None,
        is_told: told,
    };
    let mut alarms = record.alarms.clone();
    alarms.extend([AlarmKind::SecondEffect, AlarmKind::Contradicted].map(alarm));
    table.replace(Record { alarms, ..record }).await;
}

// T54: what lies beside the record is the only trace of an effect.
#[tokio::test]
async fn an_operator_sees_the_report_beside_a_record_and_clears_its_alarm() {
    let table = table().await;
    let record = table.alarmed("k-1").await;
    let name = table.name("k-1");
    let id = record.alarms[0].report.expect("a report").to_string();

    let shown = table.cli.run(&["show", &name]).await;
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{shown:?}");
    for text in [
        "refused_rows",
        "not told yet: the next poll does it",
        "once its alarms are cleared",
        &id,
        "completed with 201",
    ] {
        assert!(shown.stdout.contains(text), "{text}: {shown:?}");
    }
    assert!(shown.stdout.contains("1 domain write that is not made"), "{shown:?}");
    assert!(!shown.stdout.contains("ch_late"), "its answer may be confidential: {shown:?}");
    let shown = table.cli.json(&["show", &name]).await;
    let alarm = &shown["record"]["alarms"][0];
    assert_eq!((&alarm["kind"], &alarm["told"]), (&json!("refused_rows"), &json!(false)));
    assert_eq!(alarm["report"], json!(id));
    assert_eq!(shown["record"].get("expires_at"), None);
    assert!(shown["record"]["expires_once_cleared"].is_string());
    let [report] = &shown["reports"].as_array().unwrap()[..] else { panic!("{shown}") };
    let says = &report["report"];
    assert_eq!(
        (&report["id"], &says["ended"], &says["status"]),
        (&json!(id), &json!("completed"), &json!(201))
    );
    assert_eq!((&says["rows"], &says["attempt"]), (&json!(1), &json!(record.attempt.to_string())));
    assert_eq!(says.get("whole"), None);
    let whole = table.cli.json(&["show", &name, "--reports"]).await;
    assert_eq!(whole["reports"][0]["report"]["whole"]["writes"].as_array().map(Vec::len), Some(1));
    let whole = table.cli.run(&["show", &name, "--reports"]).await.stdout;
    assert!(whole.contains(r#""item":"#) && whole.contains(r#""writes":"#), "{whole}");

    let clear = ["clear-alarms", &name, "--as", "kim"];
    let ran = table.cli.run(&[&clear[..], &WHY].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    for text in ["refused_rows", &id, "then deleted", "then expires", "1 cleared"] {
        assert!(ran.stdout.contains(text), "{text}: {ran:?}");
    }
    let cleared = table.record("k-1").await;
    assert_eq!(cleared, Record { revision: cleared.revision, alarms: Vec::new(), ..record });
    assert_eq!((reports(&table.sort_keys().await), table.retry("k-1").await), (0, "replay"));
    let shown = table.cli.json(&["show", &name]).await;
    assert!(shown["record"]["expires_at"].is_string() && shown.get("reports").is_none(), "{shown}");
    let line = &shown["audit"][0];
    assert_eq!(
        (&line["what"], &line["who"], &line["reason"]),
        (&json!("clear-alarms"), &json!("kim"), &json!(WHY[2]))
    );
}

// T29
#[tokio::test]
async fn the_plan_says_that_a_cleared_record_expires_at_once() {
    let table = table().await;
    let mut record = table.alarmed("k-1").await;
    let State::Completed { expires_at, .. } = &mut record.state else { panic!("{record:?}") };
    *expires_at = record.created_at.minus(HOUR);
    table.replace(record).await;
    assert_eq!(table.retry("k-1").await, "replay", "it has an alarm");
    let ran = table.cli.run(&[&["clear-alarms", &table.name("k-1")][..], &WHY].concat()).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("a retry with its key runs again"), "{ran:?}");
    assert_eq!(table.retry("k-1").await, "owned");
}

#[tokio::test]
async fn several_records_are_cleared_at_once_and_printed_as_json() {
    let table = table().await;
    for key in ["k-1", "k-2"] {
        table.alarmed(key).await;
    }
    let unknown = table.unknown("k-3").await;
    raise(&table, unknown, true).await;
    let names = ["k-1", "k-2", "k-3"].map(|key| table.name(key));
    let clear = ["clear-alarms", &names[0], &names[1], &names[2]];
    let done = table.cli.json(&[&clear[..], &WHY].concat()).await;
    assert_eq!((&done["cleared"], &done["not_cleared"]), (&json!(3), &json!([])));
    let was = &done["records"][0];
    assert_eq!((&was["is"], &was["was"]["alarms"][0]["kind"]), (&json!("completed"), &json!("refused_rows")));
    assert_eq!(done["records"][2]["is"], "unknown");
    // It is still unknown, and still listed.
    assert_eq!(keys(&table.cli.json(&["list"]).await), ["k-3"]);
    assert_eq!(reports(&table.sort_keys().await), 0);
}

#[tokio::test]
async fn a_mistake_about_alarms_gets_one_line_and_clears_nothing_else() {
    let table = table().await;
    table.alarmed("alarmed").await;
    table.completed("quiet", "kept").await;
    let [alarmed, quiet, missing] = ["alarmed", "quiet", "k-9"].map(|key| table.name(key));
    let before = table.items().await;
    for (arguments, code, text) in [
        (&["clear-alarms", "alarmed"][..], 2, "tenant#operation#key"),
        (&["clear-alarms"], 2, "RECORD"),
        (&["clear-alarms", &alarmed, "--as", " "], 2, "--as"),
    ] {
        let ran = table.cli.run(&[arguments, &WHY].concat()).await;
        assert!(ran.code == Some(code) && ran.stderr.contains(text), "{ran:?}");
    }
    let ran = table.cli.run(&["clear-alarms", &alarmed, "--yes"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("--reason"), "{ran:?}");
    let unasked = ["clear-alarms", &alarmed, "--reason", "x"];
    table.cli.run(&unasked).await.assert_refused(2, "--yes");
    let mut nobody = table.cli.command(&[&["clear-alarms", &alarmed][..], &WHY].concat());
    let nobody = nobody.env_remove("USER").output().await.expect("the command line can be run");
    let stderr = String::from_utf8_lossy(&nobody.stderr);
    assert!(nobody.status.code() == Some(2) && stderr.contains("Give --as"), "{stderr}");
    for (name, why) in [(&quiet, "the record has no alarm"), (&missing, "has no record of tenant")] {
        let ran = table.cli.run(&[&["clear-alarms", name][..], &WHY].concat()).await;
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(3), 1), "{ran:?}");
        assert!(ran.stderr.contains(why) && ran.stdout.contains("0 cleared"), "{ran:?}");
    }
    assert_eq!(table.items().await, before);

    // One that cannot be cleared does not keep the others from it.
    let both = ["clear-alarms", &quiet, &alarmed, "--output", "json"];
    let ran = table.cli.run(&[&both[..], &WHY].concat()).await;
    assert!(ran.code == Some(3) && ran.stderr.contains("1 not cleared"), "{ran:?}");
    let done: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&done["cleared"], &done["not_cleared"][0]["name"]), (&json!(1), &json!(quiet)));
    let again = table.cli.run(&[&["clear-alarms", &alarmed][..], &WHY].concat()).await;
    assert!(again.code == Some(3) && again.stderr.contains("the record has no alarm"), "{again:?}");
}

// T32: an alarm that its operator has not seen is not cleared.
#[tokio::test]
async fn alarms_of_a_record_that_changed_meanwhile_are_not_cleared() {
    let table = table().await;
    let record = table.alarmed("k-1").await;
    let name = table.name("k-1");
    let (late, gate) = held_before_transactions(embedded::endpoint()).await;
    let late = table.cli.through(&late);
    let slow = tokio::spawn({
        let name = name.clone();
        async move { late.run(&[&["clear-alarms", &name][..], &WHY].concat()).await }
    });
    // The slow operator has seen one alarm.
    gate.reached(1).await;
    raise(&table, record, false).await;
    let before = table.items().await;
    gate.open();
    let ran = slow.await.unwrap();
    assert!(ran.code == Some(3) && ran.stderr.contains("has changed meanwhile"), "{ran:?}");
    assert!(ran.stdout.contains("0 cleared") && ran.stdout.contains("1 changed meanwhile"), "{ran:?}");
    assert_eq!(table.items().await, before);
}

#[tokio::test]
async fn alarmed_records_are_listed_first_in_every_state() {
    let table = table().await;
    table.unknown_since(own("asked"), 9 * HOUR, false).await;
    table.unknown_since(own("escalated"), HOUR, true).await;
    let unknown = table.unknown_since(own("unknown"), 2 * HOUR, false).await;
    raise(&table, unknown, true).await;
    let live = table.in_progress("live").await;
    raise(&table, live, true).await;
    table.alarmed("completed").await;
    table.completed("quiet", "kept").await;
    let list = async |more: &[&str]| table.cli.json(&[&["list"][..], more].concat()).await;
    let waiting = ["unknown", "escalated", "live", "completed"];
    assert_eq!(keys(&list(&[]).await), ["unknown", "escalated", "live", "completed", "asked"]);
    assert_eq!(keys(&list(&["--escalated", "--tenant", TENANT]).await), waiting);
    assert_eq!(keys(&list(&["--alarmed"]).await), ["unknown", "live", "completed"]);
    assert_eq!(keys(&list(&["--alarmed", "--state", "unknown"]).await), ["unknown"]);
    assert_eq!(keys(&list(&["--state", "unknown"]).await), ["unknown", "escalated", "asked"]);
    assert_eq!(list(&["--alarmed", "--tenant", "shop-b"]).await, json!([]));
    table.cli.run(&["list", "--alarmed", "--state", "stale"]).await.assert_refused(2, "--alarmed");

    let shown = table.cli.run(&["list"]).await.stdout;
    let line = |key: &str| {
        let name = table.name(key);
        shown.lines().find(|line| line.contains(&name)).unwrap_or_default().to_owned()
    };
    assert!(line("unknown").contains("lease_expired, second_effect, contradicted"), "{shown}");
    assert!(line("completed").contains("refused_rows"), "{shown}");
    assert!(line("live").contains("an operator must clear its alarms"), "{shown}");
    assert!(!line("live").contains("lease expired"), "{shown}");
    // A hash from a log line leads to it without a scan.
    let hash = own("completed").hash().to_string();
    assert_eq!(table.cli.json(&["show", &hash]).await["record"]["key"], "completed");
}

#[tokio::test]
async fn a_report_beside_a_record_that_is_gone_is_shown_as_missing() {
    let table = table().await;
    let mut record = table.alarmed("k-1").await;
    let gone = crate::support::guarded::fresh();
    let missing = Alarm { report: Some(gone), ..record.alarms[0].clone() };
    record.alarms.insert(0, missing);
    table.replace(Record { effect_id: Some(Note::new("ch_1")), ..record }).await;
    let name = table.name("k-1");
    let shown = table.cli.json(&["show", &name, "--reports"]).await;
    assert_eq!(shown["reports"][0], json!({ "id": gone.to_string(), "report": null }));
    assert_eq!(shown["reports"][1]["report"]["status"], 201);
    assert_eq!(shown["record"]["effect_id"], "ch_1");
    let shown = table.cli.run(&["show", &name]).await.stdout;
    assert!(shown.contains(&format!("{gone}: missing")) && shown.contains("ch_1"), "{shown}");
    table.cli.json(&[&["clear-alarms", &name][..], &WHY].concat()).await;
    assert_eq!(reports(&table.sort_keys().await), 0);
}

#[tokio::test]
async fn a_forgotten_response_takes_the_reports_beside_it_along() {
    let table = table().await;
    table.alarmed("k-1").await;
    let name = table.name("k-1");
    let forgotten = table.cli.json(&[&["forget-response", &name][..], &WHY].concat()).await;
    let remark = forgotten["remark"].as_str().unwrap();
    assert!(remark.contains("reports beside the record (1) are deleted"), "{remark}");
    assert_eq!(reports(&table.sort_keys().await), 0);
    let record = table.record("k-1").await;
    assert!(record.has_alarm(AlarmKind::RefusedRows) && record.alarms[0].report.is_none());
    let [quiet, key] = ["quiet", "k-2"].map(|key| table.name(key));
    table.completed("quiet", "kept").await;
    let forgotten = table.cli.json(&[&["forget-response", &quiet][..], &WHY].concat()).await;
    assert_eq!(forgotten["remark"], Value::Null);
    // Settling does not end an alarm.
    let unknown = table.unknown("k-2").await;
    raise(&table, unknown, true).await;
    table.cli.json(&[&["settle", &key, "--not-executed"][..], &WHY].concat()).await;
    let record = table.store.load(&own("k-2")).await.unwrap().expect("a record");
    assert!(record.has_alarm(AlarmKind::SecondEffect) && record.state.name() == "failed_retryable");
}

#[tokio::test]
async fn an_alarm_alone_makes_no_operation_escalated() {
    let table = table().await;
    let waiting = table.between_workers(own("k-1"), HOUR, false).await;
    raise(&table, waiting, true).await;
    let resumed = table.cli.json(&[&["resume", "--escalated"][..], &WHY].concat()).await;
    assert_eq!(resumed["resumed"], 0, "{resumed}");
    let line = table.cli.run(&["list"]).await.stdout;
    assert!(line.contains("interrupted, status 503, second_effect, contradicted"), "{line}");
}
