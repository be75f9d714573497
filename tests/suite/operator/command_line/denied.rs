//! `settle --denied`: only what the provider has denied since it was held is released.

use std::time::Duration;

use lambda_idempotency::record::{Note, Record, SettledBy, State};
use serde_json::json;

use super::{
    WHY, table,
    table::{OperatorsTable, now, own},
};

/// What a record says after the provider has denied its effect.
pub const DENIED: &str = "an effect was reported, and the provider denies it";

const NOT_FOUND: &str = "an effect was reported, and the provider does not find it";

/// A record that an operator holds with this reason, and what it says since the provider was asked.
pub async fn held(table: &OperatorsTable, key: &str, reason: &str, note: Option<&str>) -> Record {
    table.released(own(key), SettledBy::Worker, Duration::from_secs(60)).await;
    let ran = table.cli.run(&["hold", &table.name(key), "--yes", "--reason", reason]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    if let Some(note) = note {
        table.replace(Record { note: Some(Note::new(note)), ..table.record(key).await }).await;
    }
    table.record(key).await
}

const SETTLE: [&str; 4] = ["settle", "--denied", "--not-executed", "--overrule-effect"];

// T53: what the provider did not deny, its retry would do again.
#[tokio::test]
async fn only_what_the_provider_denied_since_the_hold_is_released() {
    let table = table().await;
    held(&table, "denied", "INC-17", Some(DENIED)).await;
    held(&table, "of another incident", "INC-16", Some(DENIED)).await;
    held(&table, "away", "INC-17", Some("an operator holds it, and the provider has not answered")).await;
    held(&table, "unasked", "INC-17", None).await;
    let reported = held(&table, "reported", "INC-17", Some(DENIED)).await;
    let alarms = table.alarmed("alarmed").await.alarms;
    table.replace(Record { alarms, ..reported }).await;
    table.unknown("unknown").await;

    let settle = [&SETTLE[..], &["--held", "INC-17", "--operation", "create-payment"]].concat();
    table.cli.run(&[&settle[..], &["--reason", "x"]].concat()).await.assert_refused(2, "--yes");
    let settled = table.cli.json(&[&settle[..], &WHY].concat()).await;
    assert_eq!((&settled["settled"], &settled["records"][0]["was"]["key"]), (&json!(1), &json!("denied")));
    let mut stays: Vec<_> = settled["not_settled"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["record"]["key"].as_str().unwrap(), one["why"].as_str().unwrap()))
        .collect();
    stays.sort_unstable();
    assert_eq!(stays.iter().map(|(key, _)| *key).collect::<Vec<_>>(), ["away", "reported", "unasked"]);
    assert!(stays[0].1.contains("has not answered") && stays[1].1.contains("refused_rows"), "{stays:?}");
    assert_eq!(stays[2].1, "the provider was not asked since");
    assert_eq!(table.record("denied").await.state.name(), "failed_retryable");
    for key in ["of another incident", "away", "unasked", "reported"] {
        assert!(table.record(key).await.is_held(), "{key}");
    }
    let audit = table.cli.json(&["show", &table.name("denied")]).await["audit"][1].clone();
    assert_eq!((&audit["what"], &audit["reason"]), (&json!("settle-not-executed"), &json!(WHY[2])));

    // The operator clears the alarm, and the denial with it: it may be older than the report.
    let clear = ["clear-alarms", &table.name("reported")];
    assert_eq!(table.cli.run(&[&clear[..], &WHY].concat()).await.code, Some(0));
    let again = table.cli.json(&[&settle[..], &WHY].concat()).await;
    assert_eq!(again["settled"], 0, "{again}");
    assert!(matches!(table.record("reported").await.state, State::Unknown { .. }));
}

// T53, T40: during an incident the provider does not find what it did.
#[tokio::test]
async fn what_was_not_found_before_the_switch_was_on_stays_held() {
    let table = table().await;
    let not_found = async |key: &str| {
        let held = held(&table, key, "INC-17", Some(NOT_FOUND)).await;
        let State::Unknown { cause, since, reconcile_at, asked, .. } = held.state else { panic!("{held:?}") };
        let anew_at = Some(now());
        let state = State::Unknown { cause, since, reconcile_at, asked, anew_at };
        table.replace(Record { state, ..held }).await;
    };
    let settle = async || table.cli.json(&[&SETTLE[..], &WHY].concat()).await;
    not_found("k-1").await;
    assert_eq!(settle().await["settled"], 1, "it was never switched off");
    not_found("k-2").await;
    for to in ["off", "on"] {
        let switch = ["not-found-releases", to];
        assert_eq!(table.cli.run(&[&switch[..], &WHY].concat()).await.code, Some(0));
        let settled = settle().await;
        let why = settled["not_settled"][0]["why"].as_str().unwrap_or_default();
        assert!(settled["settled"] == 0 && why.contains("ask again"), "{to}: {settled}");
    }
    // What it denies in as many words counts, whatever the switch says.
    held(&table, "k-3", "INC-17", Some(DENIED)).await;
    assert_eq!(settle().await["settled"], 1);
    // The provider's own report, which came since, is stronger.
    let held = held(&table, "k-4", "INC-17", Some(DENIED)).await;
    table.replace(Record { effect_id: Some(Note::new("ch_1")), ..held }).await;
    assert_eq!(settle().await["settled"], 0);
}

#[tokio::test]
async fn releases_of_denied_records_must_be_asked_for_in_full() {
    let table = table().await;
    for wrong in [
        &["settle", "--denied", "--not-executed"][..],
        &["settle", "--denied", "--overrule-effect"],
        &["settle", "acme#create-payment#k", "--denied", "--not-executed", "--overrule-effect"],
        &["settle", "acme#create-payment#k", "--not-executed", "--held", "INC-17"],
    ] {
        let ran = table.cli.run(&[wrong, &WHY].concat()).await;
        assert_eq!(ran.code, Some(2), "{wrong:?}: {ran:?}");
    }
}
