//! Operations that wait between workers: what is shown of their phases, and how an operator settles or resumes them.

use std::{fs, time::Duration};

use lambda_idempotency::{
    engine::{CallError, Ownership, PhaseError},
    record::{Evidence, MAX_PHASE_RESULTS, State, UnknownCause},
    time::Timestamp,
    world::{SystemWorld, World},
};
use serde_json::{Value, json};
use tempfile::tempdir;

use super::{
    TENANT, WHY, answer, table,
    table::{OperatorsTable, own},
};
use crate::support::guarded::record_key;

const HOUR: Duration = Duration::from_secs(3600);

/// An operation behind its charge, escalated, in a call that was perhaps made.
async fn escalated() -> (OperatorsTable, String) {
    let table = table().await;
    table.between_workers(own("k-1"), HOUR, true).await;
    let name = table.name("k-1");
    (table, name)
}

fn keys(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|record| record["key"].as_str().unwrap()).collect()
}

fn with<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [command, &WHY].concat()
}

/// The result of the handler's second phase, if a call has it or made.
async fn ship(ours: &Ownership) -> Result<Value, PhaseError> {
    let kept =
        ours.execution().phase("charge").call(async |_| Err::<Value, _>(CallError::not_executed("called")));
    assert_eq!(kept.await.expect("kept")["id"], "ch_1");
    ours.execution().phase("ship").call(async |_| Ok(json!("called"))).await
}

#[tokio::test]
async fn phases_are_shown_with_digests_and_without_results() {
    let (table, name) = escalated().await;
    let shown = table.cli.json(&["show", &name]).await;
    let record = &shown["record"];
    assert_eq!(
        (&record["state"], &record["last_failure"]),
        (&json!("between_workers"), &json!("interrupted, status 503"))
    );
    assert_eq!(record["between_workers"]["escalated"], true);
    assert!(record["between_workers"]["since"].is_string(), "{record}");
    let phases = &record["phases"];
    assert_eq!(phases["resume_within_seconds"], 3600);
    assert!(phases["begun_at"].is_string() && phases["kept"][0]["at"].is_string(), "{phases}");
    assert_eq!((&phases["kept"][0]["name"], &phases["noted"]), (&json!("charge"), &json!([])));
    assert_eq!(phases["kept"][0]["result_digest"], "sha256:05cd19d29ff0b724");

    assert_eq!(phases["kept"][0]["references"], json!([["stripe", "ref_7"]]));

    let printed = table.cli.run(&["show", &name]).await.stdout;
    for text in [
        "stripe ref_7",
        "charge: ",
        "result sha256:05cd19d29ff0b724",
        "perhaps made since ",
        "it waits for an operator",
        "interrupted",
    ] {
        assert!(printed.contains(text), "{text}: {printed}");
    }
    for text in [printed, shown.to_string()] {
        assert!(!text.contains("4242") && !text.contains("ch_1"), "a result is confidential: {text}");
    }
}

#[tokio::test]
async fn operations_between_workers_are_listed_with_their_last_failure() {
    let table = table().await;
    table.between_workers(own("waits"), 2 * HOUR, false).await;
    table.between_workers(own("escalated"), HOUR, true).await;
    table.unknown_since(own("unknown"), 3 * HOUR, false).await;
    let all = table.cli.json(&["list"]).await;
    assert_eq!(keys(&all), ["escalated", "unknown", "waits"]);
    // By which the recipe of a restored table tells those that resume.
    let resume = all.as_array().unwrap().iter().filter(|record| record.get("phases").is_some());
    assert_eq!(
        resume.map(|record| record["key"].as_str().unwrap()).collect::<Vec<_>>(),
        ["escalated", "waits"]
    );
    assert_eq!(keys(&table.cli.json(&["list", "--state", "unknown"]).await), ["unknown"]);
    assert_eq!(keys(&table.cli.json(&["list", "--escalated"]).await), ["escalated"]);
    for state in ["between-workers", "between_workers"] {
        let listed = table.cli.json(&["list", "--state", state]).await;
        assert_eq!(keys(&listed), ["escalated", "waits"]);
        assert_eq!(listed[1]["last_failure"], "interrupted, status 503");
        assert_eq!(listed[1]["between_workers"]["escalated"], false);
    }
    let printed = table.cli.run(&["list", "--state", "between-workers"]).await.stdout;
    for text in ["interrupted, status 503", "it waits for an operator", "if no retry comes", "1h 0m"] {
        assert!(printed.contains(text), "{text}: {printed}");
    }
}

#[tokio::test]
async fn a_phase_that_was_executed_is_used_by_the_next_retry() {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    fs::write(&file, "{ \"id\": \"sh_1\" }\n").expect("a file");
    let from_file = format!("@{}", file.display());
    for result in [r#"{ "id": "sh_1" }"#, &from_file] {
        let (table, name) = escalated().await;
        let settle = with(&["settle", &name, "--phase", "ship", "--result", result]);
        let settled = table.cli.json(&settle).await;
        assert_eq!(settled["what"], "settle-phase");
        let noted = &settled["after"]["phases"]["noted"][0];
        assert_eq!(
            (&noted["name"], noted["result_digest"].as_str().map(str::len)),
            (&json!("ship"), Some(23))
        );
        assert_eq!(settled["after"]["between_workers"]["escalated"], false, "it waits for a retry again");
        let shown = table.cli.json(&["show", &name]).await;
        let [line] = &shown["audit"].as_array().unwrap()[..] else { panic!("{shown}") };
        assert_eq!(
            (&line["what"], &line["reason"]),
            (&json!("settle-phase"), &json!(format!("ship: {}", WHY[2])))
        );
        let ours = table.resume("k-1").await;
        assert_eq!(ship(&ours).await.expect("noted"), json!({ "id": "sh_1" }), "no call is made");
    }
}

// T53: the recipe of docs/operate.md.
#[tokio::test]
async fn a_hold_ends_once_the_operator_says_what_was_not_made() {
    let (table, name) = escalated().await;
    assert_eq!(table.cli.json(&with(&["hold", &name])).await["held"], 1);
    let made = with(&["settle", &name, "--phase", "ship", "--result", r#"{"id":"sh_1"}"#]);
    let settled = table.cli.json(&made).await;
    assert!(settled["remark"].as_str().unwrap().contains("stays unknown"), "{settled}");
    assert_eq!(settled["after"]["state"], "unknown");
    let mail = ["settle", &name, "--phase", "mail", "--not-executed"];
    table.cli.run(&with(&mail)).await.assert_refused(3, "--overrule-effect");
    let settled = table.cli.json(&with(&[&mail[..], &["--overrule-effect"]].concat())).await;
    assert_eq!(
        (&settled["after"]["state"], settled["after"].get("reported")),
        (&json!("between_workers"), None)
    );
    let ours = table.resume("k-1").await;
    assert_eq!(ship(&ours).await.expect("noted"), json!({ "id": "sh_1" }), "no call is made");
}

#[tokio::test]
async fn a_phase_ends_no_report_about_the_whole_operation() {
    let (table, name) = escalated().await;
    let mut record = table.record("k-1").await;
    let (since, cause) = (SystemWorld.now(), UnknownCause::PerhapsExecuted);
    record.state = State::Unknown { cause, since, reconcile_at: Timestamp::MAX, asked: 0, anew_at: None };
    record.reported = Some(Evidence::Perhaps);
    table.replace(record).await;
    let made = with(&["settle", &name, "--phase", "ship", "--result", r#"{"id":"sh_1"}"#]);
    let settled = table.cli.json(&made).await;
    assert!(settled["remark"].as_str().unwrap().contains("stays unknown"), "{settled}");
    assert_eq!(settled["after"]["state"], "unknown");
}

#[tokio::test]
async fn a_phase_that_was_not_executed_is_called_by_the_next_retry() {
    let (table, name) = escalated().await;
    let settle = with(&["settle", &name, "--phase", "ship", "--not-executed"]);
    let settled = table.cli.json(&settle).await;
    assert_eq!(settled["what"], "settle-phase-not-executed");
    assert_eq!(settled["after"]["phases"].get("begun_at"), None);
    assert!(settled["remark"].as_str().unwrap().contains("makes the call"), "{settled}");
    table.cli.run(&settle).await.assert_refused(3, "no call of the operation is open");
    let ours = table.resume("k-1").await;
    assert_eq!(ship(&ours).await.expect("called"), json!("called"));
}

#[tokio::test]
async fn what_is_kept_is_never_settled_as_not_executed() {
    let (table, name) = escalated().await;
    let before = table.items().await;
    let settle = with(&["settle", &name, "--not-executed"]);
    table.cli.run(&settle).await.assert_refused(3, "phases of the operation are kept");
    let phase = with(&["settle", &name, "--phase", "charge", "--not-executed"]);
    table.cli.run(&phase).await.assert_refused(3, "it was executed");
    assert_eq!(table.items().await, before);
    // But the whole operation can be settled as executed.
    let (_folder, file) = answer(r#"{"status":201,"body":{"id":1}}"#);
    let settle = with(&["settle", &name, "--completed", "--response", &file]);
    let settled = table.cli.json(&settle).await;
    assert_eq!(settled["after"]["phases"]["kept"][0]["name"], "charge");
    assert_eq!(
        settled["after"]["phases"],
        json!({ "resume_within_seconds": 3600, "kept": settled["before"]["phases"]["kept"], "noted": [] })
    );
}

#[tokio::test]
async fn a_dead_workers_phase_is_settled_and_a_live_ones_is_not() {
    let table = table().await;
    let name = table.name("k-1");
    drop(table.resume("k-1").await);
    let noted = with(&["settle", &name, "--phase", "charge", "--result", "1"]);
    let denied = with(&["settle", &name, "--phase", "charge", "--not-executed"]);
    let resume = with(&["resume", &name]);
    for command in [&noted, &denied] {
        table.cli.run(command).await.assert_refused(3, "its lease has not expired");
    }
    table.cli.run(&resume).await.assert_refused(3, "is in_progress, and not between workers");
    let mut dead = table.record("k-1").await;
    let State::InProgress { lease_until } = &mut dead.state else { panic!("{dead:?}") };
    *lease_until = SystemWorld.now().minus(HOUR);
    table.replace(dead).await;
    let settled = table.cli.json(&denied).await;
    assert_eq!(
        (&settled["before"]["state"], &settled["after"]["state"]),
        (&json!("in_progress"), &json!("between_workers"))
    );
    assert_eq!(table.cli.json(&noted).await["after"]["phases"]["noted"][0]["name"], "charge");
}

#[tokio::test]
async fn an_escalated_operation_waits_for_a_retry_again() {
    let (table, name) = escalated().await;
    let resumed = table.cli.json(&with(&["resume", &name])).await;
    assert_eq!(
        (&resumed["what"], &resumed["before"]["between_workers"]["escalated"]),
        (&json!("resume"), &json!(true))
    );
    let record = table.record("k-1").await;
    let State::BetweenWorkers { reconcile_at, .. } = record.state else { panic!("{record:?}") };
    assert!(reconcile_at > SystemWorld.now() && reconcile_at <= SystemWorld.now().plus(HOUR));
    let shown = table.cli.json(&["show", &name]).await;
    let [line] = &shown["audit"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!((&line["what"], &line["reason"]), (&json!("resume"), &json!(WHY[2])));
}

#[tokio::test]
async fn all_escalated_operations_are_resumed_at_once_and_no_others() {
    let table = table().await;
    for key in ["k-1", "k-2"] {
        table.between_workers(own(key), HOUR, true).await;
    }
    table.between_workers(record_key("shop-b", "k-3"), HOUR, true).await;
    let waits = table.between_workers(own("waits"), HOUR, false).await;
    let unknown = table.unknown_since(own("unknown"), HOUR, true).await;
    let resumed = table.cli.json(&with(&["resume", "--escalated", "--tenant", TENANT])).await;
    assert_eq!(resumed["resumed"], 2);
    let names: Vec<_> = resumed["records"].as_array().unwrap().iter().map(|one| &one["was"]["key"]).collect();
    assert!(names.contains(&&json!("k-1")) && names.contains(&&json!("k-2")), "{names:?}");
    assert_eq!((table.record("waits").await, table.record("unknown").await), (waits, unknown));
    assert_eq!(keys(&table.cli.json(&["list", "--escalated", "--state", "between-workers"]).await), ["k-3"]);
    for key in ["k-1", "k-2"] {
        let shown = table.cli.json(&["show", &table.name(key)]).await;
        assert_eq!(shown["audit"][0]["what"], "resume", "each has its line");
    }
    let ran = table.cli.run(&with(&["resume", "--escalated"])).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("1 wait for a retry again"), "{ran:?}");
    let none = table.cli.run(&with(&["resume", "--escalated"])).await;
    assert!(none.code == Some(0) && none.stdout.contains("0 wait for a retry again"), "{none:?}");
}

#[tokio::test]
async fn a_mistake_about_phases_gets_one_clear_line_and_changes_nothing() {
    let (table, name) = escalated().await;
    table.unknown("plain").await;
    table.completed("completed", "kept").await;
    let (plain, completed, absent) = (table.name("plain"), table.name("completed"), table.name("absent"));
    let before = table.items().await;
    let long = format!("\"{}\"", "x".repeat(MAX_PHASE_RESULTS));
    let hostile = "a\u{1b}[2Jb";
    let settle = |record, more: &[&'static str]| [&["settle", record][..], more].concat();
    for (command, code, text) in [
        (settle(&*plain, &["--phase", "ship", "--result", "1"]), 3, "does not resume"),
        (settle(&plain, &["--phase", "ship", "--not-executed"]), 3, "does not resume"),
        (settle(&completed, &["--phase", "ship", "--result", "1"]), 3, "is settled as completed"),
        (settle(&absent, &["--phase", "ship", "--result", "1"]), 3, "has no record"),
        (settle(&name, &["--phase", "charge", "--result", "{}"]), 3, "another result"),
        (settle(&name, &["--phase", "charge", "--result", r#"{"card":"4242","id":"ch_1"}"#]), 3, "already"),
        (settle(&name, &["--phase", "", "--result", "1"]), 2, "the name of a phase"),
        (settle(&name, &["--phase", "a b", "--not-executed"]), 2, "the name of a phase"),
        (vec!["settle", &name, "--phase", hostile, "--result", "1"], 2, "the name of a phase"),
        (vec!["settle", &name, "--phase", "ship", "--result", hostile], 2, "--result: "),
        (settle(&name, &["--phase", "ship", "--result", ""]), 2, "--result: "),
        (settle(&name, &["--phase", "ship", "--result", "1 2"]), 2, "--result: "),
        (settle(&name, &["--phase", "ship", "--result", "@no-such-file"]), 2, "no-such-file"),
        (vec!["settle", &name, "--phase", "ship", "--result", &long], 3, "too long"),
        (vec!["resume", &plain], 3, "is unknown, and not between workers"),
        (vec!["resume", &completed], 3, "is completed, and not between workers"),
        (vec!["resume", &absent], 3, "has no record"),
    ] {
        let ran = table.cli.run(&with(&command)).await;
        ran.assert_refused(code, text);
        assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
    }
    for (command, text) in [
        (settle(&name, &["--phase", "ship"]), "required"),
        (settle(&name, &["--result", "1"]), "--phase"),
        (settle(&name, &["--phase", "ship", "--not-executed", "--result", "1"]), "cannot be used with"),
        (settle(&name, &["--phase", "ship", "--not-executed", "--retain", "7d"]), "cannot be used with"),
        (settle(&name, &["--phase", "ship", "--completed", "--response", "x"]), "cannot be used with"),
        (vec!["resume", &name, "--escalated"], "cannot be used with"),
        (vec!["resume", &name, "--tenant", TENANT], "cannot be used with"),
        (vec!["resume"], "required"),
        (vec!["resume", "k-1"], "tenant#operation#key"),
    ] {
        let ran = table.cli.run(&with(&command)).await;
        assert!(ran.code == Some(2) && ran.stderr.contains(text), "{ran:?}");
    }
    for command in [&["resume", &name][..], &["resume", "--escalated"]] {
        let unconfirmed = [command, &["--reason", "x"]].concat();
        table.cli.run(&unconfirmed).await.assert_refused(2, "--yes");
    }
    assert_eq!(table.items().await, before);
}

// T26
#[tokio::test]
async fn names_of_phases_in_a_record_cannot_control_a_terminal() {
    let table = table().await;
    let mut record = table.between_workers(own("k-1"), HOUR, true).await;
    let phases = record.effects.phases_mut().expect("phases");
    phases.kept[0].name = "a\u{1b}[2J\u{202e}b\nphases".into();
    phases.kept[0].at = Timestamp::MAX;
    table.replace(record).await;
    let name = table.name("k-1");
    for output in ["table", "json"] {
        let ran = table.cli.run(&["show", &name, "--output", output]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stdout.contains('\u{202e}'), "{ran:?}");
    }
}

#[tokio::test]
async fn an_operator_gives_the_result_that_a_kept_phase_lacks() {
    let table = table().await;
    let mut record = table.between_workers(own("k-1"), HOUR, true).await;
    record.effects.phases_mut().expect("phases").kept[0].result = None;
    table.replace(record).await;
    let name = table.name("k-1");
    let settle = |result| with(&["settle", &name, "--phase", "charge", "--result", result]);
    let long = format!("\"{}\"", "x".repeat(MAX_PHASE_RESULTS));
    table.cli.run(&settle(&long)).await.assert_refused(3, "too long");
    let ran = table.cli.run(&settle(r#"{"id":"ch_1"}"#)).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    table.cli.run(&settle(r#"{"id":"ch_1"}"#)).await.assert_refused(3, "already");
    table.cli.run(&settle("{}")).await.assert_refused(3, "another result");
    // The next retry goes on, without a call.
    let ours = table.resume("k-1").await;
    let kept =
        ours.execution().phase("charge").call(async |_| Err::<Value, _>(CallError::not_executed("called")));
    assert_eq!(kept.await.expect("noted")["id"], "ch_1");
}
