//! `not-found-releases`: shown, switched if it is as it was shown, with an audit line.

use lambda_idempotency::{operator::Operator, store::Unsettled};
use serde_json::{Value, json};

use super::{WHY, table};
use crate::support::guarded::fresh;

// T50
#[tokio::test]
async fn an_operator_switches_releases_off_and_on_and_sees_who_did() {
    let table = table().await;
    let is = async || table.cli.json(&["not-found-releases"]).await;
    assert_eq!(is().await, json!({ "is": "on", "switched": null, "audit": [] }));
    let off = ["not-found-releases", "off"];
    table.cli.run(&[&off[..], &["--reason", "x"]].concat()).await.assert_refused(2, "--yes");
    assert!(table.items().await.is_empty());
    let ran = table.cli.run(&[&off[..], &WHY].concat()).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("on → off, with an audit line by olga@"), "{ran:?}");
    assert!(ran.stdout.contains("lets no retry run"), "its plan: {ran:?}");
    table.cli.run(&[&off[..], &WHY].concat()).await.assert_refused(3, "it is off already");

    let switched = is().await;
    assert_eq!((&switched["is"], &switched["switched"]["reason"]), (&json!("off"), &json!(WHY[2])));
    assert!(switched["switched"]["who"].as_str().unwrap().starts_with("olga@"), "{switched}");
    let on = ["not-found-releases", "on", "--as", "kim", "--yes", "--reason", "it is over"];
    let done = table.cli.json(&on).await;
    assert_eq!((&done["before"], &done["after"]["is"]), (&json!("off"), &json!("on")));
    let audit = is().await["audit"].take();
    let said =
        |name: &str| audit.as_array().unwrap().iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(said("what"), ["not-found-releases off", "not-found-releases on"]);
    assert_eq!((said("reason"), &said("who")[1]), (vec![json!(WHY[2]), json!("it is over")], &json!("kim")));
    let shown = table.cli.run(&["not-found-releases"]).await.stdout;
    assert!(shown.contains("it is over") && shown.contains("not-found-releases off by olga@"), "{shown}");
}

#[tokio::test]
async fn lists_say_that_it_is_off_and_show_no_record_more() {
    let table = table().await;
    table.unknown("k-1").await;
    let listed = async || table.cli.run(&["list", "--output", "json"]).await;
    let before = listed().await;
    table.cli.run(&[&["not-found-releases", "off"][..], &WHY].concat()).await;
    let after = listed().await;
    assert_eq!((after.code, &after.stdout), (Some(0), &before.stdout));
    assert!(after.stderr.contains("`not-found-releases` is off since"), "{after:?}");
    assert!(after.stderr.contains("by olga@") && after.stderr.contains(WHY[2]), "{after:?}");
    for scan in [["list", "--state", "stale"], ["list", "--released", "--limit=9"]] {
        let scanned = table.cli.run(&[&scan[..], &["--output", "json"]].concat()).await;
        let none: Value = serde_json::from_str(&scanned.stdout).unwrap();
        assert_eq!((scanned.code, none), (Some(0), json!([])), "{scan:?}");
    }
    let swept = table.cli.run(&[&["sweep", "--output", "json"][..], &WHY].concat()).await;
    let swept: Value = serde_json::from_str(&swept.stdout).unwrap();
    assert_eq!((&swept["lease_expired"], &swept["unreadable"]), (&json!(0), &json!(0)));
}

// Two operators: the second has seen what the first has changed since.
#[tokio::test]
async fn a_switch_that_was_changed_meanwhile_stays_as_it_is() {
    let table = table().await;
    let operator = Operator::new(table.store.clone());
    let off = operator.switch_not_found(None, false, "olga", "INC-17").await.unwrap().expect("it is new");
    assert_eq!(operator.switch_not_found(None, false, "kim", "INC-17").await.unwrap(), None);
    let on = operator.switch_not_found(Some(&off), true, "olga", "over").await.unwrap().expect("as seen");
    assert_eq!(operator.switch_not_found(Some(&off), true, "kim", "over").await.unwrap(), None);
    let (current, lines) = operator.not_found().await.unwrap();
    assert_eq!((current.as_ref(), lines), (Some(&on), vec![off.line(), on.line()]));
    // A write that is sent again.
    assert!(table.store.switch_not_found(None, &off).await.unwrap());
    assert_eq!(table.store.not_found_switch().await.unwrap(), Some(on.clone()));
    let late = lambda_idempotency::store::NotFoundSwitch { revision: fresh(), ..off };
    assert!(!table.store.switch_not_found(None, &late).await.unwrap());
}
