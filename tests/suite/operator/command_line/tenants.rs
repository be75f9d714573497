//! `tenant`: what operators set for tenants, with an audit line for each change.

use serde_json::{Value, json};

use super::{TENANT, WHY, table};

const STOP: [&str; 3] = ["tenant", "stop", "acme"];

fn with_why<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [command, &WHY].concat()
}

#[tokio::test]
async fn an_operator_stops_a_tenant_and_lets_it_go_on() {
    let table = table().await;
    let cli = &table.cli;
    assert!(cli.run(&["tenant", "show"]).await.stdout.starts_with("None:"));
    cli.run(&with_why(&["tenant", "resume", "acme"])).await.assert_refused(3, "it is so already");
    let ran = cli.run(&with_why(&STOP)).await;
    assert!(
        ran.code == Some(0) && ran.stdout.contains("nothing new begins, accepted work is executed"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("Done: stop \"acme\", with an audit line by olga@"), "{ran:?}");
    cli.run(&with_why(&STOP)).await.assert_refused(3, "it is so already");
    let done = cli.json(&with_why(&["tenant", "stop", "acme", "--work"])).await;
    assert_eq!((&done["before"]["stop"], &done["after"]["stop"]), (&json!("new"), &json!("new_and_work")));
    // It is no weaker by that.
    cli.run(&with_why(&STOP)).await.assert_refused(3, "it is so already");
    let all = cli.json(&["tenant", "show"]).await;
    assert_eq!(all, json!([{ "tenant": "acme", "rule": { "stop": "new_and_work", "limits": {} } }]));
    assert_eq!(cli.run(&with_why(&["tenant", "resume", "acme"])).await.code, Some(0));
    assert_eq!(cli.json(&["tenant", "show"]).await, json!([]));
    let audit = cli.json(&["tenant", "show", "acme"]).await["audit"].take();
    let what: Vec<_> = audit.as_array().unwrap().iter().map(|line| line["what"].clone()).collect();
    assert_eq!(what, ["stop \"acme\"", "stop --work \"acme\"", "resume \"acme\""]);
}

#[tokio::test]
async fn a_limit_replaces_the_programs_until_it_is_taken_away() {
    let table = table().await;
    let cli = &table.cli;
    let limit = ["tenant", "limit", "acme", "create-payment"];
    let none = [&limit[..], &["--none"]].concat();
    let nothing = cli.run(&with_why(&limit)).await;
    assert!(nothing.code == Some(2) && nothing.stderr.contains("--none"), "{nothing:?}");
    cli.run(&with_why(&none)).await.assert_refused(3, "it is so already");
    let set = [&limit[..], &["--new-keys", "100/min+50", "--open-records", "7"]].concat();
    assert_eq!(cli.run(&with_why(&set)).await.code, Some(0));
    let rule = cli.json(&["tenant", "show", "acme"]).await["rule"].take();
    let limits = json!({ "create-payment": { "new_keys": "100/min+50", "open_records": 7 } });
    assert_eq!(rule, json!({ "stop": null, "limits": limits }));
    let shown = cli.run(&["tenant", "show", "acme"]).await.stdout;
    assert!(shown.contains("create-payment: new keys 100/min+50, open records 7"), "{shown}");
    // A stop leaves it as it is.
    assert_eq!(cli.run(&with_why(&STOP)).await.code, Some(0));
    assert_eq!(cli.json(&["tenant", "show", "acme"]).await["rule"]["limits"], limits);
    // What is not named stays.
    let more = [&limit[..], &["--open-records", "8"]].concat();
    assert_eq!(cli.run(&with_why(&more)).await.code, Some(0));
    let limits = json!({ "create-payment": { "new_keys": "100/min+50", "open_records": 8 } });
    assert_eq!(cli.json(&["tenant", "show", "acme"]).await["rule"]["limits"], limits);
    assert_eq!(cli.run(&with_why(&none)).await.code, Some(0));
    assert_eq!(cli.json(&["tenant", "show", "acme"]).await["rule"]["limits"], json!({}));
}

#[tokio::test]
async fn a_tenants_page_has_its_own_records_and_lines_alone() {
    let table = table().await;
    let cli = &table.cli;
    for key in ["k-1", "k-2"] {
        table.unknown(key).await;
    }
    table.completed("k-3", "{}").await;
    // Names that could look like another's lines.
    let hostile = [TENANT, "other", "other create-payment", "other\" x", "%23#'\u{202e}"];
    for name in hostile {
        assert_eq!(cli.run(&with_why(&["tenant", "stop", name])).await.code, Some(0), "{name:?}");
    }
    for name in hostile {
        let shown = cli.json(&["tenant", "show", name]).await;
        let lines = shown["audit"].as_array().map_or(0, Vec::len);
        let open = if name == TENANT { 2 } else { 0 };
        assert_eq!((lines, &shown["open_records"]), (1, &Value::from(open)), "{name:?}");
    }
    assert!(!cli.run(&["tenant", "show"]).await.stdout.contains('\u{202e}'));
}
