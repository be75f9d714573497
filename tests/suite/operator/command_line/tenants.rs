//! `tenant`: what operators set for tenants, with an audit line for each change.

use std::time::Duration;

use lambda_idempotency::{
    World,
    bounds::{Level, Rate},
    key::{OperationName, Tenant},
    store::{AuditLine, Bucket, Fill, TenantRules, Tenants},
    world::SystemWorld,
};
use serde_json::{Value, json};

use super::{TENANT, WHY, table};

const MINUTE_MICROS: u64 = 60_000_000;

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

#[tokio::test]
async fn how_full_each_bound_is_is_shown() {
    let table = table().await;
    let (cli, tenant) = (&table.cli, Tenant::parse("acme").unwrap());
    let rate = Rate::per_minute(1).burst(4);
    let now = SystemWorld.now();
    let fill = |of: &str, keys: u64| Fill {
        bucket: Bucket::name_of(of, rate),
        by: Level(keys * MINUTE_MICROS),
        from: Level(now.as_millis() * 1000 - 4 * MINUTE_MICROS),
        expires_at: now.plus(Duration::from_secs(3600)),
    };
    let (pay, ship) =
        (OperationName::parse("create-payment").unwrap(), OperationName::parse("ship").unwrap());
    let empty = cli.json(&["tenant", "show", "acme"]).await;
    assert_eq!(empty["used"], json!([]));
    table.store.fill(&tenant, &pay, &[fill("new_keys", 2)]).await.unwrap();
    table.store.fill(&tenant, &ship, &[fill("new_keys", 6), fill("accepted_bytes", 0)]).await.unwrap();
    let used = cli.json(&["tenant", "show", "acme"]).await["used"].take();
    let [paid, shipped] = &used.as_array().unwrap()[..] else { panic!("{used}") };
    let half = paid["percent_of_burst"].as_u64().unwrap();
    assert!((30..=50).contains(&half) && paid["over_for_seconds"].is_null(), "{used}");
    assert_eq!((&paid["operation"], &paid["rate"]), (&json!("create-payment"), &json!("1/min+4")));
    let over = shipped["over_for_seconds"].as_f64().unwrap();
    assert!((1.0..=120.0).contains(&over) && shipped["percent_of_burst"] == 100, "{used}");
    let shown = cli.run(&["tenant", "show", "acme"]).await.stdout;
    assert!(
        shown.contains("create-payment: new keys 1/min+4: ") && shown.contains(" % of its burst"),
        "{shown}"
    );
    assert!(shown.contains("ship: new keys 1/min+4: over for 1m"), "{shown}");
}

#[tokio::test]
async fn a_stop_is_shown_with_who_made_it() {
    let table = table().await;
    let cli = &table.cli;
    for command in [&STOP[..], &["tenant", "resume", "acme"], &STOP, &["tenant", "stop", "acme", "--work"]] {
        assert_eq!(cli.run(&with_why(command)).await.code, Some(0));
    }
    let shown = cli.json(&["tenant", "show", "acme"]).await;
    assert_eq!(shown["stopped_by"], shown["audit"][2], "since the first stop after the last resume");
    let text = cli.run(&["tenant", "show", "acme"]).await.stdout;
    assert!(text.contains("stopped since") && text.contains(", by olga@"), "{text}");
    assert_eq!(cli.run(&with_why(&["tenant", "resume", "acme"])).await.code, Some(0));
    assert_eq!(cli.json(&["tenant", "show", "acme"]).await["stopped_by"], Value::Null);
}

#[tokio::test]
async fn an_operator_repairs_a_rule_that_cannot_be_read() {
    let table = table().await;
    let cli = &table.cli;
    let newer = json!({ "stop": "until_noon", "limits": { "create-payment": { "new_keys": "1/day" } } });
    let of = |own: &Value| TenantRules {
        revision: [7; 16].into(),
        tenants: [("acme", own), ("other", &newer)]
            .map(|(name, rule)| (name.to_owned(), serde_json::from_value(rule.clone()).unwrap()))
            .into(),
    };
    let line = AuditLine::new(["op", "a rule", "a test"], SystemWorld.now(), None, None);
    for (command, stop, limits) in [
        (vec!["tenant", "stop", "acme"], json!("new_and_work"), json!({})),
        (vec!["tenant", "resume", "acme"], Value::Null, json!({})),
        (
            vec!["tenant", "limit", "acme", "ship", "--open-records", "7"],
            json!("new_and_work"),
            json!({ "ship": { "open_records": 7 } }),
        ),
    ] {
        let seen = table.store.rules().await.unwrap().map(|rules| rules.revision);
        let rules = TenantRules { revision: crate::support::guarded::fresh(), ..of(&newer) };
        assert!(table.store.write_rules(seen, &rules, &line).await.unwrap());
        let shown = cli.json(&["tenant", "show", "acme"]).await["rule"].take();
        assert_eq!(shown, json!({ "stop": "new_and_work", "limits": {}, "cannot_be_read": newer }));
        let all = cli.run(&["tenant", "show"]).await.stdout;
        assert!(all.contains("cannot be read by this version"), "{all}");
        assert_eq!(cli.run(&with_why(&command)).await.code, Some(0), "{command:?}");
        let shown = cli.json(&["tenant", "show", "acme"]).await["rule"].take();
        assert_eq!(shown, json!({ "stop": stop, "limits": limits }), "{command:?}");
        let other = cli.json(&["tenant", "show", "other"]).await["rule"].take();
        assert_eq!(other["cannot_be_read"], newer, "it is as it was");
    }
}
