//! `settle`: what an operator sees before settling an outcome.

use std::time::Duration;

use lambda_idempotency::{
    Failure, Guard, Operation, RunError, key::Tenant, record::State, time_budget::DEFAULT_NOT_FOUND_GRACE,
};
use serde_json::json;

use super::{WHY, answer, table, table::own};

#[tokio::test]
async fn a_release_states_its_consequence_and_warns_if_too_early() {
    let table = table().await;
    table.unknown_since(own("early"), Duration::from_secs(60), false).await;
    table.unknown_since(own("late"), DEFAULT_NOT_FOUND_GRACE + Duration::from_secs(60), true).await;
    for (key, warned) in [("early", true), ("late", false)] {
        let name = table.name(key);
        let settle = [&["settle", &name, "--not-executed"][..], &WHY].concat();
        let ran = table.cli.run(&settle).await;
        assert_eq!((ran.code, ran.stdout.contains("too early?")), (Some(0), warned), "{ran:?}");
        assert!(ran.stdout.contains("the next retry with this key runs the operation"), "{ran:?}");
        assert_eq!(table.retry(key).await, "owned");
    }
}

// A record is not released while its client may still retry.
#[tokio::test]
async fn too_short_a_retention_is_refused_with_the_minimum() {
    let table = table().await;
    table.unknown("k-1").await;
    let name = table.name("k-1");
    let settle = [&["settle", &name, "--not-executed"][..], &WHY].concat();
    let with = |span| [&settle[..], &["--retain", span]].concat();
    table.cli.run(&with("23h")).await.assert_refused(2, "give 1d or more");
    assert_eq!(table.cli.run(&with("1d")).await.code, Some(0));
}

// T26
#[tokio::test]
async fn an_answer_is_shown_with_its_body_and_keeps_headers_of_arguments() {
    let table = table().await;
    table.unknown("k-1").await;
    let name = table.name("k-1");
    let (_folder, file) = answer(r#"{"status":201,"body":{"id":"pay_1"}}"#);
    let settle = ["settle", &name, "--executed", "--response", &file];
    for (header, why) in
        [("Set-Cookie: a=b", "not replayed"), ("x-receipt: 7", "--keep-header"), ("link", "name: value")]
    {
        let ran = table.cli.run(&[&settle[..], &WHY, &["--header", header]].concat()).await;
        ran.assert_refused(2, why);
        // The file is right.
        assert!(ran.stderr.contains("--header: ") && !ran.stderr.contains("answer.json"), "{ran:?}");
    }
    let never = ["--keep-header", "set-cookie"];
    table.cli.run(&[&settle[..], &WHY, &never].concat()).await.assert_refused(2, "no guard keeps");

    let own = [
        "--header",
        "Location: https://shop.example/1",
        "--header",
        "X-Receipt: 7",
        "--keep-header",
        "X-Receipt",
    ];
    let ran = table.cli.run(&[&settle[..], &WHY, &own].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains(r#"{"id":"pay_1"}"#) && ran.stdout.contains("of 14 bytes"), "{ran:?}");
    assert!(ran.stdout.contains("makes no domain writes"), "{ran:?}");
    let record = table.record("k-1").await;
    let State::Completed { answer, .. } = &record.state else { panic!("{record:?}") };
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [
        header("location", "https://shop.example/1"),
        header("x-receipt", "7"),
        header("content-type", "application/json"),
    ];
    assert_eq!(answer.head.headers(), expected);

    // The record says who settled it, and why.
    let shown = table.cli.json(&["show", &name]).await;
    let note = shown["record"]["settled_note"].as_str().unwrap_or_default();
    assert!(note.starts_with("olga@") && note.contains(WHY[2]), "{shown}");
    assert_eq!(shown["record"]["settled_by"], json!("operator"));
}

#[tokio::test]
async fn a_function_gets_the_payload_or_the_refusal_that_settled_it() {
    let table = table().await;
    let tenant = Tenant::parse("shop").expect("a tenant");
    let guard = Guard::new(table.store.clone(), Operation::new("ship"), tenant);
    let call = async |key: &str| {
        let lost =
            async |_, _: u8| -> Result<String, Failure> { Err(std::io::Error::other("no answer").into()) };
        guard.run(&[key], 1, lost).await
    };
    let mut ends = Vec::new();
    for (key, file) in [
        ("k-1", r#"{"payload":"label 7"}"#),
        ("k-2", r#"{"refusal":"no such address"}"#),
        // Not as a function answers. What it says is true nevertheless.
        ("k-3", r#"{"status":201,"body":{"id":7}}"#),
        ("k-4", r#"{"status":409,"text":"sold out"}"#),
    ] {
        assert!(matches!(call(key).await, Err(RunError::Unknown { .. })));
        let (_folder, file) = answer(file);
        let name = format!("shop#ship#{key}");
        let settle = ["settle", &name, "--completed", "--response", &file];
        let ran = table.cli.run(&[&settle[..], &WHY].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        ends.push(call(key).await);
    }
    assert!(
        matches!(
            &ends[..],
            [
                Ok(label),
                Err(RunError::Refused(why)),
                Err(RunError::ResultUnreadable(_)),
                Err(RunError::Refused(status)),
            ] if label == "label 7" && why == "no such address" && status == "it was answered 409"
        ),
        "{ends:?}"
    );
}
