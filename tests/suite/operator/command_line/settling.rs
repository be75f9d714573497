//! `settle`: what an operator sees before settling an outcome.

use std::time::Duration;

use lambda_idempotency::{
    Failure, Guard, Operation, RunError,
    key::Tenant,
    record::{Evidence, State},
    store::Outbox,
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};

use crate::support::returns::Returns;
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

// T53: a retry would do again what was reported.
#[tokio::test]
async fn a_release_over_a_reported_effect_needs_an_option_of_its_own() {
    let table = table().await;
    for (key, reported) in [("effect", Evidence::Effect), ("perhaps", Evidence::Perhaps)] {
        let mut unknown = table.unknown_since(own(key), DEFAULT_NOT_FOUND_GRACE * 2, true).await;
        unknown.reported = Some(reported);
        table.replace(unknown).await;
    }
    let settle = |key: &str| ["settle".to_owned(), table.name(key), "--not-executed".to_owned()];
    let run = async |key: &str, more: &[&str]| {
        let settle = settle(key);
        let settle: Vec<_> = settle.iter().map(String::as_str).collect();
        table.cli.run(&[&settle[..], more, &WHY].concat()).await
    };
    run("effect", &[]).await.assert_refused(3, "--overrule-effect");
    assert_eq!(table.retry("effect").await, "unknown");
    let ran = run("effect", &["--overrule-effect"]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("overrules the effect that was reported"), "{ran:?}");
    assert_eq!(table.retry("effect").await, "owned");
    let ran = run("perhaps", &[]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("overrules another execution"), "{ran:?}");
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
    let note = shown["record"]["note"].as_str().unwrap_or_default();
    assert!(note.starts_with("olga@") && note.contains(WHY[2]), "{shown}");
    assert_eq!(shown["record"]["settled_by"], json!("operator"));
}

// T63: what is completed by hand is published in the same transaction, or not at all.
#[tokio::test]
async fn an_operator_publishes_what_the_operation_would_have() {
    let table = table().await;
    table.unknown("k-1").await;
    let name = table.name("k-1");
    let (_folder, file) = answer(r#"{"status":201,"body":{"id":"ord_1"}}"#);
    let settle = [&["settle", &name, "--completed", "--response", &file][..], &WHY].concat();
    let publishing = |messages: &[&'static str]| {
        let publish = messages.iter().flat_map(|message| ["--publish", message]);
        settle.iter().copied().chain(publish).collect::<Vec<_>>()
    };
    let unset = table.cli.run(&publishing(&["order.placed={}"])).await;
    unset.assert_refused(2, "--publish: the environment variable OUTBOX_TOPICS must be set");
    let cli = table.cli.with_topics("order.placed=bus:shop");
    for (message, why) in [
        ("order.placed", "write TOPIC=JSON or TOPIC=@FILE"),
        ("order.paid={}", "the list of topics has no order.paid: it has order.placed"),
        ("order.placed={", "--publish: EOF"),
        ("order.placed=@/nowhere", "--publish: /nowhere"),
    ] {
        cli.run(&publishing(&[message])).await.assert_refused(2, why);
    }
    let (_other, large) = answer(&format!("\"{}\"", "x".repeat(250 * 1024)));
    let large = format!("order.placed=@{large}");
    let ran = cli.run(&[&settle[..], &["--publish", &large]].concat()).await;
    ran.assert_refused(1, "it is longer than 240 KiB");
    assert_eq!(table.record("k-1").await.state.name(), "unknown");

    table.unknown("k-2").await;
    let name = table.name("k-2");
    let settle = [&["settle", &name, "--completed", "--response", &file][..], &WHY].concat();
    let publish = ["--publish", r#"order.placed={ "n": 1.0 }"#, "--publish", "order.placed=2"];
    let ran = cli.run(&[&settle[..], &publish].concat()).await;
    assert!(
        ran.code == Some(0) && ran.stdout.contains("It publishes order.placed:\n\n{\"n\":1.0}"),
        "{ran:?}"
    );
    let record = table.record("k-2").await;
    assert!(!record.with_writes, "a late report of its rows must not be dropped");
    let waiting = table.store.undelivered(&record.key).await.expect("the store answers");
    let bodies: Vec<_> = waiting.iter().map(|message| (message.sequence, &*message.body)).collect();
    assert_eq!(bodies, [(0, r#"{"n":1.0}"#), (1, "2")]);
    // It is fenced: a second operator publishes nothing.
    assert_eq!(cli.run(&[&settle[..], &publish].concat()).await.code, Some(3));
    assert_eq!(table.store.undelivered(&record.key).await.expect("the store answers").len(), 2);
}

#[tokio::test]
async fn a_function_gets_the_payload_or_the_refusal_that_settled_it() {
    let table = table().await;
    let tenant = Tenant::parse("shop").expect("a tenant");
    let guard = Guard::new(table.store.clone(), Operation::new("ship"), tenant);
    let call = async |key: &str| {
        let lost =
            async |_, _: u8| -> Result<String, Failure> { Err(std::io::Error::other("no answer").into()) };
        guard.returns(&[key], 1, lost).await
    };
    for (key, file) in [("k-1", r#"{"payload":"label 7"}"#), ("k-2", r#"{"refusal":"no such address"}"#)] {
        assert!(matches!(call(key).await, Err(RunError::Unknown { .. })));
        let (name, before) = (format!("shop#ship#{key}"), table.items().await);
        // A function's callers could never read an HTTP answer. It is refused before anything is asked or changed.
        for wrong in [r#"{"status":201,"body":{"id":7}}"#, r#"{"status":409,"text":"sold out"}"#] {
            let (_folder, wrong) = answer(wrong);
            let settle = ["settle", &name, "--completed", "--response", &wrong];
            let ran = table.cli.run(&[&settle[..], &WHY].concat()).await;
            ran.assert_refused(2, "give `payload` or `refusal` in the file of --response");
        }
        assert_eq!(table.items().await, before);
        let (_folder, file) = answer(file);
        let settle = ["settle", &name, "--completed", "--response", &file];
        let ran = table.cli.run(&[&settle[..], &WHY].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    }
    let label = call("k-1").await;
    assert!(matches!(&label, Ok(label) if label == "label 7"), "{label:?}");
    let refused = call("k-2").await;
    assert!(matches!(&refused, Err(RunError::Refused(why)) if why == "no such address"), "{refused:?}");
    let shown = table.cli.json(&["show", "shop#ship#k-1"]).await;
    assert_eq!(shown["record"]["answer_kind"], "function", "{shown}");
    let ran = table.cli.run(&["show", "shop#ship#k-1"]).await;
    let kind = ran.stdout.lines().find(|line| line.trim_start().starts_with("answer kind"));
    assert!(kind.is_some_and(|line| line.ends_with("function")), "{ran:?}");
}

#[tokio::test]
async fn a_request_is_not_settled_with_a_functions_answer() {
    let table = table().await;
    table.unknown("k-1").await;
    let (name, before) = (table.name("k-1"), table.items().await);
    for wrong in [r#"{"payload":{"id":7}}"#, r#"{"refusal":"sold out"}"#] {
        let (_folder, wrong) = answer(wrong);
        let settle = ["settle", &name, "--completed", "--response", &wrong];
        let ran = table.cli.run(&[&settle[..], &WHY].concat()).await;
        ran.assert_refused(2, "give `status` in the file of --response");
    }
    assert_eq!(table.items().await, before);
    let shown = table.cli.json(&["show", &name]).await;
    assert_eq!(shown["record"]["answer_kind"], "http", "{shown}");
}
